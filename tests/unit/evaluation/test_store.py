"""What a disk fault leaves of an evaluation: an episode that is played again, or one that is left out and counted."""

import json
from pathlib import Path
from typing import Any

from interaction.record import EpisodeRecord
from recipe.evaluation.store import Settings, Store, read_episodes
from recipe.reward import sample_record

RECORD = sample_record()
LINE = {"task_id": "multi_turn_base_0", "sample": 0, "attempts": 1, "episode": RECORD}
SETTINGS = Settings("m", None, "val", ("multi_turn_base",), "think_xml", "json", 1, 0.0, None, 2)
SECOND = json.dumps({**LINE, "sample": 1, "note": "über"}, ensure_ascii=False).encode()


def kept(folder: Path, *more: dict[str, Any]) -> dict[tuple[str, int], EpisodeRecord]:
    """The finished episodes, once some more are added."""
    store = Store(folder, SETTINGS)
    for line in more:
        store.add(line)
    store.close()
    return store.episodes()


def episode(**changed: Any) -> bytes:
    return json.dumps({**LINE, "sample": 1, "episode": {**RECORD, **changed}}).encode()


DAMAGED = [
    *(b"", b"{", b"null", b"\xff\xfe{}", b"[" * 200_000),
    b'{"task_id": "multi_turn_base_0", "sample": 1}',
    json.dumps({**LINE, "sample": 1, "episode": None}).encode(),
    json.dumps({**LINE, "sample": 1, "episode": {name: RECORD[name] for name in ("version", "turns")}}).encode(),
    *(episode(version=1), episode(turns=[None]), episode(stop_reason="bored")),
]


def test_a_cut_off_line_is_taken_away_and_damaged_lines_cost_no_other(tmp_path: Path) -> None:
    path, first = tmp_path / "episodes.jsonl", {("multi_turn_base_0", 0): EpisodeRecord.from_dict(RECORD)}
    assert kept(tmp_path, LINE) == first
    whole = path.read_bytes()
    for cut in (1, 40, len(SECOND) - 6, len(SECOND)):
        path.write_bytes(whole + SECOND[:cut])
        assert kept(tmp_path) == first and path.read_bytes() == whole
    assert [*kept(tmp_path, {**LINE, "sample": 2})] == [*first, ("multi_turn_base_0", 2)]
    path.write_bytes(b"\n".join(DAMAGED) + b"\n" + whole)
    assert kept(tmp_path) == first
    records, damaged = read_episodes(path)
    assert ([record for _, record in records], damaged) == ([*first.values()], len(DAMAGED))
