"""The reward is tried before anything starts: on the record of one task, in the form in which verl calls it."""

import re
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.environment import DEFAULT
from recipe.errors import PreflightError
from recipe.settings import as_list
from recipe.user_code import reward_file
from recipe.user_code.reward_process import RewardProcess, RewardTimeout
from recipe.user_code.reward_result import RewardError


def sample_record(environment: str = DEFAULT) -> dict[str, Any]:
    """The record of one task played with its gold, to try a reward on."""
    from interaction import get_protocol
    from interaction.environment import load_tasks
    from interaction.gold import play_gold

    return play_gold(next(iter(load_tasks(environment).values())), get_protocol("think_xml"))[1].to_dict()


def environments_of(config: DictConfig) -> list[str]:
    """The environments of the training rows; the default one where there are none yet."""
    import pyarrow.parquet as parquet  # here, because settings are looked at without it

    found: set[str] = set()
    files = OmegaConf.select(config, "data.train_files")
    for name in as_list(files) if files else []:
        if (path := Path(name).expanduser()).is_file():
            rows = parquet.read_table(path, columns=["extra_info"])["extra_info"].to_pylist()
            found |= {(row or {}).get("environment") or DEFAULT for row in rows}
    return sorted(found) or [DEFAULT]


FACTS = "under `facts`"
MOVED = dict.fromkeys(("has_gold", "gold_calls", "closeness", "passed_official", "gold"), FACTS)
MOVED |= {"scenario_id": "under `task_id`", "augment": "under `options`"}
"""Keys of records of version 2 -> where their values are now."""


def moved(said: str) -> str:
    """Where a key is that a reward has looked for in vain; empty if it never was in a record."""
    found = re.search(r"KeyError: '(\w+)'", said)
    where = MOVED.get(found[1]) if found else None
    if not found or not where:
        return ""
    if where == FACTS and re.search(r"; [^;]*facts\S* (?:has\b|is empty)", said):
        return (
            f" `{found[1]}` is a fact of BFCL's turns. Another environment gives its own, TurnResult(..., "
            f"facts={{'{found[1]}': ...}}); a reward for several reads it with .get()."
        )
    return f" In a record of version 3 it stands {where}."


def check_reward(config: DictConfig) -> None:
    """Call the reward once on a sample record, in a process of its own: it may exit or hang there.

    One that is `async` is only loaded, because it may talk to a server that is not up yet.

    Raises:
        PreflightError: it cannot be loaded, or gave no usable score.
    """
    from recipe.preflight.algorithm import check_reward_steps
    from recipe.preflight.features import check_filter_metric, untried_metric

    setting, seconds = config.reward.custom_reward_function, config.reward.timeout
    path, results = str(setting.path), []
    arguments: Any = OmegaConf.to_container(setting.get("reward_kwargs") or OmegaConf.create(), resolve=True)
    if not path.startswith(reward_file.PACKAGE):
        path = str(Path(path.removeprefix(reward_file.FILE)).expanduser())
    try:
        reward_file.check_arguments(arguments)
        with RewardProcess(path, str(setting.name), seconds, arguments) as reward:
            if reward.is_async:
                if line := untried_metric(config):
                    print(line, flush=True)
                return
            for record in map(sample_record, environments_of(config)):
                source = f"{record['environment']}/{record['category'].removeprefix('multi_turn_')}"
                extra = {"episode": record, "split": "train"}
                result = reward(data_source=source, solution_str="", ground_truth="[]", extra_info=extra)
                results.append((record, result))
    except reward_file.RewardFileError as error:
        raise PreflightError(str(error)) from error
    except RewardError as error:
        longer = " A longer call needs a higher reward.timeout." if isinstance(error, RewardTimeout) else ""
        raise PreflightError(
            f"{error}.{moved(str(error))} This was on a sample record, called as "
            f"compute_score(data_source, solution_str, ground_truth, extra_info); see rewards/README.md.{longer}"
        ) from error
    for record, result in results:
        check_reward_steps(result, record, reward.title)
        check_filter_metric(config, result)
