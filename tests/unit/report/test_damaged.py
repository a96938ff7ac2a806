"""A report of a run whose files were cut, filled with anything, or written again by another program."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.runs import a_run

from recipe import report
from recipe.report import curves
from recipe.report.__main__ import main
from recipe.report.episodes import choose, headers, load
from recipe.reward import sample_record
from recipe.stage.metrics_log import read_steps

RECORD = sample_record()


def line(number: int, **more: Any) -> dict[str, Any]:
    head = {"step": 1, "split": "train", "uid": "u", "session_id": number, "task_id": "multi_turn_base_3"}
    return {
        **head,
        "score": 0.5,
        "reward": {"progress": 0.5, "acc": 0.0, "acc_official": 0.0},
        **more,
        "episode": RECORD,
    }


def stored(run: Path, content: bytes, split: str = "train") -> Path:
    path = run / "stage1_format" / "rollouts" / split / "000001.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def as_written(numbers: range) -> bytes:
    return "".join(json.dumps(line(number)) + "\n" for number in numbers).encode()


@pytest.mark.parametrize(
    "written",
    [
        lambda one: json.dumps(one),
        lambda one: json.dumps(one, separators=(",", ":")),  # jq -c
        lambda one: json.dumps(one, separators=(",", ":"), sort_keys=True),  # jq -cS
        lambda one: json.dumps(dict(reversed(one.items()))),
        lambda one: json.dumps(one, ensure_ascii=False, sort_keys=True),
    ],
    ids=["training", "jq -c", "jq -cS", "reversed", "sorted"],
)
def test_an_episode_is_found_however_its_line_is_written(tmp_path: Path, written: Any) -> None:
    run = a_run(tmp_path / "run", [0.5] * 10)
    path = stored(run, "".join(written(line(number)) + "\n" for number in range(3)).encode())
    places = headers(path)
    assert [place.header["session_id"] for place in places] == [0, 1, 2]
    assert all("episode" not in place.header for place in places)
    assert [record["episode"] for record in load(choose([run / "stage1_format"], 10))] == [RECORD] * 3


def test_episodes_that_take_several_lines_each_are_spoken_of(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5] * 10)
    stored(run, json.dumps(line(0), indent=2).encode())
    assert "no stored episode that can be read: one JSON object a line is expected" in report.write(run).read_text()


DAMAGED = [
    b"",
    b"\0" * 100,
    b"\xff\xfe\xfd",
    b"null",
    b"[]",
    b"[" * 200_000,
    b'{"a":' * 100_000,
    json.dumps({**line(9), "episode": None}).encode(),
    json.dumps({**line(9), "episode": {"turns": 3}}).encode(),
    json.dumps({**line(9), "task_id": 3}).encode(),
    json.dumps({**line(9), "session_id": [3]}).encode(),
    json.dumps({**line(9), "step": "three"}).encode(),
    json.dumps(line(9)).encode()[:-60],
    json.dumps(line(9)).encode().replace(b'"score": 0.5', b'"score": ' + b"9" * 5000),
]


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda content: repr(content[:24]))
def test_a_damaged_line_costs_no_other(tmp_path: Path, damaged: bytes) -> None:
    run = a_run(tmp_path / "run", [0.5] * 10)
    path = stored(run, as_written(range(2)) + damaged + b"\n" + as_written(range(2, 4)))
    stored(run, path.read_bytes(), "val")
    assert {place.header["session_id"] for place in headers(path)} >= {0, 1, 2, 3}
    episodes = [one for one in load(choose([run / "stage1_format"], 20)) if one["session_id"] != 9]
    assert len(episodes) == 8
    assert report.validations(run)[0].tasks >= 4


def test_damaged_metrics_configurations_and_notes_make_a_page_all_the_same(tmp_path: Path) -> None:
    """Each damage in a stage of its own, and each in the notes of the run in turn."""
    run = tmp_path / "run"
    for number, damaged in enumerate(DAMAGED):
        stage = a_run(run, [0.5] * 10) / "stage1_format"
        metrics = next((stage / "metrics").glob("*.jsonl"))
        metrics.write_bytes(damaged + b"\n" + metrics.read_bytes() + damaged)
        (stage / "config").mkdir()
        (stage / "config" / "overrides.yaml").write_bytes(damaged)
        assert sorted(read_steps(stage)) == list(range(1, 11))
        stage.rename(run / f"stage{number:02}")
    (run / "manifest.json").write_bytes(b"\xff")
    page = report.write(run).read_text()
    assert all(f"stage{number:02}" in page for number in range(len(DAMAGED)))


@pytest.mark.parametrize("name", ["manifest.json", "curriculum.json"])
@pytest.mark.parametrize("damaged", [*DAMAGED, b'{"starts": 3, "stages": {}}', b'{"starts": [3], "stages": [null]}'])
def test_damaged_notes_are_no_notes(tmp_path: Path, name: str, damaged: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path / "run", [0.5])
    (run / name).write_bytes(damaged)
    monkeypatch.setattr(curves, "draw", lambda *_: (b"", ""))
    assert "stage1_format" in report.write(run).read_text()


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from([10**400, [], {}])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(ODD, st.sampled_from(["critic/score/mean", "train/stop/completed", "x"]), ODD), max_size=4), ODD
)
def test_metrics_of_any_values_are_read(tmp_path: Path, entries: list[Any], data: Any) -> None:
    folder = tmp_path / "stage" / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [json.dumps({"step": step, "data": {name: value}}) for step, name, value in entries]
    (folder / "1.jsonl").write_text("\n".join([*texts, json.dumps({"step": 1, "data": data}), json.dumps(data)]))
    for step, numbers in read_steps(tmp_path / "stage").items():
        assert type(step) is int
        assert all(math.isfinite(value) or isinstance(value, float) for value in numbers.values())


def test_numbers_that_cannot_be_drawn_make_a_page_all_the_same(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for number, value in enumerate((math.nan, math.inf, -math.inf, 1e308, -1e299, 10**300, 10**400)):
        stage = a_run(run, [0.5] * 6 + [0.5 if isinstance(value, int) else value] * 6) / "stage1_format"
        data = {"train/stop/completed": value, "timing_s/step": value}
        lines = [json.dumps({"step": step, "data": data}) + "\n" for step in (1, 2)]
        (stage / "metrics" / "2.jsonl").write_text("".join(lines))
        stored(run, as_written(range(2)))
        stage.rename(run / f"stage{number}")
    report.write(run)
    report.table([run])


@pytest.mark.parametrize(
    "name", ["$x$", "a$b", r"$\frac{1}{0}$", r"$\nothing{$", "_hidden", "100%", "a_b^c", "{", "é", "<b>"]
)
def test_a_name_is_drawn_as_it_is(tmp_path: Path, name: str) -> None:
    runs = [a_run(tmp_path / folder / name, [0.5] * 10) for folder in ("one", "two")]
    for run in runs:
        (run / "stage1_format").rename(run / f"stage_{name}")
    _, svg = curves.draw(runs)
    shown = name.replace("<", "&lt;").replace(">", "&gt;")
    assert f">step (stage_{shown})</text>" in svg
    assert svg.count(f">{' ' * name.startswith('_')}{shown}</text>") == 2, "both runs in the legend"


def test_a_command_line_without_a_run_or_with_one_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path / "run", [0.5] * 10)
    (run / "curves.png").mkdir()
    monkeypatch.setattr("sys.argv", ["report", str(run)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 1
    assert f"{run / 'curves.png'}" in capsys.readouterr().err
