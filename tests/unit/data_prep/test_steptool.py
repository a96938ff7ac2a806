"""StepTool's files through the command: what becomes of each row, and what is said of each mistake."""

import ast
import copy
import csv
import hashlib
import io
import json
import os
import shutil

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.control_tokens import QWEN, tokenizer_with

from data_prep.__main__ import main
from data_prep.rows import SFT_SCHEMA
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA, trajectories
from interaction import get_protocol
from recipe.conversations import read_conversations

CALL = '\nThought: \nAction: weather\nAction Input: {"city": "Oslo"}'
DONE = '\nThought: done\nAction: Finish\nAction Input: {"return_type": "give_answer", "final_answer": "Rain."}'
PROMPTS = ['<|im_start|>system\nIt\'s "quoted"<|im_end|>\n<|im_start|>assistant\n', '{"error": "", "response": "é\\n"}']
RESPONSES = [f"{CALL}<|im_end|>\n", f"{DONE}<|im_end|>\n"]
ROW = (PROMPTS, RESPONSES, [1 / 30, 1.0])
TALK = [
    {"from": "system", "value": "Rules."},
    {"from": "user", "value": "\nWill it rain?\nBegin!\n"},
    {"from": "user", "value": "This is not the first try."},
    {"from": "assistant", "value": CALL},
    {"from": "function", "value": '{"error": "", "response": "rain"}'},
    {"from": "assistant", "value": DONE},
]


def step_csv(*rows, header=("prompt", "response", "reward")):
    """A file of rows; cells that are no texts are written as Python writes them."""
    text = io.StringIO(newline="")
    csv.writer(text, delimiter="\t").writerows([header, *rows])
    return text.getvalue()


def sft_json(*instances, query="10012", **entry):
    return json.dumps({query: {"cnt": len(instances), "instances": list(instances), **entry}})


def instance(name="Step 2: Will it rain?", talk=TALK):
    return {"id": name, "conversations": copy.deepcopy(talk)}


def changed(place, **fields):
    """The instance, one message of it changed."""
    talk = copy.deepcopy(TALK)
    talk[place] |= fields
    return instance(talk=talk)


@pytest.fixture
def convert(tmp_path, capsys):
    """Runs the command on a text or bytes; status, standard output, errors, and the files."""

    def run(content, *arguments, name="file.txt"):
        source, out = tmp_path / name, tmp_path / "out"
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        status = main(["--steptool", str(source), "--out", str(out), *arguments])
        said = capsys.readouterr()
        files = {}
        for path in sorted(out.glob("*")):
            files[path.name] = json.loads(path.read_text()) if path.suffix == ".json" else pq.read_table(path)
        return status, said.out, said.err, files

    return run


def test_a_row_of_the_csv_becomes_a_trajectory(convert, tmp_path):
    status, said, _, files = convert(step_csv(ROW, (PROMPTS[:1], RESPONSES[1:], [0])), name="wrong.json")
    assert status == 0 and "2 rows of 2" in said and list(files) == ["manifest.json", "trajectories.parquet"]
    table = files["trajectories.parquet"]
    assert table.schema == TRAJECTORY_SCHEMA
    first, second = table.to_pylist()
    assert first["steps"] == [
        {"prompt": prompt, "response": response, "reward": reward}
        for prompt, response, reward in zip(*ROW, strict=True)
    ]
    assert (first["source_row"], second["source_row"], first["steps_dropped"]) == (1, 2, 0)
    assert second["steps"][0]["reward"] == 0.0
    assert first["query_id"] == second["query_id"], "the same first prompt is the same query"
    entry = files["manifest.json"]["files"]["trajectories.parquet"]
    assert entry["sha256"] == hashlib.sha256((tmp_path / "out/trajectories.parquet").read_bytes()).hexdigest()


WRITTEN = st.lists(st.text("ab '\"\\n\n\r\té\0\U0001f600", min_size=1), min_size=1, max_size=3)


@settings(deadline=None)
@given(WRITTEN.map(repr) | st.text("[]',\" \\nrx\n\r\t0", max_size=12).map("['{}']".format))
def test_a_cell_is_read_as_python_reads_it_or_not_at_all(cell):
    row = step_csv((cell, cell, "[1.0]"))
    (found,) = trajectories(io.StringIO(row, newline=""))
    if isinstance(found, dict):
        read = [step["prompt"] for step in found["steps"]]
        assert read == ast.literal_eval(cell) == [step["response"] for step in found["steps"]]
    else:
        assert all(mistake.row == "row 1" for mistake in found)


def test_an_instance_of_the_json_becomes_a_conversation_for_the_warm_start(convert, tmp_path):
    status, said, _, files = convert(sft_json(instance(), instance("Step 1", TALK[:4])), name="wrong.csv")
    assert status == 0 and "2 rows of 2" in said and list(files) == ["manifest.json", "sft_train.parquet"]
    table = files["sft_train.parquet"]
    assert table.schema == SFT_SCHEMA
    first, second = table.to_pylist()
    assert [message["role"] for message in first["messages"]] == [
        "system",
        *["user"] * 2,
        "assistant",
        "user",
        "assistant",
    ]
    assert [message["content"] for message in first["messages"]] == [item["value"].strip() for item in TALK]
    assert second["messages"] == first["messages"][:4]
    assert (first["task_id"], second["task_id"]) == ("10012/Step 2: Will it rain?", "10012/Step 1")
    assert (first["query_id"], second["query_id"]) == ("10012", "10012")
    assert read_conversations([str(tmp_path / "out/sft_train.parquet")], "")


def test_the_models_messages_are_those_of_the_protocol(convert):
    *_, files = convert(sft_json(instance()))
    protocol = get_protocol("toolbench")
    messages = files["sft_train.parquet"].to_pylist()[0]["messages"]
    call, answer = [protocol.parse(item["content"]) for item in messages if item["role"] == "assistant"]
    assert (call.calls[0].name, call.calls[0].arguments, answer.answer) == ("weather", {"city": "Oslo"}, "Rain.")
    assert messages[4] == protocol.results(["rain"])[0]


RUN = "[__import__('os').mkdir('ran')]"
BAD_ROWS = [
    ((PROMPTS, RESPONSES, [1.0]), "steps"),
    *(((RUN, RESPONSES, ROW[2]), "prompt"), ((PROMPTS, RUN, ROW[2]), "response")),
    ((PROMPTS, RESPONSES, "[0.5, __import__('os').mkdir('ran')]"), "reward"),
    ((PROMPTS, RESPONSES, "[np.float64(1.0), 1.0]"), "reward"),
    *(((PROMPTS, cell, ROW[2]), "response") for cell in ("[f'{1}', 'c']", "[b'a', 'c']", "[['a'], 'c']", "[1, 2]")),
    *(((PROMPTS, cell, ROW[2]), "response") for cell in ("['a', 'b'] + ['c']", "['a', 'b'", "('a', 'b')")),
    *(((PROMPTS, cell, ROW[2]), "response") for cell in ("['\\x4', 'b']", "[" * 100_000, "-" * 100_000)),
    ((PROMPTS, RESPONSES, "[" + "1," * 50_000 + "]"), "reward"),
    ((PROMPTS, "x" * 1_000_001, ROW[2]), "columns"),
    *(((PROMPTS, RESPONSES, cell), "reward") for cell in (["1", "2"], [True, 1], "[nan, 1.0]", "[1.0, -inf]", "")),
    ((PROMPTS, RESPONSES, "[1e999, 1]"), "reward[0]"),
    (([], [], []), "prompt"),
    (([PROMPTS[0], ""], RESPONSES, ROW[2]), "prompt[1]"),
    ((PROMPTS, ["a", " \n"], ROW[2]), "response[1]"),
    ((PROMPTS, "['a', '\\ud800']", ROW[2]), "response[1]"),
    *(((PROMPTS, RESPONSES), "columns"), ((*ROW, "4"), "columns"), ((), "columns")),
]


def test_each_mistake_in_a_row_of_the_csv_is_named_and_can_be_left_out(convert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for row, field in BAD_ROWS:
        text = step_csv(ROW, row, ROW)
        status, said, error, files = convert(text)
        assert (status, said, files) == (1, "", {}), row
        first, last = error.splitlines()[0], error.splitlines()[-1]
        assert first.startswith(f"data_prep: {tmp_path / 'file.txt'}, row 2, {field}: ") and len(first) < 500, (
            row,
            first,
        )
        assert "of 3 rows. Nothing was written" in last and "--skip-bad" in last
        status, said, _, files = convert(text, "--skip-bad")
        assert status == 0 and f"left out: row 2, {field}: " in said
        assert files["trajectories.parquet"]["source_row"].to_pylist() == [1, 3]
        assert files["manifest.json"]["left_out"][0].startswith(f"row 2, {field}")
        shutil.rmtree(tmp_path / "out")
    assert not os.path.exists("ran")


def test_bytes_that_are_not_utf_8_and_open_quotes_cost_the_row_that_has_them(convert):
    good = step_csv(ROW).encode()
    row = good.split(b"\r\n", 1)[1]
    text = good + row.replace(b"weather", b"w\xe9ather", 1) + row.replace(b'"[', b'"["x', 1) + row
    status, _, error, _ = convert(text)
    assert status == 1 and "row 2, response: holds bytes that are not UTF-8" in error and "row 3, columns" in error
    *_, files = convert(text, "--skip-bad")
    assert files["trajectories.parquet"]["source_row"].to_pylist() == [1, 4]


BAD_INSTANCES = [
    (changed(0, **{"from": "gpt"}), "conversations[0].from", "'gpt' is no role"),
    (changed(0, **{"from": None}), "conversations[0].from", "None is no role"),
    (changed(2, **{"from": "system"}), "conversations[2].from", "at the beginning only"),
    (changed(2, **{"from": "function"}), "conversations[2].from", "follows the assistant"),
    (changed(4, **{"from": "assistant", "value": CALL}), "conversations[4].from", "follows the user or a function"),
    (instance(talk=TALK[3:]), "conversations[0].from", "follows the user or a function"),
    (changed(1, value=""), "conversations[1].value", "is empty"),
    (changed(1, value=5), "conversations[1].value", "5 is no text"),
    (changed(1, value="\ud800"), "conversations[1].value", "half of a surrogate pair"),
    (changed(3, value="I will look."), "conversations[3].value", "missing_action"),
    (changed(3, value=CALL[:-1]), "conversations[3].value", "bad_json"),
    (changed(5, value="Action: Finish\nAction Input: {}"), "conversations[5].value", "return_type"),
    (instance(talk=TALK[:5]), "conversations", "does not end with the assistant"),
    (instance(talk=[]), "conversations", "expected a list of messages"),
    (instance(talk=["x"]), "conversations[0]", "expected from and value"),
    ({"id": "x"}, "conversations", "expected a list of messages"),
    (instance(name=""), "id", "is empty"),
    (instance(name=7), "id", "7 is no text"),
    (instance(name="good"), "id", "occurs twice"),
    ([1], "id, conversations", "expected one of each"),
]


def test_each_mistake_in_an_instance_or_a_query_is_named_and_can_be_left_out(convert, tmp_path):
    for bad, field, what in BAD_INSTANCES:
        text = sft_json(instance("good"), bad, instance("too"))
        status, said, error, files = convert(text)
        assert (status, said, files) == (1, "", {})
        assert f"query '10012', instances[1], {field}: " in error and what in error and "--skip-bad" in error
        status, said, _, files = convert(text, "--skip-bad")
        assert status == 0 and f"left out: query '10012', instances[1], {field}: " in said
        assert files["sft_train.parquet"]["task_id"].to_pylist() == ["10012/good", "10012/too"]
        shutil.rmtree(tmp_path / "out")
    for text, what in (
        (sft_json(instance(), cnt=3), "cnt: is 3, and there are 1 instances"),
        (sft_json(), "instances: found"),
        ('{"1": 5}', "instances: found 5"),
        (f'{{"1": {{"instances": [{json.dumps(instance())}], "instances": []}}}}', "duplicate key"),
        (sft_json(instance(), query=""), "query '', id: is empty"),
    ):
        status, _, error, files = convert(text)
        assert status == 1 and what in error and not files


def test_a_file_of_another_form_is_refused_in_one_line(convert):
    for content, what in (
        (" \n\n", "is empty; expected"),
        ("hello", "begins with 'hello'; expected"),
        (step_csv(ROW).replace("\t", ","), "begins with 'prompt,response,reward"),
        ("prompt\tanswer\treward\n", "the columns are 'prompt, answer, reward'; expected prompt, response, reward"),
        (step_csv(ROW).split("\n", 1)[1], "the columns are"),
        ('"prompt\tresponse\n', "has no header of columns"),
        (step_csv(), "has 0 rows and none is left"),
        ("{", "is not JSON"),
        ('{"1": ' + "[" * 100_000, "is not JSON"),
        (f"[{sft_json(instance())}]", "expected an object of queries"),
        (b"\xff\xfe{\x00", "begins with"),
    ):
        status, said, error, files = convert(content)
        assert (status, said, files) == (1, "", {})
        assert error.startswith("data_prep: ") and error.count("\n") == 1 and what in error and len(error) < 500


@pytest.fixture
def model(tmp_path):
    """A folder with a tokenizer and a chat template."""
    tokenizer = tokenizer_with(QWEN)
    tokenizer.save_pretrained(tmp_path / "model")
    return tokenizer, str(tmp_path / "model")


def test_steps_that_do_not_fit_are_dropped_whole_from_the_end_and_counted(convert, model):
    tokenizer, folder = model

    def tokens(*texts):
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)

    first, whole = tokens(PROMPTS[0], RESPONSES[0]), tokens(*PROMPTS, *RESPONSES)
    for limit, left in ((whole, 2), (whole - 1, 1), (first, 1), (first - 1, 0)):
        text = step_csv(ROW, (["a"], ["b"], [1.0]))
        status, said, _, files = convert(text, "--max-context", str(limit), "--tokenizer", folder)
        rows = files["trajectories.parquet"].to_pylist()
        assert status == 0 and [len(row["steps"]) for row in rows] == ([left, 1] if left else [1])
        assert rows[0]["steps_dropped"] == (2 - left if left else 0)
        manifest = files["manifest.json"]
        assert manifest["too_long"] == ([] if left else ["row 1"]) and manifest["shortened"] == (left == 1)
        assert f"too long: {0 if left else 1} rows left out, {int(left == 1)} shortened" in said
    longest = tokens(RESPONSES[0])
    assert longest < tokens(RESPONSES[1])
    *_, files = convert(step_csv(ROW), "--max-response", str(longest), "--tokenizer", folder)
    assert len(files["trajectories.parquet"]["steps"][0]) == 1


def test_a_conversation_is_shortened_to_a_message_of_the_model(convert, model):
    tokenizer, folder = model
    *_, files = convert(sft_json(instance()))
    messages = files["sft_train.parquet"].to_pylist()[0]["messages"]
    whole = len(tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False))
    for limit, left in ((whole, 6), (whole - 1, 4)):
        *_, files = convert(sft_json(instance()), "--max-context", str(limit), "--tokenizer", folder)
        assert files["sft_train.parquet"].to_pylist()[0]["messages"] == messages[:left]
    status, _, error, _ = convert(sft_json(instance()), "--max-context", "1", "--tokenizer", folder)
    assert status == 1 and "none is left: 0 mistakes, 1 too long" in error
