"""Keys that a command line names: whether they are there, may be added, and keep the kind of value they have.

verl's sections are of three sorts. Those that become one of its dataclasses raise at a field that the dataclass lacks,
minutes after the start; the others ignore what nothing reads; a few take whatever they are given and hand it on.
"""

import ast
import importlib.util
import math
import re
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recipe.errors import PreflightError
from recipe.settings.reading import reference_line
from recipe.typed import LONGEST_SHOWN, meant, shown

OURS = ("stage", "environment", "interaction", "offline", "paths", "launcher", "algorithm.credit")
"""Sections of which `recipe.settings.ours` knows every name."""

HANDED_ON = (
    *("engine_kwargs", "override_config", "override_optimizer_config", "reward_kwargs", "sampler_kwargs", "ray_kwargs"),
    *("apply_chat_template_kwargs", "mm_processor_kwargs", "mixed_precision", "transfer_queue", "wrap_policy"),
    *("fused_kernel_options", "tool_config", "global_profiler", "skip", "custom", "layer_name_map", "lora", "env"),
)
"""Sections that take any name, wherever they stand."""

TAKES_NAMES = re.compile(
    r"(reward\.custom_reward_function\.reward_kwargs|interaction\.environments)\.[A-Za-z_][\w-]{0,60}", re.ASCII
)
"""Sections of names of the user's: arguments of a reward, environments."""

READ_IN = {
    "data": ("cache_dir", "chat_template_func", "need_tools_kwargs", "filter_prompts"),
    "trainer": ("remove_previous_ckpt_in_save",),
}
"""Names that verl reads where they are, and that its own configurations leave out."""


def has(config: DictConfig, key: str) -> bool:
    """Whether a configuration has this key, with or without a value."""
    node: Any = config
    for part in key.split("."):
        if OmegaConf.is_dict(node) and part in node.keys():
            node = node._get_node(part)
        elif OmegaConf.is_list(node) and part.isdecimal() and int(part) < len(node):
            node = node._get_node(int(part))
        else:
            return False
    return True


def unknown(config: DictConfig, key: str, more: str = "") -> str:
    """That there is no such key, which one may be meant, `more` about it, and how to list them.

    Its neighbours come first, then any that ends like it, then those that are written most like it.
    """
    parent, rest = _parent(config, key)
    if (named := TAKES_NAMES.fullmatch(key)) and has(config, named[1].removesuffix(".reward_kwargs")):
        return f"{key} is not there yet, and {named[1]} takes names of yours: +{key}=VALUE."
    if parent and OmegaConf.is_interpolation(*_holder(config, parent)):
        return f"{parent} follows another setting; give it a value of its own, {parent}='{{{rest}: ...}}'."
    wrong = rest.split(".")[0]
    node = OmegaConf.select(config, parent) if parent else config
    beside = [str(name) for name in node] if OmegaConf.is_dict(node) else []
    hint = meant(wrong, beside)
    last = key.rpartition(".")[2]
    if hint and wrong == last:
        if right := re.search(r"\(is (\w+)", hint):
            last = right[1]  # what is misspelt is in no list
        hint = hint.replace("(is ", f"(is {parent}." if parent else "(is ", 1)
    else:
        near = _near(key, _keys(OmegaConf.to_container(config), ""))
        hint = f" (is {' or '.join(near)} meant?)" if near else hint
    word = f" {last}" if re.fullmatch(r"\w{1,40}", last) else ""
    listed = f"`.venv/bin/python -m recipe.options{word}` lists settings."
    return " ".join(filter(None, (f"{shown(key, quote=False)} is not known{hint}.", more, listed)))


LONGEST_BESIDE = 60
"""Characters of a key that is named beside another one: a message is read."""


def _near(key: str, known: list[str]) -> list[str]:
    """Three keys at most that may be meant by one that is none of these."""
    last = key[:LONGEST_SHOWN].rpartition(".")[2]
    by_last: dict[str, list[str]] = {}
    for one in known:
        by_last.setdefault(one.rpartition(".")[2], []).append(one)
    found = by_last.get(last) or [one for name in get_close_matches(last, list(by_last), 3) for one in by_last[name]]
    return [*found[:1], *(one for one in found[1:3] if len(one) <= LONGEST_BESIDE)]


def handed_on(key: str) -> bool:
    """Whether a key is below one of the sections that take any name."""
    return any(part in HANDED_ON for part in key.split(".")[:-1])


def check_new(config: DictConfig, key: str) -> None:
    """A key that is to be added is one that something reads.

    Raises:
        PreflightError: nothing does.
    """
    parent, rest = _parent(config, key)
    if f"{parent}.".startswith(tuple(f"{name}." for name in OURS)):
        return
    if handed_on(key):
        return
    name = rest.split(".")[0]
    node = OmegaConf.select(config, parent) if parent else config
    if name in HANDED_ON and (parent or name == "custom") or not OmegaConf.is_dict(node):
        return
    if "_target_" in node.keys():
        names = fields_of(str(node["_target_"]))
        if not names or name in names:
            return
    elif parent in READ_IN and name in READ_IN[parent]:
        return
    elif parent == "data" and (OmegaConf.select(config, "data.custom_cls.path") or not node):
        return
    raise PreflightError(
        unknown(config, key, "Nothing would read it; settings of a plug-in of yours go below +custom.")
    )


def is_text(config: DictConfig, key: str) -> bool:
    """Whether a text stands under this key, where nothing but one may."""
    free = key in FREE or key.endswith("dtype") or handed_on(key)
    return not free and has(config, key) and isinstance(OmegaConf.select(config, key, throw_on_missing=False), str)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return type(value) is int or (type(value) is float and math.isfinite(value))


def check_kind(base: DictConfig, config: DictConfig, said: str, key: str) -> None:
    """A truth value, a number, a list or a section is replaced by its like, or by null.

    Raises:
        PreflightError: it is not.
    """
    try:
        before, now = OmegaConf.select(base, key), OmegaConf.select(config, key)
    except OmegaConfBaseException as error:
        raise PreflightError(f"{shown(said, quote=False)}: {reference_line(error)}") from error
    if text := _other_kind(_plain(before), _plain(now), key):
        raise PreflightError(text)


def _plain(value: Any) -> Any:
    try:
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except (OmegaConfBaseException, RecursionError) as error:
        raise PreflightError(reference_line(error)) from error


def _other_kind(before: Any, now: Any, key: str) -> str | None:
    *above, name = key.split(".")
    if isinstance(now, float) and not math.isfinite(now):
        return f"{key}={now}; expected a finite number."
    if now is None or before is None or key in FREE or name.endswith("dtype"):
        return None
    if handed_on(key):
        return None
    if isinstance(before, dict) and isinstance(now, dict):
        found = (_other_kind(before[below], now[below], f"{key}.{below}") for below in before if below in now)
        return next((text for text in found if text), None)
    number = isinstance(now, int | float) and not isinstance(now, bool)
    if isinstance(before, bool):
        fits, wanted = isinstance(now, bool), "true or false"
    elif isinstance(before, int | float):
        fits, wanted = number, "a finite number"
    elif isinstance(before, dict):
        fits, wanted = isinstance(now, dict), "a section, {name: value}"
    elif isinstance(before, list):
        fits, wanted = isinstance(now, list | str), "a list"
    else:
        fits, wanted = isinstance(now, list | str), "a text"
    return None if fits else f"{key}={shown(now)}; expected {wanted}."


FREE = (
    "algorithm.rollout_correction.rollout_is_threshold",
    "algorithm.rollout_correction.rollout_rs_threshold",
    "trainer.save_freq",
    "trainer.test_freq",
)
"""Keys of several kinds; `recipe.settings.verl` knows them."""


def _parent(config: DictConfig, key: str) -> tuple[str, str]:
    """The longest beginning of a key that is there, and the rest."""
    parts = key.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        if has(config, ".".join(parts[:cut])):
            return ".".join(parts[:cut]), ".".join(parts[cut:])
    return "", key


def _holder(config: DictConfig, key: str) -> tuple[Any, str]:
    """The section that holds a key, and its name there."""
    section, _, name = key.rpartition(".")
    return (OmegaConf.select(config, section) if section else config), name


def _keys(node: Any, path: str) -> list[str]:
    if not isinstance(node, dict):
        return [path]
    return [key for name, value in node.items() for key in _keys(value, f"{path}.{name}" if path else str(name))]


@cache
def fields_of(target: str) -> tuple[str, ...]:
    """The fields of a dataclass of verl's, or of one of ours that extends it; read, not imported, which takes torch."""
    module, _, name = target.rpartition(".")
    classes: dict[str, tuple[list[str], list[str]]] = {}
    for package in {module.rpartition(".")[0] if not _folder(module) else module, "verl.workers.config"}:
        for file in sorted((_folder(package) or Path()).glob("*.py")) if _folder(package) else []:
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    bases = [getattr(base, "id", getattr(base, "attr", "")) for base in node.bases]
                    own = [
                        item.target.id
                        for item in node.body
                        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                    ]
                    classes[node.name] = bases, own
    found, left = [], [name]
    while left:
        bases, own = classes.get(left.pop(), ([], []))
        found += own
        left += bases
    return tuple(found)


def _folder(package: str) -> Path | None:
    top, *rest = package.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))).joinpath(*rest)
    return folder if folder.is_dir() else None
