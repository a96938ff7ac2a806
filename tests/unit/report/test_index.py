"""The index of a folder of runs: one entry for each, whatever it has left, and nothing for what is no run."""

import json
from pathlib import Path

import pytest
from support.runs import STAGE, a_run, validated

from recipe import report
from recipe.report import __main__ as command
from recipe.report.index import write

DAMAGED = [
    b"",
    b"\xff",
    b"null",
    b"[3]",
    b'{"starts": [{"time": 3}], "stages": [{"folder": [1], "status": {}}]}',
    b"[" * 9**5,
]


def noted(run: Path, time: str) -> Path:
    (run / "manifest.json").write_text(json.dumps({"starts": [{"stage": STAGE, "time": time}, {"time": "9999"}]}))
    return run


def test_every_run_is_listed_the_latest_first_with_what_moved_and_a_link_to_its_page(tmp_path: Path, page) -> None:
    first = noted(a_run(tmp_path / "first", [0.25] * 5 + [0.75] * 5), "2026-01-01T10:00:00+0000")
    validated(first, 0, {"a": [0, 0], "b": [1, 0]})
    validated(first, 9, {"a": [1, 0], "b": [1, 1]})
    second = noted(a_run(tmp_path / "second", [0.5] * 3), "2026-01-02T10:00:00+0000")
    (second / "curriculum.json").write_text(
        json.dumps({"stages": [{"folder": STAGE, "status": "failed"}, {"folder": "stage2_base", "status": "waiting"}]})
    )
    (first / STAGE / "done.json").write_text(json.dumps({"version": 1, "global_step": 10, "model": "m"}))
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "note.txt").write_text("x")
    report.write(first)
    path, count = write(tmp_path)
    assert (path, count) == (tmp_path / "index.html", 2)
    page.open(path, "document.readyState === 'complete'")
    texts = page.value("[...document.querySelectorAll('tr')].slice(1).map(it => it.innerText)")
    rows = [" ".join(text.split()) for text in texts]
    low, high = report.validations(first)[-1].acc.interval
    assert rows == [
        "second no page yet 2026-01-02 10:00 0 of 2 stages done stage1_format failed 3",
        "stage2_base waiting 0",
        "first 2026-01-01 10:00 1 of 1 stages done stage1_format done 10 0.250 → 0.750 +0.500 (no stored episodes: no "
        f"error) 0.750 [{low:.3f}, {high:.3f}] 4 episodes, step 9 0.250 → 0.750, +0.500 ± 0.000",
    ]
    assert page.value("document.querySelector('td a').href") == (first / "report.html").as_uri()


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "javascript:alert(1)", "a b?c#d", "100%", "é", "a:b"])
def test_a_name_is_text_and_leads_to_its_page(tmp_path: Path, page, name: str) -> None:
    run = a_run(tmp_path / name, [0.5])
    (run / "report.html").write_text("<title>here</title>")
    page.open(write(tmp_path)[0], "document.readyState === 'complete'")
    assert page.value("document.querySelector('td a').textContent") == name
    page.open(page.value("document.querySelector('td a').href"), "document.title === 'here'")


@pytest.mark.parametrize("damaged", DAMAGED, ids=lambda content: repr(content[:24]))
@pytest.mark.parametrize(
    "file", ["manifest.json", "curriculum.json", f"{STAGE}/done.json", f"{STAGE}/total_steps.json"]
)
def test_damaged_notes_leave_the_run_in_the_list(tmp_path: Path, file: str, damaged: bytes) -> None:
    run = a_run(tmp_path / "run", [0.5] * 10)
    (run / file).write_bytes(damaged)
    path, count = write(tmp_path)
    assert count == 1 and STAGE in path.read_text()


def said(monkeypatch, capsys, *arguments: object) -> tuple[object, str]:
    monkeypatch.setattr("sys.argv", ["report", *map(str, arguments)])
    try:
        command.main()
    except SystemExit as ends:
        return ends.code, capsys.readouterr().err
    return 0, capsys.readouterr().out


def test_the_command_says_where_the_index_is_or_what_is_wrong(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "runs").mkdir()
    runs = tmp_path / "runs"
    assert said(monkeypatch, capsys, "--index", runs) == (
        1,
        f"{runs} holds no run; give a folder of runs, such as outputs\n",
    )
    assert not (runs / "index.html").exists()
    code, text = said(monkeypatch, capsys, "--index", tmp_path / "nowhere")
    assert code == 1 and "the index cannot be written" in text and "nowhere" in text
    a_run(runs / "one", [0.5])
    assert said(monkeypatch, capsys, "--index", runs) == (0, f"index  {runs / 'index.html'}, 1 run\n")
    code, text = said(monkeypatch, capsys, "--index", runs, runs / "one")
    assert code == 2 and "takes nothing else" in text
