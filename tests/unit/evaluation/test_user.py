"""Evaluation of an environment whose user has to be asked, and that has settings of its own."""

import json
import time
from pathlib import Path

import pytest
from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, serving
from support.phone import SAYS, write_phone

from interaction.plain_text import generic
from recipe import evaluate

SPEAKS = ["--user", "kind=scripted", "--user", "lines=[My line is dead., Goodbye.]"]


@pytest.fixture
def phone(tmp_path: Path) -> Path:
    return write_phone(tmp_path)


def evaluated(phone: Path, out: Path, *more: str) -> tuple[int, list[dict], list[dict]]:
    """Exit status, stored lines, and requests to the server."""
    with serving(lambda messages: PROTOCOL.render_answer("done", "done")) as server:
        arguments = ["--endpoint", server.url, "--out", str(out), "--environment", str(phone), "--backoff", "0.01"]
        status = evaluate.main([*arguments, "--split", "report", *more])
    path = out / "episodes.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return status, lines, server.requests


def test_the_user_speaks_first_and_last_and_is_kept(phone: Path, tmp_path: Path) -> None:
    status, lines, requests = evaluated(phone, tmp_path / "out", *SPEAKS, "--option", "greeting=Be short.")
    assert status == 0 and len(lines) == 8
    for line in lines:
        episode = line["episode"]
        assert [turn["user"] for turn in episode["turns"]] == ["My line is dead."]
        assert (episode["stop_reason"], episode["outcome"]["passed"]) == ("user_stop", True)
        assert episode["options"] == {"greeting": "Be short."}
    assert all(request["messages"][0]["content"].startswith("Be short.") for request in requests)
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["user"] == {"kind": "scripted", "lines": ["My line is dead.", "Goodbye."]}
    assert settings["options"] == {"greeting": "Be short."} and len(settings["source"]["environment_sha256"]) == 64


def test_users_are_waited_for_side_by_side(phone: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    evaluated(phone, tmp_path / "out", *SPEAKS, "--user", "seconds=0.5")
    assert time.monotonic() - began < 8 * 2 * 0.5


def test_an_episode_whose_user_fails_is_lost_and_never_scored(
    phone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, _ = evaluated(phone, tmp_path / "out", "--user", "kind=scripted", "--user", "lines=[Hello.]")
    assert (status, lines) == (evaluate.LOST_STATUS, [])
    assert "the user: a scripted user has 1 lines" in capsys.readouterr().out


def test_who_plays_the_user_has_to_be_said(phone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluated(phone, tmp_path / "out")[0] == 1
    assert "say with --user" in capsys.readouterr().err


def behind(url: str, *more: str) -> list[str]:
    pairs = ["kind=endpoint", f"url={url}", "backoff=0", "attempts=2", "timeout=5", *more]
    return [word for pair in pairs for word in ("--user", pair)]


def says(messages: list[dict[str, str]]) -> str:
    return SAYS[sum(message["role"] == "assistant" for message in messages)]


def test_a_server_plays_the_user(phone: Path, tmp_path: Path) -> None:
    with serving(says) as server:
        status, lines, _ = evaluated(phone, tmp_path / "out", *behind(server.url))
    assert (status, len(lines)) == (0, 8) and len(server.requests) == 1 + 8 * 2  # and one word before the start
    assert all(line["episode"]["heard"] == list(SAYS) and line["episode"]["outcome"]["passed"] for line in lines)


def test_a_fault_of_the_users_server_once_changes_nothing(phone: Path, tmp_path: Path) -> None:
    for number, fault in enumerate((429, None, b"{")):
        with serving(says, ["none", fault]) as server:
            status, lines, _ = evaluated(phone, tmp_path / str(number), *behind(server.url))
        assert (status, len(lines)) == (0, 8) and len(server.requests) == 1 + 8 * 2 + 1


def test_a_server_that_stops_playing_the_user_or_talks_nonsense_loses_episodes_and_scores_none(
    phone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, play, faults, said in (
        ("gone", says, ["none"] + [503] * 1000, "gave no words in 2 attempts"),
        ("nonsense", lambda _: "???", [], "the user: the user says no sentence"),
    ):
        with serving(play, faults) as server:
            status, lines, _ = evaluated(phone, tmp_path / name, *behind(server.url))
        assert (status, lines) == (evaluate.LOST_STATUS, [])
        assert said in capsys.readouterr().out


def test_a_server_that_is_not_there_is_said_before_anything_is_played(
    phone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, requests = evaluated(phone, tmp_path / "out", *behind("http://127.0.0.1:9/v1"))
    assert (status, lines, requests) == (1, [], []) and not (tmp_path / "out").exists()
    assert "interaction.user.url" in capsys.readouterr().err


def test_neither_side_can_forge_a_turn_of_the_other(phone: Path, tmp_path: Path) -> None:
    forging = PROTOCOL.render_answer("done", ECHO)
    with serving(lambda messages: [ECHO, SAYS[1]][len(messages) > 2]) as user, serving(lambda _: forging) as agent:
        given = ["--endpoint", agent.url, "--out", str(tmp_path / "out"), "--environment", str(phone)]
        assert evaluate.main([*given, "--split", "report", *behind(user.url)]) == 0
        requests = [*user.requests, *agent.requests]
    sent = [message["content"] for request in requests for message in request["messages"]]
    assert sum("Forget it" in text for text in sent) >= 8 * 3
    assert all(generic(text) == text for text in sent)
