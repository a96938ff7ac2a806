"""A user who says what was said before: in a file of lines, in the episodes of an evaluation, in those of a run."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.evaluation import PROTOCOL, serving
from support.phone import SAYS, write_phone

from interaction import Conversation, EpisodeRecord
from interaction.environment import AskUser, load_tasks, register
from interaction.users import UserFault, make_user, replay
from recipe import evaluate


def say(file: Path, **ask: Any) -> str:
    user = make_user({"kind": "replay", "file": str(file)})
    assert user is not None
    return asyncio.run(user.say(AskUser((), **{"task_id": "phone_0", **ask})))


def written(path: Path, *lines: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


LINES = {"task_id": "phone_0", "lines": list(SAYS)}


def test_lines_are_said_in_order_by_task(tmp_path: Path) -> None:
    file = written(tmp_path / "lines.jsonl", LINES, {"task_id": "phone_1", "lines": ["Other."]})
    assert [say(file, heard=number) for number in (0, 1)] == list(SAYS)
    assert say(file, task_id="phone_1") == "Other."


def test_a_task_without_lines_and_one_line_more_are_faults_of_the_user(tmp_path: Path) -> None:
    file = written(tmp_path / "lines.jsonl", LINES)
    with pytest.raises(UserFault, match="no lines of the task 'phone_9'"):
        say(file, task_id="phone_9")
    with pytest.raises(UserFault, match="2 lines of 'phone_0' and was asked for one more"):
        say(file, heard=2)


DAMAGED = [
    *(b'{"task_id": "a", "li', b"\n", b"[]", b'{"lines": ["a"]}', b'{"task_id": "a"}', b"[" * 100_000),
    *(b'{"task_id": "a", "lines": [1]}', b'{"task_id": "a", "lines": "abc"}', b'{"task_id": "\xff", "lines": []}'),
    b'{"task_id": "a", "lines": [], "line": 3}',
    b'{"task_id": "a", "episode": {}}',
    b'{"task_id": "a", "episode": 3}',
    b'{"task_id": "a", "episode": {"heard": "abc", "turns": []}}',
]


def test_a_damaged_line_is_named_with_what_was_expected(tmp_path: Path) -> None:
    for number, damage in enumerate(DAMAGED):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(json.dumps(LINES).encode() + b"\n" + damage + b"\n")
        with pytest.raises(ValueError, match="kind=replay") as error:
            make_user({"kind": "replay", "file": str(file)})
        assert f"{file} line 2 holds no recording" in str(error.value) and replay.EXPECTED in str(error.value), damage
        assert "\n" not in str(error.value) and len(str(error.value)) < 700
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "No such file"), ("empty", "no files of episodes")):
        with pytest.raises(ValueError, match=words):
            make_user({"kind": "replay", "file": str(tmp_path / name)})


def test_a_record_says_what_was_heard_and_is_read_back(tmp_path: Path) -> None:
    phone = write_phone(tmp_path)
    register({phone.stem: str(phone)})
    with Conversation(load_tasks(phone.stem)["phone_0"], PROTOCOL) as conversation:
        asked = conversation.begin().ask
        assert asked is not None and (asked.task_id, asked.heard) == ("phone_0", 0)
        conversation.hear(SAYS[0])
        asked = conversation.reply(PROTOCOL.render_answer("a", "done")).ask
        assert asked is not None and (asked.task_id, asked.heard) == ("phone_0", 1)
        conversation.hear(SAYS[1])
        record = conversation.record()
    data = json.loads(json.dumps(record.to_dict()))
    assert data["heard"] == list(SAYS) and EpisodeRecord.from_dict(data) == record
    written(tmp_path / "new" / "episodes.jsonl", {"task_id": "phone_0", "sample": 0, "episode": data})
    assert say(tmp_path / "new" / "episodes.jsonl", heard=1) == SAYS[1]
    rollouts = tmp_path / "run" / "stage" / "rollouts" / "train" / "000001.jsonl"
    written(rollouts, {"step": 1, "task_id": "phone_0", "score": 1.0, "episode": data})
    assert say(tmp_path / "run", heard=1) == SAYS[1]


def test_an_evaluation_is_played_again_against_the_words_of_another(tmp_path: Path) -> None:
    phone = write_phone(tmp_path)

    def played(out: Path, *user: str) -> list[dict[str, Any]]:
        with serving(lambda messages: PROTOCOL.render_answer("done", "done")) as server:
            given = ["--endpoint", server.url, "--out", str(out), "--environment", str(phone), "--split", "test"]
            assert evaluate.main([*given, *(word for pair in user for word in ("--user", pair))]) == 0
        return [json.loads(line)["episode"] for line in (out / "episodes.jsonl").read_text().splitlines()]

    first = played(tmp_path / "first", "kind=scripted", "lines=[My line is dead., Goodbye.]")
    for name, file in (("folder", tmp_path / "first"), ("file", tmp_path / "first" / "episodes.jsonl")):
        second = played(tmp_path / name, "kind=replay", f"file={file}")
        assert [episode["heard"] for episode in second] == [episode["heard"] for episode in first] == [list(SAYS)] * 8
        assert all(episode["outcome"]["passed"] for episode in second)
