"""Settings: Hydra composes the configuration; `compose` refuses values with which a run would fail late or unnoticed.

A value has to be of the same kind as the default that it replaces. `RULES` adds ranges and choices for settings that
verl or vLLM would look at after minutes, or never. Settings that depend on each other are checked in recipe/preflight.
"""

import argparse
import importlib.util
import math
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from interaction.policy import TurnPolicy
from interaction.protocol import DOC_STYLES, PROTOCOLS
from recipe.files import PreflightError, one_line, read, shown

CONFIG_DIR = Path(__file__).parent / "config"
"""The folder of the configurations: a YAML file for each stage, and the groups they choose from."""

OURS = re.compile(r"(stage|environment|interaction|offline|paths|launcher|algorithm\.credit)(?![^.])")
"""Sections that verl does not have: a name in them that base.yaml and the profile lack is a mistake."""

FREE = re.compile(
    r"stage\.(gate|tiny|cpu)|interaction\.(environments|user|train|val)|launcher\.env|custom|ray_kwargs|transfer_queue"
    r"|.+\.((engine|reward|sampler|apply_chat_template|mm_processor)_kwargs|override_\w*config|mixed_precision|lora)"
)
"""Sections that take other names and kinds than their defaults have."""

UNUSED = ("reward.reward_model", "reward_model")
"""Sections of verl's that are not used here; some of their values are missing."""

Rule = tuple[str, Callable[[Any], bool]]
"""What is expected, and whether a value is that."""


def whole(least: int) -> Rule:
    """A whole number."""
    return f"a whole number of {least} or more", lambda value: type(value) is int and least <= value


def number(low: float, high: float = math.inf, above: bool = False) -> Rule:
    """A number from `low`, or above it, to `high`."""
    text = f"a number {'above' if above else 'from'} {low:g} {'on' if high == math.inf else f'to {high:g}'}"
    return text, lambda value: type(value) in (int, float) and low <= value <= high and not (above and value == low)


def one_of(*choices: str) -> Rule:
    return f"one of {', '.join(choices)}", lambda value: value in choices


def or_null(rule: Rule) -> Rule:
    return f"{rule[0]}, or null", lambda value: value is None or rule[1](value)


def is_folder_name(name: Any) -> bool:
    """Whether a stage or a run can have this name: one folder, and none that a run has already."""
    taken = r"(?i)logs|aside|.*\.(json|html|txt|yaml|lock|part|aside)"
    return isinstance(name, str) and bool(re.fullmatch(r"\w[\w.-]{0,99}", name)) and not re.fullmatch(taken, name)


def is_threshold(value: Any) -> bool:
    """Whether verl can read a `rollout_is_threshold`, and some weight is within it."""
    try:
        bounds = [float(part) for part in str(value).split("_")]
    except ValueError:
        return False
    return len(bounds) in (1, 2) and bounds == sorted(bounds) and 0 < bounds[0] and bounds[-1] < math.inf


FOLDER: Rule = "the name of a folder: letters, digits, _, - and ., and none that a run has already", is_folder_name
WRITTEN: Rule = "a path, written without ~", lambda value: bool(re.match(r"[^~]", str(value or "")))
STEPS: Rule = "a number of steps, or -1 for never", lambda value: value == "after_each_epoch" or whole(-1)[1](value)
SAVED = {"model", "optimizer", "extra", "hf_model"}
KL = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
MEANS = ("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")

TABLE: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (FOLDER, ("stage.name",)),
    (or_null(FOLDER), ("previous", "warm_start")),
    (WRITTEN, ("paths.run", "paths.stage", "default_local_dir")),
    (or_null(WRITTEN), ("record_dir",)),
    (whole(1), ("train_batch_size", "ppo_mini_batch_size", "ppo_epochs", "total_epochs", "rollout.n", "val_kwargs.n")),
    (whole(1), ("max_prompt_length", "max_response_length", "max_length", "max_num_batched_tokens", "max_num_seqs")),
    (whole(1), ("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu", "log_prob_max_token_len_per_gpu")),
    (whole(1), ("trainer.n_gpus_per_node", "trainer.nnodes", "num_workers", "tensor_model_parallel_size")),
    (whole(1), ("lora_alpha", "group_size", "old_log_probs_every", "max_gen_batches", "max_inflight_gen_batches")),
    (whole(1), ("max_token_len_per_gpu", "update_weights_bucket_megabytes", "distillation_loss.topk")),
    (or_null(whole(1)), ("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu", "max_model_len")),
    (or_null(whole(1)), ("max_tokens_per_reply", "trainer.total_training_steps")),
    (whole(0), ("lora_rank", "rollout.seed", "trainer.seed", "critic_warmup", "data.num_workers")),
    (or_null(whole(0)), ("data.seed",)),
    (whole(-1), ("rollout.top_k", "val_kwargs.top_k")),
    (STEPS, ("save_freq", "test_freq")),
    (number(0, 1), ("gamma", "lam", "gamma_token", "lam_token", "lr_warmup_steps_ratio", "max_lost_share")),
    (or_null(number(0, 1)), ("min_lr_ratio", "val_share")),
    (number(0, 1, above=True), ("gpu_memory_utilization", "top_p", "overlong.window")),
    (number(0), ("lr", "weight_decay", "clip_ratio", "clip_ratio_low", "clip_ratio_high", "kl_loss_coef", "kl_coef")),
    (number(0), ("val_kwargs.temperature", "penalty", "memory_gb", "disk_gb")),
    (number(0), ("alarms.malformed", "alarms.truncated", "alarms.lost")),
    (number(0, above=True), ("rollout.temperature", "clip_grad", "poll_interval", "engine_timeout", "reward.timeout")),
    (number(0, above=True), ("kl_ctrl.horizon", "target_kl")),
    (number(1, above=True), ("clip_ratio_c",)),
    (("the largest weight, or smallest and largest such as 0.5_5.0", is_threshold), ("rollout_is_threshold",)),
    (one_of("fsdp", "fsdp2", "fsdp_turbo"), ("strategy",)),
    (one_of(*MEANS), ("loss_agg_mode",)),
    (one_of(*KL, *(f"{name}+" for name in KL)), ("kl_loss_type", "kl_penalty")),
    (one_of("fixed", "adaptive"), ("kl_ctrl.type",)),
    (one_of("forward_kl_topk", *KL), ("distillation_loss.loss_mode",)),
    (whole(0), ("distillation.nnodes",)),
    (or_null(one_of("token", "sequence")), ("rollout_is",)),
    (or_null(one_of(*PROTOCOLS)), ("data.protocol",)),
    (one_of(*DOC_STYLES), ("data.docs",)),
    (one_of("auto", "disable"), ("resume_mode",)),
    (one_of("cpu", "cuda", "npu"), ("trainer.device",)),
    (one_of("fp32", "float32", "bf16", "bfloat16", "fp16", "float16"), ("model_dtype",)),
    (one_of("auto", "float32", "bfloat16"), ("launcher.precision",)),
    (one_of("constant", "cosine"), ("lr_scheduler_type",)),
    ((f"some of {', '.join(sorted(SAVED))}", lambda value: {*as_list(value)} <= SAVED), ("save_contents",)),
    (one_of("token_mean", "sum"), ("ratio_norm",)),
    (one_of("last", "best"), ("handover",)),
    (one_of("new", "continue"), ("stage.adapter",)),
    (one_of("keep", "leave_out"), ("over_budget",)),
    (one_of("steps", "final"), ("offline.rewards",)),
    (one_of("start", "step"), ("offline.old_log_probs",)),
)
RULES = {name: rule for rule, names in TABLE for name in names}
"""The end of a setting's name -> what it may be."""

KINDS: dict[type, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    dict: ("a section, {name: value}", (dict,)),
    list: ("a list", (list, str)),
    str: ("a text; a number is one in quotes", (str, list)),
}
"""Type of a default -> what may stand in its place."""


class ConfigFolders(SearchPathPlugin):
    """Has Hydra search recipe/config and verl's own configurations after the folder that it is given."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        search_path.append("recipe", f"file://{CONFIG_DIR}")
        search_path.append("verl", f"file://{verl_config_dir()}")


Plugins.instance().register(ConfigFolders)


@lru_cache
def verl_config_dir() -> Path:
    """verl's folder of Hydra configurations, found without importing verl."""
    spec = importlib.util.find_spec("verl")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("verl is not installed in this environment. Run `bash setup.sh` and start through the scripts.")
    return Path(next(iter(spec.submodule_search_locations))) / "trainer" / "config"


def count_gpus() -> int:
    """GPUs that nvidia-smi lists on this machine."""
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len(answer.stdout.strip().splitlines()) if answer.returncode == 0 else 0


def detect_hardware() -> str:
    """Hardware profile: the variable HARDWARE, else by the number of GPUs here: cpu, gpu1 or gpu8."""
    return os.environ.get("HARDWARE") or {0: "cpu", 1: "gpu1"}.get(count_gpus(), "gpu8")


def quoted(text: str, mark: str = "'") -> str:
    """A text as the value of an override, in quotes where Hydra would take its characters for something else."""
    if re.fullmatch(r"[A-Za-z0-9_./:-]+", text):
        return text
    return mark + re.sub(rf"(\\*)({mark}|$)", lambda match: match[1] * 2 + rf"\{mark}" * bool(match[2]), text) + mark


def read_overrides(lines: Sequence[str]) -> list[Override]:
    """What Hydra reads from overrides. PreflightError: it reads no key, or not one value, and how to write it."""
    parser, found = OverridesParser.create(), list[Override]()
    for line in lines:
        try:
            found += parser.parse_overrides([line])
            wrong = found[-1].is_sweep_override() or not found[-1].key_or_group
        except HydraException:
            wrong = True
        if wrong:
            key, equals, value = line.partition("=")
            items = ",".join(quoted(item.strip(" '\""), '"') for item in value.strip("[]").split(","))
            way = f"[{items}]" if value.startswith("[") else quoted(value, '"') if equals else "VALUE"
            way, key = '{NAME: "TEXT"}' if re.match(r"{\s*\w+\s*:", value) else way, key.strip()
            said = f"A list is written [a,b], a section {{a: b}}, a text in quotes: {shlex.quote(f'{key}={way}')}"
            raise PreflightError(f"{shown(line, quote=False)}: Hydra does not read it as KEY=VALUE. {said}")
    return found


def as_list(files: Any) -> list[str]:
    """Names of files, which may be one or several; none for null."""
    if files is None:
        return []
    return [str(name) for name in files] if isinstance(files, list) or OmegaConf.is_list(files) else [str(files)]


def is_offline(config: DictConfig) -> bool:
    """Whether a stage learns from stored trajectories."""
    return OmegaConf.select(config, "offline.files") is not None


def on_policy(config: DictConfig) -> bool:
    """Whether the policy that is updated is the one before the update, so that every probability ratio is 1."""
    actor = config.actor_rollout_ref.actor
    one_update = actor.ppo_mini_batch_size >= config.data.train_batch_size and actor.ppo_epochs == 1
    to_start = is_offline(config) and config.offline.old_log_probs == "start"  # of that model the ratio is then
    return one_update and not to_start and not config.algorithm.rollout_correction.bypass_mode


def compose(
    name: str, overrides: Sequence[str] = (), group: str = "hardware", folder: Path | None = None
) -> DictConfig:
    """The configuration of `--config-name NAME OVERRIDES`, with the detected hardware profile where none is given.

    Args:
        group: that of the hardware profiles.
        folder: with further configurations (`--config-dir`); its files come before those of recipe/config.

    Raises:
        PreflightError: it cannot be composed, or has a value that cannot be.
    """
    if os.environ.get("RUN") == "":
        del os.environ["RUN"]  # as good as none
    name, own, known = name.removesuffix(".yaml"), str((folder or CONFIG_DIR).absolute()), list[str]()
    try:
        parsed = read_overrides(overrides)
        choices = [override for override in parsed if _is_choice(override, own)]
        chosen = [str(override.input_line) for override in choices]
        if not any(override.key_or_group == group for override in choices):
            chosen.append(f"{group}={quoted(detect_hardware())}")
        config = deepcopy(_composed(name, tuple(chosen), own))
        known = [*_keys(OmegaConf.to_container(config))]
        values = [override for override in parsed if override not in choices]
        ConfigLoaderImpl._apply_overrides_to_config(values, config)  # as Hydra; to compose anew takes a second
        base = name if (CONFIG_DIR / f"{name}.yaml").is_file() else "sft" if group == "sft_hardware" else "stage1"
        defaults = OmegaConf.to_container(_composed(base, tuple(chosen), own), resolve=True)
        problems = [*_problems(defaults, OmegaConf.to_container(config, resolve=True), "")]
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause, where = error.__cause__ or error, getattr(error, "override", None) or getattr(error, "full_key", None)
        words = one_line(re.split(r"\nSee https|\n\s*full_key|\nConfig search path", str(cause))[0])
        words = f"{where}: {words}" if where else words
        if isinstance(cause, ConfigKeyError | ConfigAttributeError) and (key := cause.full_key):
            ends = [other for other in known if other.rpartition(".")[2] == key.rpartition(".")[2]]
            near = get_close_matches(key, ends or known, 3, cutoff=0)
            words = f"{shown(key, quote=False)} is not known. Nearest: {', '.join(near)}. A new key needs a +."
        raise PreflightError(words) from error
    direct = [line for line in problems if line.startswith(tuple(override.key_or_group for override in parsed))]
    if problems:  # by references one value may be wrong in several places
        raise PreflightError("\n".join(direct or problems))
    return config


@lru_cache(maxsize=32)
def _composed(name: str, choices: tuple[str, ...], folder: str) -> DictConfig:
    """What files and groups say, before any override; to be copied before it is changed."""
    with hydra.initialize_config_dir(folder, version_base=None):
        return hydra.compose(name, overrides=list(choices))


def _is_choice(override: Override, folder: str) -> bool:
    """Whether an override chooses a file of a group."""
    folders = (f"{place}/{override.key_or_group}" for place in (folder, CONFIG_DIR, verl_config_dir()))
    return (override.package is not None or any(map(os.path.isdir, folders))) and not isinstance(override.value(), dict)


def _keys(node: Any, path: str = "") -> Iterator[str]:
    if isinstance(node, dict):
        for name, value in node.items():
            yield from (f"{path}{name}", *_keys(value, f"{path}{name}."))


def _problems(default: Any, value: Any, key: str) -> Iterator[str]:
    """A line for each value that is not what its rule or its default asks for."""
    parts = key.split(".")
    rule = RULES.get(".".join(parts[-2:])) or RULES.get(parts[-1])
    if key in UNUSED:
        return
    if value == "???":
        yield f"{key} is missing: it has no value of its own. Set it."
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{key}={value}; expected a finite number."
    elif rule:
        if not rule[1](value) and not (value is None and default is None):
            yield f"{key}={shown(value)}; expected {rule[0]}."
    elif key in ("stage.gate", "interaction.user") and not isinstance(value, dict | None):
        yield f"{key}={shown(value)}; expected {KINDS[dict][0]}, or null."
    elif FREE.fullmatch(key):
        try:
            if key in ("interaction.train", "interaction.val"):
                read(TurnPolicy, value, key)
                if key == "interaction.val" and value.get("from_gold"):
                    yield f"{key}.from_gold: what is validated is played by the model alone. Leave it out."
            elif key == "interaction.user":
                from interaction.users import make_user  # here, because it imports the client of an endpoint

                make_user(value)
        except ValueError as error:
            yield f"{error}." if key in str(error) else f"{key}: {error}."
    elif isinstance(default, dict) and isinstance(value, dict):
        for name in default:
            below = f"{key}.{name}".removeprefix(".")
            if name in value:
                yield from _problems(default[name], value[name], below)
            else:
                yield f"{below} is missing. Leave out what takes it away."
        if OURS.match(key) and (unknown := [*(value.keys() - default.keys())]):
            yield f"{key} has no {shown(unknown[0], quote=False)}; it has {', '.join(default)}."
    elif default is not None and (value is not None or isinstance(default, dict)):
        wanted, kinds = KINDS[type(default)]
        if type(value) not in kinds:
            yield f"{key}={shown(value)}; expected {wanted}."


def unread(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """A line for each added key that nothing may read: verl's configuration and dataclass of that section lack it.

    Imports verl's dataclasses, and with them torch, if a key was added to a section that has one.
    """
    added = [one for one in OverridesParser.create().parse_overrides(list(overrides)) if str(one.input_line)[0] == "+"]
    known = {*_keys(OmegaConf.to_container(_composed("base", (), str(CONFIG_DIR))))} if added else set()
    found = list[str]()
    for key, line in ((one.key_or_group, str(one.input_line)) for one in added):
        if key in known or OURS.match(key) or FREE.match(key):
            continue
        section, _, name = key.rpartition(".")
        node = OmegaConf.select(config, section) if section else config
        target = hydra.utils.get_class(node["_target_"]) if "_target_" in node else None
        if name not in getattr(target, "__dataclass_fields__", ()):
            found.append(f"{shown(line, quote=False)}: verl has no such setting, so nothing may read it")
    return found


def command(arguments: Sequence[str], name: str = "stage1", group: str = "hardware") -> tuple[DictConfig, list[str]]:
    """The configuration of a command line, and its overrides. Options of Hydra's that show something end here.

    Args:
        name: the configuration, where `--config-name` gives none.

    Raises:
        PreflightError: it cannot be composed.
        SystemExit: Hydra has shown what was asked for (`--help`, `--cfg job`, `--info`).
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-name", "-cn", default=name)
    parser.add_argument("--config-dir", "-cd", type=Path)
    known, rest = parser.parse_known_args(arguments)
    if not any(argument.startswith("-") for argument in rest):
        return compose(known.config_name, rest, group, known.config_dir), rest
    overrides = [argument for argument in rest if "=" in argument and not argument.startswith("-")]
    options = [argument for argument in rest if argument not in overrides]
    if not any(override.startswith(f"{group}=") for override in overrides):
        overrides.append(f"{group}={quoted(detect_hardware())}")
    read_overrides(overrides)
    sys.argv[1:] = [*overrides, *options]  # argparse wants them side by side
    folder = str((known.config_dir or CONFIG_DIR).absolute())
    hydra.main(version_base=None, config_path=folder, config_name=known.config_name)(
        lambda _: sys.exit("Of Hydra's options, those that show something can be used: --help, --cfg job, --info.")
    )()
    sys.exit()
