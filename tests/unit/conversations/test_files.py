"""Conversations from files of any origin: what is read, and every mistake by file, line and field."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from recipe.conversations.files import MOST_MISTAKES, ROLES, read
from recipe.conversations.prepare import read_conversations
from recipe.errors import PreflightError
from recipe.files import Damaged

TALK = [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}]


def line(*messages: Any, **fields: Any) -> str:
    return json.dumps({"messages": list(messages), **fields})


def said(role: str, content: Any = "x", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def write(*rows: str, name: str = "chat.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("\n".join(rows) + "\n")
        return path

    return write


def refusal(*paths: Path) -> str:
    with pytest.raises(PreflightError) as error:
        read_conversations([str(path) for path in paths], "COMMAND")
    assert "\n" not in str(error.value) and len(str(error.value)) < 600
    return str(error.value)


def test_lines_of_chat_data_and_of_fine_tuning_files_are_read_as_they_are(file: Callable[..., Path]) -> None:
    path = file(
        line(said("system", " Be brief.\n"), *TALK, id=7, source="a hub"),
        "",
        line(*TALK, said("tool", "wet", tool_call_id="a1"), said("assistant", "Yes.", weight=1, name="b"), tools=[]),
        line(*TALK, said("function", "dry", name="rain"), said("assistant", "Dry.", tool_calls=None)),
    )
    found = read(path)
    assert not found.mistakes and [one.place for one in found.conversations] == [
        f"{path}, line {number}" for number in (1, 3, 4)
    ]
    first, second, third = found.conversations
    assert first.messages == (said("system", " Be brief.\n"), *TALK), "texts stay as they are"
    assert second.messages == (*TALK, said("user", "wet"), said("assistant", "Yes."))
    assert third.messages == (*TALK, said("user", "dry"), said("assistant", "Dry."))


def test_a_parquet_file_holds_the_same(file: Callable[..., Path], tmp_path: Path) -> None:
    rows = [[said("system"), *TALK], [*TALK, said("tool", "wet"), said("assistant", "Yes.")]]
    parquet.write_table(pa.table({"messages": rows, "id": [1, 2]}), tmp_path / "chat.parquet")
    lines = read(file(*(line(*row) for row in rows))).conversations
    assert [one.messages for one in read(tmp_path / "chat.parquet").conversations] == [one.messages for one in lines]


def test_a_byte_order_mark_and_both_ends_of_lines_are_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([line(*TALK), line(*TALK)]).encode())
    assert len(read(path).conversations) == 2


MISTAKES = [
    ("{", "line", "is not JSON"),
    ("[1]", "line", "expected an object"),
    ("17", "line", "expected an object"),
    ("[" * 100_000, "line", "nested too deeply"),
    ('{"a":' * 100_000, "line", "nested too deeply"),
    ('{"messages": ' + "1" * 6000 + "}", "line", "is not JSON"),
    ("{}", "messages", "expected a list"),
    (line(), "messages", "is []"),
    ('{"messages": {"role": "user"}}', "messages", "expected a list"),
    (line(*TALK * 5001), "messages", "expected at most 10000"),
    (line("hello"), "messages[0]", "expected an object"),
    (line(*TALK, None), "messages[2]", "expected an object"),
    (line(said("human"), *TALK), "messages[0].role", "'human'; expected one of system, user, assistant"),
    (line(said("developer"), *TALK), "messages[0].role", "'developer'"),
    (line({"content": "x"}, *TALK), "messages[0].role", "None"),
    (line({"role": ["user"], "content": "x"}, *TALK), "messages[0].role", "['user']"),
    (line(*TALK, said("system")), "messages[2].role", "at the beginning only"),
    (line(said("user")), "messages", "nothing to learn"),
    (line(said("system"), said("user"), said("tool")), "messages", "nothing to learn"),
    (line(*TALK[::-1]), "messages[0].role", "which it answers"),
    (line(said("user", ""), TALK[1]), "messages[0].content", "is empty"),
    (line(said("system", " \n"), *TALK), "messages[0].content", "is empty"),
    (line(TALK[0], said("assistant", "")), "messages[1].content", "is empty"),
    (line(TALK[0], said("assistant", None)), "messages[1].content", "expected a text"),
    (line(TALK[0], {"role": "assistant"}), "messages[1].content", "expected a text"),
    (line(said("user", 5), TALK[1]), "messages[0].content", "5 is no text"),
    (line(said("user", {"text": "x"}), TALK[1]), "messages[0].content", "is no text"),
    (line(said("user", [{"type": "text", "text": "x"}]), TALK[1]), "messages[0].content", "a list of parts"),
    (line(said("user", "\ud800"), TALK[1]), "messages[0].content", "half of a surrogate pair"),
    (line(TALK[0], said("assistant", None, tool_calls=[{"id": "a"}])), "messages[1].tool_calls", "as text in content"),
    (line(TALK[0], said("assistant", "Look.", tool_calls=[{}])), "messages[1].tool_calls", "as text in content"),
    (line(TALK[0], said("assistant", "", function_call={"name": "f"})), "messages[1].function_call", "as text"),
    (line(TALK[0], said("assistant", "No.", weight=0)), "messages[1].weight", "is 0; expected 1"),
]


@pytest.mark.parametrize(("bad", "field", "what"), MISTAKES)
def test_what_cannot_be_learned_is_named_by_line_and_field(
    bad: str, field: str, what: str, file: Callable[..., Path]
) -> None:
    path = file(line(*TALK), bad, line(*TALK))
    (mistake,) = read(path).mistakes
    assert str(mistake).startswith(f"{path}, line 2, {field}: ") and what in str(mistake)
    assert len(str(mistake)) < len(str(path)) + 300
    assert refusal(path).startswith(f"data.train_files: {mistake}. Mend it")


def test_all_mistakes_of_all_files_are_told_at_once_as_far_as_a_person_reads(
    file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    one = file(line(*TALK), line(said("human", ""), *TALK), name="one.jsonl")
    two = file(*[line(said("user"))] * 30, line(*TALK), name="two.jsonl")
    text = refusal(one, two)
    printed = capsys.readouterr().out.splitlines()
    assert "32 mistakes in 31 conversations, listed above" in text and len(printed) == 20
    assert printed[0] == f"MISTAKE    {one}, line 2, messages[0].role: is 'human'; expected one of {', '.join(ROLES)}"
    assert f"{one}, line 2, messages[0].content: is empty" in printed[1] and f"{two}, line 1, messages" in printed[2]


def test_a_file_of_mistakes_alone_is_not_read_to_its_end(file: Callable[..., Path]) -> None:
    assert len(read(file(*["{"] * (MOST_MISTAKES * 3))).mistakes) == MOST_MISTAKES


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([TALK, []], "row 1, messages: is []"),
        ([TALK, None], "row 1, messages: is None"),
        ([TALK, [said("user", None), TALK[1]]], "row 1, messages[0].content"),
        ([TALK, [None]], "row 1, messages[0]: is None"),
        ([[said("user")]], "row 0, messages: hold none of the assistant"),
        (["x"], "the column messages is string"),
        ([[{"role": "user"}]], "no column messages.content"),
        ([[{"role": "user", "content": 3}]], "messages.content is int64"),
        ([[{"role": "user", "content": [{"type": "text"}]}]], "messages.content is list"),
        ([], "the column messages is null"),
    ],
)
def test_so_is_a_row_of_a_parquet_file(tmp_path: Path, messages: list[Any], words: str) -> None:
    path = tmp_path / "sft.parquet"
    parquet.write_table(pa.table({"messages": messages}), path)
    text = refusal(path)
    assert words in text and str(path) in text and "COMMAND" in text


def test_a_file_without_conversations_of_another_kind_or_that_is_not_there_is_refused(
    file: Callable[..., Path], tmp_path: Path
) -> None:
    assert "has no rows" in refusal(file("", " "))
    assert "the ending '.json'; expected .jsonl or .parquet" in refusal(file("[]", name="chat.json"))
    assert "nowhere.jsonl does not exist" in refusal(tmp_path / "nowhere.jsonl")
    with pytest.raises(Damaged, match="it is a folder"):
        (tmp_path / "a.jsonl").mkdir()
        read(tmp_path / "a.jsonl")


def test_a_line_without_an_end_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import recipe.conversations.files as files
    import recipe.files

    monkeypatch.setattr(recipe.files, "LONGEST_LINE", 1000)
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    path = tmp_path / "chat.jsonl"
    path.write_text(line(*TALK) + "\n" + line(said("user", "x" * 5000), TALK[1]))
    with pytest.raises(Damaged, match="line 2 has 1000 bytes or more"):
        read(path)


def test_functions_that_stand_beside_the_messages_are_said_not_to_be_read(
    file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    tools = [{"type": "function", "function": {"name": "rain"}}]
    read_conversations([str(file(line(*TALK, tools=tools), line(*TALK)))], "COMMAND")
    assert "NOTE       1 of the 2 conversations of data.train_files have tools or functions" in capsys.readouterr().out


def test_columns_that_verl_reads_are_kept(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "rain"}}]
    table = pa.table({"messages": [TALK], "tools": [tools], "enable_thinking": [False], "other": [1]})
    parquet.write_table(table, tmp_path / "chat.parquet")
    (one,) = read(tmp_path / "chat.parquet").conversations
    assert one.kept == {"tools": tools, "enable_thinking": False}
