"""Train with the command line of train_fctncalling.py: its 14 flags, as settings of this recipe.

    python -m recipe.tools.train_fctncalling --dataset_path FILE --model_name_or_path MODEL [flags] [Hydra overrides]

It prints the commands that it stands for, then runs them; with --dry-run it only prints. The data of a JSON file is
made first, into the run's folder. ./results/<experiment>/<model>/<data set>/<algorithm> has links to the learning
curves and the report. docs/reference/commands.md explains the flags. Overrides come last and win.
"""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from data_prep.build import Options, build
from recipe.files import PreflightError
from recipe.machine.processes import Interruptible, end_with_parent
from recipe.report import page, tables
from recipe.settings import compose, detect_hardware, quoted

CONFIGURATION = "fctncalling"
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
FLAGS: dict[str, tuple[Any, str, tuple[str, ...]]] = {
    "seed": (10, "order of the rows, sampling", ("data.seed", f"{ROLLOUT}.seed")),
    "env_name": ("fctncalling_env", "the only one", ()),
    "algorithm_name": ("TPPO", "TPPO or APPO", ()),
    "experiment_name": ("default", "first folder of the run and the results", ("trainer.experiment_name",)),
    "num_mini_batch": (2, "optimizer steps an update and epoch", ()),
    "ppo_epoch": (1, "times that an update goes over its episodes", (f"{ACTOR}.ppo_epochs",)),
    "lr": (1e-7, "of the policy", (f"{ACTOR}.optim.lr",)),
    "critic_lr": (5e-6, "of the critic", ("critic.optim.lr",)),
    "n_rollout_threads": (2, "episodes an update is made of", ("data.train_batch_size",)),
    "gradient_cp_steps": (4, "parts of a mini-batch, for memory", ()),
    "max_new_tokens": (128, "of one message of the model", ("interaction.max_tokens_per_reply",)),
    "save_interval": (30, "updates between two checkpoints", ("trainer.save_freq",)),
}
"""Flag -> default, meaning, and the settings that take its value as it is."""
CHOICES = {"env_name": ["fctncalling_env"], "algorithm_name": ["TPPO", "APPO"]}
OWN = (".json", ".py")
"""Endings of files that are an environment: entries, or code."""


def main(arguments: Sequence[str] | None = None) -> int:
    form, prog = argparse.RawDescriptionHelpFormatter, "python -m recipe.tools.train_fctncalling"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__, formatter_class=form, allow_abbrev=False)
    for name, (default, meaning, _) in FLAGS.items():
        more = {"type": type(default), "default": default, "choices": CHOICES.get(name)}
        parser.add_argument(f"--{name}", help=f"{meaning} (%(default)s)", **more)
    parser.add_argument("--dataset_path", type=Path, required=True, help="JSON, or parquet that data_prep has written")
    parser.add_argument("--model_name_or_path", required=True, help="Hugging Face folder or hub id")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, start nothing")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="overrides of Hydra's, as for recipe.train")
    given = parser.parse_intermixed_args(arguments)
    if min(given.num_mini_batch, given.gradient_cp_steps) < 1 or given.n_rollout_threads % given.num_mini_batch:
        parser.error("--n_rollout_threads: give a multiple of --num_mini_batch; --gradient_cp_steps: from 1")
    model = Path(given.model_name_or_path.rstrip("/").removesuffix("/hf")).name  # an export is called by its stage
    names = given.experiment_name, model, given.dataset_path.stem, given.algorithm_name
    run, results, made = Path("outputs", "fctncalling", *names), Path("results", *names), None
    try:
        said = overrides(given, run)
        config = compose(CONFIGURATION, said)
        if given.dataset_path.suffix in OWN:
            made = Options(config.interaction.protocol, config.interaction.docs, environment=str(given.dataset_path))
            command = ["python", "-m", "data_prep", "--environment", made.environment, "--out", str(run / "data")]
            print(shlex.join([*command, "--protocol", made.protocol, "--docs", made.docs_style]))
        lines = " \\\n    ".join(map(shlex.quote, said))
        print(f"python -m recipe.train --config-name {CONFIGURATION} \\\n    {lines}", flush=True)
        if given.dry_run:
            return 0
        if made:
            build(run / "data", made)
        _link(results, config)
        status = _run([sys.executable, "-m", "recipe.train", "--config-name", CONFIGURATION, *said])
    except (PreflightError, OSError, RuntimeError, ValueError) as error:
        print(f"\n{CONFIGURATION} cannot start: {error}", file=sys.stderr)
        return 1
    if tables.trained_stages(Path(config.paths.run)):
        page.write(Path(config.paths.run))
        print(f"{tables.table([Path(config.paths.run)])}\n\nresults       {results}")
    return status


def overrides(given: argparse.Namespace, run: Path) -> list[str]:
    """The flags as overrides of Hydra's, and after them those that were given."""
    path, own = given.dataset_path, []
    if path.suffix in OWN:
        own = [f"+interaction.environments.{path.stem}={quoted(str(path.absolute()))}"]
        train, val = (run / "data" / f"{path.stem}_{part}.parquet" for part in ("train", "val"))
    else:
        found = [path] if path.suffix == ".parquet" and path.is_file() else sorted(path.glob("*_train.parquet"))
        if len(found) != 1:
            raise PreflightError(f"--dataset_path {path}: give JSON, parquet, or a folder with one *_train.parquet")
        train, others = found[0], sorted(found[0].parent.glob("*_val.parquet"))
        val = others[0] if len(others) == 1 else train  # it is only read where an override asks for validation
    mini_batch = given.n_rollout_threads // given.num_mini_batch
    said = [
        *_hardware(given.overrides),
        f"algorithm={given.algorithm_name.lower()}",
        f"paths.run={quoted(str(run))}",
        f"actor_rollout_ref.model.path={quoted(given.model_name_or_path)}",
        *own,
        f"data.train_files={quoted(str(train))}",
        f"data.val_files={quoted(str(val))}",
        f"{ACTOR}.ppo_mini_batch_size={mini_batch}",
        f"{ACTOR}.use_dynamic_bsz=false",
        *(f"{key}={quoted(str(getattr(given, name)))}" for name, (*_, keys) in FLAGS.items() for key in keys),
    ]
    config = compose(CONFIGURATION, [*said, *given.overrides])
    share = mini_batch * config.actor_rollout_ref.rollout.n // config.trainer.n_gpus_per_node // config.trainer.nnodes
    most = max(1, share // given.gradient_cp_steps)
    part = next(size for size in range(most, 0, -1) if share % size == 0)  # episodes that a card computes at once
    keys = (f"{ACTOR}.ppo", f"{ROLLOUT}.log_prob", "actor_rollout_ref.ref.log_prob")
    return [*said, *(f"{key}_micro_batch_size_per_gpu={part}" for key in keys), *given.overrides]


def _hardware(given: Sequence[str]) -> list[str]:
    """The profile for the cards of CUDA_VISIBLE_DEVICES, which nvidia-smi does not look at."""
    cards = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = "HARDWARE" in os.environ or any(text.startswith("hardware=") for text in given)
    if cards is None or chosen or detect_hardware() == "cpu":
        return []
    count = len([card for card in cards.split(",") if card.strip() not in ("", "-1")])
    return ["hardware=cpu"] if not count else ["hardware=gpu1"] if count == 1 else [f"trainer.n_gpus_per_node={count}"]


def _link(folder: Path, config: DictConfig) -> None:
    """Links to the learning curves and the report of the run; a file of yours there stays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, target in {"tensorboard": config.paths.stage, "report.html": config.paths.run}.items():
        if (path := folder / name).is_symlink() or not path.exists():
            path.unlink(missing_ok=True)
            path.symlink_to(os.path.relpath(Path(target) / name, folder))


def _run(command: Sequence[str]) -> int:
    """The exit status of a training; an interrupt is passed on to it."""
    try:
        with Interruptible():
            process = subprocess.Popen(command, start_new_session=True, preexec_fn=end_with_parent)
            return process.wait()
    except KeyboardInterrupt:
        process.terminate()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
