"""Which stored episodes a step was trained on, where they lie under the step of their prompts."""

import json
from pathlib import Path

import pytest
from support.runs import write_metrics

from recipe.report.tables import REWARD, rise
from recipe.stage import trained

STEPS = 10


def tags(*steps: int) -> list[dict[str, int]]:
    return [{"global_steps": step} for step in steps]


def test_a_stage_that_says_nothing_has_each_steps_episodes_in_its_own_file(tmp_path: Path) -> None:
    assert trained.files_of(tmp_path, 3) == {tmp_path / "rollouts" / "train" / "000003.jsonl": None}


def test_files_and_groups_of_a_step_are_those_noted_last_and_padding_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts" / "train"
    trained.note(tmp_path, 2, ["old_0_0"], tags(1))
    with (tmp_path / trained.TRAINED_FILE).open("a") as file:
        file.write('{"step": 2, "pla\n')
    trained.note(tmp_path, 2, ["a_0_0", "a_1_0", "b_0_0", "c_0_0"], [*tags(1, 1, 2), {"is_padding": True}])
    trained.note(tmp_path, 3, ["d_0_0"], tags(2))
    assert trained.files_of(tmp_path, 2) == {folder / "000001.jsonl": {"a"}, folder / "000002.jsonl": {"b"}}
    assert trained.files_of(tmp_path, 9) == {folder / "000009.jsonl": None}  # of a launch that did not play on


def test_a_report_compares_what_was_trained_on_and_not_what_was_handed_out(tmp_path: Path) -> None:
    """All prompts were handed out in step 1, as a file shows, and each was trained on in a step of its own."""
    stage = tmp_path / "stage2_base"
    write_metrics(tmp_path, stage.name, "1.jsonl", [(step, {REWARD: step / 10}) for step in range(1, STEPS + 1)])
    path = stage / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        for step in range(1, STEPS + 1):
            trained.note(stage, step, [f"u{step}_{number}_0" for number in range(2)], tags(1, 1))
            for number in range(2):
                line = {
                    "step": 1,
                    "launch": "one",
                    "uid": f"u{step}",
                    "session_id": number,
                    "environment": "bfcl",
                    "task_id": "base_1",
                    "score": step / 10,
                }
                file.write(json.dumps({**line, "reward": {}, "episode": {}}) + "\n")
    (run,) = rise([stage], REWARD).runs  # type: ignore[union-attr]
    assert (run.first, run.last) == pytest.approx((0.3, 0.8)) and run.standard_error is not None
