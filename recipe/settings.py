"""Settings: Hydra composes the configuration; `compose` refuses values with which a run would fail late or unnoticed.

A value has to be of the same kind as the default that it replaces. `RULES` adds ranges and choices for settings that
verl or vLLM would look at after minutes, or never. Settings that depend on each other are checked in recipe/preflight.
"""

import argparse
import importlib.util
import math
import os
import re
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
from recipe.files import PreflightError, one_line, read, shown

CONFIG_DIR = Path(__file__).parent / "config"
"""The folder of the configurations: a YAML file for each stage, and the groups they choose from."""

OURS = re.compile(r"(stage|environment|interaction|offline|paths|launcher|algorithm\.credit)(?![^.])")
"""Sections that verl does not have: a name in them that base.yaml and the profile lack is a mistake."""

FREE = re.compile(
    r"stage\.(gate|tiny)|interaction\.(environments|user|train|val)|launcher\.env|custom|ray_kwargs|transfer_queue"
    r"|.+\.((engine|reward|sampler|apply_chat_template|mm_processor)_kwargs|override_\w*config|mixed_precision|lora)"
)
"""Sections that take other names and kinds than their defaults have."""

UNUSED = ("reward.reward_model", "reward_model", "distillation")
"""Sections of verl's that are not used here; some of their values are missing."""

MOST = 2**32 - 1
"""The largest whole number; numpy takes no larger seed."""

LONGEST_WAIT = 1e6
"""Seconds; Python's pipes and threads overflow at longer limits."""

Rule = tuple[str, Callable[[Any], bool]]
"""What is expected, and whether a value is that."""


def whole(least: int) -> Rule:
    """A whole number."""
    return f"a whole number of {least} or more", lambda value: type(value) is int and least <= value <= MOST


def number(low: float, high: float = math.inf, above: bool = False) -> Rule:
    """A number from `low`, or above it, to `high`."""
    text = f"a number {'above' if above else 'from'} {low:g} {'on' if high == math.inf else f'to {high:g}'}"
    return text, lambda value: type(value) in (int, float) and low <= value <= high and not (above and value == low)


def one_of(*choices: str) -> Rule:
    """One of several texts."""
    return f"one of {', '.join(choices)}", lambda value: value in choices


def or_null(rule: Rule) -> Rule:
    """The same, or null."""
    return f"{rule[0]}, or null", lambda value: value is None or rule[1](value)


def is_folder_name(name: Any) -> bool:
    """Whether a stage or a run can have this name: one folder, and none that a run has already."""
    taken = r"(?i)logs|aside|.*\.(json|html|txt|yaml|lock|part|aside)"
    return isinstance(name, str) and bool(re.fullmatch(r"\w[\w.-]{0,99}", name)) and not re.fullmatch(taken, name)


FOLDER: Rule = "the name of a folder: letters, digits, _, - and ., and none that a run has already", is_folder_name
WRITTEN: Rule = "a path, written without ~", lambda value: bool(re.match(r"[^~]", str(value or "")))
STEPS: Rule = "a number of steps, or -1 for never", lambda value: value == "after_each_epoch" or whole(-1)[1](value)
SAVED = {"model", "optimizer", "extra", "hf_model"}
KL = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")

RULES: dict[str, Rule] = {
    **dict.fromkeys(("stage.name",), FOLDER),
    **dict.fromkeys(("previous", "warm_start"), or_null(FOLDER)),
    **dict.fromkeys(("paths.run", "paths.stage", "default_local_dir"), WRITTEN),
    "record_dir": or_null(WRITTEN),
    **dict.fromkeys(("train_batch_size", "ppo_mini_batch_size", "ppo_epochs", "total_epochs"), whole(1)),
    **dict.fromkeys(("max_prompt_length", "max_response_length", "max_length", "max_num_batched_tokens"), whole(1)),
    **dict.fromkeys(("ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu"), whole(1)),
    **dict.fromkeys(("log_prob_max_token_len_per_gpu", "max_token_len_per_gpu", "max_num_seqs"), whole(1)),
    **dict.fromkeys(
        ("rollout.n", "val_kwargs.n", "trainer.n_gpus_per_node", "trainer.nnodes", "num_workers"), whole(1)
    ),
    **dict.fromkeys(("tensor_model_parallel_size", "lora_alpha", "group_size", "old_log_probs_every"), whole(1)),
    **dict.fromkeys(("max_gen_batches", "max_inflight_gen_batches", "update_weights_bucket_megabytes"), whole(1)),
    **dict.fromkeys(("ppo_micro_batch_size_per_gpu", "log_prob_micro_batch_size_per_gpu"), or_null(whole(1))),
    **dict.fromkeys(("max_model_len", "max_tokens_per_reply", "trainer.total_training_steps"), or_null(whole(1))),
    **dict.fromkeys(("lora_rank", "rollout.seed", "trainer.seed", "critic_warmup", "data.num_workers"), whole(0)),
    "data.seed": or_null(whole(0)),
    **dict.fromkeys(("rollout.top_k", "val_kwargs.top_k"), whole(-1)),
    **dict.fromkeys(("save_freq", "test_freq"), STEPS),
    **dict.fromkeys(("gamma", "lam", "gamma_token", "lam_token", "lr_warmup_steps_ratio"), number(0, 1)),
    **dict.fromkeys(("max_lost_share",), number(0, 1)),
    **dict.fromkeys(("min_lr_ratio", "val_share"), or_null(number(0, 1))),
    **dict.fromkeys(("gpu_memory_utilization", "top_p", "overlong.window"), number(0, 1, above=True)),
    **dict.fromkeys(("lr", "weight_decay", "clip_ratio", "clip_ratio_low", "clip_ratio_high"), number(0)),
    **dict.fromkeys(("kl_loss_coef", "kl_coef", "horizon", "val_kwargs.temperature", "penalty"), number(0)),
    **dict.fromkeys(("memory_gb", "disk_gb", *(f"alarms.{n}" for n in ("malformed", "truncated", "lost"))), number(0)),
    **dict.fromkeys(("rollout.temperature", "clip_grad", "poll_interval"), number(0, above=True)),
    **dict.fromkeys(("engine_timeout", "reward.timeout"), number(0, LONGEST_WAIT, above=True)),
    "clip_ratio_c": number(1, above=True),
    "rollout_is_threshold": ("a number, or two such as 0.5_5.0", lambda value: isinstance(value, float | int | str)),
    "strategy": one_of("fsdp", "fsdp2", "fsdp_turbo"),
    "loss_agg_mode": one_of(
        *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")
    ),
    **dict.fromkeys(("kl_loss_type", "kl_penalty"), one_of(*KL, *(f"{name}+" for name in KL))),
    "kl_ctrl.type": one_of("fixed", "adaptive"),
    "rollout_is": or_null(one_of("token", "sequence")),
    "resume_mode": one_of("auto", "disable"),
    "data.truncation": one_of("error", "left", "right", "middle", "drop", "messages"),
    "trainer.device": one_of("cpu", "cuda", "npu"),
    "rollout.name": one_of("vllm", "sglang", "trtllm"),
    "rollout.dtype": one_of("auto", "half", "float16", "bfloat16", "float", "float32"),
    "model_dtype": one_of("fp32", "float32", "bf16", "bfloat16", "fp16", "float16"),
    "lr_scheduler_type": one_of("constant", "cosine"),
    "save_contents": (
        f"some of {', '.join(sorted(SAVED))}",
        lambda value: isinstance(value, list) and {*value} <= SAVED,
    ),
    "ratio_norm": one_of("token_mean", "sum"),
    "handover": one_of("last", "best"),
    "stage.adapter": one_of("new", "continue"),
    "over_budget": one_of("keep", "leave_out"),
    "offline.rewards": one_of("steps", "final"),
    "offline.old_log_probs": one_of("start", "step"),
    "tiny_knows": one_of("bfcl", "lines", "names"),
}
"""The end of a setting's name -> what it may be."""


class ConfigFolders(SearchPathPlugin):
    """Has Hydra search recipe/config and verl's own configurations after the folder that it is given."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Hydra's hook."""
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


def quoted(text: str) -> str:
    """A text as the value of an override, in quotes where Hydra would take its characters for something else."""
    if re.fullmatch(r"[A-Za-z0-9_./:-]+", text):
        return text
    return "'" + re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + "\\'" * bool(match[2]), text) + "'"


def as_list(files: Any) -> list[str]:
    """Names of files, which may be one or several; none for null."""
    if files is None:
        return []
    return [str(name) for name in files] if OmegaConf.is_list(files) else [str(files)]


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
    name, own = name.removesuffix(".yaml"), str((folder or CONFIG_DIR).absolute())
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        if several := [one.input_line for one in parsed if one.is_sweep_override()]:
            raise PreflightError(f"{several[0]}: a list is written [a,b], and a text with commas is quoted, \"'a,b'\".")
        choices = [override for override in parsed if _is_choice(override, own)]
        chosen = [str(override.input_line) for override in choices]
        if not any(override.key_or_group == group for override in choices):
            chosen.append(f"{group}={detect_hardware()}")
        config = deepcopy(_composed(name, tuple(chosen), own))
        for override in parsed:
            if override not in choices:
                _apply(config, override)
        values = OmegaConf.to_container(config, resolve=True)
        shipped = (CONFIG_DIR / f"{name}.yaml").is_file()
        defaults = _defaults(name if shipped else "sft" if group == "sft_hardware" else "stage1", tuple(chosen), own)
    except PreflightError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        where = getattr(error, "override", None) or getattr(error, "full_key", None)
        words = re.split(r"\nSee https|\n\s*full_key|\nConfig search path", str(error.__cause__ or error))[0]
        raise PreflightError(one_line(f"{where}: {words}" if where else words)) from error
    problems = [*_problems(defaults, values, "")]
    direct = [line for line in problems if line.startswith(tuple(override.key_or_group for override in parsed))]
    if problems:  # by references one value may be wrong in several places
        raise PreflightError("\n".join(direct or problems))
    return config


@lru_cache(maxsize=32)
def _composed(name: str, choices: tuple[str, ...], folder: str) -> DictConfig:
    """What files and groups say, before any override; to be copied before it is changed."""
    with hydra.initialize_config_dir(folder, version_base=None):
        return hydra.compose(name, overrides=list(choices))


@lru_cache(maxsize=32)
def _defaults(name: str, choices: tuple[str, ...], folder: str) -> Any:
    return OmegaConf.to_container(_composed(name, choices, folder), resolve=True)


def _is_choice(override: Override, folder: str) -> bool:
    """Whether an override chooses a file of a group."""
    key = override.key_or_group
    group = override.package is not None or any(
        os.path.isdir(f"{place}/{key}") for place in (folder, CONFIG_DIR, verl_config_dir())
    )
    return group and not isinstance(override.value(), dict)


def _apply(config: DictConfig, override: Override) -> None:
    """Apply an override as Hydra does.

    Raises:
        PreflightError: there is no such key.
    """
    try:
        ConfigLoaderImpl._apply_overrides_to_config([override], config)
    except HydraException as error:
        if not isinstance(error.__cause__, ConfigKeyError | ConfigAttributeError):
            raise
        key = override.key_or_group
        known = [*_keys(OmegaConf.to_container(config), "")]
        ends = get_close_matches(_last(key), {_last(other) for other in known}, 3)
        near = get_close_matches(key, [other for other in known if _last(other) in ends], 3, cutoff=0)
        hint = f"Nearest: {', '.join(near)}. " if near else ""
        line = f"{shown(key, quote=False)} is not known. {hint}A new key is added with a + before its name."
        raise PreflightError(line) from error


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _keys(node: Any, path: str) -> Iterator[str]:
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
    elif FREE.fullmatch(key):
        yield from _policy_problems(value, key)
    elif isinstance(default, dict) and isinstance(value, dict):
        for name in default:
            below = f"{key}.{name}".removeprefix(".")
            if name in value:
                yield from _problems(default[name], value[name], below)
            else:
                yield f"{below} is missing. Leave out what takes it away."
        if OURS.match(key) and (unknown := [*(value.keys() - default.keys())]):
            yield f"{key} has no {shown(unknown[0], quote=False)}; it has {', '.join(default)}."
    elif wanted := _other_kind(default, value):
        yield f"{key}={shown(value)}; expected {wanted}."


def _other_kind(default: Any, value: Any) -> str | None:
    """What is expected in place of a value of another kind than its default; None where it is of the same kind."""
    if default is None or (value is None and not isinstance(default, dict)):
        return None
    kinds: tuple[tuple[type, tuple[type, ...], str], ...] = (
        (bool, (bool,), "true or false"),
        (int, (int,), "a whole number"),
        (float, (int, float), "a number"),
        (dict, (dict,), "a section, {name: value}"),
        (list, (list, str), "a list"),
        (str, (str, list), "a text; a number is one in quotes"),
    )
    _, allowed, wanted = next(kind for kind in kinds if isinstance(default, kind[0]))
    return None if type(value) in allowed else wanted


def _policy_problems(value: Any, key: str) -> Iterator[str]:
    """What is wrong with the rules of a conversation, or with whoever plays its user."""
    try:
        if key in ("interaction.train", "interaction.val"):
            read(TurnPolicy, value, key)
        elif key == "interaction.user":
            from interaction.users import make_user  # here, because it imports the client of an endpoint

            make_user(value)
    except ValueError as error:
        yield f"{error}." if key in str(error) else f"{key}: {error}."


def unread(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """A line for each added key that nothing may read: verl's configuration and dataclass of that section lack it.

    Imports verl's dataclasses, and with them torch, if a key was added to a section that has one.
    """
    added = [one for one in OverridesParser.create().parse_overrides(list(overrides)) if str(one.input_line)[0] == "+"]
    if not added:
        return []
    tree = _composed("sft" if "engine" in config else "base", (), str(CONFIG_DIR))
    known, found = {*_keys(OmegaConf.to_container(tree), "")}, []
    for override in added:
        key = override.key_or_group
        section, _, name = key.rpartition(".")
        if key in known or OURS.match(key) or FREE.match(key):
            continue
        node = OmegaConf.select(config, section) if section else config
        target = hydra.utils.get_class(node["_target_"]) if "_target_" in node else None
        if name not in getattr(target, "__dataclass_fields__", ()):
            found.append(f"{shown(override.input_line, quote=False)}: verl has no such setting, so nothing may read it")
    return found


def command(arguments: Sequence[str], name: str = "stage1", group: str = "hardware") -> tuple[DictConfig, list[str]]:
    """The configuration of a command line, and its overrides. Options of Hydra's that show something end here.

    Args:
        name: the configuration, where `--config-name` gives none.
        group: that of the hardware profiles.

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
        overrides.append(f"{group}={detect_hardware()}")
    sys.argv[1:] = [*overrides, *options]  # argparse wants them side by side
    folder = str((known.config_dir or CONFIG_DIR).absolute())
    hydra.main(version_base=None, config_path=folder, config_name=known.config_name)(_shows_nothing)()
    sys.exit()


def _shows_nothing(_: DictConfig) -> None:
    sys.exit("Of Hydra's options, those that show something can be used here: --help, --cfg job, --info.")
