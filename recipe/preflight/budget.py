"""Says before a start which tasks gold cannot finish within the configured tokens, and leaves them out if asked to.

Such rows of training always end as `max_tokens`: their first turns still teach, so they stay unless
`stage.over_budget=leave_out`. Rows of the validation are never left out, because an accuracy over fewer tasks is
another number; instead the line says what can be reached at most.

verl gets the tasks in `data.leave_out` and `recipe.training.fitting_rows` as its data set, so the files stay the ones
that were named. An entry is `environment/id`; an id alone is BFCL's. `recipe.stage.starts` notes them beside the
checkpoints: a stage that goes on does so with the same rows.
"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import Conversation
from interaction.environment import Task, task_name, task_of
from interaction.protocol import Protocol
from recipe.errors import PreflightError
from recipe.preflight.gold_tokens import Budget, Lengths, over_budget
from recipe.settings import as_list
from recipe.stage.same_rows import check_same_rows, check_same_tasks, tasks_of

Row = tuple[str, str, str]
"""Environment, task and split of a row: what decides whether gold fits."""


def check_budget(config: DictConfig, tokenizer: Any, protocol: Protocol) -> list[str]:
    """A line for each file with tasks that cannot be finished. Sets `data.leave_out` if that is asked for.

    Raises:
        PreflightError: too few rows are left, or the checkpoints to go on from were trained on other rows.
    """
    lengths, tasks = Lengths(tokenizer), dict[Row, Task]()
    rollout = config.actor_rollout_ref.rollout
    budget = Budget(rollout.max_model_len, config.data.max_response_length, config.interaction.max_tokens_per_reply)
    known: dict[Row, bool] = {}
    lines, left_out, rows_left, trained = [], set(), 0, []
    for key in ("train_files", "val_files"):
        for file in as_list(config.data[key]):
            infos = parquet.read_table(Path(file).expanduser(), columns=["extra_info"])["extra_info"].to_pylist()
            rows = []
            for info in infos:
                task = task_of(info)
                rows.append((task.environment, task.id, info["split"]))
                tasks[rows[-1]] = task
            _judge(tasks, known, config, protocol, lengths, budget)
            over = [row for row in rows if known[row]]
            if over:
                lines.append(_line(config, key, file, [tasks[row].category for row in rows], over, tasks, budget))
            if key == "train_files":
                trained += [task_name(environment, task_id) for environment, task_id, _ in rows]
                left_out |= {task_name(environment, task_id) for environment, task_id, _ in over}
                rows_left += len(rows) - len(over)
    names = sorted(left_out) if config.stage.over_budget == "leave_out" else []
    if names and rows_left < config.data.train_batch_size:
        raise PreflightError(
            f"stage.over_budget=leave_out leaves {rows_left} rows, fewer than data.train_batch_size="
            f"{config.data.train_batch_size}: no step would be made. Cut results with "
            "interaction.train.max_result_chars, lower TRAIN_BATCH_SIZE, or set it to keep."
        )
    check_same_rows(config, names)
    check_same_tasks(config, now := tasks_of(trained))
    with open_dict(config):
        config.data.tasks = asdict(now)
    if names:
        if config.data.custom_cls.path is not None:
            raise PreflightError(
                "stage.over_budget=leave_out works with verl's own data set, and data.custom_cls.path="
                f"{config.data.custom_cls.path} names another. Leave the rows out there and set it to keep."
            )
        with open_dict(config):
            config.data.leave_out = names
            config.data.custom_cls = {"path": "pkg://recipe.training.fitting_rows", "name": "FittingRows"}
    return lines


def _judge(
    tasks: dict[Row, Task],
    known: dict[Row, bool],
    config: DictConfig,
    protocol: Protocol,
    lengths: Lengths,
    budget: Budget,
) -> None:
    """Notes in `known` which rows are over budget."""
    for split in {split for *_, split in tasks}:
        policy: Any = OmegaConf.to_container(config.interaction[split], resolve=True)

        def opened(task: Task, policy: dict[str, Any] = policy) -> Conversation:
            return Conversation(task, protocol=protocol, **policy)

        for row in [row for row in tasks if row[-1] == split and row not in known]:
            known[row] = bool(over_budget([tasks[row]], opened, lengths, budget))


def _line(
    config: DictConfig,
    key: str,
    name: str,
    rows: list[str],
    over: list[Row],
    tasks: dict[Row, Task],
    budget: Budget,
) -> str:
    """Args: rows: the category of each."""
    of, beyond = Counter(rows), Counter(tasks[row].category for row in over)
    where = ", ".join(f"{number} of {of[each]} {each.removeprefix('multi_turn_')}" for each, number in beyond.items())
    split = "train" if key == "train_files" else "val"
    limits = f"data.max_response_length={budget.response}, actor_rollout_ref.rollout.max_model_len={budget.context}"
    if budget.reply is not None:
        steps = config.interaction[split].get("max_steps_per_turn")
        limits += f", interaction.max_tokens_per_reply={budget.reply}, interaction.{split}.max_steps_per_turn={steps}"
    if split == "val":
        end = f"accuracy can reach {1 - len(over) / len(rows):.3f} at most"
    elif config.stage.over_budget == "leave_out":
        end = f"left out of training, {len(rows) - len(over)} rows stay"
    else:
        end = "nobody can finish them; stage.over_budget=leave_out leaves them out of training"
    return (
        f"over budget: gold of {len(over)} of {len(rows)} rows of data.{key}={name} ({where}) does not fit {limits}: "
        f"{end}. Longer limits or interaction.{split}.max_result_chars make more of them fit"
    )
