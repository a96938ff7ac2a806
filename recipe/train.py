"""Train one stage: compose the configuration, check it, hand it to verl's own `run_ppo`, export the model.

    python -m recipe.train --config-name stage1 [Hydra overrides]

Composing a configuration, `--help` and the first checks of `recipe.preflight` import neither torch nor Ray, so most
mistakes show within seconds.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from recipe import preflight, reward
from recipe.files import PreflightError
from recipe.machine import processes
from recipe.machine.cluster import TOKEN, Answer, runtime_env, watching
from recipe.preflight import machine
from recipe.preflight.settings import devices
from recipe.settings import command, is_offline
from recipe.stage import console, end, export, metrics_log, starts


def join(config: DictConfig, address: str) -> None:
    """Have verl connect to the cluster instead of starting a Ray, and workers begin as they would on this machine."""
    processes.note_cluster(Path(config.paths.run), address)
    os.environ["RAY_ADDRESS"] = address
    launched = Path(os.environ["VERL_FILE_LOGGER_PATH"]).stem
    OmegaConf.resolve(config)  # the workers do not have RUN, MODEL and other variables of this process
    asked: Any = OmegaConf.to_container(config.ray_kwargs.ray_init.runtime_env)
    with open_dict(config):  # Ray refuses numbers of CPUs and GPUs beside an address
        config.ray_kwargs.ray_init = {"runtime_env": runtime_env(os.environ, launched, asked)}


def launch(config: DictConfig, cluster: tuple[str, Answer] | None = None) -> None:
    """Run verl's trainer to the end of the stage. Imports torch, Ray and verl."""
    import ray
    from verl.plugin.platform import PlatformRegistry
    from verl.trainer import main_ppo
    from verl.trainer.main_ppo import TaskRunnerV1, run_ppo
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    if config.trainer.device == "cpu" and PlatformRegistry.get("cpu") is None:  # verl hides errors of plug-ins
        sys.exit("The CPU platform is not registered with verl. Run `bash setup.sh`, which installs the entry point.")
    validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))

    class TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
        """verl's task runner with this recipe's trainer.

        The trainer takes the place of verl's own of the same mode in the registry of the process that looks it up:
        verl tests for "sync" literally, and any other name gets the asynchronous replay buffer and other checkpoints.
        """

        def run(self, config: DictConfig) -> None:
            from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

            mode = config.trainer.v1.trainer_mode
            if is_offline(config):
                from recipe.offline.trainer import OfflineTrainer as Trainer
            elif mode == "sync":
                from recipe.training.trainer import CurriculumTrainer as Trainer  # type: ignore[assignment]
            elif mode == "colocate_async":
                from recipe.training.async_trainer import AsyncTrainer as Trainer  # type: ignore[assignment]
            else:
                from recipe.training.async_trainer import SeparateTrainer as Trainer  # type: ignore[assignment]
            TRAINER_REGISTRY[mode] = Trainer
            starts.mask_prints(main_ppo)
            super().run(config)

    starts.mask_prints(main_ppo)
    if cluster is None:
        if config.trainer.device == "cpu":  # Ray's GPUs are then numbers that its processes ask for
            init, wanted = config.ray_kwargs.ray_init, devices(config)
            init.num_gpus = max(init.num_gpus or 0, wanted)
            init.num_cpus = max(init.num_cpus or 0, 4 + 4 * wanted)
        with watching():
            run_ppo(reward.for_verl(config), task_runner_class=ray.remote(num_cpus=1)(TaskRunner))
        return
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    address, answer = cluster
    here = NodeAffinitySchedulingStrategy(answer.here, soft=False)
    join(config, address)
    with watching({node.id: str(node) for node in answer.nodes}, grace=60.0):
        task_runner = ray.remote(num_cpus=1, scheduling_strategy=here)(TaskRunner)  # beside the files that it writes
        run_ppo(reward.for_verl(config), task_runner_class=task_runner)


def supervise(config: DictConfig) -> int:
    """Run this same command again as a child that is watched, as the curriculum does; returns its exit status.

    The child's output goes to a log file. The terminal shows its status, one line a step, and alarms. `TOKEN` in the
    environment marks the child.
    """
    run, stage = Path(config.paths.run), Path(config.paths.stage)
    log, again = console.new_log(run, stage.name), f"the same command{starts.going_on(config)}"
    watch = console.Watch(stage, log, alone=True)
    try:
        with starts.writing(config), processes.alone(run) as note:
            print(f"{stage.name}: log in {log}", flush=True)
            code = processes.run([sys.executable, "-m", "recipe.train", *sys.argv[1:]], log, watch, note)
            watch()
    except KeyboardInterrupt:
        print(f"\ninterrupted; nothing is left running. {again.capitalize()} goes on", flush=True)
        return 130
    if code and watch.training:
        print(console.failure(stage.name, log, f"ended with status {code}", again), flush=True)
    return code


def look(config: DictConfig, overrides: list[str]) -> None:
    """With `preflight_only` all checks; what this machine lacks is said at the end. Raises PreflightError otherwise."""
    starts.set_environment(config, config.trainer.nnodes)
    alone, lacks = False, list[str]()
    try:
        alone = machine.find_cluster(config) is None
    except PreflightError as error:
        lacks.append(str(error))
    lacks += preflight.check(config, alone)
    print(preflight.summary(config, overrides), flush=True)
    if lacks:
        listed = "".join(f"\n- {text}" for text in lacks)
        sys.exit(f"all other checks passed; nothing was started. {config.stage.name} cannot start here:{listed}")
    print("all checks passed; nothing was started. Lines above that begin with NOTE may be worth a look")


def run(config: DictConfig, overrides: list[str]) -> None:
    """One start, from top to bottom: check, note, launch, export. Raises PreflightError where it cannot start."""
    starts.set_environment(config, config.trainer.nnodes)
    cluster = machine.find_cluster(config)  # before the run's folder is touched: each node has to see it
    with starts.writing(config):
        starts.say(starts.repair(config, alone=cluster is None))
    if cluster is None and config.launcher.get("prefork"):
        from recipe.machine import prefork  # another process imports large libraries meanwhile

        sys.executable = prefork.start()
    preflight.check(config, alone=cluster is None)
    trains = not end.at_target(config) or end.owes_validation(config)
    starts.note(config, overrides)
    print(preflight.summary(config, overrides), flush=True)
    if trains:
        print(console.BEGINS, flush=True)
        launch(config, cluster)
        print(console.ENDS, flush=True)
        if times := metrics_log.time_line(Path(config.paths.stage)):
            print(times, flush=True)
    else:
        print(f"{config.stage.name} is done, and not trained again. Another training needs another RUN.", flush=True)
    if config.trainer.save_freq > 0:
        done = end.finish(config)
        model = Path(config.paths.stage) / "hf"
        print(f"model of step {done.model_step} exported to {model}")
        export.write_card(config, model)
        if done.gate:
            print(f"gate: {done.gate.text}")
            if done.gate.stops:
                sys.exit(f"{config.stage.name} has not passed its gate. {starts.gate_advice(config)}")


def main() -> None:
    form, what = "[%(asctime)s][%(name)s][%(levelname)s] - %(message)s", ""
    try:
        config, overrides = command(sys.argv[1:])
        preflight.check_settings(config)
        logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=form)
        what = f"{config.stage.name} "
        if config.preflight_only:
            look(config, overrides)
        elif TOKEN in os.environ:
            run(config, overrides)
        else:
            sys.exit(supervise(config))
    except PreflightError as error:
        sys.exit(f"\n{what}cannot start: {error}")


if __name__ == "__main__":
    main()
    if "RAY_ADDRESS" not in os.environ:  # our own Ray would take seconds to end; whoever watches this does it
        sys.stdout.flush()
        os._exit(0)
