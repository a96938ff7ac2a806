"""Distils the tiny policy from itself and from another, behind turns that gold plays; three minutes on two cores."""

from pathlib import Path

import pytest
from support import short_training

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.preflight.teacher import PATH
from recipe.stage.metrics_log import read_steps

pytestmark = pytest.mark.slow

GIVEN = (
    *("interaction.train.from_gold={share: 1.0, steps: 2}", "stage.gate=null"),
    *("data.max_response_length=1280", "interaction.max_tokens_per_reply=100"),
)
LOSS = "actor/distillation/abs_loss"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return short_training.prepared(tmp_path_factory.mktemp("distillation"))


def test_a_teacher_that_is_the_model_changes_nothing_and_a_resumed_run_asks_it_again(folder: Path):
    """The loss is on what the model wrote alone: the teacher gives each of these tokens the model's own probability."""
    given = ("algorithm=opd", f"{PATH}={folder}/model", *GIVEN)
    stage = short_training.train(folder, *given, "trainer.total_training_steps=1", "trainer.save_freq=1")
    first = read_steps(stage)[1]
    assert first[LOSS] < 1e-4 and first["actor/grad_norm"] < 1e-3
    assert first["train/given_turns"] > 0 and first["train/lost_samples"] == 0
    for line in short_training.episodes(stage):
        assert line["given_turns"] == len(line["episode"]["given"])
        assert len(line["episode"]["turns"]) >= 1
    assert not any(line["episode"]["given"] for line in short_training.episodes(stage, "val"))
    short_training.train(folder, *given)
    assert sorted(read_steps(stage)) == [1, 2]


def test_another_teacher_is_learned_from_beside_the_reward(folder: Path):
    make_tiny_policy(folder / "other")
    import torch
    from safetensors.torch import load_file, save_file

    weights = load_file(path := folder / "other" / "model.safetensors")
    torch.manual_seed(1)
    save_file({name: value + 0.02 * torch.randn_like(value) for name, value in weights.items()}, path)
    stage = short_training.train(folder, "algorithm=opd_grpo", f"{PATH}={folder}/other", *GIVEN, run="other")
    for step in read_steps(stage).values():
        assert step[LOSS] > 0.01 and step["actor/grad_norm"] > 0.01
