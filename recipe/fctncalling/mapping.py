"""What the flags mean here: a configuration, overrides of Hydra's, and data that may have to be made first."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from data_prep.build import Options
from recipe.errors import PreflightError
from recipe.fctncalling.flags import OWN
from recipe.settings import compose, detect_hardware, quoted

CONFIGURATION = "fctncalling"
RUNS = Path("outputs") / "fctncalling"


def names(given: argparse.Namespace) -> Path:
    """Experiment, model, data set and algorithm as folders; a model exported to `<stage>/hf` is called by its stage."""
    model, data = (Path(os.path.abspath(path)) for path in (given.model_name_or_path, given.dataset_path))
    model = model.parent if model.name == "hf" else model
    return Path(given.experiment_name, model.name, data.stem, given.algorithm_name)


def overrides(given: argparse.Namespace) -> list[str]:
    """What the flags say, as overrides of Hydra's, and after it those that were given.

    Raises:
        PreflightError: a file of the data set is missing, the cards cannot share a mini-batch, or the overrides cannot
            be composed.
    """
    mini_batch = given.n_rollout_threads // given.num_mini_batch
    run = RUNS / names(given)
    said = [
        *_cards(given.overrides),
        f"algorithm={given.algorithm_name.lower()}",
        f"paths.run={quoted(str(run))}",
        f"trainer.experiment_name={quoted(given.experiment_name)}",
        f"actor_rollout_ref.model.path={quoted(given.model_name_or_path)}",
        *_data(given.dataset_path, run / "data"),
        f"data.seed={given.seed}",
        f"actor_rollout_ref.rollout.seed={given.seed}",
        f"data.train_batch_size={given.n_rollout_threads}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={mini_batch}",
        f"actor_rollout_ref.actor.ppo_epochs={given.ppo_epoch}",
        f"actor_rollout_ref.actor.optim.lr={given.lr}",
        f"critic.optim.lr={given.critic_lr}",
        f"interaction.max_tokens_per_reply={given.max_new_tokens}",
        f"trainer.save_freq={given.save_interval}",
    ]
    config = compose(CONFIGURATION, [*said, *given.overrides])
    part = _micro_batch(given, mini_batch, config)
    parts = [  # without tokens as the measure, all passes need a number of episodes
        "actor.use_dynamic_bsz=false",
        f"actor.ppo_micro_batch_size_per_gpu={part}",
        f"rollout.log_prob_micro_batch_size_per_gpu={part}",
        f"ref.log_prob_micro_batch_size_per_gpu={part}",
    ]
    return [*said, *(f"actor_rollout_ref.{text}" for text in parts), *given.overrides]


def _micro_batch(given: argparse.Namespace, mini_batch: int, config: DictConfig) -> int:
    """Episodes of a mini-batch that a card computes at once."""
    cards = config.trainer.n_gpus_per_node * config.trainer.nnodes
    episodes = mini_batch * config.actor_rollout_ref.rollout.n
    if episodes % cards:
        raise PreflightError(
            f"--n_rollout_threads {given.n_rollout_threads} --num_mini_batch {given.num_mini_batch} make mini-batches "
            f"of {episodes}, which {cards} GPUs cannot share evenly. Set --n_rollout_threads to a multiple of "
            f"{cards * given.num_mini_batch}, or trainer.n_gpus_per_node={episodes}."
        )
    share = episodes // cards
    return next(size for size in range(max(1, share // given.gradient_cp_steps), 0, -1) if share % size == 0)


def _cards(given: Sequence[str]) -> list[str]:
    """The profile for the cards of CUDA_VISIBLE_DEVICES, which nvidia-smi does not look at."""
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = "HARDWARE" in os.environ or any(text.startswith("hardware=") for text in given)
    if cards is None or chosen or detect_hardware() == "cpu":
        return []
    count = len([card for card in cards.split(",") if card.strip() not in ("", "-1")])
    return ["hardware=cpu"] if not count else ["hardware=gpu1"] if count == 1 else [f"trainer.n_gpus_per_node={count}"]


def _data(path: Path, prepared: Path) -> list[str]:
    """Where the rows are, and of entries of the user's own, what the environment is called."""
    if path.suffix in OWN:
        train, val = (prepared / f"{path.stem}_{part}.parquet" for part in ("train", "val"))
        files = [f"+interaction.environments.{path.stem}={quoted(str(path.absolute()))}"]
    else:
        train, files = _parquet(path, "train"), []
        others = sorted(train.parent.glob("*_val.parquet"))
        val = others[0] if len(others) == 1 else train  # it is only read where an override asks for validation
    return [*files, f"data.train_files={quoted(str(train))}", f"data.val_files={quoted(str(val))}"]


def _parquet(path: Path, part: str) -> Path:
    """The one file of a data set to train on.

    Raises:
        PreflightError: there is none, or more than one.
    """
    if path.is_file() and path.suffix == ".parquet":
        return path
    there = sorted(path.glob("*.parquet"))
    found = [file for file in there if file.stem.endswith(f"_{part}")]
    if len(found) == 1:
        return found[0]
    listed = f" It has {', '.join(file.name for file in there[:9])}: give one of these." if there else ""
    raise PreflightError(
        f"--dataset_path {path}: expected a JSON file of entries, a parquet file of data_prep's, or a folder with one "
        f"*_{part}.parquet.{listed}"
    )


def preparation(given: argparse.Namespace, config: DictConfig) -> tuple[Path, Options] | None:
    """Folder and options of the data that has to be made first; None where it is there."""
    if given.dataset_path.suffix not in OWN:
        return None
    options = Options(
        protocol=config.interaction.protocol, docs=config.interaction.docs, environment=str(given.dataset_path)
    )
    return RUNS / names(given) / "data", options
