"""Train one stage: compose the configuration, check it, hand it to verl's own `run_ppo`, export the model.

    python -m recipe.train --config-name stage1 [Hydra overrides]

Composing a configuration, `--help` and the first checks of `recipe.preflight` import neither torch nor Ray, so most
mistakes show within seconds.
"""

import atexit
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, open_dict

from recipe import manifest, preflight

CONFIG_DIR = Path(__file__).parent / "config"


def verl_config_dir() -> Path:
    """verl's folder of Hydra configurations, found without importing verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("verl is not installed in this environment. Run `bash setup.sh` and start through the scripts.")
    return Path(next(iter(spec.submodule_search_locations))) / "trainer" / "config"


def detect_hardware() -> str:
    """Hardware profile: the variable HARDWARE, else gpu8 where `nvidia-smi` answers, else cpu."""
    if profile := os.environ.get("HARDWARE"):
        return profile
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "gpu8" if answer.returncode == 0 and answer.stdout.strip() else "cpu"


def launch_overrides(arguments: list[str], group: str = "hardware") -> list[str]:
    """Overrides that every composition needs.

    Where verl's configurations are, no second log file of Hydra's own and, unless given, the hardware profile.
    """
    overrides = [f"hydra.searchpath=[file://{verl_config_dir()}]", "hydra/job_logging=stdout"]
    if not any(argument.startswith(f"{group}=") for argument in arguments):
        overrides.append(f"{group}={detect_hardware()}")
    return overrides


def set_environment(config: DictConfig) -> None:
    """Environment of this process and of every worker Ray starts: the profile's variables and where metrics go."""
    for name, value in config.launcher.env.items():
        os.environ.setdefault(name, str(value))
    stage = Path(config.paths.stage).absolute()
    os.environ.setdefault("TENSORBOARD_DIR", str(stage / "tensorboard"))
    # verl truncates this file when it starts, so every launch gets its own; readers let the last launch win
    metrics = stage / "metrics" / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    metrics.parent.mkdir(parents=True, exist_ok=True)
    os.environ["VERL_FILE_LOGGER_PATH"] = str(metrics)


def tee_output(path: Path) -> None:
    """Copy everything this process and its children print to `path`. `tee -i` outlives Ctrl-C and so sees the end."""
    if os.environ.get("BFCL_LOG_TO") == "parent":  # recipe.curriculum keeps the log
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    tee = subprocess.Popen(["tee", "-ai", str(path)], stdin=subprocess.PIPE)
    assert tee.stdin is not None
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    os.dup2(tee.stdin.fileno(), 1)
    os.dup2(tee.stdin.fileno(), 2)
    tee.stdin.close()

    def restore() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, copy in zip((1, 2), saved, strict=True):
            os.dup2(copy, fd)
        try:
            tee.wait(timeout=5)
        except subprocess.TimeoutExpired:
            tee.kill()

    atexit.register(restore)


def start_prefork(config: DictConfig) -> None:
    """On the CPU profile, have another process import the large libraries while this one does."""
    if config.launcher.get("prefork"):
        from recipe.cpu import prefork

        with open_dict(config):
            config.ray_kwargs.ray_init.runtime_env = {"py_executable": prefork.start()}


def launch(config: DictConfig) -> None:
    """Run verl's trainer to the end of the stage. Imports torch, Ray and verl."""
    import ray
    from verl.plugin.platform import PlatformRegistry
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    if config.trainer.device == "cpu" and PlatformRegistry.get("cpu") is None:  # verl hides errors of plug-ins
        sys.exit(
            "The CPU platform is not registered with verl. Run `bash setup.sh` again: it installs the entry point."
        )
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))

    class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
        """verl's task runner with this recipe's trainer.

        The trainer takes the place of "sync" in the registry of the process that looks it up: verl tests for that
        name literally, and any other gets the asynchronous replay buffer and other checkpoints.
        """

        def run(self, config: DictConfig) -> None:
            from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

            from recipe.trainer import CurriculumTrainer

            TRAINER_REGISTRY["sync"] = CurriculumTrainer
            super().run(config)

    run_ppo(config, task_runner_class=ray.remote(num_cpus=1)(TaskRunner))


def finish(config: DictConfig) -> None:
    """Export the last checkpoint's Hugging Face folder to `<stage>/hf` and note that the stage is done.

    A stage is done only if its checkpoint is that of its last step.
    """
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    latest = checkpoints / "latest_checkpointed_iteration.txt"
    step = int(latest.read_text()) if latest.exists() else 0
    target = json.loads((stage / "total_steps.json").read_text())["total_steps"]
    if step < target:
        sys.exit(f"{config.stage.name} ended at step {step} of {target}; start it again to go on.")
    hf = export_folder(checkpoints / f"global_step_{step}" / "actor" / "huggingface", stage / "hf")
    (stage / "done.json").write_text(json.dumps({"global_step": step, "model": str(hf)}) + "\n")
    print(f"model exported to {hf}")


def read_done(stage: Path) -> dict[str, Any] | None:
    """What `finish` noted about a stage, or None if the stage is not done."""
    note = stage / "done.json"
    if not note.exists() or not (stage / "hf" / "config.json").exists():
        return None
    return json.loads(note.read_text())


def export_folder(source: Path, target: Path) -> Path:
    """Copy a model folder so that a reader sees the old one, none, or the whole new one."""
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part)
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    return target


@hydra.main(version_base=None, config_path="config", config_name="stage1")
def _main(config: DictConfig) -> None:
    set_environment(config)
    try:
        preflight.check(config)
        if not config.preflight_only:
            start_prefork(config)
        preflight.check_model(config)
    except preflight.PreflightError as error:
        sys.exit(f"\n{config.stage.name} cannot start: {error}")
    if config.preflight_only:
        print(f"{preflight.summary(config)}\nall checks passed; nothing was started")
        return
    tee_output(Path(config.paths.run) / "logs" / f"{config.stage.name}_{time.strftime('%Y%m%d-%H%M%S')}.log")
    manifest.note(config)
    print(preflight.summary(config), flush=True)
    launch(config)
    if config.trainer.save_freq > 0:
        finish(config)


def main() -> None:
    """Entry point of `python -m recipe.train`."""
    sys.argv[1:] += launch_overrides(sys.argv[1:])
    _main()


if __name__ == "__main__":
    main()
