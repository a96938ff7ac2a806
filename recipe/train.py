"""Train one stage: compose the configuration, check it, hand it to verl's own `run_ppo`, export the model.

    python -m recipe.train --config-name stage1 [Hydra overrides]

Composing a configuration, `--help` and the first checks of `recipe.preflight` import neither torch nor Ray, so most
mistakes show within seconds.
"""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hydra
from omegaconf import DictConfig, open_dict

from recipe import checkpoints, manifest, preflight, processes, remains, reward_file, starts
from recipe.console import Tail
from recipe.errors import PreflightError
from recipe.export import ExportError
from recipe.files import told

CONFIG_DIR = Path(__file__).parent / "config"

GATE_ADVICE = (
    "The same command with more epochs (trainer.total_epochs) trains on from there, with a lower stage.gate.value or "
    "stage.gate=null it goes on to the next stage."
)


WRITABLE = "Set paths.run or RUN to a folder that can be written to and has room."


def verl_config_dir() -> Path:
    """verl's folder of Hydra configurations, found without importing verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("verl is not installed in this environment. Run `bash setup.sh` and start through the scripts.")
    return Path(next(iter(spec.submodule_search_locations))) / "trainer" / "config"


def detect_hardware() -> str:
    """Hardware profile: the variable HARDWARE, else by how many GPUs `nvidia-smi` lists: cpu, gpu1 or gpu8."""
    if profile := os.environ.get("HARDWARE"):
        return profile
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    gpus = len(answer.stdout.strip().splitlines()) if answer.returncode == 0 else 0
    return {0: "cpu", 1: "gpu1"}.get(gpus, "gpu8")


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
    os.environ["VERL_FILE_LOGGER_PATH"] = str(stage / "metrics" / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl")


@contextmanager
def writing(config: DictConfig) -> Iterator[None]:
    """Ends the process with one line where the run's folder cannot be written, or has no room."""
    try:
        yield
    except (OSError, ExportError) as error:
        text = f"{told(error)}. {WRITABLE}" if isinstance(error, OSError) else error
        sys.exit(f"\n{config.stage.name} cannot start: {text}")


def say(lines: list[str]) -> None:
    """Print what was done to go on from an earlier start; the console shows such lines."""
    for line in lines:
        print(f"RESUME {line}", flush=True)


def write_start(config: DictConfig) -> None:
    """Note what this start begins with, its configuration too, and make the folder of its metrics. After all checks.

    Raises:
        OSError: the stage's folder cannot be written.
    """
    starts.note(config)
    manifest.write_config(config)
    Path(os.environ["VERL_FILE_LOGGER_PATH"]).parent.mkdir(parents=True, exist_ok=True)


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
    from recipe.credit.registry import check_names

    try:
        check_names(config)
    except ValueError as error:
        sys.exit(f"\n{config.stage.name} cannot start: {error}")
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

    run_ppo(reward_file.for_verl(config), task_runner_class=ray.remote(num_cpus=1)(TaskRunner))


def supervise(config: DictConfig) -> int:
    """Run this same command again as a child that is watched, as the curriculum does; returns its exit status.

    What it prints goes to the stage's log and to this terminal, and nothing of it outlives it.
    """
    run, name = Path(config.paths.run), f"{config.stage.name}_{time.strftime('%Y%m%d-%H%M%S')}.log"
    log = run / "logs" / name
    tail = Tail(log)
    with writing(config), processes.alone(run) as note:
        try:
            return processes.run([sys.executable, "-m", "recipe.train", *sys.argv[1:]], log, tail.echo, note)
        except KeyboardInterrupt:
            return 130
        finally:
            tail.echo()


@hydra.main(version_base=None, config_path="config", config_name="stage1")
def _main(config: DictConfig) -> None:
    watched = remains.TOKEN in os.environ
    if not config.preflight_only and not watched:
        sys.exit(supervise(config))
    set_environment(config)
    try:
        starts.check_mode(config)
        checkpoints.check(config)
        if not config.preflight_only:
            with writing(config):
                say(checkpoints.repair(config))
        lacks = preflight.check(config)
        if not config.preflight_only and not checkpoints.at_target(config):
            start_prefork(config)
        preflight.check_model(config)
        if not config.preflight_only:
            with writing(config):
                say(starts.start_over(config))
                write_start(config)
                manifest.note(config)
    except PreflightError as error:
        sys.exit(f"\n{config.stage.name} cannot start: {error}")
    print(preflight.summary(config), flush=True)
    if config.preflight_only:
        if lacks:
            listed = "".join(f"\n- {text}" for text in lacks)
            sys.exit(f"all other checks passed; nothing was started. {config.stage.name} cannot start here:{listed}")
        print("all checks passed; nothing was started")
        return
    if not checkpoints.at_target(config):
        launch(config)
    if config.trainer.save_freq > 0:
        try:
            done = checkpoints.finish(config)
        except OSError as error:
            sys.exit(f"\n{config.stage.name} has made all its steps, but cannot hand on its model: {told(error)}.")
        print(f"model of step {done.model_step} exported to {done.model}")
        if done.gate:
            print(f"gate: {done.gate.text}")
            if done.gate.stops:
                sys.exit(f"{config.stage.name} has not passed its gate. {GATE_ADVICE}")


def main() -> None:
    """Entry point of `python -m recipe.train`."""
    if "hydra/job_logging=stdout" not in sys.argv:  # a watched child gets the whole command line of its parent
        arguments = sys.argv[1:]
        given = [i for i, argument in enumerate(arguments, 1) if "=" in argument and not argument.startswith("-")]
        end = given[-1] if given else len(arguments)  # argparse wants overrides side by side, also before `--cfg job`
        sys.argv[1:] = [*arguments[:end], *launch_overrides(arguments), *arguments[end:]]
    _main()


if __name__ == "__main__":
    main()
