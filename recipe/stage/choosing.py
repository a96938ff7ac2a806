"""Held-out tasks that decide something are not those that are reported.

Whoever takes the best of several checkpoints by some tasks, and then reports the same tasks, reports the best of
several. So validation plays all held-out tasks and is logged three times: `val/<name>` over all of them, and
`val_dev/<name>` and `val_test/<name>` over the two parts of their environment's split. Gates and hand-over may
use the dev part only. What they decided is noted beside the model, and goes on to every model that starts from it.

The part of a row follows from its task, not from anything else that a data file says. A file of one's own may hold
training tasks: they are in `val/<name>` and in neither part. Rows of `environment.guard` are logged as
`val_guard/<name>` and nowhere else: what a model must not forget is no part of what it is trained for.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.environment import part_of, task_key_of
from recipe.files import PreflightError, data_command, environment_of
from recipe.settings import as_list
from recipe.stage import state

DEV, TEST = "val_dev/", "val_test/"
GUARD = "guard"
"""The part of an episode that was played for `environment.guard`, whatever its task's is."""

APART = ("dev", "test", GUARD)

Decisions = list[dict[str, str]]
"""What validation has decided: stage, setting (`stage.gate.metric` or `stage.handover_metric`) and metric of each."""


def part_of_row(row: Mapping[str, Any]) -> str | None:
    """`train`, `dev` or `test` for what names a task, as a row's `extra_info` does; None if there is no such."""
    try:
        return part_of(row)
    except (ValueError, TypeError):
        return None


def validation_metrics(sources: Sequence[str], infos: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """Means of a validation: `val/<name>` over all samples but the guard's, and those of each part.

    The latter over all of the part, `val_<part>/<name>`, and by data source, `val_<part>/<source>/<name>`.

    Args:
        sources: data source of each sample, such as bfcl/base.
        infos: name -> a value for each sample; `part` among them.
    """
    parts = infos.get("part", [None] * len(sources))
    values: dict[str, list[float]] = defaultdict(list)
    for name, column in infos.items():
        for source, part, value in zip(sources, parts, column, strict=True):
            if isinstance(value, int | float):
                if part != GUARD:
                    values[f"val/{name}"].append(value)
                if part in APART:
                    values[f"val_{part}/{name}"].append(value)
                    values[f"val_{part}/{source}/{name}"].append(value)
    return {name: fmean(numbers) for name, numbers in values.items()}


def deciding(config: DictConfig) -> list[tuple[str, str]]:
    """The settings by which this stage lets validation decide, each with its metric."""
    stage, found = config.stage, []
    gate = stage.gate.get("metric") if stage.gate else None
    if gate and str(gate).startswith("val"):
        found.append(("stage.gate.metric", str(gate)))
    if stage.handover == "best" and str(stage.handover_metric).startswith("val"):
        found.append(("stage.handover_metric", str(stage.handover_metric)))
    return found


def check(config: DictConfig) -> None:
    """What decides is of the dev part.

    Raises:
        PreflightError: it is not.
    """
    for setting, metric in deciding(config):
        if not metric.startswith(DEV):
            raise PreflightError(
                f"{setting}={metric} would let held-out tasks decide that are also reported. Set {setting}="
                f"{_of_dev_part(metric)}, the mean over the dev tasks (docs/train.md)."
            )


def check_rows(config: DictConfig) -> None:
    """Where validation decides, its data have tasks for that.

    Raises:
        PreflightError: they have none.
    """
    settings = deciding(config)
    if not settings:
        return
    import pyarrow.parquet as parquet  # here, because settings are looked at without it

    guard = as_list(OmegaConf.select(config, "environment.guard"))
    files = [name for name in as_list(config.data.val_files) if name not in guard]
    rows = [
        row
        for name in files
        for row in parquet.read_table(Path(name).expanduser(), columns=["extra_info"])["extra_info"].to_pylist()
    ]
    if not any(part_of_row(row) == "dev" for row in rows):
        names = " and ".join(f"{setting}={metric}" for setting, metric in settings)
        environment = str(task_key_of(rows[0])[0]) if rows else environment_of(config, files[0])
        raise PreflightError(
            f"{names} needs dev tasks, and none of the {len(rows)} rows of data.val_files={','.join(files)} "
            f"is one. Make the data again with `{data_command(config, environment)}`; or set stage.handover=last, and "
            "stage.gate to a metric of training."
        )


def _of_dev_part(metric: str) -> str:
    """The metric of the dev part that stands for one over all tasks, or one of verl's for a data source."""
    by_source = re.match(r"val-(?:core|aux)/(.+)/\w+@\d+(?:/\w+)?$", metric)
    return DEV + (by_source[1] if by_source else metric.partition("/")[2] or "<name>")


def decisions(config: DictConfig) -> Decisions:
    """What validation decides in this stage, after what it has decided about the model the stage starts from."""
    own = [{"stage": config.stage.name, "setting": setting, "metric": metric} for setting, metric in deciding(config)]
    named = [OmegaConf.select(config, f"actor_rollout_ref.model.{key}") for key in ("path", "lora_adapter_path")]
    return _unique([*(item for name in named if name for item in of_model(Path(str(name)))), *own])


def of_model(model: Path) -> Decisions:
    """What has decided that a folder is what it is: `<stage>/hf` or `adapter`, the best one, or a checkpoint."""
    stages = list(model.absolute().parents)[:4]
    return next((found for stage in stages if (found := of_stage(stage)) is not None), [])


def of_stage(stage: Path) -> Decisions | None:
    """What its state says; None for a folder that is no stage's."""
    chose = state.look(stage).chose
    return None if chose is None else list(chose)


def of_run(run: Path) -> Decisions:
    """What validation has decided in any stage of a run; `run` may be the folder of a single stage."""
    stages = [run, *sorted(path for path in run.iterdir() if path.is_dir())]
    return _unique(item for stage in stages for item in of_stage(stage) or [])


def all_by_dev_part(found: Decisions) -> bool:
    """Whether nothing but the dev part has decided."""
    return all(item["metric"].startswith(DEV) for item in found)


def sentence(found: Decisions) -> str:
    """What decided, and what that means for a reported number. Empty if nothing did."""
    if not found:
        return ""
    by = ", ".join(f"{item['metric']} ({item['stage']}, {item['setting']})" for item in _unique(found))
    if all_by_dev_part(found):
        return f"The dev tasks decided here, by {by}. The figure to report is that of the test tasks."
    return (
        f"All held-out tasks decided here, by {by}, so no held-out figure of this model is free of that choice. "
        "A run that is trained now keeps test tasks apart."
    )


def note(found: Decisions, split: str) -> str:
    """What a reader of an evaluation on `split` has to know of these decisions; empty where they do not touch it."""
    if not found or split == "train" or (split == "test" and all_by_dev_part(found)):
        return ""
    if not all_by_dev_part(found):
        return sentence(found)
    return f"{sentence(found)[:-1]}: --split test{'' if split == 'dev' else ', or the row test above'}."


def _unique(found: Iterable[dict[str, str]]) -> Decisions:
    return [dict(pairs) for pairs in dict.fromkeys(tuple(item.items()) for item in found)]
