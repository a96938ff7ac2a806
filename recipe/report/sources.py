"""The rows of a table of pass rates: folders and files of votes, evaluations, and the stages of runs.

A file of votes has StepTool's form, one file a subset; all of its queries have votes of the same numbers:

    {"11650": {"query": "...", "cluster": "...", "is_solved": {"0": "AnswerStatus.Solved", "1": "Unsure", ...}}}

Of an evaluation or a run a solved task has a vote of 1, any other one of 0. Each sample is a round, each category a
subset. A run has a row for the last validation of each stage.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from interaction.environment import known, load_tasks, task_name
from recipe.evaluation.results import all_lost, cost_of
from recipe.evaluation.store import EPISODES, finished_episodes
from recipe.files import Damaged, PreflightError, read_json, shown
from recipe.report.episodes import Place, read_record, validation_files
from recipe.report.pass_rate import Method, Query
from recipe.report.tables import trained_stages
from recipe.report.validation import is_guard, reported
from recipe.stage import choosing
from rewards.votes import SOLVED, worth


@dataclass(frozen=True, slots=True)
class Played:
    """One episode."""

    subset: str
    """Its category; where a source has two environments, `environment/category`."""
    task: str
    sample: int
    cluster: tuple[str, str]
    passed: bool
    record: Callable[[], Mapping[str, Any] | None]
    """The record of the whole conversation, read when it is called; None if it is damaged."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """The episodes of an evaluation, or of the last validation of a stage."""

    name: str
    played: Sequence[Played]
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] | None = None


def methods(paths: Sequence[Path]) -> list[Method]:
    """A method for each folder of votes, each evaluation and each stage of a run.

    Raises:
        PreflightError: something cannot be read, or there is nothing to read.
    """
    found: dict[Path, list[Method]] = {}
    """By folder, which tells two of one name apart."""
    for path in dict.fromkeys(path.absolute() for path in paths):
        if (played := episodes(path)) is not None:
            if not played:
                raise PreflightError(all_lost(path) or f"{path} holds no episode that can be read")
            found[path] = [_method(item) for item in played]
            continue
        files = [path] if path.is_file() else sorted(path.glob("*.json")) or sorted(path.glob("*/*.json"))
        if not files:
            kinds = f"<subset>.json or <method>/<subset>.json with votes, {EPISODES} of an evaluation, or a run"
            raise PreflightError(f"{path} holds nothing to report: expected {kinds}")
        for file in files:
            before = found.get(file.parent, [Method(file.parent.name, {})])[0]
            found[file.parent] = [replace(before, subsets={**before.subsets, file.stem: read_votes(file)})]
    rows = [(folder, method) for folder, made in found.items() for method in made]
    plain = [method.name for _, method in rows]
    parent = [f"{folder.parent.name}/{method.name}" for folder, method in rows]
    whole = [f"{folder.parent}/{method.name}" for folder, method in rows]
    names = next((names for names in (plain, parent) if len({*names}) == len(names)), whole)
    return [replace(method, name=name) for name, (_, method) in zip(names, rows, strict=True)]


def read_votes(path: Path) -> dict[str, Query]:
    """The queries of a file by id.

    Raises:
        PreflightError: it cannot be read, a vote is none, or a query lacks a vote that another one has.
    """
    found: dict[str, Query] = {}
    numbers: list[str] = []
    try:
        for name, entry in read_json(path).items():
            given = {number: worth(entry["is_solved"][number]) for number in sorted(entry["is_solved"], key=int)}
            votes = [vote for vote in given.values() if vote is not None]
            if not votes or len(votes) < len(given) or [*given] != (numbers := numbers or [*given]):
                expected = f"{', '.join(SOLVED)} for each of the votes {', '.join(numbers[:5])}"
                raise ValueError(f"query {shown(name, quote=False)}, is_solved: expected {expected}")
            found[name] = Query(tuple(votes), entry.get("cluster", f"{path}\n{name}"))
    except (Damaged, ValueError, KeyError, TypeError, AttributeError) as error:
        form = '{"query": {"is_solved": {"0": "Solved"}}}'
        raise PreflightError(f"{path} holds no votes, {type(error).__name__}: {error}\nexpected {form}") from error
    return found


def episodes(path: Path) -> list[Episodes] | None:
    """Those of an evaluation's folder, or of each stage of a run; None where the folder is neither."""
    if not (path / EPISODES).is_file():
        stages = [stage for stage in trained_stages(path) if validation_files(stage)] if path.is_dir() else []
        return [source for stage in stages for source in _of_stage(path, stage)] or None
    finished = finished_episodes(path / EPISODES)
    spent = cost_of([path / EPISODES])
    notes = (spent["text"],) if spent is not None and spent["strategy"] != "plain" else ()
    several = len({record.environment for record in finished.values()}) > 1
    played = []
    for (_, sample), record in finished.items():
        task = load_tasks(record.environment).get(record.task_id) if record.environment in known() else None
        cluster = record.task_id if task is None else task.cluster
        passed = record.outcome is not None and record.outcome.passed
        names = (record.environment, record.category, record.task_id)
        played.append(_played(names, several, sample, cluster, passed, record.to_dict))
    try:
        settings = read_json(path / "settings.json")
    except (FileNotFoundError, Damaged):
        settings = {}
    return [Episodes(path.name, played, notes, settings)] if played else []


def _of_stage(run: Path, stage: Path) -> list[Episodes]:
    """Its last validation, and what was played in it for a guard."""
    path = validation_files(stage)[-1]
    decided = choosing.sentence(choosing.of_run(run))
    note = f"the validation of {stage.name} after step {int(path.stem)}{f'. {decided}' if decided else ''}".rstrip(".")
    found, name = [], f"{run.name}/{stage.name}"
    for title, guard in ((name, False), (f"{name}, guard", True)):
        places = [place for place in reported(run, path) if is_guard(place.header) is guard]
        several = len({place.header["environment"] for place in places}) > 1
        played = []
        for place, header in ((place, place.header) for place in places):
            names = (header["environment"], header["category"], header["task_id"])
            passed, record = header["reward"].get("acc") == 1.0, partial(_episode, place)
            played.append(_played(names, several, header["session_id"], header["cluster"], passed, record))
        found += [Episodes(title, played, (note,))] if played else []
    return found


def _played(
    names: tuple[str, str, str], several: bool, sample: int, cluster: str, passed: bool, record: Callable[[], Any]
) -> Played:
    environment, category, task = names
    subset = f"{environment}/{category}" if several else category
    return Played(subset, task_name(environment, task), sample, (environment, cluster), passed, record)


def _episode(place: Place) -> Mapping[str, Any] | None:
    line = read_record(place)
    return line and line["episode"]


def _method(source: Episodes) -> Method:
    """Solved is a vote of 1. A task that lacks a sample which others have is left out, and counted."""
    samples = sorted({item.sample for item in source.played})
    tasks: dict[tuple[str, str], dict[int, Played]] = defaultdict(dict)
    for item in source.played:
        tasks[item.subset, item.task][item.sample] = item
    subsets: dict[str, dict[str, Query]] = defaultdict(dict)
    for (subset, task), given in tasks.items():
        if len(given) == len(samples):
            votes = tuple(float(given[sample].passed) for sample in samples)
            subsets[subset][task] = Query(votes, given[samples[0]].cluster)
    lacking = len(tasks) - sum(map(len, subsets.values()))
    notes = (*source.notes, f"{lacking} of {len(tasks)} tasks lack a sample and are left out")
    return Method(source.name, subsets, notes if lacking else source.notes, source.settings)
