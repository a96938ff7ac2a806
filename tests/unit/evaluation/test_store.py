"""What a disk fault leaves of an evaluation: one line of text, or one episode that is played again."""

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.evaluation import gold_player, run, serving

from interaction.record import EpisodeRecord
from recipe import evaluate
from recipe.evaluation.arguments import parse
from recipe.evaluation.store import Settings as Kept
from recipe.evaluation.store import SettingsError, Store, read_episodes
from recipe.reward import sample_record

RECORD = sample_record()
LINE = {"task_id": "multi_turn_base_0", "sample": 0, "attempts": 1, "episode": RECORD}
SETTINGS = Kept("m", None, "val", ("multi_turn_base",), "think_xml", "json", 1, 0.0, None, 2)


GIVEN = {
    "": True,
    "--option at_step_limit=official": True,
    "--option augment=false --option withheld=official": True,
    "--turn-policy max_format_errors_per_turn=3": True,
    "--turn-policy max_steps_per_turn=21 --turn-policy max_steps=null": True,
    "--turn-policy max_steps_per_turn=20": False,
    "--turn-policy max_result_chars=2000": False,
    "--option at_step_limit=judge": False,
    "--option at_step_limit=judge --turn-policy max_steps_per_turn=21": False,
    "--option augment=true": False,
    "--option empty_gold=official": False,
    "--environment bfcl_single": False,
}


def test_whose_rules_an_evaluation_goes_by_is_decided_by_the_rules_and_not_by_what_was_given() -> None:
    for words, expected in GIVEN.items():
        given, _ = parse(["--endpoint", "http://x/v1", "--served-name", "m", *words.split()], None)
        assert evaluate.settings_of(given).by_bfcl() is expected, words


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An evaluation with one finished episode."""
    store = Store(tmp_path / "out", SETTINGS)
    store.add(LINE)
    store.close()
    return tmp_path / "out"


def kept(folder: Path) -> list[tuple[str, int]]:
    store = Store(folder, SETTINGS)
    found = [*store.episodes()]
    store.close()
    return found


def test_what_was_kept_is_found_again(folder: Path) -> None:
    store = Store(folder, SETTINGS)
    assert store.episodes() == {("multi_turn_base_0", 0): EpisodeRecord.from_dict(RECORD)}
    store.close()
    assert read_episodes(folder / "episodes.jsonl") == ([EpisodeRecord.from_dict(RECORD)], 0)


SECOND = json.dumps({**LINE, "sample": 1, "note": "über"}, ensure_ascii=False).encode()


def test_a_line_that_was_cut_off_is_taken_away_and_the_next_one_is_whole(folder: Path) -> None:
    path = folder / "episodes.jsonl"
    whole = path.read_bytes()
    for cut in (1, 40, len(SECOND) - 8, len(SECOND)):
        path.write_bytes(whole + SECOND[:cut])
        assert kept(folder) == [("multi_turn_base_0", 0)]
        assert path.read_bytes() == whole
    store = Store(folder, SETTINGS)
    store.add({**LINE, "sample": 2})
    store.close()
    assert kept(folder) == [("multi_turn_base_0", 0), ("multi_turn_base_0", 2)]


DAMAGED = [
    b"",
    b"{",
    b"null",
    b"[1, 2]",
    b"\xff\xfe{}",
    b"\0" * 300,
    b"[" * 200_000,
    b'{"task_id": "multi_turn_base_0", "sample": 1}',
    json.dumps({**LINE, "sample": 1, "episode": None}).encode(),
    json.dumps({**LINE, "sample": 1, "episode": {**RECORD, "version": 1}}).encode(),
    json.dumps({**LINE, "sample": 1, "episode": {**RECORD, "turns": [None]}}).encode(),
    json.dumps({**LINE, "sample": 1, "episode": {**RECORD, "stop_reason": "bored"}}).encode(),
    json.dumps({**LINE, "sample": 1, "episode": {name: RECORD[name] for name in ("version", "turns")}}).encode(),
]


def test_damaged_lines_are_no_episodes_and_cost_no_other(folder: Path) -> None:
    path = folder / "episodes.jsonl"
    path.write_bytes(b"\n".join(DAMAGED) + b"\n" + path.read_bytes())
    assert kept(folder) == [("multi_turn_base_0", 0)]
    assert read_episodes(path) == ([EpisodeRecord.from_dict(RECORD)], len(DAMAGED))


def places(value: Any, before: tuple[Any, ...] = ()) -> Any:
    yield before
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*before, key))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(places(RECORD), key=repr)),
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.just([])
    | st.just({"a": [None]}),
)
def test_a_record_with_anything_in_any_place_is_judged_or_left_out(tmp_path_factory, path, new) -> None:
    record = json.loads(json.dumps(RECORD))
    if path:
        inner = record
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = new
    stored = tmp_path_factory.getbasetemp() / "anything.jsonl"
    stored.write_text(json.dumps({**LINE, "episode": record if path else new}) + "\n")
    (found, skipped) = read_episodes(stored)
    assert len(found) + skipped == 1
    for episode in found:
        assert EpisodeRecord.from_dict(json.loads(json.dumps(episode.to_dict()))) == episode or "nan" in repr(episode)


def test_damaged_settings_beside_episodes_are_one_line_that_says_what_to_do(folder: Path) -> None:
    for content in (b"", b"\0" * 50, b"{", b"\xff", b"[]", b'{"version": 9}', b"[" * 200_000):
        (folder / "settings.json").write_bytes(content)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(SettingsError) as error:
            Store(folder, SETTINGS)
        assert "\n" not in str(error.value) and len(str(error.value)) < 1000
        assert "settings.json" in str(error.value) and "choose another --out" in str(error.value)
        assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert evaluate.main(["--records", str(folder)]) == 0


def test_settings_without_an_episode_are_written_anew(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes(b"")
    assert kept(tmp_path) == []
    assert json.loads((tmp_path / "settings.json").read_text())["split"] == "val"


def test_no_password_is_written(tmp_path: Path) -> None:
    user = {"kind": "endpoint", "url": "http://me:secret@x/v1", "api_key": "sk-secret"}
    Store(tmp_path, replace(SETTINGS, endpoint="http://me:secret@x/v1", user=user)).close()
    assert "secret" not in (tmp_path / "settings.json").read_text()


def test_an_out_that_is_no_folder_is_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("mine")
    with serving(gold_player("base")) as server:
        for out in (tmp_path / "file", tmp_path / "file" / "out"):
            assert evaluate.main(["--endpoint", server.url, "--out", str(out), "--limit", "1"]) == 1
            error = capsys.readouterr().err.strip()
            assert "\n" not in error and f"{out} cannot be written" in error
        assert not server.requests
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_is_full_ends_in_one_line_and_the_same_command_goes_on(tmp_path: Path) -> None:
    script = (
        "import resource, sys\nfrom recipe import evaluate\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))\n"
        "sys.exit(evaluate.main(sys.argv[2:]))\n"
    )
    with serving(gold_player("base")) as server:
        given = ["--endpoint", server.url, "--out", str(tmp_path), "--docs", "signature", "--category", "base"]
        given += ["--limit", "4", "--concurrency", "1"]
        status, found = run(server.url, tmp_path / "whole", limit=4)
        size = (tmp_path / "whole" / "episodes.jsonl").stat().st_size
        command = [sys.executable, "-c", script, str(size // 2), *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ)
        assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
        assert "File too large; finished episodes are kept, the same command goes on from there" in done.stderr
        path = tmp_path / "episodes.jsonl"
        assert path.read_bytes().endswith(b"\n") and 1 <= len(path.read_bytes().splitlines()) < 4
        assert run(server.url, tmp_path, limit=4) == (status, found)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
