"""A comparison of evaluations names the settings in which they differ."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.evaluation.store import SETTINGS, Settings
from recipe.report import __main__ as command
from recipe.report.pass_rate import Method
from recipe.report.played_with import differing, played_with

GIVEN: dict[str, Any] = {
    "model": "/models/a 0123456789ab",
    "endpoint": None,
    "split": "val",
    "categories": ("multi_turn_base",),
    "protocol": "think_xml",
    "docs": "json",
    "samples": 1,
    "temperature": 0.0,
    "max_tokens": None,
    "limit": None,
}


def evaluation(folder: Path, **settings: Any) -> Path:
    from recipe.reward import sample_record

    record = sample_record()
    folder.mkdir(parents=True)
    line = {"task_id": record["task_id"], "sample": 0, "episode": record}
    (folder / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    SETTINGS.write(folder / "settings.json", Settings(**{**GIVEN, **settings}))
    return folder


def compared(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *folders: Path) -> str:
    out = folders[0].parent / "out"
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--compare", *map(str, folders), "--out", str(out)])
    command.main()
    said = " ".join(capsys.readouterr().out.split())
    assert "Settings" in (out / "pass_rate.html").read_text()
    return said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"protocol": "hermes"}, "protocol: think_xml | hermes"),
        ({"docs": "signature"}, "docs: json | signature"),
        ({"temperature": 0.7, "samples": 4}, "samples: 1 | 4; temperature: 0.0 | 0.7"),
        ({"temperature": None}, "temperature: 0.0 | the server's own"),
        ({"split": "all"}, "split: val | all"),
        ({"max_tokens": 256}, "max_tokens: none | 256"),
        ({"limit": 5}, "limit: none | 5"),
        ({"model": "/models/b ba9876543210"}, "model: /models/a 0123456789ab | /models/b ba9876543210"),
        ({"categories": ("multi_turn_base", "multi_turn_miss_func")}, "multi_turn_base | multi_turn_base, multi_turn"),
        ({"options": {"augment": True}}, "option augment: false | true"),
        ({"policy": {"max_steps_per_turn": 5}}, "max_steps_per_turn: 20 | 4"),
        ({"strategy": "dfsdt", "max_nodes": 60}, "strategy: cot | dfsdt; max_nodes: none | 60"),
    ],
    ids=str,
)
def test_each_setting_that_differs_is_named_with_both_values(settings, said, tmp_path, monkeypatch, capsys):
    folders = evaluation(tmp_path / "a"), evaluation(tmp_path / "b", **settings)
    text = compared(monkeypatch, capsys, *folders)
    assert "Settings that differ, a | b: " in text and said in text
    assert text.partition("Settings that differ")[2].count(";") == said.count(";"), "and no other"


def test_rows_that_are_no_evaluations_are_said_to_have_no_settings():
    methods = [Method(name, {}, played_with=given) for name, given in (("a", {"docs": "x"}), ("b", {"docs": "y"}))]
    assert differing(methods) == ["Settings that differ, a | b: docs: x | y"]
    (line,) = differing([*methods, Method("run stage1", {})])
    assert line.endswith("docs: x | y; the other rows have none (a run validates by its stages' own)")


def test_of_three_evaluations_all_values_are_told(tmp_path, monkeypatch, capsys):
    folders = [evaluation(tmp_path / name, docs=docs) for name, docs in (("a", "json"), ("b", "yaml"), ("c", "json"))]
    assert "differ, a | b | c: docs: json | yaml | json." in compared(monkeypatch, capsys, *folders)


@pytest.mark.parametrize(
    "settings", [{}, {"options": {"augment": False}}, {"policy": {"max_format_errors_per_turn": 3}}], ids=str
)
def test_settings_that_amount_to_the_same_are_said_to_be_the_same(settings, tmp_path, monkeypatch, capsys):
    folders = evaluation(tmp_path / "a"), evaluation(tmp_path / "b", **settings)
    assert "Settings of a | b: the same." in compared(monkeypatch, capsys, *folders)


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"version": 9}', "\0"])
def test_settings_that_cannot_be_read_are_not_taken_for_the_same(content, tmp_path, monkeypatch, capsys):
    folders = evaluation(tmp_path / "a"), evaluation(tmp_path / "b")
    path = folders[1] / "settings.json"
    path.unlink() if content is None else path.write_text(content)
    assert "settings.json of b cannot be read" in compared(monkeypatch, capsys, *folders)


def test_a_sampling_field_that_an_older_file_lacks_was_the_servers(tmp_path):
    folder = evaluation(tmp_path / "a")
    path = folder / "settings.json"
    content = json.loads(path.read_text())
    del content["top_k"]
    path.write_text(json.dumps(content))
    assert (found := played_with(folder)) and found["top_k"] == "the server's own" and found["top_p"] == "1.0"
