"""What verl would notice late or never is refused before a start; and what is written down of verl is what it does."""

from functools import cache
from typing import Any

import numpy
import pytest
from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.preflight import algorithm
from recipe.settings import compose


@cache
def base(*groups: str, stage: str = "stage2") -> Any:
    return compose(stage, groups)


def composed(*overrides: str) -> Any:
    groups = [override for override in overrides if override.startswith("algorithm=")]
    config = base("hardware=gpu8", *groups)
    return OmegaConf.merge(config, OmegaConf.from_dotlist([item for item in overrides if item not in groups]))


ACTOR = "actor_rollout_ref.actor"
FLASH = "actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"
SDPA = "actor_rollout_ref.model.override_config.attn_implementation=sdpa"
PADDED = "actor_rollout_ref.model.use_remove_padding=false"
LONG = "data.max_response_length=57344"
UPDATE = f"{ACTOR}.ppo_max_token_len_per_gpu"
FORWARD = "actor_rollout_ref.rollout.log_prob_max_token_len_per_gpu"
REFERENCE = "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"
CRITIC = "critic.ppo_infer_max_token_len_per_gpu"
REFUSED = [
    (["algorithm.adv_estimator=grpoo"], r"adv_estimator=grpoo is not known \(is grpo meant\?\)"),
    ([f"{ACTOR}.policy_loss.loss_mode=gspoo"], r"loss_mode=gspoo is not known \(is gspo meant\?\)"),
    (["algorithm.adv_estimator=remax"], "remax needs the score of a greedy rollout"),
    (["algorithm.adv_estimator=optimal_token_baseline"], "sum_pi_squared.*does not compute"),
    (["algorithm.adv_estimator=gdpo"], "gdpo needs the single scores"),
    ([f"{ACTOR}.ppo_mini_batch_size=64"], "ppo_mini_batch_size=64 does not divide data.train_batch_size=32"),
    ([f"{ACTOR}.ppo_mini_batch_size=12"], "ppo_mini_batch_size=12 does not divide.*MINI_BATCH_SIZE"),
    ([f"{ACTOR}.ppo_mini_batch_size=0"], "ppo_mini_batch_size=0 does not divide"),
    (["algorithm=tppo", "critic.ppo_mini_batch_size=64"], r"critic\.ppo_mini_batch_size=64 does not divide"),
    (
        [f"{ACTOR}.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2"],
        r"actor\.ppo_mini_batch_size=2 times actor_rollout_ref.rollout.n=2 is 4 .* among 8 GPUs.*MINI_BATCH_SIZE",
    ),
    (
        ["algorithm=tppo", "critic.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2"],
        r"critic\.ppo_mini_batch_size=2 times .* among 8",
    ),
    ([f"{ACTOR}.ppo_mini_batch_size=1", "actor_rollout_ref.rollout.n=8", "trainer.nnodes=2"], "is 8 .* among 16 GPUs"),
    ([LONG], "actor.ppo_max_token_len_per_gpu=32768 is less .*=8192 and .*57344.*Set it to 65536 or more"),
    ([LONG, f"{UPDATE}=65536", f"{FORWARD}=65535"], "rollout.log_prob_max_token_len_per_gpu=65535.* 65536 or more"),
    ([LONG, f"{UPDATE}=65536", f"{REFERENCE}=40960"], "ref.log_prob_max_token_len_per_gpu=40960.* 65536 or more"),
    (["algorithm=tppo", f"{CRITIC}=16384"], "critic.ppo_infer_max_token_len_per_gpu=16384.* 18192 or more"),
    (
        [f"{ACTOR}.ulysses_sequence_parallel_size=2", FLASH, f"{UPDATE}=9095"],
        "ppo_max_token_len_per_gpu=9095 on each of 2 GPUs.* 9096 or more",
    ),
    ([f"{ACTOR}.ulysses_sequence_parallel_size=2"], "ulysses_sequence_parallel_size=2 needs .*use_remove_padding"),
    (
        [f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size=2", FLASH, PADDED],
        r"fsdp_config.*use_remove_padding=true \(it is F",
    ),
    (
        [f"{ACTOR}.ulysses_sequence_parallel_size=2", "actor_rollout_ref.model.use_remove_padding=true", SDPA],
        "attn_implementation=flash_attention_2, it is sdpa",
    ),
    (["actor_rollout_ref.ref.ulysses_sequence_parallel_size=2"], "actor_rollout_ref.ref.ulysses"),
    (["algorithm=tppo", "critic.fsdp.ulysses_sequence_parallel_size=2"], r"critic\.model\.use_remove_padding"),
    *(
        ([f"algorithm.adv_estimator={name}", "actor_rollout_ref.rollout.n=1"], f"{name} compares.*rollout.n=1")
        for name in algorithm.GROUPED
    ),
]
ACCEPTED = [
    [f"{ACTOR}.ppo_mini_batch_size=8"],
    [f"{ACTOR}.ulysses_sequence_parallel_size=2", "actor_rollout_ref.model.use_remove_padding=true", FLASH],
    ["critic.fsdp.ulysses_sequence_parallel_size=2"],  # and no critic
    [f"{ACTOR}.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=4"],
    [
        f"{ACTOR}.ulysses_sequence_parallel_size=2",
        FLASH,
        f"{ACTOR}.ppo_mini_batch_size=2",
        "actor_rollout_ref.rollout.n=2",
    ],
    [LONG, f"{UPDATE}=65536"],
    [f"{ACTOR}.ulysses_sequence_parallel_size=2", FLASH, f"{UPDATE}=9096", f"{FORWARD}=9096", f"{REFERENCE}=9096"],
    [f"{REFERENCE}=4096", f"{ACTOR}.use_kl_loss=false"],  # no reference model
    [f"{REFERENCE}=4096", "actor_rollout_ref.model.lora_rank=32"],  # the actor's model without the adapter
    [f"{FORWARD}=4096", "algorithm.rollout_correction.bypass_mode=true"],  # nothing to compute
    [f"{CRITIC}=4096"],  # no critic
    ["algorithm.adv_estimator=reinforce_plus_plus", "actor_rollout_ref.rollout.n=1"],
    ["algorithm=tppo", "actor_rollout_ref.rollout.n=1"],
    *([f"algorithm.adv_estimator={name}"] for name in algorithm.GROUPED),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=lambda value: " ".join(value)[-70:])
def test_what_cannot_work_is_refused(overrides, message):
    with pytest.raises(PreflightError, match=message):
        algorithm.check_algorithm(composed(*overrides))


def test_an_engine_in_one_process_is_not_split_into_two():
    size, backend = (
        f"actor_rollout_ref.rollout.{key}" for key in ("tensor_model_parallel_size=2", "engine_kwargs.vllm")
    )
    with pytest.raises(PreflightError, match="tensor_model_parallel_size=2 with .*=uni: .*Set the latter to mp"):
        algorithm.check_algorithm(compose("stage2", ["hardware=tiny", size]))
    mp = f"{backend}.distributed_executor_backend=mp"
    algorithm.check_algorithm(compose("stage2", ["hardware=tiny", size, mp, "trainer.n_gpus_per_node=2"]))


@pytest.mark.parametrize("overrides", ACCEPTED, ids=lambda value: " ".join(value)[-70:])
def test_what_works_is_not_refused(overrides):
    algorithm.check_algorithm(composed(*overrides))


@pytest.mark.parametrize("stage", ["stage1", "stage2", "stage3", "stage4"])
@pytest.mark.parametrize("hardware", ["cpu", "gpu8"])
def test_every_stage_passes_on_every_profile(stage, hardware):
    algorithm.check_algorithm(base(f"hardware={hardware}", stage=stage))


def test_an_estimator_that_a_module_of_the_users_may_register_is_not_refused(monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "my_estimators")
    algorithm.check_algorithm(composed("algorithm.adv_estimator=mine"))


# What is written down of verl.


def advantages(name: str, groups: list[str], scores: list[float]) -> Any:
    """verl's advantages of episodes of three tokens, from the columns that its trainer hands over."""
    import torch
    from verl import DataProto
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    ones = torch.ones(len(scores), 3)
    rewards = torch.zeros(len(scores), 3)
    rewards[:, -1] = torch.tensor(scores)
    names = ("old_log_probs", "rollout_log_probs", "ref_log_prob", "values")
    data = DataProto.from_dict(
        {"response_mask": ones.long(), "rm_scores": rewards, "token_level_scores": rewards.clone()}
        | {"token_level_rewards": rewards.clone(), **{column: -ones for column in names}},
        non_tensors={"uid": numpy.array(groups, dtype=object)},
    )
    config = OmegaConf.create({"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True, "gdpo_reward_keys": ["acc"]})
    keys = [f"{group}_{place}_0" for place, group in enumerate(groups)]
    found = compute_advantage_for_multi_trajectories(data, keys, adv_estimator=name, config=config)
    return found.batch["advantages"]


def verls_estimators() -> list[str]:
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    return sorted({str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY} - set(algorithm.OURS))


def test_the_known_estimators_are_verls_and_ours():
    from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

    from recipe.credit import registry  # noqa: F401  registers ours

    assert sorted((*algorithm.ESTIMATORS, *algorithm.UNFED)) == sorted({*verls_estimators(), *algorithm.OURS})
    assert set(algorithm.OURS) <= {str(getattr(name, "value", name)) for name in ADV_ESTIMATOR_REGISTRY}


def test_the_unfed_estimators_are_those_that_verl_cannot_compute():
    failed = []
    for name in verls_estimators():
        try:
            advantages(name, ["a", "a", "b", "b"], [1.0, 0.0, 2.0, 0.5])
        except (AssertionError, TypeError, KeyError):
            failed.append(name)
    assert sorted(failed) == sorted(algorithm.UNFED)


def test_the_grouped_estimators_are_those_whose_advantages_depend_on_the_group():
    depends = []
    for name in sorted(set(verls_estimators()) - set(algorithm.UNFED)):
        scores = [1.0, 0.25, 2.0, 0.5]
        first, second = (advantages(name, list(groups), scores) for groups in ("aabb", "abab"))
        if not numpy.allclose(first, second):
            depends.append(name)
    assert sorted(depends) == sorted(set(algorithm.GROUPED) - set(algorithm.OURS))


def test_verl_has_the_known_losses_and_no_other():
    from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY

    import recipe.credit.policy_loss  # noqa: F401

    assert set(algorithm.LOSSES) == set(POLICY_LOSS_REGISTRY)
