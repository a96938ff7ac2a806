"""Which of verl's trainers a stage may run in, and what it can serve there."""

import pytest

from recipe.errors import PreflightError
from recipe.launch.compose import compose
from recipe.preflight.checks import check_settings
from recipe.preflight.features import notes


@pytest.mark.parametrize("hardware", ["cpu", "gpu8", "gpu1", "gpu8_24gb"])
@pytest.mark.parametrize("algorithm", ["grpo", "turn_grpo", "step_grained", "appo", "tppo", "dr_grpo", "gspo", "cispo"])
def test_every_profile_and_algorithm_composes_for_playing_on_while_training(hardware: str, algorithm: str) -> None:
    config = compose("stage2", ["trainer=async", f"algorithm={algorithm}", f"hardware={hardware}"])
    assert config.trainer.v1.trainer_mode == "colocate_async"
    assert config.algorithm.rollout_correction.rollout_is == "token"
    assert config.trainer.v1.sampler.max_off_policy_strategy == "wait"
    check_settings(config)
    assert any("span 4 versions" in note for note in notes(config))


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["trainer.v1.trainer_mode=mine"], "trainer_mode=mine.*Set trainer=sync or trainer=async"),
        (["trainer.v1.trainer_mode=separate_async"], "trainer_mode=separate_async: verl .*Set trainer=async"),
        (["trainer.v1.trainer_mode=colocate_async"], "rollout_is=null and bypass_mode=false: .*sets rollout_is=token"),
        (["trainer=async", "algorithm.rollout_correction.rollout_is=null"], "without a correction"),
        (["trainer=async", "algorithm=dapo"], "filter_groups.enable=true: .*without an end"),
        (["trainer=async", "offline.files=a", "actor_rollout_ref.rollout.n=1"], "offline.files: there is nothing"),
        (["trainer=async", "trainer.v1.sampler.max_off_policy_threshold=null"], "threshold=None: it bounds"),
        (["trainer=async", "trainer.v1.sampler.max_off_policy_threshold=1"], "threshold=1: it bounds .* from 2 on"),
        (["trainer=async", "trainer.v1.colocate_async.num_warmup_batches=8"], "batches=8: with more than one"),
        (["trainer=async", "trainer.v1.colocate_async.num_warmup_batches=-1"], "batches=-1: .*fewer than none"),
    ],
)
def test_a_mode_that_cannot_serve_what_is_asked_for_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(PreflightError, match=says):
        check_settings(compose("stage2", ["hardware=cpu", *overrides]))
