"""What a disk fault leaves of an evaluation: an episode that is played again, or one that is left out and counted."""

import json

from interaction.record import EpisodeRecord
from recipe.evaluation.store import Settings, Store, read_episodes
from recipe.reward import sample_record

RECORD = sample_record()
LINE = {"task_id": "multi_turn_base_0", "sample": 0, "attempts": 1, "episode": RECORD}
SETTINGS = Settings("m", None, "val", ("multi_turn_base",), "think_xml", "json", 1, 0.0, None, 2)
SECOND = json.dumps({**LINE, "sample": 1, "note": "über"}, ensure_ascii=False).encode()


def kept(folder, *more):
    """The finished episodes, once some more are added."""
    store = Store(folder, SETTINGS)
    for line in more:
        store.add(line)
    store.close()
    return store.episodes()


def test_a_cut_off_line_is_taken_away_and_damaged_lines_cost_no_other(tmp_path):
    path, first = tmp_path / "episodes.jsonl", {("multi_turn_base_0", 0): EpisodeRecord.from_dict(RECORD)}
    assert kept(tmp_path, LINE) == first
    whole = path.read_bytes()
    for cut in (1, 40, len(SECOND) - 6, len(SECOND)):
        path.write_bytes(whole + SECOND[:cut])
        assert kept(tmp_path) == first and path.read_bytes() == whole
    assert [*kept(tmp_path, {**LINE, "sample": 2})] == [*first, ("multi_turn_base_0", 2)]
    broken = [None, {name: RECORD[name] for name in ("version", "turns")}]
    broken += [RECORD | changed for changed in ({"version": 1}, {"turns": [None]}, {"stop_reason": "bored"})]
    damaged = [b"", b"{", b"null", b"\xff\xfe{}", b"[" * 200_000, b'{"task_id": "multi_turn_base_0", "sample": 1}']
    damaged += [json.dumps({**LINE, "sample": 1, "episode": episode}).encode() for episode in broken]
    path.write_bytes(b"\n".join(damaged) + b"\n" + whole)
    assert kept(tmp_path) == first
    records, skipped = read_episodes(path)
    assert ([record for _, record in records], skipped) == ([*first.values()], len(damaged))
