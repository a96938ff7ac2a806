"""A training that was measured, replayed by the simulation with the waiting that its episodes have noted."""

import json
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks.long_tail.replay import main

RATES = ["--tokens-a-second", "100", "--tokens-a-second-alone", "25", "--concurrency", "8"]


def run(folder: Path, mode: str, waits: dict[int, list[list[float]]], step: dict[str, float], steps: int) -> str:
    """A run of one prompt and two rollouts: two messages of 50 tokens each, which take 4 s in all.

    Args:
        waits: of each group, by the step at which it was handed out.
        step: seconds of every step, by verl's names.
        steps: how many there are.
    """
    stage = folder / mode / "stage1_format"
    for name in ("config", "metrics", "rollouts/train"):
        (stage / name).mkdir(parents=True)
    config = {
        "trainer": {"v1": {"trainer_mode": mode}, "n_gpus_per_node": 1},
        "data": {"train_batch_size": 1},
        "actor_rollout_ref": {"rollout": {"n": 2, "n_gpus_per_node": 1, "nnodes": 1}},
    }
    OmegaConf.save(OmegaConf.create(config), stage / "config" / "resolved.yaml")
    numbers = {"critic/score/mean": 0.0, **{f"timing_s/{name}": value for name, value in step.items()}}
    lines = [json.dumps({"step": number, "data": numbers}) + "\n" for number in range(1, steps + 1)]
    (stage / "metrics" / "a.jsonl").write_text("".join(lines))
    for number, groups in waits.items():
        episodes = [
            {
                **{"task_id": "multi_turn_base_1", "step": number, "uid": f"{number}-{group}", "session_id": rollout},
                "engine_tokens": 100,
                **{"reward": {"steps": 2.0}, "seconds": {"user": seconds, "environment": 0.0}, "episode": {}},
            }
            for group, rollouts in enumerate(groups)
            for rollout, seconds in enumerate(rollouts)
        ]
        file = stage / "rollouts" / "train" / f"{number:06d}.jsonl"
        file.write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    return str(folder / mode)


def test_played_in_turn_a_step_waits_for_the_longest_of_its_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two messages of 2 s after waiting 30 and 10 s: 34 and 14 s; the first step is not counted."""
    waits = {1: [[99.0, 1.0]], 2: [[30.0, 5.0]], 3: [[2.0, 10.0]]}
    folder = run(tmp_path, "sync", waits, {"step": 30.0, "gen": 25.0, "old_log_prob": 1.0, "update_actor": 3.0}, 3)
    main([*RATES, folder])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split() == ["sync", "sync", "1", "2", "30.0", "29.0", "25.0", "24.0"]


def test_playing_on_a_step_takes_what_is_finished_and_what_never_was_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two groups are written side by side in 4 s, so every second step finds one that is finished, and waits 0 s."""
    waits = {1: [[0.0, 0.0], [0.0, 0.0]], **{step: [[0.0, 0.0]] for step in range(2, 7)}}
    waits[6] = []  # the last one was still in play when the training ended
    folder = run(tmp_path, "colocate_async", waits, {"step": 9.0, "gen": 1.0, "update_actor": 8.0}, 6)
    main([*RATES, folder])
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[:6] == ["colocate_async", "async", "1", "2", "9.0", "10.0"]
