"""Checks before any worker starts: each failure says what was given, what was expected and what to change.

Nothing here imports torch, Ray or verl, and only `check_model` imports transformers; the other checks take a second or
two.
"""

import importlib.metadata
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import loopback
from recipe.errors import PreflightError
from recipe.settings import CONFIG_DIR
from recipe.settings.data_files import as_list
from recipe.stage.starts import check_mode, check_same_start
from recipe.trajectories import is_offline
from recipe.typed import read

VERL_VERSION = "0.9.1"


def check(config: DictConfig) -> list[str]:
    """Run all checks but `check_model`, and fill in what may be left open: start model, file of agent loops, logger.

    Returns what this machine lacks (GPUs, memory, disk, a server that plays the user): with `preflight_only` that does
    not stop the other checks.

    Raises:
        PreflightError: at the first check that fails.
    """
    from recipe.preflight.batches import fit_bucket
    from recipe.preflight.data import check_data
    from recipe.preflight.features import loggers_of
    from recipe.preflight.machine import check_machine
    from recipe.preflight.reward import check_reward
    from recipe.preflight.start import resolve_model
    from recipe.preflight.user import check_user
    from recipe.stage.choosing import check_rows

    agent = config.actor_rollout_ref.rollout.agent
    if agent.agent_loop_config_path is None:
        agent.agent_loop_config_path = str(CONFIG_DIR / "agent_loops.yaml")
    if "file" not in (loggers := loggers_of(config)):  # console, gates, tables and curves read what this one writes
        config.trainer.logger = [*loggers, "file"]
    check_versions()
    check_settings(config)
    plays = not is_offline(config)
    if plays:
        check_data(config)
        check_rows(config)
    resolve_model(config)
    fit_bucket(config)
    if plays:
        check_reward(config)
    lacks = [*(check_user(config) if plays else ()), *check_machine(config)]
    check_same_start(config)
    return lacks


def check_settings(config: DictConfig) -> None:
    """What needs neither data nor model nor machine: keys that nothing reads, values that cannot work.

    Raises:
        PreflightError: at the first check that fails.
    """
    from recipe.preflight.algorithm import check_algorithm
    from recipe.preflight.batches import fit_batches
    from recipe.preflight.features import check_features
    from recipe.preflight.keys import check_keys
    from recipe.preflight.lora import check_lora
    from recipe.preflight.mode import check_trainer_mode
    from recipe.preflight.offline import check_offline
    from recipe.settings.reading import check_values
    from recipe.settings.renamed import check_renamed

    for check_part in (
        check_values,
        check_renamed,
        check_mode,
        check_trainer_mode,
        check_keys,
        load_protocol,
        check_environments,
        check_offline,
        check_algorithm,
        check_lora,
        check_features,
        fit_batches,
    ):
        check_part(config)


def check_versions() -> None:
    """The plug-in points used here moved with every release of verl so far."""
    found = importlib.metadata.version("verl")
    if found != VERL_VERSION:
        raise PreflightError(
            f"verl {found} is installed, this recipe is written for {VERL_VERSION}. Run `bash setup.sh`."
        )


def load_protocol(config: DictConfig) -> Any:
    """The protocol that `interaction.protocol` and `interaction.docs` name."""
    from interaction import get_protocol

    try:
        return get_protocol(config.interaction.protocol, docs=config.interaction.docs)
    except ValueError as error:
        raise PreflightError(f"{error}. Set interaction.protocol and interaction.docs to known ones.") from error


def check_environments(config: DictConfig) -> None:
    """A user's environments can be played, and settings of single environments are some that these have.

    Raises:
        PreflightError: they are not.
    """
    from interaction.environment import READERS, options_of, register

    files = {
        str(name): os.path.abspath(os.path.expanduser(str(path)))  # workers have other working directories
        for name, path in config.interaction.environments.items()
    }
    for name, path in files.items():
        try:
            register({name: path})
            try_tasks(name)
        except ValueError as error:
            document, words = (
                "your_data" if Path(path).suffix in READERS else "your_tools",
                " ".join(str(error).split()),
            )
            raise PreflightError(
                f"interaction.environments.{name}={path}: {words}. docs/{document}.md has what is expected"
            ) from error
    config.interaction.environments = files
    for split in ("train", "val"):
        for name, options in config.interaction[split].environments.items():
            where = f"interaction.{split}.environments.{name}"
            given: Any = OmegaConf.to_container(options, resolve=True)
            try:
                if (kind := options_of(str(name))) is not None:
                    read(kind, given, where)
                elif options:
                    raise ValueError(f"environment {name} has no settings, and {', '.join(options)} was given")
            except ValueError as error:
                raise PreflightError(f"{error if where in str(error) else f'{where}: {error}'}.") from error


def try_tasks(environment: str, number: int = 4) -> None:
    """Play gold, an answer at once and a call that no task has on the first tasks of an environment.

    Raises:
        ValueError: something is not as `interaction.environment` says, or gold does not pass.
    """
    from functools import partial
    from itertools import islice

    from interaction import get_protocol
    from interaction.contract import called
    from interaction.environment import load_tasks, read_options
    from interaction.gold import check_task, play_gold

    protocol, options = get_protocol("think_xml"), read_options(environment, {})
    for task in islice(load_tasks(environment).values(), number):
        where = f"task {task.id}: "
        check_task(task, options)
        if any(True for _ in task.gold()):
            _, record = called(f"{where}gold", partial(play_gold, task, protocol))
            if record.fault or record.outcome is None or not record.outcome.passed:
                how = record.fault or f"it ended with {record.stop_reason}"
                raise ValueError(f"{where}its gold does not pass: {how}")


def check_model(config: DictConfig) -> None:
    """Weights, tokenizer, template, protocol and lengths fit each other, and the attention is right on the GPUs.

    After `check`; imports transformers: seconds.

    Raises:
        PreflightError: they do not.
    """
    from recipe.preflight import model as preflight_model
    from recipe.preflight.adapter import check_adapter_modules
    from recipe.preflight.gpu import check_gpu
    from recipe.preflight.trajectories import check_trajectories

    path = str(config.actor_rollout_ref.model.path)
    settings = preflight_model.load_settings(path)
    preflight_model.check_context(config, settings)
    preflight_model.check_weights(path)
    check_adapter_modules(config)
    tokenizer = preflight_model.load_tokenizer(path)
    plays = not is_offline(config)
    lines = [_check_writing(config, tokenizer)] if plays else []
    preflight_model.check_vocabulary(tokenizer, settings, path)
    lines += _check_rows(config, tokenizer) if plays else check_trajectories(config, tokenizer, settings)
    if attention := check_gpu(config):
        lines.append(attention)
    print("\n".join(lines), flush=True)


def _check_writing(config: DictConfig, tokenizer: Any) -> str:
    """Messages of model and environment survive the tokenizer and its template. Returns a line for the log."""
    from recipe.preflight.model import check_protocol
    from recipe.preflight.template import check_template

    path, protocol = str(config.actor_rollout_ref.model.path), load_protocol(config)
    check_protocol(tokenizer, protocol, path)
    template_kwargs = config.data.get("apply_chat_template_kwargs") or {}
    return f"chat template: {check_template(tokenizer, protocol, path, template_kwargs)}"


def _check_rows(config: DictConfig, tokenizer: Any) -> list[str]:
    """What is to be played fits the token limits. Returns lines for the log."""
    from recipe.preflight.budget import check_budget
    from recipe.preflight.model import check_lengths

    files = {key: as_list(config.data[key]) for key in ("train_files", "val_files")}
    return [check_lengths(config, tokenizer, files), *check_budget(config, tokenizer, load_protocol(config))]


def summary(config: DictConfig) -> str:
    """What will be used, a few lines for the log."""
    from recipe.preflight.features import algorithm_line, notes
    from recipe.preflight.mode import SEPARATE

    rollout, optim = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor.optim
    offline = is_offline(config)
    rows = f"{config.data.train_batch_size} {'stored rows' if offline else 'rows'} x {rollout.n} rollouts a step"
    if left_out := config.data.get("leave_out"):
        rows += f", {len(left_out)} tasks left out"
    adapter = config.actor_rollout_ref.model.lora_adapter_path
    length = f"{config.trainer.total_epochs} epochs"
    if (steps := config.trainer.total_training_steps) is not None:
        length = f"{steps} steps (trainer.total_training_steps)"
    nodes = f"{config.trainer.nnodes} nodes x " if config.trainer.nnodes > 1 else ""
    hardware = f"{nodes}{config.trainer.n_gpus_per_node} x {config.trainer.device}"
    if config.trainer.v1.trainer_mode == SEPARATE:
        hardware += f" to train, {rollout.nnodes * rollout.n_gpus_per_node} x to play"
    return "\n".join(
        [
            f"stage      {config.stage.name}",
            f"model      {config.actor_rollout_ref.model.path}{f' with the adapter {adapter}' if adapter else ''}",
            f"data       {config.offline.files if offline else config.data.train_files}, {rows}",
            f"reward     {'as stored' if offline else config.reward.custom_reward_function.path}",
            f"algorithm  {algorithm_line(config)}",
            f"learning   lr {optim.lr}, temperature {rollout.temperature}, {length}",
            f"hardware   {hardware}",
            f"output     {config.paths.stage}",
            f"watch      tensorboard --logdir {config.paths.run}",
            *(f"NOTE       {note}" for note in [*notes(config), *loopback.notes(config.trainer.nnodes)]),
        ]
    )
