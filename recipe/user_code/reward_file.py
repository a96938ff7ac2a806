"""A user's reward, loaded the same way in preflight, in rescoring and in verl's reward workers, and called with limits.

verl imports a file without entering it in `sys.modules`, and a dataclass in a module with `from __future__ import
annotations` looks there for its module: importing such a file fails. And verl trusts a reward: one that hangs stops the
training without a word, and NaN trains nothing. Therefore verl gets this module as the reward, and as its arguments
where the user's is, its function, its time limit and its own arguments. A reward that fails raises `RewardFailed`: verl
loses that sample, `recipe.training.trainer` counts it, and the first failures of a worker are named in the log.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import count
from pathlib import Path
from threading import RLock
from typing import Any

from omegaconf import DictConfig, open_dict

from interaction import boundary
from interaction.environment import task_id_of
from interaction.words import line_of
from recipe.user_code.raised import file_of, told
from recipe.user_code.reward_result import RewardError, checked, comparable

PACKAGE, FILE = "pkg://", "file://"
FILE_KEY, FUNCTION_KEY, TIMEOUT_KEY = "_recipe_reward_file", "_recipe_reward_function", "_recipe_reward_timeout"
METRIC_KEY = "_recipe_reward_metric"
"""Arguments under which the functions below get what to call, for how long it may run, and the metric by which verl
compares groups, if any. They stand beside the user's own, so their names are none that a reward has."""

SCORE = "reward"
"""verl's name, as a metric of `algorithm.filter_groups`, for the score that is trained on."""

NAMED_FAILURES = 10
"""Failures of a reward that a worker names in the log; verl logs each one with its traceback."""

_lock = RLock()  # verl calls a reward from several threads: a file is to be run once. It may load another one


class RewardFileError(ValueError):
    """A reward that cannot be loaded. The message says why and what to change."""


class RewardFailed(RuntimeError):
    """A reward gave no usable score for one episode. The message is one line that names the reward and the task."""


def compared_by(config: DictConfig) -> str | None:
    """The metric of the reward by which dynamic sampling compares groups; None where it is off or takes the score."""
    filtering = config.algorithm.filter_groups
    return str(filtering.metric) if filtering.enable and filtering.metric != SCORE else None


def load(source: str, name: str) -> Callable[..., Any]:
    """The function `name` of a Python file, or of a module `pkg://package.module`.

    Raises:
        RewardFileError: there is no such file, it cannot be imported, or it has no such function.
    """
    where = f"reward.custom_reward_function.path={source}"
    try:
        if source.startswith(PACKAGE):
            module: Any = importlib.import_module(source.removeprefix(PACKAGE).replace("/", "."))
        else:
            path = Path(source.removeprefix(FILE)).expanduser()
            if not path.is_file():
                raise RewardFileError(f"{where} does not exist. Give the path of a Python file with `{name}`.")
            with _lock:
                module = _run(Path(_file(source)))
    except RewardFileError:
        raise
    except (Exception, SystemExit) as error:
        raise RewardFileError(f"{where} cannot be imported: {told(error, _file(source))}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise RewardFileError(f"{where} has no function `{name}`. Define it or set reward.custom_reward_function.name.")
    return function


def _file(source: str) -> str:
    """The file as its code will name it; of a module `pkg://` none that exists."""
    return str(Path(source.removeprefix(FILE)).expanduser().resolve())


def _run(path: Path) -> Any:
    """The module of a file. It is run once a process: a file that is edited during a training changes nothing there."""
    name = f"reward_file_{sha256(bytes(path)).hexdigest()[:16]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def for_verl(config: DictConfig) -> DictConfig:
    """A copy of a stage's configuration in which verl calls the reward through this module.

    Raises:
        RewardFileError: as `load` and `check_arguments`.
    """
    config = config.copy()
    setting = config.reward.custom_reward_function
    path, name = str(setting.path), str(setting.name)
    called = compute_score_async if inspect.iscoroutinefunction(load(path, name)) else compute_score
    where = path if path.startswith(PACKAGE) else str(Path(path.removeprefix(FILE)).expanduser().absolute())
    ours = {FILE_KEY: where, FUNCTION_KEY: name, TIMEOUT_KEY: config.reward.timeout, METRIC_KEY: compared_by(config)}
    arguments = setting.get("reward_kwargs") or {}
    check_arguments(arguments)
    with open_dict(setting):
        setting.reward_kwargs = {**arguments, **ours}
        setting.path, setting.name = f"{PACKAGE}{__name__}", called.__name__
    return config


def check_arguments(arguments: Mapping[Any, Any]) -> None:
    """Raises RewardFileError if one of the user's arguments has a name that this module needs."""
    if taken := sorted({FILE_KEY, FUNCTION_KEY, TIMEOUT_KEY, METRIC_KEY} & set(arguments)):
        raise RewardFileError(
            f"reward.custom_reward_function.reward_kwargs has {', '.join(taken)}, which the recipe gives to verl "
            "beside them. Give the reward's argument another name."
        )


def named(setting: DictConfig) -> tuple[str, str]:
    """Path and function as the user gave them, of a `reward.custom_reward_function` that went through `for_verl`."""
    arguments = setting.get("reward_kwargs") or {}
    return arguments.get(FILE_KEY, setting.path), arguments.get(FUNCTION_KEY, setting.name)


def compute_score(
    *args: Any,
    _recipe_reward_file: str,
    _recipe_reward_function: str,
    _recipe_reward_timeout: float,
    _recipe_reward_metric: str | None,
    **kwargs: Any,
) -> Any:
    """Calls the user's function. verl calls this one, in one of several threads of a reward worker.

    Raises:
        RewardFailed: it gave no usable score.
    """
    with _named(_recipe_reward_file, _recipe_reward_function, kwargs) as function:
        result = boundary.call(function, _recipe_reward_timeout, *args, **kwargs)
        return comparable(checked(result), _recipe_reward_metric)


async def compute_score_async(
    *args: Any,
    _recipe_reward_file: str,
    _recipe_reward_function: str,
    _recipe_reward_timeout: float,
    _recipe_reward_metric: str | None,
    **kwargs: Any,
) -> Any:
    """The same where the user's function is `async`, which verl must see."""
    with _named(_recipe_reward_file, _recipe_reward_function, kwargs) as function:
        result = await boundary.call_async(function, _recipe_reward_timeout, *args, **kwargs)
        return comparable(checked(result), _recipe_reward_metric)


_failures = count(1)


@contextmanager
def _named(path: str, name: str, kwargs: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """The function. Whatever fails, verl loses this sample, and the log says which reward failed on which task."""
    function = None
    try:
        yield (function := load(path, name))
    except Exception as error:
        if isinstance(error, RewardError | boundary.Hangs):
            how = str(error)
        elif function is None:
            how = f"cannot be called: {line_of(error)}"
        else:
            cause = error.__cause__ if isinstance(error, boundary.UserCodeError) else error
            how = f"raised {told(cause or error, file_of(function))}"
        episode = kwargs.get("extra_info")
        task = (task_id_of(episode) if isinstance(episode, Mapping) else None) or "an episode"
        line = f"the reward {name} of {path} {how}"
        if next(_failures) <= NAMED_FAILURES:
            print(f"REWARD FAILED on {task}: {line}", flush=True)
        raise RewardFailed(f"{line} ({task})") from error
