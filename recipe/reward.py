"""A user's reward: loaded, called with a time limit, its result checked, and tried once before a start.

verl calls a reward without a limit and trains on whatever it returns: one that hangs stops the training without a word,
and one NaN makes all weights NaN. It also imports the file outside of `sys.modules`, where a dataclass looks for its
module. So verl gets this module as the reward, and the user's file, function and limits among its arguments. A reward
that fails raises `RewardError`: verl loses that sample, `recipe.training.trainer` counts it, and the log names the
first failures of each worker.
"""

import argparse
import asyncio
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import Conversation, StopReason, boundary, get_protocol, user_file
from interaction.environment import DEFAULT, load_tasks, waits
from interaction.gold import play_gold
from interaction.record import question_of
from recipe.files import shown

PACKAGE, FILE = "pkg://", "file://"
OURS = "_recipe"
"""The argument with what the functions below call. It stands beside the user's arguments."""
SCORE = "reward"
"""verl's name, as a metric of `algorithm.filter_groups`, for the score that is trained on."""
STEP_SCORES = "step_scores"
"""The one list that a reward may return: a score for each step, which `interaction.token_rewards` checks."""
NAMED_FAILURES = 10
"""Failures that a worker names in the log; verl logs each one with its traceback."""

_lock = Lock()  # verl calls a reward from several threads
_failures = count(1)


class RewardError(ValueError):
    """A reward that cannot be loaded, or that gives no usable score. The message is one line."""


def load(source: str, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file, or of a module `pkg://package.module`. A file is run once in a process.

    Raises:
        RewardError: there is no such file, it cannot be imported, or it has no such function.
    """
    try:
        with _lock:
            module = boundary.call(_imported, boundary.LOAD_SECONDS, source)
    except Exception as error:
        where = f"reward.custom_reward_function.path={source}"
        raise RewardError(f"{where} cannot be imported: {boundary.raised(error)}") from error
    if not callable(function := getattr(module, name, None)):
        raise RewardError(f"{source} has no function `{name}`. Set reward.custom_reward_function.name.")
    return function


def _imported(source: str) -> Any:
    if source.startswith(PACKAGE):
        return user_file.imported(source.removeprefix(PACKAGE).replace("/", "."))
    name = f"{boundary.MODULE}{sha256(absolute(source).encode()).hexdigest()[:16]}"
    return sys.modules.get(name) or user_file.load(name, Path(absolute(source)))


def absolute(source: str) -> str:
    """The same source for a process in another folder."""
    return source if source.startswith(PACKAGE) else str(Path(source.removeprefix(FILE)).expanduser().absolute())


def checked(result: Any, metric: str | None = None) -> float | dict[str, Any]:
    """The score, or the dict with `score`, in plain numbers and texts. A metric that is not finite becomes None.

    verl and our tables leave None out of means, where one NaN would make the mean NaN.

    Args:
        metric: the one by which dynamic sampling compares groups; it has to be a number.

    Raises:
        RewardError: there is no finite score, or verl cannot log the rest.
    """
    given = result if isinstance(result, Mapping) else {"score": result}
    try:
        values = {name: value if name == STEP_SCORES else _plain(value) for name, value in given.items()}
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise RewardError(f"returned {shown(result)}; expected finite numbers and texts") from error
    if not isinstance(values.get("score"), int | float) or not all(isinstance(name, str) for name in values):
        raise RewardError(f"returned {shown(result)}; expected a finite number, or a dict with one as `score`")
    values["score"] = float(values["score"])
    if metric is not None and not isinstance({"acc": values["score"], **values}.get(metric), int | float):
        raise RewardError(f"returned {shown(result)}, where algorithm.filter_groups.metric={metric} is no number")
    return values if isinstance(result, Mapping) else values["score"]


def _plain(value: Any) -> Any:
    """A number of numpy or torch as Python's; what is not finite as None."""
    if value is not None and not isinstance(value, str):
        value = getattr(value, "item", lambda: value)()
        if not isinstance(value, int | float):
            raise TypeError
        if not math.isfinite(value):
            return None
    return value


def for_verl(config: DictConfig) -> DictConfig:
    """A copy of a stage's configuration in which verl calls the reward through this module. Raises as `load`."""
    config = config.copy()
    setting, filtering = config.reward.custom_reward_function, config.algorithm.filter_groups
    compared = filtering.metric if filtering.enable and filtering.metric != SCORE else None
    ours = {"path": absolute(setting.path), "name": setting.name, "timeout": config.reward.timeout, "metric": compared}
    is_async = inspect.iscoroutinefunction(load(setting.path, setting.name))
    with open_dict(setting):
        setting.reward_kwargs = {**(setting.get("reward_kwargs") or {}), OURS: ours}
        setting.path, setting.name = f"{PACKAGE}{__name__}", f"compute_score{'_async' * is_async}"
    return config


def named(setting: DictConfig) -> tuple[str, str]:
    """Path and function as the user gave them, of a `reward.custom_reward_function` that went through `for_verl`."""
    given = (setting.get("reward_kwargs") or {}).get(OURS, setting)
    return given["path"], given["name"]


def compute_score(_recipe: Mapping[str, Any], **question: Any) -> Any:
    """The score that the user's function gives. verl calls this in one of several threads of a reward worker.

    Raises:
        RewardError: there is none.
    """
    with _named(_recipe, question) as function:
        return checked(boundary.call(function, _recipe["timeout"], **question), _recipe["metric"])


async def compute_score_async(_recipe: Mapping[str, Any], **question: Any) -> Any:
    """The same where the user's function is `async`, which verl must see."""
    with _named(_recipe, question) as function:
        return checked(await boundary.call_async(function, _recipe["timeout"], **question), _recipe["metric"])


@contextmanager
def _named(ours: Mapping[str, Any], question: Mapping[str, Any]) -> Iterator[Callable[..., Any]]:
    """The function. A failure names the reward and the task."""
    function = load(ours["path"], ours["name"])
    try:
        yield function
    except Exception as error:
        how = str(error) if isinstance(error, RewardError) else boundary.how(error)
        extra = question.get("extra_info")
        task = (extra.get("task_id") if isinstance(extra, Mapping) else None) or "an episode"
        line = f"the reward {ours['name']} of {ours['path']} {how}"
        if next(_failures) <= NAMED_FAILURES:
            print(f"REWARD FAILED on {task}: {line}", flush=True)
        raise RewardError(f"{line} ({task})") from error


def caller(source: str, name: str, seconds: float, arguments: Mapping[str, Any]) -> Callable[..., Any]:
    """A reward outside of verl: takes what verl gives one, and `arguments` beside it.

    Prints a NOTE for each argument that goes into `**kwargs`: if it is misspelt, it changes nothing. All calls of an
    async reward run in one event loop: a client that it keeps belongs to the loop of its first call.

    Raises:
        RewardError: as `load`, or it takes no such argument; and as `compute_score`, when it is called.
    """
    ours = {"path": source, "name": name, "timeout": seconds, "metric": None}
    function = load(source, name)
    takes = inspect.signature(function).parameters
    unknown, own = [argument for argument in arguments if argument not in takes], ", ".join(takes)
    if unknown and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
        raise RewardError(f"the reward takes no argument {', '.join(unknown)}; its parameters are {own}.")
    for argument in unknown:
        print(f"NOTE the reward has no parameter `{argument}` ({own}): it goes into **kwargs", flush=True)
    if not inspect.iscoroutinefunction(function):
        return lambda **question: compute_score(ours, **question, **arguments)
    runner = asyncio.Runner()
    return lambda **question: runner.run(compute_score_async(ours, **question, **arguments))


def read_argument(text: str) -> tuple[str, Any]:
    """NAME=VALUE of a command line, an argument of the reward: the value as JSON, or else the text itself."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, an argument of the reward")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def sample_record(environment: str = DEFAULT, gold: bool = True) -> dict[str, Any]:
    """The record of a task to try a reward on: played with its gold, or cut before the first message."""
    task, protocol = next(iter(load_tasks(environment).values())), get_protocol("think_xml")
    if gold:
        return play_gold(task, protocol)[1].to_dict()
    with Conversation(task, protocol=protocol) as conversation:
        conversation.begin()
        conversation.stop(StopReason.max_tokens)
        return conversation.record().to_dict()


def tried(config: DictConfig, environments: Sequence[str]) -> list[tuple[dict[str, Any], Any]]:
    """Sample records, each with what the reward returns for it.

    Raises:
        RewardError: it fails, or its keys differ from record to record, which makes means of other episodes.
    """
    setting = config.reward.custom_reward_function
    arguments: Any = OmegaConf.to_container(setting.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    call = caller(str(setting.path), str(setting.name), config.reward.timeout, arguments)
    records = list[dict[str, Any]]()
    for name in environments:
        called = not waits(next(iter(load_tasks(name).values()))) or config.interaction.tried
        records += [sample_record(name, gold) for gold in (True, False) if called or not gold]
    found = [(record, call(**question_of(record))) for record in records]
    keys = [sorted(result) if isinstance(result, dict) else [] for _, result in found]
    if different := next((one for one in keys if one != keys[0]), None):
        raise RewardError(f"the reward returns the keys {keys[0]} for one record and {different} for another.")
    return found
