"""Held-out tasks that decide something are not those that are reported.

The best of several checkpoints on some tasks looks better on these tasks than it is. So validation plays all held-out
tasks and is logged three times: `val/<name>` over all of them, `val_dev/<name>` and `val_test/<name>` over the parts of
their environment's split. Gates and hand-over may use the dev part only. Their decisions are noted beside the model,
and go on to every model that starts from it.

The part of a row follows from its task alone. A user's file may hold training tasks: they are in `val/<name>` and in
neither part. Rows of `environment.guard` are logged as `val_guard/<name>` and nowhere else: a model must not forget
them, and is not trained for them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.stage import state

DEV = "val_dev/"
GUARD = "guard"
"""The part of an episode that was played for `environment.guard`, whatever its task's is."""
APART = ("dev", "test", GUARD)

Decisions = list[dict[str, str]]
"""What validation has decided: stage, setting (`stage.gate.metric` or `stage.handover_metric`) and metric of each."""


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
    if stage.gate and stage.gate.get("metric"):
        found.append(("stage.gate.metric", str(stage.gate.metric)))
    if stage.handover == "best":
        found.append(("stage.handover_metric", str(stage.handover_metric)))
    return [(setting, metric) for setting, metric in found if metric.startswith("val")]


def problems(config: DictConfig) -> Iterator[str]:
    """Settings that would let tasks decide which are also reported."""
    for setting, metric in deciding(config):
        if not metric.startswith(DEV):
            how = f"Set it to a mean over the dev tasks, such as {DEV}score (docs/train.md)"
            yield f"{setting}={metric} would let held-out tasks decide that are also reported. {how}."


def decisions(config: DictConfig) -> Decisions:
    """What validation decides in this stage, after what it has decided about the model the stage starts from."""
    own = [{"stage": config.stage.name, "setting": setting, "metric": metric} for setting, metric in deciding(config)]
    named = [OmegaConf.select(config, f"actor_rollout_ref.model.{key}") for key in ("path", "lora_adapter_path")]
    return _unique([*(item for name in named if name for item in of_model(Path(str(name)))), *own])


def of_model(model: Path) -> Decisions:
    """What has decided that a folder is what it is: `<stage>/hf` or `adapter`, the best one, or a checkpoint."""
    for stage in list(model.absolute().parents)[:4]:
        if (found := state.look(stage).chose) is not None:
            return list(found)
    return []


def of_run(run: Path) -> Decisions:
    """What validation has decided in any stage of a run; `run` may be the folder of a single stage."""
    stages = [run, *sorted(path for path in run.iterdir() if path.is_dir())]
    return _unique(item for stage in stages for item in state.look(stage).chose or ())


def sentence(found: Decisions) -> str:
    """What decided, and what that means for a reported number. Empty if nothing did."""
    if not found:
        return ""
    by = ", ".join(f"{item['metric']} ({item['stage']}, {item['setting']})" for item in _unique(found))
    return f"The dev tasks decided here, by {by}. The figure to report is that of the test tasks."


def note(found: Decisions, split: str) -> str:
    """What a reader of an evaluation on `split` has to know of these decisions; empty where they do not touch it."""
    if not found or split in ("train", "test"):
        return ""
    where = f"{'--option split=official ' if split.startswith('official') else ''}--split test"
    return f"{sentence(found)[:-1]}: {where}{', or the row test above' if split in ('val', 'all') else ''}."


def _unique(found: Iterable[dict[str, str]]) -> Decisions:
    return [dict(pairs) for pairs in dict.fromkeys(tuple(item.items()) for item in found)]
