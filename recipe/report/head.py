"""What stands first on a page: what was trained, on what and how long, whether it helped, and what its tasks are."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from interaction import get_protocol
from interaction.environment import GoldMessage, Task, known, load_tasks, register
from interaction.gold import opening
from interaction.protocol.docs import DOC_STYLES
from recipe.report import tables, validation
from recipe.stage.console import duration
from recipe.stage.metrics_log import read_steps


def facts(
    config: Mapping[str, Any], run: Path, starts: Sequence[Mapping[str, Any]], played: Iterable[str]
) -> list[Any]:
    """(Name, text) of a run.

    Args:
        config: the settings of its last stage; may be empty.
        starts: those of its manifest.
        played: names of environments.
    """
    steps = [numbers for stage in tables.trained_stages(run) for numbers in read_steps(stage).values()]
    spent = sum(numbers.get("timing_s/step", 0.0) + numbers.get("timing_s/testing", 0.0) for numbers in steps)
    nodes, loss = value(config, "trainer.nnodes"), value(config, "actor_rollout_ref.actor.policy_loss.loss_mode")
    gpus = f"{value(config, 'trainer.n_gpus_per_node')} GPUs on each of {nodes} nodes" if nodes else ""
    found = {
        "model": starts[0].get("model") if starts else "",
        "algorithm": ", loss ".join(filter(None, [value(config, "algorithm.adv_estimator"), loss])),
        "environment": ", ".join(sorted(set(played))),
        "hardware": "CPU" if value(config, "trainer.device") == "cpu" else gpus,
        "steps": f"{sum('timing_s/step' in numbers for numbers in steps)} in {duration(spent)}" if spent else "",
        "commit": (starts[-1].get("commit") or "")[:12] if starts else "",
    }
    return [(name, text) for name, text in found.items() if text]


def value(config: Any, key: str) -> Any:
    """A setting by its name with dots; None where it is not there."""
    for part in key.split("."):
        config = config.get(part) if isinstance(config, Mapping) else None
    return config


def verdict(runs: Sequence[Path]) -> str:
    """Whether training helped, in one sentence."""
    titles, rows = validation.rows(runs)
    said = "No held-out tasks were played both before and after"
    for name, shares, since in rows:
        if name == validation.OVERALL:
            title, rise = [*since.items()][-1]
            begin, end = shares[titles.index(title)][0], shares[-1][0]
            sure = tables.brackets(rise.interval or rise.runs[0].interval)
            said = f"Held-out accuracy {begin:.3f} -> {end:.3f} since {title}: {rise.difference:+.3f}{sure}"
    rises = [row["reward"] for row in tables.stage_rows(list(runs)) if row["reward"]]
    rose = [rise for rise in rises if (sure := rise.interval or rise.runs[0].interval) and sure[0] > 0]
    trained = f"training reward rose in {len(rose)} of {len(rises)} stages" if rises else "no stage has ten steps"
    return f"{said}; {trained}."


def tasks(records: Iterable[Mapping[str, Any]], config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Environment/task -> the messages that an episode of it begins with, and gold's calls by turn.

    Those whose environment cannot be had here are left out.
    """
    own, docs = value(config, "interaction.environments") or {}, value(config, "interaction.docs")
    found = dict[str, dict[str, Any]]()
    register({name: path for name, path in own.items() if name not in known() and Path(path).is_file()})
    for episode in (record["episode"] for record in records):
        name = f"{episode.get('environment')}/{episode['task_id']}"
        if name not in found:
            try:
                task = load_tasks(episode["environment"])[episode["task_id"]]
                protocol = get_protocol(episode["protocol"], docs=docs if docs in DOC_STYLES else "json")
                options = {episode["environment"]: episode.get("options") or {}}
                system = [
                    message for message in opening(task, protocol, environments=options) if message["role"] == "system"
                ]
                found[name] = {"system": system[0]["content"] if system else "", "gold": gold_calls(task)}
            except Exception:  # another release's episodes, or a file of the user's that has gone
                found[name] = {}
    return {name: task for name, task in found.items() if task}


def gold_calls(task: Task) -> list[list[str]]:
    """Gold's calls of each turn, as text."""
    turns: list[list[str]] = [[]]
    for item in task.gold():
        if isinstance(item, GoldMessage):
            turns[-1] += map(str, item.calls)
            turns += [] if item.calls else [[]]
    return turns
