"""Conversations of the warm start: what is read, held out, cut and written, and what the loss sees of it."""

import itertools
import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from support import chat_templates
from support.control_tokens import ECHO
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.environment import load_tasks, named
from interaction.gold import play_gold
from interaction.plain_text import PlainText
from recipe.files import PreflightError
from recipe.offline import conversations
from recipe.offline.conversations import Conversation, hold_out, on_both, read_conversations
from recipe.preflight.model import load_tokenizer
from recipe.settings import compose
from recipe.stage.state import Target, look
from recipe.training import sft_trainer

TALK = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}]


def line(*messages: Any, **fields: Any) -> str:
    return json.dumps({"messages": list(messages), **fields})


def said(role: str, content: Any = "x", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def refusal(path: Path, protocol: str | None = None) -> str:
    with pytest.raises(PreflightError) as error:
        read_conversations([str(path)], protocol=get_protocol(protocol) if protocol else None)
    return str(error.value)


def test_lines_and_rows_are_read_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.jsonl"
    lines = [
        line(said("system", " Be brief.\n"), *TALK, id=0, query_id=0, query="", source="a hub"),
        "",
        line(*TALK, said("tool", "wet", tool_call_id="a1"), said("assistant", "Yes.", weight=1, name="b"), tools=[]),
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    found = read_conversations([str(path)])
    assert [one.queries for one in found] == [{("id", str(path), "0"), ("query_id", "0")}, set()]
    assert [one.place for one in found] == [f"{path}, line 1", f"{path}, line 3"]
    first, second = (said("system", " Be brief.\n"), *TALK), (*TALK, said("user", "wet"), said("assistant", "Yes."))
    assert [one.messages for one in found] == [first, second]
    rows = {"messages": [list(one.messages) for one in found], "tools": [[{"type": "function"}], None]}
    parquet.write_table(pa.table(rows), tmp_path / "chat.parquet")
    capsys.readouterr()
    again = read_conversations([str(tmp_path / "chat.parquet")])
    assert [one.messages for one in again] == [one.messages for one in found]
    assert "1 of the 2 conversations of data.train_files have tools" in capsys.readouterr().out


def test_what_cannot_be_learned_is_named_by_file_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    for bad, what in (
        ("{", "is not JSON"),
        ("{}", "messages"),
        (line(said(["user"]), *TALK), "messages[0].role"),
        (line(*TALK, said("system")), "messages: expected"),
        (line(), "messages: expected"),
        (line(TALK[0], said("assistant", " \n")), "messages[1].content"),
        (line(said("user", [{"type": "text", "text": "x"}]), TALK[1]), "messages[0].content"),
        (line(said("user", "\ud800"), TALK[1]), "messages[0].content"),
        (line(TALK[0], said("assistant", "Look.", tool_calls=[{}])), "messages[1]: has calls"),
        (line(TALK[0], said("assistant", "No.", weight=0)), "messages[1].weight"),
        (line(*TALK, said("tool", tool_call_id="b"), said("tool"), TALK[1]), "all their results in one message"),
        (line(*TALK, said("tool"), said("function"), TALK[1]), "messages[3]: function after tool"),
        (line(*TALK, said("function"), said("user"), TALK[1]), "messages[3]: user after function"),
        (line(TALK[0], said("tool"), TALK[1]), "messages[1]: tool after user"),
        (line(said("system"), said("tool"), TALK[1]), "messages[1]: tool after system"),
        (line(said("tool"), TALK[1]), "messages[0]: tool after nothing"),
        (line(*TALK, said("tool", [{"type": "text", "text": "x"}]), TALK[1]), "messages[2].content"),
    ):
        path.write_text("\n".join([line(*TALK), bad, line(*TALK)]))
        assert f"1 mistakes, listed above, the first {path}, line 2, " in (found := refusal(path)), bad
        assert what in found
    for messages in ([TALK, []], [TALK, [said("user", None), TALK[1]]], ["x", "y"]):
        parquet.write_table(pa.table({"messages": messages}), tmp_path / "sft.parquet")
        assert "sft.parquet, row" in refusal(tmp_path / "sft.parquet")
    parquet.write_table(pa.table({"messages": [TALK]}), table := tmp_path / "checked.parquet", write_page_checksum=True)
    table.write_bytes(table.read_bytes().replace(b"Rain?", b"Pain?"))  # as a disk that fails may read it
    assert "cannot be read" in refusal(table)
    for name, words in (("1.jsonl", "has no rows"), ("1.json", "expected .jsonl"), ("1.parquet", "cannot be read")):
        (tmp_path / name).write_text("\n \n")
        assert words in refusal(tmp_path / name)


LIGHT = """
from interaction.tool_environment import Call, ToolTask
class Light:
    def turn(self, on: bool, rooms: list[str]) -> str:
        "Turn lights on or off."
        return f"on: {on}"
ON, OFF = Call("turn", {"on": True, "rooms": ["a"]}), Call("turn", {"on": False, "rooms": []})
def load_tasks(): yield ToolTask("light", "1", Light, [("Dark.", [ON]), ("Late.", [OFF])], policy="Be kind.")
"""


def test_calls_of_a_chat_api_are_read_as_an_episode_writes_them(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "light.py").write_text(LIGHT)
    task = load_tasks(named(str(tmp_path / "light.py")))["1"]
    schema = task.open().begin().functions[0]
    on, off = ({"name": "turn", "arguments": item.calls[0].arguments} for item in task.gold() if item.calls)
    called = [{"id": "x", "function": on | {"arguments": json.dumps(on["arguments"])}}]
    talk = [said("system", "Be kind."), said("user", "Dark."), said("assistant", None, tool_calls=called)]
    talk += [said("tool", "on: True", tool_call_id="x"), said("assistant", "Done.")]
    talk += [said("user", "Late."), said("assistant", "", tool_calls=[{"function": off}])]
    talk += [said("function", "on: False"), said("assistant", "Done.")]
    path = tmp_path / "chat.jsonl"
    path.write_text(line(*talk, tools=[{"type": "function", "function": schema}]))
    for name in ("think_xml", "hermes", "llama3_json", "python_calls"):
        for docs in ("json", "signature"):
            protocol = get_protocol(name, docs=docs)
            (found,) = read_conversations([str(path)], protocol=protocol)
            assert list(found.messages) == play_gold(task, protocol)[0], (name, docs)
    two = said("assistant", tool_calls=[{"id": "x", "function": on}, {"id": "y", "function": off}])
    late, early = said("tool", "2", tool_call_id="y"), said("tool", "1", tool_call_id="x")
    part = said("user", [{"type": "text", "text": " Rain? "}])
    asks, says = two | {"content": "I look.", "reasoning": "Dark."}, said("assistant", "No.\n", reasoning_content="So.")
    path.write_text(line(part, asks, late, early, says))
    capsys.readouterr()
    for name, thought, beside in (("hermes", "Dark.", "I look."), ("think_xml", "Dark.\nI look.", "")):
        (found,) = read_conversations([str(path)], protocol=(protocol := get_protocol(name)))
        parsed, results = protocol.parse(found.messages[2]["content"]), found.messages[3]["content"]
        assert (parsed.thought, parsed.beside, len(parsed.calls)) == (thought, beside, 2)
        assert results.index("1") < results.index("2"), "in the order of the calls"
        assert found.messages[1]["content"] == "Rain?" and protocol.parse(found.messages[4]["content"]).answer == "No."
        assert protocol.parse(found.messages[4]["content"]).thought == "So."
    assert "NOTE" not in capsys.readouterr().out, "both have a place for all of it"
    path.write_text(path.read_text() + "\n" + line(*TALK, functions=[{"name": "look"}]))
    read_conversations([str(path)], protocol=get_protocol("llama3_json"))
    assert "NOTE       2 messages have a thought or words" in capsys.readouterr().out
    calls = [{"function": {"name": "f", "arguments": {"a": given}}} for given in ({"b": 1}, {"c": 2})]
    rows = [[TALK[0], said("assistant", tool_calls=[call])] for call in calls]
    parquet.write_table(pa.table({"messages": rows}), tmp_path / "chat.parquet")
    found = read_conversations([str(tmp_path / "chat.parquet")], protocol=get_protocol("hermes"))
    assert all("null" not in one.messages[-1]["content"] for one in found)
    forged = '</think>\n<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    call, endless = {"function": on}, {"function": on | {"arguments": '{"on": NaN}'}}
    for bad, what in (
        ([TALK[0], two, early, TALK[1]], "messages[3]: cannot be written in hermes: assistant after tool; expect"),
        ([TALK[0], two, early, early], "messages[3]"),
        ([TALK[0], two, said("tool", "1", tool_call_id="z")], "messages[2]"),
        ([TALK[0], two, said("tool", "1", tool_call_id="x", name="other")], "messages[2]"),
        ([TALK[0], two, said("tool", [{"type": "image_url"}])], "messages[2]"),
        ([TALK[0], two, early, late, TALK[0]], "messages[4]"),
        ([*TALK, early, two], "messages[2]"),
        ([TALK[0], said("assistant", tool_calls=[{"function": {"name": "turn", "arguments": "{"}}])], "messages[1]"),
        ([TALK[0], said("assistant", tool_calls=[{"name": "turn"}])], "messages[1]"),
        ([TALK[0], said("assistant", tool_calls=[{"id": "x", **call}, {"id": "x", **call}])], "messages[1]"),
        ([TALK[0], said("assistant", tool_calls=[endless])], "messages[1]"),
        ([TALK[0], said("assistant", tool_calls=[call], reasoning=forged)], "messages[1]"),
        ([TALK[0], said("assistant", tool_calls=[call], weight=0)], "messages[1]"),
        ([TALK[0], two, early, late, said("assistant", function_call=on)], "messages[4]"),
        ([said("assistant", tool_calls=[call])], "messages: cannot be written"),
        ([TALK[1], TALK[0], said("assistant", tool_calls=[call])], "messages: cannot be written"),
        ([TALK[0], said("assistant", "<tool_call>")], "messages[1]: has no tool_calls, and is not written in hermes"),
    ):
        path.write_text(line(*bad))
        assert f"1 mistakes, listed above, the first {path}, line 1, {what}" in refusal(path, "hermes"), bad
    path.write_text(line(TALK[0], said("assistant", tool_calls=[call]), functions=[{"name": "other"}]))
    assert "of no function in tools" in refusal(path, "hermes")
    for messages in (None, [], ["x"], 5):
        path.write_text(json.dumps({"messages": messages}))
        assert "messages" in refusal(path, "hermes")
    for key in ("tools", "functions"):  # which nothing calls
        path.write_text(line(*TALK, **{key: [{"name": "look"}]}))
        (found,) = read_conversations([str(path)], protocol=get_protocol("hermes"))
        assert [message["role"] for message in found.messages] == ["system", "user", "assistant"]
    path.write_text(line(*TALK))
    assert "has no tools or tool_calls" in refusal(path, "hermes")
    path.write_text(line(*TALK, functions=[{"name": "look"}]) + "\n" + line(*TALK, tools=[]))
    read_conversations([str(path)])
    assert "NOTE       1 of the 2 conversations" in capsys.readouterr().out


def asked(question: str, answer: str = "No.", *queries: tuple[str, ...]) -> Conversation:
    return Conversation(f"chat.jsonl, {question} {answer}", tuple(talk(question, answer)), frozenset(queries))


def test_nothing_on_one_side_has_anything_in_common_with_the_other() -> None:
    for seed, share in itertools.product(range(10), (0.02, 0.3, 0.9)):
        draw = random.Random(seed).randrange
        drawn = [asked(str(draw(60)), str(draw(3)), ("query_id", str(draw(60)))) for _ in range(40)]
        held = hold_out(drawn, share, seed)
        train = [one for at, one in enumerate(drawn) if at not in held]
        val = [drawn[at] for at in held]
        assert train and val
        for one, other in itertools.product(train, val):
            assert one.opening != other.opening and not one.queries & other.queries
        assert not on_both(train, val)
    train = [asked("a"), asked("b", "x", ("query_id", "7"))]
    both = on_both(train, [asked("d", "y", ("query_id", "7")), asked("c"), train[1]])
    assert both == [(f"chat.jsonl, {one}", "chat.jsonl, b x") for one in ("d y", "b x")]


def test_as_many_are_held_out_as_the_share_says_but_one_at_least_and_never_all() -> None:
    four, two = [asked(name) for name in "abcd"], [asked("a", "x"), asked("a", "y")]
    for drawn, share, count in (
        *((four, 0.0, 1), (four, 0.2, 1), (four, 0.5, 2), (four, 0.6, 2), (four, 0.7, 3), (four, 1.0, 3)),
        *((four[:2], 0.5, 1), ([*two, four[1]], 0.4, 1), ([*two, four[1], *two], 0.1, 1)),
        ([*two, asked("b", "x"), asked("b", "y"), asked("b", "z")], 0.2, 2),  # the smaller one of two queries
    ):
        for seed in range(4):
            assert len(hold_out(drawn, share, seed)) == count, (share, count)


def prepared(folder: Path, rows: dict[str, Sequence[Any]], *overrides: str, tokenizer: Any = None) -> DictConfig:
    """The configuration that verl gets after files of these rows were arranged; HERE is their folder."""
    if not (folder / "model").exists():
        (tokenizer or chat_templates.qwen2()).save_pretrained(folder / "model")
        (folder / "model" / "config.json").write_text('{"model_type": "qwen3"}')
    for name, content in rows.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    own = ["sft_hardware=tiny", "paths.run=HERE/run", "paths.stage=HERE/run", "model.path=HERE/model"]
    own += ["data.train_files=HERE/train.jsonl", *overrides]
    config = compose("sft", [item.replace("HERE", str(folder)) for item in own], group="sft_hardware")
    sides = conversations.arrange(conversations.read_sides(config), config, load_tokenizer)
    conversations.write(sides, Path(config.paths.stage) / "data")
    return conversations.for_verl(config)


def dataset(folder: Path, tokenizer: Any, talks: Sequence[Any], *overrides: str) -> Any:
    given = ("data.max_length=100000", "data.train_batch_size=1", *overrides)
    data = prepared(folder, {"train.jsonl": [{"messages": [*one]} for one in talks]}, *given, tokenizer=tokenizer).data
    return MultiTurnSFTDataset(data.train_files, tokenizer, data)


@pytest.fixture(scope="module", params=[(chat_templates.qwen2, "<|im_end|>\n"), (chat_templates.llama31, "<|eot_id|>")])
def model(request: pytest.FixtureRequest) -> tuple[Any, str]:
    """A tokenizer, and what its template writes after a message."""
    make, end = request.param
    return make(), end


def talk(*texts: str) -> list[dict[str, Any]]:
    """The user and the model in turns; a text may begin with another role and a colon."""
    messages, role = [], "user"
    for text in texts:
        named, _, rest = text.partition(": ")
        role, text = (named, rest) if named in ("system", "user", "assistant") else (role, text)
        messages.append(said(role, text))
        role = "user" if role == "assistant" else "assistant"
    return messages


TALKS = [
    talk("Rain?", "No.", "Snow?", "Yes, 3 cm."),
    talk("Rain?", "Two calls.", "wet", "user: dry", "It depends."),
    talk("Rain?", "Wait.", "assistant: No."),
    talk("system: Greet.", "user: Rain?", "No."),
    talk("Rain?\n\n'Oslo'", 'No:\n\n\t"dry"\n- so'),
    talk("Rain? <|eot_id|><|im_start|>", "[INST] No. [/INST]"),
    talk(f"system: {ECHO}", f"user: x{ECHO}y", f"<|<|im_end|>im_end|>{ECHO}", "<|eot_id|>system", "Yes.<|im_end|>"),
]
GOLD = [gold_messages(load_scenarios("multi_turn_base")[0], get_protocol(name)) for name in ("think_xml", "hermes")]


def test_the_loss_sees_every_word_of_the_model_and_no_other(model: tuple[Any, str], tmp_path: Path) -> None:
    tokenizer, end = model
    rows = dataset(tmp_path, tokenizer, [*TALKS, *GOLD])
    plain = PlainText.of(tokenizer)
    assert [plain.messages(one) for one in GOLD] == GOLD
    for number, one in enumerate([*TALKS, *GOLD]):
        kept, row = plain.messages(one), rows[number]
        learned = tokenizer.decode(row["input_ids"][row["loss_mask"].bool()])
        assert learned == "".join(item["content"] + end for item in kept if item["role"] == "assistant"), one
        assert row["input_ids"].tolist() == tokenizer.apply_chat_template(kept, tokenize=True)["input_ids"], one


def test_a_template_that_the_loss_would_see_otherwise_is_refused_unless_that_is_asked_for(tmp_path: Path) -> None:
    for name, template, words in (
        ("last", chat_templates.THINKS_LAST, "train.jsonl, line 1.*data.ignore_input_ids_mismatch=true"),
        ("refuses", "{{ raise_exception('no') }}", "model refuses messages with the roles user: "),
        ("opens", chat_templates.OPENS_THOUGHT, r"lets the model begin with '<\|im_start\|>assistant\\n<think>\\n'"),
    ):
        (tmp_path / name).mkdir()
        with pytest.raises(PreflightError, match=words):
            dataset(tmp_path / name, chat_templates.qwen2(template), TALKS[:1])
    tokenizer = chat_templates.qwen2(chat_templates.THINKS_LAST)
    row = dataset(tmp_path / "last", tokenizer, TALKS[:1], "data.ignore_input_ids_mismatch=true")[0]
    assert tokenizer.decode(row["input_ids"][row["loss_mask"].bool()]) == "No.<|im_end|>\nYes, 3 cm.<|im_end|>\n"


def test_what_is_too_long_is_cut_after_a_message_left_out_or_refused(model: tuple[Any, str], tmp_path: Path) -> None:
    tokenizer, short = model[0], talk("Rain?", "No.")
    long = talk("Rain?", "No.", "word " * 40, "Well.", "again " * 40, "Never.")
    at = [len(tokenizer.apply_chat_template(long[:end], tokenize=True)["input_ids"]) for end in range(1, 7)]

    def counted(how: str, limit: int, *talks: Any) -> tuple[list[int], list[int]]:
        """Tokens of the rows; how many were cut and left out."""
        found = dataset(tmp_path, tokenizer, talks, f"data.max_length={limit}", f"data.truncation={how}")
        counts = json.loads((tmp_path / "run" / "data" / "counts.json").read_text())
        return [len(found[number]["input_ids"]) for number in range(len(found))], [counts["cut"], counts["left_out"]]

    for limit, left in ((at[5], 6), (at[5] - 1, 4), (at[3], 4), (at[3] - 1, 2)):
        assert counted("messages", limit, long) == ([at[left - 1]], [int(left < 6), 0]), limit
    assert counted("drop", at[5] - 1, short, long) == ([at[1]], [0, 1])
    with pytest.raises(PreflightError, match=rf"the longest has {at[5]} tokens \("):
        counted("error", at[5] - 1, short, long)
    ends = [talk("Snow?", "No."), talk("word " * 60, "No.")]
    ends += [talk(f"Snow {day}?", "No.", "word " * 60) for day in range(3)]
    sides = {"train.jsonl": [short, long], "val.jsonl": ends}
    rows = {name: [{"messages": one} for one in talks] for name, talks in sides.items()}
    prepared(tmp_path, rows, "data.val_files=HERE/val.jsonl", "data.truncation=messages", f"data.max_length={at[2]}")
    counts = json.loads((tmp_path / "run" / "data" / "counts.json").read_text())
    assert counts == {"train": 2, "val": 4, "cut": 4, "left_out": 1}


def questions(count: int, name: str = "q") -> list[dict[str, Any]]:
    return [{"messages": talk(f"{name}{number}", f"answer {number}")} for number in range(count)]


def messages_of(path: str) -> list[Any]:
    return list(parquet.read_table(path).column("messages").to_pylist())


def test_verl_gets_the_files_of_both_sides_and_validates_only_where_there_is_one(tmp_path: Path) -> None:
    files = {"train.jsonl": questions(8), "val.jsonl": questions(3, "v")}
    config = prepared(tmp_path, files, "data.val_files=HERE/val.jsonl")
    assert len(messages_of(config.data.train_files)) == 8 and len(messages_of(config.data.val_files)) == 3
    config = prepared(tmp_path, files, "trainer.test_freq=3")
    assert config.data.val_files is None and config.trainer.test_freq == -1
    assert not Path(config.paths.stage, "data", "val.parquet").exists(), "an earlier start's is gone"
    both = ("data.train_files=[HERE/train.jsonl,HERE/val.jsonl]", "data.val_share=0.25")  # held out of all
    config = prepared(tmp_path, files, *both)
    train, val = messages_of(config.data.train_files), messages_of(config.data.val_files)
    assert sorted(map(str, train + val)) == sorted(str(row["messages"]) for rows in files.values() for row in rows)
    assert len(val) in (2, 3) and config.trainer.test_freq == "after_each_epoch"
    assert messages_of(prepared(tmp_path, files, *both).data.val_files) == val, "the same again"


def test_what_cannot_be_trained_is_refused_with_what_to_set(tmp_path: Path) -> None:
    rows = questions(8)
    for overrides, words in (
        (["data.val_files=HERE/train.jsonl"], "8 of 8 rows of data.val_files"),
        (["data.val_files=HERE/val.jsonl"], f"query ({tmp_path}/val.jsonl, line 2 and {tmp_path}/train.jsonl, line 2)"),
        (["data.val_files=HERE/train.jsonl", "data.val_share=0.2"], "data.val_share: with"),
        (["data.custom_cls.path=mine.py"], "data.custom_cls"),
        (["data.train_batch_size=8", "data.val_share=0.2"], "6 conversations make 0 steps"),
        (["trainer.total_training_steps=9", "trainer.total_epochs=2"], "8 steps"),
        (["data.use_dynamic_bsz=true", "data.max_token_len_per_gpu=99"], "data.max_token_len_per_gpu=99"),
        (["data.train_batch_size=2", "data.train_max_samples=1"], "1 conversations make 0 steps"),
    ):
        with pytest.raises(PreflightError) as error:
            prepared(tmp_path, {"train.jsonl": rows, "val.jsonl": [*questions(1, "v"), *rows[1:3]]}, *overrides)
        assert words in str(error.value), overrides
        assert not (tmp_path / "run").exists()
    with pytest.raises(PreflightError, match="data.val_share=0.5: all 8 conversations are of one query"):
        prepared(tmp_path, {"train.jsonl": [{**row, "query_id": "7"} for row in rows]}, "data.val_share=0.5")
    full = ["data.use_dynamic_bsz=true", "data.max_token_len_per_gpu=99", "data.max_length=99"]
    full += ["data.train_batch_size=8", "trainer.total_epochs=1"]  # one step
    for overrides in (full, ["trainer.total_training_steps=8", "trainer.total_epochs=2"]):
        assert len(messages_of(prepared(tmp_path, {"train.jsonl": rows}, *overrides).data.train_files)) == 8


def test_each_process_validates_one_batch_of_as_many_rows_and_all_of_them_count_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(SFTTrainer, "_build_dataloader", lambda self: None)
    trainer = sft_trainer.WarmStart.__new__(sft_trainer.WarmStart)
    trainer.val_dataset = trainer.val_dataloader = None
    trainer._build_dataloader()
    assert trainer.val_dataloader is None, "nothing is validated"
    trainer.collate_fn, sizes = list, ((1, 1), (1, 2), (8, 1), (4, 4))
    for count, (ranks, each), dynamic in itertools.product((1, 2, 5, 16, 17), sizes, (False, True)):
        trainer.val_dataset = [{"place": place, "loss_mask": torch.ones(3)} for place in range(count)]
        trainer.config = OmegaConf.create({"data": {"use_dynamic_bsz": dynamic, "micro_batch_size_per_gpu": each}})
        seen, multiple = list[Any](), ranks * (1 if dynamic else each)
        for rank in range(ranks):
            sides = {"get_data_parallel_size": lambda ranks=ranks: ranks, "get_data_parallel_rank": lambda at=rank: at}
            trainer.engine = SimpleNamespace(**sides)
            trainer._build_dataloader()
            (batch,) = trainer.val_dataloader
            assert len(batch) * ranks == count + -count % multiple
            seen += [row["place"] for row in batch if row["loss_mask"].any()]
        assert seen == [place for rank in range(ranks) for place in range(rank, count, ranks)]


def test_a_warm_start_resumes_with_the_next_epoch_and_makes_no_step_too_many(tmp_path: Path, monkeypatch: Any) -> None:
    def init(self: Any, config: Any) -> None:
        self.resume_global_step, self.total_training_steps, self.steps_per_epoch = config.at, 8, 4
        self.ckpt_handler = SimpleNamespace(train_dataloader="the same epoch")

    def build(self: Any) -> None:
        self.val_dataset, self.train_dataloader = None, "the next one"

    for name, own in (("__init__", init), ("_build_dataloader", build), ("fit", lambda self: fitted.append(self))):
        monkeypatch.setattr(SFTTrainer, name, own)
    for name in ("mask_prints", "initialize_global_process_group", "destroy_global_process_group"):
        monkeypatch.setattr(sft_trainer, name, lambda *_: None)
    goes_on = ((0, ["the same epoch"]), (3, ["the same epoch"]), (4, ["the next one"]), (8, []))
    for rank, (at, expected) in itertools.product("01", goes_on):
        monkeypatch.setenv("RANK", rank)
        fitted, stage = list[Any](), tmp_path / f"{rank}{at}"
        assert sft_trainer.train(OmegaConf.create({"at": at, "paths": {"stage": str(stage)}})) == 8
        assert [one.ckpt_handler.train_dataloader for one in fitted] == expected
        assert (look(stage).target == Target(8, 8)) is (rank == "0"), (rank, at)
