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
from recipe.files import Damaged, read_json
from recipe.report.episodes import Place, read_record, validation_files
from recipe.report.pass_rate import Method, Query
from recipe.report.tables import trained_stages
from recipe.report.validation import is_guard, reported
from recipe.stage import choosing
from recipe.typed import shown
from rewards.votes import SOLVED, worth

MOST_LINES = 50


class SourceError(ValueError):
    """Something cannot be read. The message has a line for everything that is wrong, the first `MOST_LINES`."""


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
        SourceError: something cannot be read, or there is nothing to read.
    """
    wrong: list[str] = []
    found: dict[Path, list[Method]] = {}
    """By folder, which tells two of one name apart."""
    for path in dict.fromkeys(path.absolute() for path in paths):
        if (played := episodes(path)) is not None:
            found[path] = [_method(item) for item in played]
            wrong += [] if played else [all_lost(path) or f"{path} holds no episode that can be read"]
            continue
        files = [path] if path.is_file() else sorted(path.glob("*.json")) or sorted(path.glob("*/*.json"))
        if not files:
            kinds = f"<subset>.json or <method>/<subset>.json with votes, {EPISODES} of an evaluation, or a run"
            wrong.append(f"{path} holds nothing to report: expected {kinds}")
        for file in files:
            votes, faults = read_votes(file)
            wrong += faults
            before = found.get(file.parent, [Method(file.parent.name, {})])[0]
            found[file.parent] = [replace(before, subsets={**before.subsets, file.stem: votes})]
    if wrong:
        more = [f"and {len(wrong) - MOST_LINES} more"] if len(wrong) > MOST_LINES else []
        raise SourceError("\n".join(wrong[:MOST_LINES] + more))
    rows = [(folder, method) for folder, made in found.items() for method in made]
    kinds = (lambda folder: "", lambda folder: f"{folder.parent.name}/", lambda folder: f"{folder.parent}/")
    named = [[f"{kind(folder)}{method.name}" for folder, method in rows] for kind in kinds]
    names = next((names for names in named if len({*names}) == len(names)), named[-1])
    return [replace(method, name=name) for name, (_, method) in zip(names, rows, strict=True)]


def read_votes(path: Path) -> tuple[dict[str, Query], list[str]]:
    """The queries of a file by id, and a line for everything that is wrong with it."""
    try:
        content = read_json(path)
        votes = {
            name: {int(n): worth(vote) for n, vote in entry["is_solved"].items()} for name, entry in content.items()
        }
    except (Damaged, ValueError, KeyError, TypeError, AttributeError) as error:
        form = '{"query": {"is_solved": {"0": "Solved"}}}'
        return {}, [f"{path} holds no votes: {type(error).__name__} {shown(error, quote=False)}; expected {form}"]
    numbers = {number for given in votes.values() for number in given}
    wrong = [f"{path} holds no votes"] * (not numbers)
    for name, given in votes.items():
        where = f"{path}, query {shown(name, quote=False)}, is_solved"
        wrong += [f"{where}.{n}: is none of {', '.join(SOLVED)}" for n, vote in given.items() if vote is None]
        wrong += [f"{where}: lacks vote {n}, which others have" for n in sorted(numbers - given.keys())[:5]]
    if wrong:
        return {}, wrong
    return {
        name: Query(tuple(vote for _, vote in sorted(given.items())), content[name].get("cluster", f"{path}\n{name}"))
        for name, given in votes.items()
    }, []


def episodes(path: Path) -> list[Episodes] | None:
    """Those of an evaluation's folder, or of each stage of a run; None where the folder is neither."""
    if (path / EPISODES).is_file():
        finished = finished_episodes(path / EPISODES)
        spent = cost_of([path / EPISODES])
        notes = (spent["text"],) if spent is not None and spent["strategy"] != "cot" else ()
        several = len({record.environment for record in finished.values()}) > 1
        played = []
        for (_, sample), record in finished.items():
            task = load_tasks(record.environment).get(record.task_id) if record.environment in known() else None
            played.append(
                Played(
                    f"{record.environment}/{record.category}" if several else record.category,
                    task_name(record.environment, record.task_id),
                    sample,
                    (record.environment, record.task_id if task is None else task.cluster),
                    record.outcome is not None and record.outcome.passed,
                    record.to_dict,
                )
            )
        try:
            settings = read_json(path / "settings.json")
        except (FileNotFoundError, Damaged):
            settings = {}
        return [Episodes(path.name, played, notes, settings)] if played else []
    stages = [stage for stage in trained_stages(path) if validation_files(stage)] if path.is_dir() else []
    return [source for stage in stages for source in _of_stage(path, stage)] or None


def _of_stage(run: Path, stage: Path) -> list[Episodes]:
    """Its last validation, and what was played in it for a guard."""
    path = validation_files(stage)[-1]
    decided = choosing.sentence(choosing.of_run(run))
    note = f"the validation of {stage.name} after step {int(path.stem)}{f'. {decided}' if decided else ''}".rstrip(".")
    found, name = [], f"{run.name}/{stage.name}"
    for title, guard in ((name, False), (f"{name}, guard", True)):
        places = [place for place in reported(run, path) if is_guard(place.header) is guard]
        several = len({place.header["environment"] for place in places}) > 1
        played = [
            Played(
                f"{head['environment']}/{head['category']}" if several else head["category"],
                task_name(head["environment"], head["task_id"]),
                head["session_id"],
                (head["environment"], head["cluster"]),
                head["reward"].get("acc") == 1.0,
                partial(_episode, place),
            )
            for place in places
            for head in [place.header]
        ]
        found += [Episodes(title, played, (note,))] if played else []
    return found


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
