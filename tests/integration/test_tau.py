"""tau's stages in real trainings: calls that work, alone with a ticket, and with a user who is asked.

Each starts all processes and makes two steps: six minutes on two cores.
"""

from pathlib import Path

import pytest
from support.short_training import episodes, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy

USER = "interaction.user={kind: scripted, lines: [My phone has no data., I have done that., '###STOP###']}"
STAGES = {"tau_format": [], "tau_solo": ["algorithm.filter_groups.enable=false"], "tau_user": [USER]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a policy that has learned nothing."""
    folder = tmp_path_factory.mktemp("tau")
    options = "--protocol python_calls --docs signature --option policy=none --option show_functions=false".split()
    assert prepare_data(["--environment", "tau", "--tiny", "--out", str(folder / "data" / "tau"), *options]) == 0
    make_tiny_policy(folder / "model", conversations=folder / "data" / "tau" / "tau_sft.parquet")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_trains_two_steps(stage: str, made: Path) -> None:
    trained = train(
        made,
        *STAGES[stage],
        *("stage.previous=null", "trainer.val_before_train=false"),
        f"data.val_files={made}/data/tau/{'tau_user_val' if stage == 'tau_user' else 'tau_format'}.parquet",
        "data.max_prompt_length=1024",
        "actor_rollout_ref.rollout.max_model_len=2048",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
        "stage.max_lost_share=1.0",
        config=stage,
        run=stage,
    )
    lines = episodes(trained)
    assert {line["step"] for line in lines} == {1, 2} and len(lines) >= 2 * 4 * 2  # with training rows of validations
    assert {line["environment"] for line in lines} == {"tau"} and {line["part"] for line in lines} == {"train"}
    assert all("clean" in line["episode"]["facts"] for line in lines)
    if stage == "tau_user":
        assert all(line["episode"]["turns"][0]["user"] == "My phone has no data." for line in lines)
