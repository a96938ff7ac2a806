"""Evaluation of an environment whose user has to be asked, and that has settings of its own."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, played, serving
from support.phone import SAYS, write_phone

from interaction.plain_text import generic
from recipe import evaluate

SPEAKS = ["--user", "kind=scripted", "--user", "lines=[My line is dead., Goodbye.]"]


def evaluated(folder: Path, *more: str, answer: str = "done", name: str = "out") -> SimpleNamespace:
    """The eight tasks of the phone, played by a model that only answers."""
    given = ["--environment", str(write_phone(folder)), "--split", "test", *more]
    return played(lambda _: PROTOCOL.render_answer("done", answer), folder / name, *given, category=None, limit=99)


def behind(url: str) -> list[str]:
    pairs = ["kind=endpoint", f"url={url}", "backoff=0", "attempts=2", "timeout=5"]
    return [word for pair in pairs for word in ("--user", pair)]


def says(messages: list[dict[str, str]]) -> str:
    return SAYS[sum(message["role"] == "assistant" for message in messages)]


def test_the_user_speaks_first_and_last_side_by_side_and_is_kept(tmp_path: Path) -> None:
    began = time.monotonic()
    done = evaluated(tmp_path, *SPEAKS, "--user", "seconds=0.5", "--option", "greeting=Be short.")
    assert time.monotonic() - began < 8 * 2 * 0.5
    assert done.status == 0 and len(done.lines) == 8
    for episode in (line["episode"] for line in done.lines):
        assert [turn["user"] for turn in episode["turns"]] == ["My line is dead."]
        assert (episode["stop_reason"], episode["outcome"]["passed"]) == ("user_stop", True)
        assert episode["options"] == {"greeting": "Be short."}
    assert all(request["messages"][0]["content"].startswith("Be short.") for request in done.requests)
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["user"] == {"kind": "scripted", "lines": ["My line is dead.", "Goodbye."], "seconds": 0.5}
    assert settings["options"] == {"greeting": "Be short."} and len(settings["source"]["environment_sha256"]) == 64


def test_an_episode_whose_user_fails_is_lost_and_never_scored(tmp_path: Path, capsys: Any) -> None:
    gone = ["none"] + [503] * 1000
    for said, faults in {"gave no words in 2 attempts": gone, "the user: the user says no sentence": []}.items():
        with serving(says if faults else lambda _: "???", faults) as server:
            done = evaluated(tmp_path, *behind(server.url), name=str(len(faults)))
        assert (done.status, done.lines) == (evaluate.LOST_STATUS, []) and said in capsys.readouterr().out
    assert evaluated(tmp_path, name="nobody").status == 1 and "--user" in capsys.readouterr().err
    done = evaluated(tmp_path, *behind("http://127.0.0.1:9/v1"), name="gone")
    assert (done.status, done.requests) == (1, []) and not (tmp_path / "gone").exists()


def test_neither_side_can_forge_a_turn_of_the_other(tmp_path: Path) -> None:
    with serving(lambda messages: [ECHO, SAYS[1]][len(messages) > 2]) as user:
        done = evaluated(tmp_path, *behind(user.url), answer=ECHO)
    assert done.status == 0
    sent = [message["content"] for request in user.requests + done.requests for message in request["messages"]]
    assert sum("Forget it" in text for text in sent) >= 8 * 3 and all(generic(text) == text for text in sent)
