"""Which of verl's trainers a stage may run in, and what it can serve there."""

import pytest

from recipe.errors import PreflightError
from recipe.memory.settings import read_settings
from recipe.preflight.checks import check_settings
from recipe.preflight.features import notes
from recipe.preflight.mode import devices
from recipe.settings import compose
from recipe.train import count_devices


@pytest.mark.parametrize("hardware", ["cpu", "gpu8", "gpu8_24gb"])
def test_engines_on_devices_of_their_own_compose(hardware: str) -> None:
    given = ["trainer=separate", "trainer.n_gpus_per_node=4", f"hardware={hardware}"]
    config = compose("stage2", given)
    check_settings(config)
    assert devices(config) == 8
    assert devices(compose("stage2", [*given, "actor_rollout_ref.rollout.n_gpus_per_node=2"])) == 6
    assert devices(compose("stage2", ["trainer=async", *given[1:]])) == 4
    assert devices(compose("stage2", [*given, "trainer.nnodes=2"])) == 12


def test_with_engines_elsewhere_the_estimate_is_that_of_a_card_that_trains() -> None:
    given = ["hardware=gpu8", "trainer.n_gpus_per_node=4"]
    assert read_settings(compose("stage2", given), 80e9).plays
    assert not read_settings(compose("stage2", [*given, "trainer=separate"]), 80e9).plays


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        ([], (1, 8)),
        (["trainer.n_gpus_per_node=2"], (2, 12)),
        (["trainer=separate"], (2, 12)),
        (["trainer=separate", "actor_rollout_ref.rollout.n_gpus_per_node=3"], (4, 20)),
        (["ray_kwargs.ray_init.num_gpus=5", "ray_kwargs.ray_init.num_cpus=40"], (5, 40)),
    ],
)
def test_ray_counts_as_many_devices_on_the_cpu_as_a_run_asks_for(given: list[str], counted: tuple[int, int]) -> None:
    config = compose("stage2", ["hardware=tiny", *given])
    count_devices(config)
    assert (config.ray_kwargs.ray_init.num_gpus, config.ray_kwargs.ray_init.num_cpus) == counted


def test_on_cards_ray_counts_them_itself() -> None:
    config = compose("stage2", ["hardware=gpu8", "trainer=separate"])
    before = config.ray_kwargs.ray_init.copy()
    count_devices(config)
    assert config.ray_kwargs.ray_init == before and before.get("num_gpus") is None


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
        (["trainer.v1.trainer_mode=mine"], "trainer_mode=mine.*Set trainer=sync, trainer=async or trainer=separate"),
        (["trainer.v1.trainer_mode=separate_async"], "hybrid_engine=true: .*Set trainer=separate"),
        (["actor_rollout_ref.hybrid_engine=false"], "trainer_mode=sync with .*hybrid_engine=false: "),
        (["trainer=async", "actor_rollout_ref.hybrid_engine=false"], "colocate_async with .*hybrid_engine=false: "),
        (["trainer.v1.trainer_mode=colocate_async"], "rollout_is=null and bypass_mode=false: .*sets rollout_is=token"),
        (["trainer=async", "algorithm.rollout_correction.rollout_is=null"], "without a correction"),
        (["trainer=async", "algorithm=dapo"], "filter_groups.enable=true: .*without an end"),
        (["trainer=async", "offline.files=a", "actor_rollout_ref.rollout.n=1"], "offline.files: there is nothing"),
        (["trainer=async", "trainer.v1.sampler.max_off_policy_threshold=null"], "threshold=None: it bounds"),
        (["trainer=async", "trainer.v1.sampler.max_off_policy_threshold=1"], "threshold=1: it bounds .* from 2 on"),
        (["trainer=async", "trainer.v1.colocate_async.num_warmup_batches=8"], "batches=8: with more than one"),
        (["trainer=async", "trainer.v1.colocate_async.num_warmup_batches=-1"], "batches=-1: .*fewer than none"),
        (["trainer=separate", "algorithm=dapo"], "filter_groups.enable=true: .*without an end"),
        (
            ["trainer=separate", "algorithm.rollout_correction.rollout_is=null"],
            "separate sets rollout_is=token",
        ),
        (["trainer=separate", "trainer.v1.separate_async.num_warmup_batches=2"], "separate_async.num_warmup_batches=2"),
        (["trainer=separate", "actor_rollout_ref.actor.ppo_mini_batch_size=2"], "Set both to the same number"),
        (
            ["trainer=separate", "trainer.v1.separate_async.parameter_sync_step=2"],
            "sync_step=2: .*Set it to 1",
        ),
        (["trainer=separate", "actor_rollout_ref.model.lora_rank=8"], "lora_rank=8: verl sends the base"),
        (["trainer=separate", "actor_rollout_ref.rollout.nnodes=0"], "rollout.nnodes=0 .*an engine takes 1"),
        (["trainer=separate", "actor_rollout_ref.rollout.checkpoint_engine.backend=naive"], "backend=naive"),
        (
            ["trainer=separate", "actor_rollout_ref.rollout.pipeline_model_parallel_size=2"],
            "n_gpus_per_node=1: an engine takes 2 .*none may be left over",
        ),
        (
            [
                *("trainer=separate", "actor_rollout_ref.rollout.n_gpus_per_node=3", "hardware=gpu8"),
                "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
            ],
            "n_gpus_per_node=3: an engine takes 2",
        ),
    ],
)
def test_a_mode_that_cannot_serve_what_is_asked_for_is_refused(overrides: list[str], says: str) -> None:
    with pytest.raises(PreflightError, match=says):
        check_settings(compose("stage2", ["hardware=tiny", *overrides]))
