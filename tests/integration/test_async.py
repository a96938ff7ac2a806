"""Playing on while the policy is updated, for real: a stage of four steps in two starts, in both asynchronous modes.

About eight minutes on two cores.
"""

from pathlib import Path

import pytest
from support.learning import REWARD
from support.short_training import prepared, train

from recipe.report.episodes import headers
from recipe.stage.metrics_log import read_steps, trained_files

ROWS, ROLLOUTS, OLDEST = 4, 2, 2
RAISES = """
def compute_score(data_source, solution_str, ground_truth, extra_info):
    if "num_turns" in extra_info:  # not in the trial before the start
        raise ValueError("it always does in training")
    return {"score": 0.0}
"""


@pytest.fixture(params=["async", "separate"])
def start(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, list[str]]:
    """A folder with data and a model, and the settings of a stage that plays on, where it trains or beside it."""
    prepared(tmp_path)
    given = [f"trainer={request.param}", "trainer.test_freq=-1"]
    return tmp_path, [*given, f"trainer.v1.sampler.max_off_policy_threshold={OLDEST}"]


@pytest.mark.slow
def test_every_step_trains_on_episodes_of_its_own_that_are_not_too_old_and_a_resume_goes_on(
    start: tuple[Path, list[str]],
) -> None:
    folder, given = start
    (folder / "my_reward.py").write_text(REWARD)
    given.append(f"reward.custom_reward_function.path={folder}/my_reward.py")
    train(folder, *given)
    stage = train(folder, *given, "trainer.total_training_steps=4")
    steps = read_steps(stage)
    assert list(steps) == [1, 2, 3, 4]
    seen: set[tuple[str, int]] = set()
    for step, numbers in steps.items():
        assert numbers["train/lost_samples"] == 0 and numbers["actor/grad_norm"] > 0
        assert 0 <= numbers["training/off_policy/trajectory_staleness_worst/max"] < OLDEST
        assert numbers["rollout_corr/rollout_is_mean"] > 0
        episodes = [
            (place.header["uid"], place.header["session_id"])
            for path, uids in trained_files(stage, step).items()
            for place in headers(path)
            if place.header["uid"] in (uids or set())
        ]
        assert len(episodes) == len({*episodes}) == ROWS * ROLLOUTS, step
        assert not seen & {*episodes}
        seen |= {*episodes}


@pytest.mark.slow
def test_a_reward_that_always_raises_ends_the_stage_with_the_cause(start: tuple[Path, list[str]]) -> None:
    folder, given = start
    (folder / "my_reward.py").write_text(RAISES)
    with pytest.raises(AssertionError, match="were lost because the reward compute_score of .*my_reward.py failed"):
        train(folder, *given, f"reward.custom_reward_function.path={folder}/my_reward.py")
