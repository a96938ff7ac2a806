"""StepTool's files through the command: what becomes of each row, and what is said of each mistake."""

import csv
import io
import json
import os
import shutil

import pyarrow.parquet as pq
import pytest
from support.control_tokens import QWEN, tokenizer_with

from data_prep.__main__ import main
from data_prep.rows import SFT_SCHEMA
from data_prep.steptool.trajectories import TRAJECTORY_SCHEMA
from recipe.offline.conversations import read_conversations

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


def sft_json(*instances, query="10012"):
    return json.dumps({query: {"cnt": len(instances), "instances": instances}})


def instance(name="Step 2: Will it rain?", talk=TALK):
    return {"id": name, "conversations": talk}


def changed(place, **fields):
    """The instance, one message of it changed."""
    return instance(talk=[*TALK[:place], TALK[place] | fields, *TALK[place + 1 :]])


@pytest.fixture
def convert(tmp_path, capsys, monkeypatch):
    """Runs the command on a text or bytes; status, errors, rows as Arrow has them, and the manifest."""
    monkeypatch.setattr("data_prep.steptool.convert.BATCH", 1)

    def run(content, *arguments):
        source, out = tmp_path / "file.txt", tmp_path / "out"
        source.write_bytes(content if isinstance(content, bytes) else content.encode())
        shutil.rmtree(out, ignore_errors=True)
        status = main(["--steptool", str(source), "--out", str(out), *arguments])
        said = capsys.readouterr().err
        if status:
            assert not out.exists() and said.startswith("data_prep: "), "nothing is written"
            return status, said, None, None
        manifest = json.loads((out / "manifest.json").read_text())
        return status, said, pq.read_table(out / next(iter(manifest["files"]))), manifest

    return run


def test_a_row_of_the_csv_becomes_a_trajectory(convert):
    over_lines = f"[\n{PROMPTS[0]!r},\r\n]"
    _, _, table, manifest = convert(step_csv(ROW, (over_lines, RESPONSES[1:], [0])))
    assert list(manifest["files"]) == ["trajectories.parquet"] and table.schema == TRAJECTORY_SCHEMA
    first, second = table.to_pylist()
    assert [tuple(step.values()) for step in first["steps"]] == [*zip(*ROW, strict=True)]
    assert (first["source_row"], second["source_row"], first["steps_dropped"]) == (1, 2, 0)
    assert second["steps"][0]["reward"] == 0.0
    assert first["query_id"] == second["query_id"], "the same first prompt is the same query"
    (third,) = convert(step_csv(("7", *ROW[::-1]), header=("query_id", "reward", "response", "prompt")))[2].to_pylist()
    assert (third["query_id"], third["steps"]) == ("7", first["steps"])


def test_an_instance_of_the_json_becomes_a_conversation_in_the_words_of_the_protocol(convert, tmp_path):
    _, _, table, manifest = convert(sft_json(instance(), instance("Step 1", TALK[:4])))
    assert list(manifest["files"]) == ["sft_train.parquet"] and table.schema == SFT_SCHEMA
    first, second = table.to_pylist()
    roles = ["system", "user", "user", "assistant", "user", "assistant"]
    assert [message["role"] for message in first["messages"]] == roles
    assert [message["content"] for message in first["messages"]] == [item["value"].strip() for item in TALK]
    assert second["messages"] == first["messages"][:4]
    assert (first["task_id"], second["task_id"]) == ("10012/Step 2: Will it rain?", "10012/Step 1")
    assert (first["query_id"], second["query_id"]) == ("10012", "10012")
    assert read_conversations([str(tmp_path / "out/sft_train.parquet")])


RUN = "[__import__('os').mkdir('ran')]"
NO_TEXTS = ("[f'{1}', 'c']", "['a', 'b'] + ['c']", "['a', 'b'", "('a', 'b')", "['\\x4', 'b']", "[" * 10**5, RUN)
BAD_CELLS = {
    "prompt": (RUN, "[]", ["a", ""], "['\0', 'b']"),
    "response": (*NO_TEXTS, "[b'a', 'c']", "[['a'], 'c']", "[1, 2]", "['a', ' \\n']", "['a', '\\ud800']"),
    "reward": ("[0.5, __import__('os').mkdir('ran')]", "[nan, 1.0]", "", "[1e999, 1]", ["1", "2"], [True, 1]),
    "values": ((PROMPTS, RESPONSES, [1.0]),),
    "columns": ((PROMPTS, "x" * 1_000_001, [1.0]), (PROMPTS, RESPONSES), (*ROW, "4"), ()),
}


def test_each_mistake_in_a_row_of_the_csv_is_named_and_can_be_left_out(convert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns, bad = ("prompt", "response", "reward"), []
    for field, cells in BAD_CELLS.items():
        for cell in cells:
            row = cell if field not in columns else {**dict(zip(columns, ROW, strict=True)), field: cell}.values()
            bad.append((field, [*row]))
    text = step_csv(ROW, *(row for _, row in bad), ROW)
    status, error, *_ = convert(text)
    lines = error.splitlines()
    assert status == 1 and "Nothing was written" in lines[-1] and "--skip-bad" in lines[-1]
    assert "file.txt, row 2, prompt: " in lines[0] and all(len(line) < 500 for line in lines)
    _, _, table, manifest = convert(text, "--skip-bad")
    assert table["source_row"].to_pylist() == [1, len(bad) + 2]
    for number, (field, row) in enumerate(bad, start=2):
        assert any(line.startswith(f"row {number}, {field}") for line in manifest["left_out"]), row
    assert not os.path.exists("ran")
    good = step_csv(ROW).encode()
    row = good.split(b"\r\n", 1)[1]
    broken = good + row.replace(b"weather", b"w\xe9ather", 1) + row.replace(b'"[', b'"["x', 1) + row
    _, _, table, manifest = convert(broken, "--skip-bad")
    assert [line[:10] for line in manifest["left_out"]] == ["row 2, res", "row 3, col"]
    assert table["source_row"].to_pylist() == [1, 4]


BAD_INSTANCES = [
    *((changed(place, **{"from": "system"}), f"conversations: message {place}") for place in (1, 2, 5)),
    (changed(0, **{"from": "gpt"}), "conversations.0.from"),
    (changed(2, **{"from": "function"}), "conversations: message 2"),
    (changed(4, **{"from": "assistant", "value": CALL}), "conversations: message 4"),
    (instance(talk=TALK[3:]), "conversations: message 0"),
    *((changed(1, value=value), "conversations.1.value") for value in ("", 5, "\ud800")),
    (changed(3, value="I will look."), "conversations: message 3: not in the form of toolbench: missing_action"),
    *((instance(talk=talk), "conversations: does not end") for talk in (TALK[:5], [])),
    *((bad, "conversations") for bad in (instance(talk=["x"]), {"id": "x"})),
    *((instance(name=name), "id") for name in ("", 7)),
    ([1], "values"),
]


def test_each_mistake_in_an_instance_or_a_query_is_named_and_can_be_left_out(convert):
    text = sft_json(instance("good"), *(bad for bad, _ in BAD_INSTANCES), instance("too"))
    status, error, *_ = convert(text)
    assert status == 1 and f"query '10012', instances[1], {BAD_INSTANCES[0][1]}" in error
    _, _, table, manifest = convert(text, "--skip-bad")
    assert table["task_id"].to_pylist() == ["10012/good", "10012/too"]
    for number, (_, what) in enumerate(BAD_INSTANCES, start=1):
        start = f"query '10012', instances[{number}], {what}"
        assert any(line.startswith(start) for line in manifest["left_out"]), what
    duplicate = f'{{"1": {{"instances": [{json.dumps(instance())}], "instances": []}}}}'
    for text in (sft_json(), '{"1": 5}', duplicate, sft_json(instance(), query="")):
        assert convert(text)[0] == 1


def test_a_file_of_another_form_is_refused_in_one_line(convert):
    header = step_csv(ROW).split("\n", 1)[0]
    for content in (
        *(" \n\n", header.replace("\t", ","), header.replace("response", "answer"), '"prompt\tresponse\n', header),
        *("{", '{"1": ' + "[" * 100_000, f"[{sft_json(instance())}]", b"\xff\xfe{\x00"),
    ):
        status, error, *_ = convert(content)
        assert status == 1 and error.count("\n") == 1 and "file" in error and len(error) < 500


def test_steps_that_do_not_fit_are_dropped_whole_from_the_end_and_counted(convert, tmp_path):
    tokenizer, folder = tokenizer_with(QWEN), str(tmp_path / "model")
    tokenizer.save_pretrained(folder)

    def tokens(*texts):
        return sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)

    first, whole = tokens(PROMPTS[0], RESPONSES[0]), tokens(*PROMPTS, *RESPONSES)
    for limit, left in ((whole, 2), (whole - 1, 1), (first, 1), (first - 1, 0)):
        text = step_csv(ROW, (["a"], ["b"], [1.0]))
        _, _, table, manifest = convert(text, "--max-context", str(limit), "--tokenizer", folder)
        rows = table.to_pylist()
        assert [len(row["steps"]) for row in rows] == ([left, 1] if left else [1])
        assert rows[0]["steps_dropped"] == (2 - left if left else 0)
        assert manifest["too_long"] == ([] if left else ["row 1"]) and manifest["shortened"] == (left == 1)
    longest = tokens(RESPONSES[0])
    assert longest < tokens(RESPONSES[1])
    table = convert(step_csv(ROW), "--max-response", str(longest), "--tokenizer", folder)[2]
    assert len(table["steps"][0]) == 1
    swapped = step_csv((PROMPTS, RESPONSES[::-1], ROW[2]))
    assert convert(swapped, "--max-response", str(longest), "--tokenizer", folder)[0] == 1, "nothing after a long one"

    messages = convert(sft_json(instance()))[2].to_pylist()[0]["messages"]
    whole = tokens(tokenizer.apply_chat_template(messages, tokenize=False))
    longest = tokens(messages[-1]["content"])
    for limit, most, left in (("context", whole, 6), ("context", whole - 1, 4), ("response", longest - 1, 4)):
        table = convert(sft_json(instance()), f"--max-{limit}", str(most), "--tokenizer", folder)[2]
        assert table.to_pylist()[0]["messages"] == messages[:left]
    _, error, *_ = convert(sft_json(instance()), "--max-context", "1", "--tokenizer", folder)
    assert "no row is left; 0 mistakes, 1 too long" in error
