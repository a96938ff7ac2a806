"""Checks before any worker starts: each failure says what was given, what was expected and what to change.

Nothing here imports torch, Ray or verl, and only `check_model` imports transformers; the other checks take a second or
two.
"""

import importlib.metadata
import inspect
import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import reward_file
from recipe.errors import PreflightError
from recipe.starts import check_same_start

VERL_VERSION = "0.9.1"


def data_command(config: DictConfig) -> str:
    """The command that makes the data of the chosen hardware profile."""
    tiny = " --tiny" if config.trainer.device == "cpu" else ""
    return f".venv/bin/python -m data_prep --out {config.paths.data}{tiny}"


def check(config: DictConfig) -> list[str]:
    """Run all checks but `check_model`, and fill in what may be left open: start model, file of agent loops, logger.

    Returns what this machine lacks (GPUs, memory, disk): with `preflight_only` that does not stop the other checks.

    Raises:
        PreflightError: at the first check that fails.
    """
    from recipe.choosing import check_rows
    from recipe.preflight_features import loggers_of
    from recipe.preflight_machine import check_machine

    agent = config.actor_rollout_ref.rollout.agent
    if agent.agent_loop_config_path is None:
        agent.agent_loop_config_path = str(Path(__file__).parent / "config" / "agent_loops.yaml")
    if "file" not in (loggers := loggers_of(config)):  # console, gates, tables and curves read what this one writes
        config.trainer.logger = [*loggers, "file"]
    check_versions()
    check_settings(config)
    check_data(config)
    check_rows(config)
    resolve_model(config)
    check_reward(config)
    lacks = check_machine(config)
    check_same_start(config)
    return lacks


def check_settings(config: DictConfig) -> None:
    """What needs neither data nor model nor machine: keys that nothing reads, values that cannot work.

    Raises:
        PreflightError: at the first check that fails.
    """
    from recipe.preflight_algorithm import check_algorithm
    from recipe.preflight_features import check_features
    from recipe.preflight_keys import check_keys
    from recipe.preflight_lora import check_lora
    from recipe.settings.reading import check_values

    for check_part in (check_values, check_keys, load_protocol, check_algorithm, check_lora, check_features):
        check_part(config)


def check_versions() -> None:
    """The plug-in points used here moved with every release of verl so far."""
    found = importlib.metadata.version("verl")
    if found != VERL_VERSION:
        raise PreflightError(
            f"verl {found} is installed, this recipe is written for {VERL_VERSION}. Run `bash setup.sh`."
        )


def as_list(files: Any) -> list[str]:
    """Names of data files, which may be one or several."""
    return list(files) if OmegaConf.is_list(files) else [str(files)]


def load_protocol(config: DictConfig) -> Any:
    """The protocol that `interaction.protocol` and `interaction.docs` name."""
    from interaction import get_protocol

    try:
        return get_protocol(config.interaction.protocol, docs=config.interaction.docs)
    except ValueError as error:
        raise PreflightError(f"{error}. Set interaction.protocol and interaction.docs to known ones.") from error


def check_model(config: DictConfig) -> None:
    """Weights, tokenizer, template, protocol and lengths fit each other, and the attention is right on the GPUs.

    After `check`; imports transformers: seconds.

    Raises:
        PreflightError: they do not.
    """
    from recipe import preflight_model
    from recipe.preflight_budget import check_budget
    from recipe.preflight_gpu import check_gpu
    from recipe.preflight_template import check_template

    path, protocol = str(config.actor_rollout_ref.model.path), load_protocol(config)
    preflight_model.check_weights(path)
    tokenizer = preflight_model.load_tokenizer(path)
    preflight_model.check_protocol(tokenizer, protocol, path)
    template_kwargs = config.data.get("apply_chat_template_kwargs") or {}
    print(f"chat template: {check_template(tokenizer, protocol, path, template_kwargs)}")
    files = {key: as_list(config.data[key]) for key in ("train_files", "val_files")}
    print(preflight_model.check_lengths(config, tokenizer, files))
    for line in check_budget(config, tokenizer, protocol):
        print(line, flush=True)
    if attention := check_gpu(config):
        print(attention, flush=True)


def check_data(config: DictConfig) -> None:
    """Files exist, hold enough rows for a batch, and their prompts and agent loops are those that will be used."""
    import pyarrow.parquet as parquet

    from bfcl_env import load_scenarios
    from interaction import Conversation

    chosen = f"--protocol {config.interaction.protocol} --docs {config.interaction.docs}"
    command = f"{data_command(config)} {chosen}"
    protocol = load_protocol(config)
    loops_file = config.actor_rollout_ref.rollout.agent.agent_loop_config_path
    entries: Any = OmegaConf.load(loops_file)
    loops = [entry.name for entry in entries]
    scenarios = {scenario.id: scenario for scenario in load_scenarios()}
    for key in ("train_files", "val_files"):
        for name in as_list(config.data[key]):
            path = Path(name).expanduser()
            if not path.is_file():
                raise PreflightError(f"data.{key}={name} does not exist. Make it with `{command}`, or set data.{key}.")
            table = parquet.read_table(path)
            if key == "train_files" and table.num_rows < config.data.train_batch_size:
                raise PreflightError(
                    f"data.train_batch_size={config.data.train_batch_size} is more than the {table.num_rows} rows of "
                    f"{name}: no step would be made. Set TRAIN_BATCH_SIZE or data.train_batch_size to that or less."
                )
            named = set(table["agent_name"].to_pylist()) if "agent_name" in table.column_names else set()
            if unknown := sorted(named - set(loops), key=str):
                raise PreflightError(
                    f"{name} names the agent loop {unknown[0]!r}, which {loops_file} does not list "
                    f"({', '.join(loops)}). Make the data again with `{command}`, or add the loop to that file."
                )
            for row in table.slice(0, 8).to_pylist():
                with Conversation(scenarios[row["extra_info"]["scenario_id"]], protocol=protocol) as conversation:
                    if conversation.start() != row["prompt"]:
                        raise PreflightError(
                            f"{name} was made for another prompt than interaction.protocol="
                            f"{config.interaction.protocol}, interaction.docs={config.interaction.docs}. Make it again "
                            f"with `{command}`, or set those two to what its manifest.json says."
                        )


def resolve_model(config: DictConfig) -> None:
    """The model to start from: MODEL or actor_rollout_ref.model.path, else what the previous stage exported.

    The CPU profile's first stage falls back on the tiny policy.
    """
    model = config.actor_rollout_ref.model
    if model.path is None:
        candidates = []
        if config.stage.previous:
            candidates.append(Path(config.paths.run) / config.stage.previous / "hf")
        elif config.paths.get("tiny_policy"):
            candidates.append(Path(config.paths.tiny_policy))
        found = next((path for path in candidates if (path / "config.json").is_file()), None)
        if found is None:
            looked = f" {candidates[0]} is not there" if candidates else ""
            hint = (
                f"run the stage before it ({config.stage.previous}) with the same RUN"
                if config.stage.previous
                else "make the tiny policy with `bash run_sft.sh`"
                if candidates
                else "name one"
            )
            raise PreflightError(
                f"no model to start from:{looked}. Set MODEL=/path/to/huggingface/folder "
                f"(or actor_rollout_ref.model.path=...), or {hint}."
            )
        model.path = str(found)
    path = Path(str(model.path)).expanduser()
    if (path / "config.json").is_file():
        if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "tokenizer_config.json")):
            raise PreflightError(
                f"the model folder {model.path} has no tokenizer. Save the tokenizer beside the weights."
            )
        return
    if path.exists() or not re.fullmatch(r"[\w.-]+/[\w.-]+", str(model.path)):
        raise PreflightError(
            f"{model.path} is not a model folder: no config.json in it. "
            "Set MODEL to a Hugging Face folder or to a hub id such as Qwen/Qwen2.5-7B-Instruct."
        )
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(str(model.path), "config.json", etag_timeout=5)
    except Exception as error:
        raise PreflightError(
            f"{model.path} is neither a folder nor a model that the hub gives: {type(error).__name__}: {error}. "
            "Set MODEL to a Hugging Face folder."
        ) from error


def sample_record() -> dict[str, Any]:
    """The record of one scenario played with its gold calls, to try a reward on."""
    from bfcl_env import load_scenarios
    from interaction import Conversation, get_protocol

    protocol = get_protocol("think_xml")
    scenario = load_scenarios("multi_turn_base")[0]
    with Conversation(scenario, protocol=protocol) as conversation:
        conversation.start()
        for turn in scenario.turns:
            if turn.gold:
                conversation.reply(protocol.render_calls("", turn.gold))
            conversation.reply(protocol.render_answer("", "done"))
        return conversation.record().to_dict()


def check_reward(config: DictConfig) -> None:
    """Call the reward once, on a sample record, in the form in which verl calls it."""
    from recipe.preflight_algorithm import check_reward_turns
    from recipe.preflight_features import check_filter_metric, untried_metric

    setting = config.reward.custom_reward_function
    try:
        function = reward_file.load(str(setting.path), setting.name)
    except reward_file.RewardFileError as error:
        raise PreflightError(str(error)) from error
    if inspect.iscoroutinefunction(function):  # may talk to a server that is not up yet
        if line := untried_metric(config):
            print(line, flush=True)
        return
    record = sample_record()
    where = f"the reward {setting.name} of {setting.path}"
    try:
        result = function(
            data_source="bfcl/base",
            solution_str="",
            ground_truth="[]",
            extra_info={"episode": record, "split": "train"},
            **(setting.get("reward_kwargs") or {}),
        )
    except Exception as error:
        raise PreflightError(
            f"{where} failed on a sample record: {type(error).__name__}: {error}. It is called as "
            "compute_score(data_source, solution_str, ground_truth, extra_info), see rewards/README.md."
        ) from error
    score = result.get("score") if isinstance(result, dict) else result
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise PreflightError(f"{where} returned {result!r}; expected a number or a dict with the number `score`.")
    check_reward_turns(result, record, where)
    check_filter_metric(config, result)


def summary(config: DictConfig) -> str:
    """What will be used, a few lines for the log."""
    from recipe.preflight_features import notes

    rollout, optim = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor.optim
    rows = f"{config.data.train_batch_size} rows x {rollout.n} rollouts a step"
    if left_out := config.data.get("leave_out"):
        rows += f", {len(left_out)} tasks left out"
    return "\n".join(
        [
            f"stage      {config.stage.name}",
            f"model      {config.actor_rollout_ref.model.path}",
            f"data       {config.data.train_files}, {rows}",
            f"reward     {config.reward.custom_reward_function.path}",
            f"learning   lr {optim.lr}, temperature {rollout.temperature}, {config.trainer.total_epochs} epochs",
            f"hardware   {config.trainer.n_gpus_per_node} x {config.trainer.device}",
            f"output     {config.paths.stage}",
            f"watch      tensorboard --logdir {config.paths.run}",
            *(f"NOTE       {note}" for note in notes(config)),
        ]
    )
