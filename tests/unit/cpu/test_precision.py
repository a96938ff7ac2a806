"""The number format of a CPU: measured once a run, filled into verl's keys, and no reason to train anything again."""

from pathlib import Path

import pytest

from recipe.cpu import precision
from recipe.cpu.precision import Rates
from recipe.files import PreflightError
from recipe.preflight import require
from recipe.preflight.settings import problems
from recipe.settings import compose
from recipe.stage.starts import fingerprint

PARAMETERS = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


@pytest.mark.parametrize(("rates", "best"), [(Rates(100.0, 400.0), "bfloat16"), (Rates(100.0, 140.0), "float32")])
def test_it_is_measured_once_a_run_and_all_of_verls_keys_follow(rates, best, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(precision, "measure", lambda: rates)
    for name, group in (("stage1", "hardware"), ("sft", "sft_hardware")):
        for _ in range(2):
            config = compose(name, [f"{group}=cpu"], group=group)
            precision.settle(config, tmp_path)
            monkeypatch.setattr(precision, "measure", lambda: 1 / 0)  # the run knows
            if name == "sft":
                assert config.engine.mixed_precision.param_dtype == best
                continue
            policy = config.actor_rollout_ref
            parts = [policy.actor.fsdp_config, policy.ref.fsdp_config]
            assert {policy.rollout.dtype, *(part.mixed_precision.param_dtype for part in parts)} == {best}
            assert policy.actor.ppo_max_token_len_per_gpu == {"float32": 1024, "bfloat16": 2048}[best]
            assert {part.mixed_precision.reduce_dtype for part in parts} == {"fp32"}


def test_what_this_processor_does_is_measured_and_a_format_that_is_given_is_not(tmp_path: Path) -> None:
    rates = precision.measure()
    assert min(rates.float32, rates.bfloat16) > 0
    config = compose("stage1", ["hardware=cpu", "launcher.precision=float32"])
    precision.settle(config, tmp_path)
    assert config.actor_rollout_ref.rollout.dtype == "float32" and not any(tmp_path.iterdir())


def test_an_engine_and_a_trainer_in_two_formats_are_refused_on_a_cpu() -> None:
    for given in ([f"{PARAMETERS}=fp32"], ["actor_rollout_ref.rollout.dtype=float32"]):
        with pytest.raises(PreflightError, match=r"float32.*launcher\.precision"):
            require(problems(compose("stage1", ["hardware=cpu", *given])))
    require(
        problems(compose("stage1", ["hardware=cpu", f"{PARAMETERS}=bf16", "actor_rollout_ref.rollout.dtype=bfloat16"]))
    )
    require(problems(compose("stage1", ["hardware=gpu8", "actor_rollout_ref.rollout.dtype=float16"])))


def test_a_warm_start_of_another_format_is_the_same_warm_start(tmp_path: Path) -> None:
    formats = ("launcher.precision=float32", "engine.mixed_precision.param_dtype=bf16")
    configs = [
        compose("sft", ["sft_hardware=cpu", f"model.path={tmp_path}", given], group="sft_hardware") for given in formats
    ]
    assert len({fingerprint(config) for config in configs}) == 1
    assert "param_dtype" in configs[0].engine.mixed_precision
