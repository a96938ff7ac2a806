"""Run the stages of the curriculum in order, each from the model the one before exported, and report.

    python -m recipe.curriculum [--stages=stage1,stage2] [Hydra overrides for every stage]

A stage counts as done when it has reached its last step and exported its model; a stage that was interrupted goes on
from its last checkpoint, so starting the same command again continues with the first unfinished stage. The stages'
own output goes to `outputs/<run>/logs`; here each step is one line.
"""

import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from recipe import processes, report
from recipe.metrics_log import read_steps
from recipe.train import CONFIG_DIR, launch_overrides, read_done

START_MODEL = "actor_rollout_ref.model.path="

SHOWN = {
    "critic/score/mean": "reward",
    "train/progress": "progress",
    "train/format_rate": "well-formed",
    "train/acc": "accuracy",
    "response_length/mean": "tokens",
    "training/rollout_actor_probs_pearson_corr": "correlation",
    "timing_s/step": "seconds",
}
"""Numbers of a step that a person watches, and how the console calls them."""


def step_line(step: int, numbers: dict[str, float]) -> str:
    """One step as a line; the warm start has many short steps, of which every 50th is shown."""
    if "train/loss" in numbers:
        return f"loss {numbers['train/loss']:.3f}" if step % 50 == 0 else ""
    parts = [f"{label} {numbers[name]:.3g}" for name, label in SHOWN.items() if name in numbers]
    parts += [
        f"validation {name.split('/')[2]} {value:.3g}"
        for name, value in numbers.items()
        if name.startswith("val-core/")
    ]
    return "  ".join(parts)


@dataclass
class Watch:
    """Prints each new step of a stage as it is logged."""

    stage: Path
    started: float = field(default_factory=time.time)
    seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen = set(read_steps(self.stage))

    def __call__(self) -> None:
        for step, numbers in read_steps(self.stage).items():
            if step not in self.seen:
                self.seen.add(step)
                if line := step_line(step, numbers):
                    print(f"  {time.time() - self.started:4.0f} s  step {step:3}  {line}", flush=True)


def compose_stage(name: str, overrides: list[str]) -> DictConfig:
    """The configuration that `python -m recipe.train --config-name NAME` would run with."""
    own = [override for override in launch_overrides(overrides) if not override.startswith("hydra/")]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose(name, overrides=[*overrides, *own])


def run_stage(module: str, arguments: list[str], stage: Path, logs: Path) -> None:
    """Run one stage as a process of its own and end whatever it leaves behind.

    Raises:
        SystemExit: the stage failed; the message names its log and shows its last lines.
    """
    log = logs / f"{stage.name}_{time.strftime('%Y%m%d-%H%M%S')}.log"
    watch = Watch(stage)
    print(f"{stage.name}: started, log in {log}", flush=True)
    os.environ["BFCL_LOG_TO"] = "parent"
    code = processes.run([sys.executable, "-m", module, *arguments], log, watch)
    watch()
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        sys.exit(
            f"{tail}\n\n{stage.name} failed with status {code}. The whole log: {log}\n"
            "What was done before is kept; the same command goes on from there."
        )
    print(f"{stage.name}: done in {time.time() - watch.started:.0f} s", flush=True)


def main(arguments: list[str]) -> None:
    """Entry point of `python -m recipe.curriculum`."""
    began = time.time()
    names = list(OmegaConf.load(CONFIG_DIR / "curriculum.yaml").stages)
    if arguments and arguments[0].startswith("--stages="):
        chosen = arguments[0].removeprefix("--stages=").split(",")
        if unknown := sorted(set(chosen) - set(names)):
            sys.exit(f"--stages names {', '.join(unknown)}; recipe/config/curriculum.yaml has {', '.join(names)}")
        names, arguments = [name for name in names if name in chosen], arguments[1:]
    configs = {name: compose_stage(name, arguments) for name in names}
    first = configs[names[0]]
    run = Path(first.paths.run)
    tiny = first.paths.get("tiny_policy")
    try:
        if tiny and first.actor_rollout_ref.model.path is None:
            run_stage("recipe.sft", [], Path(tiny).parent, run / "logs")
        for name in names:
            stage = Path(configs[name].paths.stage)
            if done := read_done(stage):
                print(f"{stage.name}: already done, {done['global_step']} steps (delete {stage} to repeat it)")
            else:
                run_stage("recipe.train", ["--config-name", name, *arguments], stage, run / "logs")
            if not read_done(stage):
                sys.exit(f"{stage.name} ended without reaching its last step; see its log. It is not counted as done.")
            # a start model is for the first stage; the others start from what the stage before them exported
            os.environ.pop("MODEL", None)
            arguments = [argument for argument in arguments if not argument.startswith(START_MODEL)]
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; nothing is left running. The same command goes on with the first unfinished stage.")
    page = report.write(run)
    print(report.table([run]))
    print(f"\nreport        {page}\ntensorboard   .venv/bin/tensorboard --logdir {run}")
    print(f"total         {(time.time() - began) / 60:.1f} minutes")


if __name__ == "__main__":
    main(sys.argv[1:])
