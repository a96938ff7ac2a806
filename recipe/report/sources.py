"""What a table of pass rates is made of: folders and files of votes, evaluations, and runs.

Of an evaluation or a run, a task that was solved has a vote of 1, any other one of 0, and each sample is a round; its
subsets are the categories. A run has a row for each stage, from its last validation.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from interaction.environment import known, load_tasks, task_key_of, task_name
from interaction.record import EpisodeRecord
from recipe.evaluation.results import all_lost, cost_of
from recipe.evaluation.store import EPISODES, SettingsError, finished_episodes, record_of
from recipe.report.episodes import Place, read_record, validation_files
from recipe.report.pass_rate import Method, Query
from recipe.report.played_with import played_with
from recipe.report.tables import trained_stages
from recipe.report.validation import is_guard, reported
from recipe.report.votes import read_votes
from recipe.stage import choosing


class SourceError(ValueError):
    """What was given cannot be read. The message has a line for everything that is wrong, the first `MOST_LINES`."""


MOST_LINES = 50


@dataclass(frozen=True, slots=True)
class Played:
    """One episode of ours."""

    subset: str
    """Its category; where a source has two environments, `environment/category`."""
    task: str
    """Environment and id, as one text."""
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
    played_with: Mapping[str, str] | None = None
    """Of an evaluation, as `Method` has it."""


def methods(paths: Sequence[Path]) -> list[Method]:
    """A method for each folder of votes, each evaluation and each stage of a run; files of one folder are one method.

    Raises:
        SourceError: something cannot be read, or there is nothing to read.
    """
    wrong: list[str] = []
    files: dict[Path, dict[Path, Path]] = defaultdict(dict)  # each by its absolute path, which it may be given by twice
    found: dict[Path, list[Method]] = defaultdict(list)  # by folder, which tells two of one name apart
    for path in dict.fromkeys(paths):
        if (played := episodes(path)) is not None:
            found[path.absolute()] = [_method(item) for item in played]
            wrong += [] if played else [all_lost(path) or f"{path} holds no episode that can be read"]
        elif given := vote_files(path):
            for file in given:
                folder = file.absolute().parent
                found[folder] = found[folder]  # its place among the rows
                files[folder][file.absolute()] = file
        else:
            wrong.append(_nothing(path))
    for folder, its_files in files.items():
        subsets = {}
        for file in its_files.values():
            subsets[file.stem], more = read_votes(file)
            wrong += more
        found[folder] = [Method(folder.name, subsets)]
    if wrong:
        more = [f"and {len(wrong) - MOST_LINES} more"] if len(wrong) > MOST_LINES else []
        raise SourceError("\n".join(wrong[:MOST_LINES] + more))
    return _told_apart(found)


def vote_files(path: Path) -> list[Path]:
    """A file itself, the files of a folder, or those of the folders in it."""
    if path.is_file():
        return [path]
    return sorted(path.glob("*.json")) or sorted(path.glob("*/*.json"))


def _nothing(path: Path) -> str:
    if not path.exists():
        return f"{path} does not exist; expected a file or folder of votes, an evaluation or a run"
    return (
        f"{path} holds nothing to report: expected <subset>.json or <method>/<subset>.json with votes, {EPISODES} of "
        "an evaluation, or <stage>/rollouts/val/<step>.jsonl of a run"
    )


def _told_apart(found: Mapping[Path, Sequence[Method]]) -> list[Method]:
    """Methods of one name get as much of the path of their folder's folder as tells them apart."""
    rows = [(folder.parent.parts, method) for folder, made in found.items() for method in made]
    names = [method.name for _, method in rows]
    for depth in range(1, max((len(parts) for parts, _ in rows), default=0) + 1):
        again = {name for name, times in Counter(names).items() if times > 1}
        names = [
            str(Path(*parts[-depth:], method.name)) if name in again else name
            for name, (parts, method) in zip(names, rows, strict=True)
        ]
    return [replace(method, name=name) for name, (_, method) in zip(names, rows, strict=True)]


def episodes(path: Path) -> list[Episodes] | None:
    """Those of an evaluation's folder, or of each stage of a run; None where the folder is neither."""
    if (path / EPISODES).is_file():
        finished = finished_episodes(path / EPISODES)
        if not finished:
            return []
        return [Episodes(path.absolute().name, _of_evaluation(finished), _searched(path), played_with(path) or {})]
    stages = [stage for stage in trained_stages(path) if validation_files(stage)] if path.is_dir() else []
    return [source for stage in stages for source in _of_stage(path, stage)] or None


def _searched(folder: Path) -> tuple[str, ...]:
    """What a search has cost, where one found an evaluation's episodes: then it is another method than plain play."""
    try:
        spent = cost_of([folder / EPISODES])
    except SettingsError as error:
        return (str(error),)
    return (spent["text"],) if spent is not None and spent["strategy"] != "cot" else ()


def _of_evaluation(finished: Mapping[tuple[str, int], EpisodeRecord]) -> list[Played]:
    several = len({record.environment for record in finished.values()}) > 1
    return [
        Played(
            f"{record.environment}/{record.category}" if several else record.category,
            task_name(record.environment, record.task_id),
            sample,
            _cluster(record.environment, record.task_id),
            record.outcome is not None and record.outcome.passed,
            record.to_dict,
        )
        for (_, sample), record in finished.items()
    ]


def _cluster(environment: str, task: str) -> tuple[str, str]:
    """That of a task which is known here, or the task itself: an environment of a user's is a file, not given here."""
    found = load_tasks(environment).get(task) if environment in known() else None
    return environment, task if found is None else found.cluster


def _of_stage(run: Path, stage: Path) -> list[Episodes]:
    """Its last validation, and what was played in it for a guard."""
    path = validation_files(stage)[-1]
    places = [place for place in reported(run, path) if type(place.header["session_id"]) is int]
    note = f"the validation of {stage.name} after step {int(path.stem)}"
    if decided := choosing.sentence(choosing.of_run(run)):
        note += f". {decided}"
    name, notes = f"{run.absolute().name}/{stage.name}", (note.rstrip("."),)
    found = []
    for title, guard in ((name, False), (f"{name}, guard", True)):
        of_part = [place for place in places if is_guard(place.header) is guard]
        several = len({str(place.header["environment"]) for place in of_part}) > 1
        if played := [_validated(place, several) for place in of_part]:
            found.append(Episodes(title, played, notes))
    return found


def _validated(place: Place, several: bool) -> Played:
    header = place.header
    environment, task = map(str, task_key_of(header))
    return Played(
        f"{environment}/{header['category']}" if several else str(header["category"]),
        task_name(environment, task),
        header["session_id"],
        (environment, str(header["cluster"])),
        header["reward"].get("acc") == 1.0,
        partial(_episode, place),
    )


def _episode(place: Place) -> Mapping[str, Any] | None:
    line = read_record(place)
    try:
        return None if line is None else record_of(line["episode"]).to_dict()
    except (ValueError, KeyError, TypeError):
        return None


def _method(source: Episodes) -> Method:
    """Solved is a vote of 1. A task that lacks a sample which others have is left out, and counted."""
    samples = sorted({item.sample for item in source.played})
    tasks: dict[tuple[str, str], dict[int, Played]] = defaultdict(dict)
    for item in source.played:
        tasks[item.subset, item.task][item.sample] = item
    whole = {key: given for key, given in tasks.items() if len(given) == len(samples)}
    subsets: dict[str, dict[str, Query]] = defaultdict(dict)
    for (subset, task), given in whole.items():
        votes = tuple(float(given[sample].passed) for sample in samples)
        subsets[subset][task] = Query(votes, given[samples[0]].cluster)
    notes = source.notes
    if len(whole) < len(tasks):
        notes += (f"{len(tasks) - len(whole)} of {len(tasks)} tasks lack a sample and are left out",)
    return Method(source.name, subsets, notes, "verdicts", source.played_with)
