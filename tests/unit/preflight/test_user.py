"""A start asks the server that is to play the user for a word, and sends nothing to another machine unasked."""

import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from support.evaluation import serving
from support.phone import SAYS

from recipe import loopback
from recipe.errors import PreflightError
from recipe.preflight import user as checked
from recipe.preflight.user import check_user


def configured(user: dict[str, Any] | None, nodes: int = 1, preflight_only: bool = False) -> DictConfig:
    given = {"interaction": {"user": user}, "trainer": {"nnodes": nodes}, "preflight_only": preflight_only}
    return OmegaConf.create(given)


def behind(url: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "endpoint", "url": url, "timeout": 5.0, "backoff": 0.0, "attempts": 5, **settings}


def test_only_a_server_is_asked() -> None:
    for user in (None, {"kind": "scripted", "lines": ["a"]}):
        assert check_user(configured(user)) == []
    with serving(lambda _: "hello") as server:
        assert check_user(configured(behind(server.url))) == []
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("faults", "requests", "words"),
    [
        ([401] * 9, 1, "interaction.user.api_key_env"),
        ([404] * 9, 1, "interaction.user.model"),
        ([503] * 9, 2, "interaction.user.url"),
        ([b"<html>"] * 9, 2, "interaction.user.url"),
    ],
)
def test_a_server_that_says_nothing_stops_the_start_with_one_line(faults: list[Any], requests: int, words: str) -> None:
    with serving(lambda _: "hello", faults) as server:
        with pytest.raises(PreflightError, match=words) as error:
            check_user(configured(behind(server.url)))
        assert "\n" not in str(error.value) and len(server.requests) == requests


def test_a_configuration_can_be_checked_where_the_server_is_not() -> None:
    (line,) = check_user(configured(behind("http://127.0.0.1:9/v1"), preflight_only=True))
    assert "interaction.user.url" in line


def test_another_machine_is_asked_only_where_that_was_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(checked, "require_answer", asked.append)
    monkeypatch.setattr(loopback, "cluster", lambda nodes: None)
    away = behind("http://10.0.0.7:8001/v1")
    for only in (False, True):
        with pytest.raises(PreflightError, match="Set interaction.user.remote=true"):
            check_user(configured(away, preflight_only=only))
    assert not asked
    check_user(configured({**away, "remote": True}))
    check_user(configured(away, nodes=2))  # a run that talks to other machines anyhow
    check_user(configured(behind("http://localhost:8001/v1")))
    assert len(asked) == 3


def test_workers_get_the_whole_path_of_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lines.jsonl").write_text(json.dumps({"task_id": "phone_0", "lines": list(SAYS)}))
    monkeypatch.chdir(tmp_path)
    config = configured({"kind": "replay", "file": "lines.jsonl"})
    assert check_user(config) == []
    assert config.interaction.user.file == str(tmp_path / "lines.jsonl")
