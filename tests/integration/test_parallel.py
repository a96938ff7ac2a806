"""What the configuration offers besides one process, on two: the same batch gives the same loss and the same gradients.

One stored batch, so that nothing that is sampled differs: two data-parallel trainers against one, in float32.
About six minutes on two cores.
"""

import math
from pathlib import Path

import pytest
from support.learning import learn, play
from support.short_training import train

from recipe.report.tables import CORRELATION
from recipe.stage.metrics_log import read_steps

SAME = ("actor/pg_loss", "actor/grad_norm", "actor/entropy", "actor/ppo_kl")
TWO = ["trainer.n_gpus_per_node=2"]
"""Two processes that train."""

FOUR = [f"actor_rollout_ref.{part}.log_prob_micro_batch_size_per_gpu=4" for part in ("rollout", "ref")]
"""Rows of a forward pass: what each of two processes has of a batch of eight."""


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return play(tmp_path_factory.mktemp("played"))


@pytest.mark.slow
def test_two_data_parallel_trainers_have_loss_and_gradients_of_one(played: tuple[Path, Path], tmp_path: Path) -> None:
    files, model = played  # in groups: a critic's head begins with random weights, which are others in each start
    given = ["algorithm=grpo", "actor_rollout_ref.rollout.n=2", "data.train_batch_size=4", *FOUR]
    given += ["actor_rollout_ref.actor.ppo_mini_batch_size=4", "trainer.total_training_steps=2"]
    one, two = (
        read_steps(learn(tmp_path / name, files, model, *given, *more)) for name, more in (("one", ()), ("two", TWO))
    )
    assert list(one) == list(two) == [1, 2]
    for step in one:
        for name in SAME:
            assert two[step][name] == pytest.approx(one[step][name], rel=1e-4, abs=1e-6), (step, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine",
    [
        [],
        [
            "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
            "actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=mp",
        ],
    ],
    ids=["two engines", "an engine of two processes"],
)
def test_engines_beside_each_other_or_in_parts_sample_what_is_trained(
    played: tuple[Path, Path], tmp_path: Path, engine: list[str]
) -> None:
    _, model = played
    (tmp_path / "model").symlink_to(model)
    given = [f"paths.data={model.parent}/data", "stage.old_log_probs_every=1", *FOUR, *TWO, *engine]
    steps = read_steps(train(tmp_path, *given))
    assert list(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers[CORRELATION] > 0.9999 and math.isfinite(numbers["actor/grad_norm"])
