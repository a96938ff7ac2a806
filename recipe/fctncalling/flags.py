"""The 14 flags of train_fctncalling.py, read and checked as far as each says something by itself."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ENV_NAME = "fctncalling_env"
OWN = (".json", ".py")
"""Files that are an environment: entries of the user's own, or code."""


def parse(arguments: Sequence[str], description: str | None = None) -> argparse.Namespace:
    """The command line; flags and overrides may be mixed. Ends the process with a line where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.fctncalling",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    number: dict[str, Any] = {"type": _count, "metavar": "N"}
    rate: dict[str, Any] = {"type": _rate, "metavar": "RATE"}
    parser.add_argument("--seed", type=_seed, default=10, metavar="N", help="order of the rows, sampling (10)")
    parser.add_argument("--env_name", default=ENV_NAME, choices=[ENV_NAME], help="there is one, and it is the default")
    parser.add_argument("--algorithm_name", default="TPPO", choices=["TPPO", "APPO"], help="default: TPPO")
    parser.add_argument("--experiment_name", type=_folder, default="default", metavar="NAME", help="default: default")
    parser.add_argument("--num_mini_batch", **number, default=2, help="optimizer steps an update and epoch (2)")
    parser.add_argument("--ppo_epoch", **number, default=1, help="times that an update goes over its episodes (1)")
    parser.add_argument("--lr", **rate, default=1e-7, help="of the policy (1e-7)")
    parser.add_argument("--critic_lr", **rate, default=5e-6, help="of the critic (5e-6)")
    parser.add_argument(
        "--dataset_path", type=Path, required=True, metavar="PATH", help="JSON, or parquet that data_prep has written"
    )
    parser.add_argument("--model_name_or_path", required=True, metavar="MODEL", help="Hugging Face folder or hub id")
    parser.add_argument("--n_rollout_threads", **number, default=2, help="episodes an update is made of (2)")
    parser.add_argument("--gradient_cp_steps", **number, default=4, help="parts of a mini-batch, for memory (4)")
    parser.add_argument("--max_new_tokens", **number, default=128, help="of one message of the model (128)")
    parser.add_argument("--save_interval", **number, default=30, help="updates between two checkpoints (30)")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start nothing")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides of Hydra's, as for recipe.train")
    given = parser.parse_intermixed_args(arguments)
    for name in ("experiment_name", "dataset_path", "model_name_or_path"):
        if "${" in str(getattr(given, name)):
            parser.error(f"--{name} {getattr(given, name)}: a configuration would take ${{ for a reference. Rename it")
    if given.n_rollout_threads % given.num_mini_batch:
        parser.error(
            f"--n_rollout_threads {given.n_rollout_threads} --num_mini_batch {given.num_mini_batch}: the episodes of "
            "an update are divided into that many mini-batches; expected a multiple"
        )
    if given.dataset_path.suffix in OWN:
        if not given.dataset_path.is_file():
            parser.error(f"--dataset_path {given.dataset_path}: there is no such file")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", given.dataset_path.stem):
            parser.error(
                f"--dataset_path {given.dataset_path}: its environment is called as the file; expected a name of "
                "letters, digits and _. Rename the file"
            )
    return given


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number, 1 or more")
    return int(text)


def _seed(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if not 0 < rate < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no learning rate above 0, such as 1e-6")
    return rate


def _folder(text: str) -> str:
    if not text.isprintable() or text in ("", ".", "..") or "/" in text or len(text) > 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a folder")
    return text
