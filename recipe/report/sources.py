"""The rows of a table of pass rates: folders and files of votes, evaluations, and the stages of runs.

A file of votes has StepTool's form, one file a subset; all of its queries have votes of the same numbers:

    {"11650": {"query": "...", "cluster": "...", "is_solved": {"0": "AnswerStatus.Solved", "1": "Unsure", ...}}}

Of an evaluation or a run a solved task has a vote of 1, any other one of 0. Each sample is a round, each category a
subset, with its environment's name before it if that is not bfcl. A run has a row for each stage's last validation.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from interaction.environment import ENVIRONMENTS, known, load_tasks, task_name
from recipe.evaluation.results import cost_of
from recipe.evaluation.store import EPISODES, finished_lines
from recipe.files import Damaged, PreflightError, read_json
from recipe.report.episodes import read_record
from recipe.report.pass_rate import Method, Played, Query
from recipe.report.tables import trained_stages
from recipe.report.validation import GUARD_MARK, columns, is_guard, reported
from recipe.stage import choosing, state
from rewards.metrics import passed_official
from rewards.votes import SOLVED, worth


def _method(name: str, played: Sequence[Played], notes: Sequence[str], settings: Any = None) -> Method:
    """Solved is a vote of 1. A task that lacks a sample which others have is left out, and counted."""
    samples = sorted({item.sample for item in played})
    tasks: dict[tuple[str, str], dict[int, list[Played]]] = defaultdict(lambda: defaultdict(list))
    for item in played:
        tasks[item.subset, item.task][item.sample].append(item)
    subsets: dict[str, dict[str, Query]] = defaultdict(dict)
    for (subset, task), given in tasks.items():
        if len(given) == len(samples):
            votes = tuple(fmean(one.passed for one in given[sample]) for sample in samples)
            subsets[subset][task] = Query(votes, given[samples[0]][0].cluster)
    lacking = len(tasks) - sum(map(len, subsets.values()))
    notes = [*notes, f"{lacking} of {len(tasks)} tasks lack a sample and are left out"] if lacking else notes
    return Method(name, subsets, tuple(notes), settings, played)


def methods(paths: Sequence[Path]) -> list[Method]:
    """A method for each folder of votes, each evaluation and each stage of a run.

    Raises:
        PreflightError: something cannot be read, or there is nothing to read.
    """
    found: dict[Path, list[Method]] = {}  # by folder, which tells two of one name apart
    for path in dict.fromkeys(path.absolute() for path in paths):
        if (played := episodes(path)) is not None:
            if not played:
                raise PreflightError(f"{path} holds no finished episode; its results.txt says what was lost")
            found[path] = played
            continue
        files = [path] if path.is_file() else sorted(path.glob("*.json")) or sorted(path.glob("*/*.json"))
        if not files:
            kinds = f"<subset>.json or <method>/<subset>.json with votes, {EPISODES} of an evaluation, or a run"
            raise PreflightError(f"{path} holds nothing to report: expected {kinds}")
        for file in files:
            made = found.get(file.parent, [Method(file.parent.name, {})])
            found[file.parent] = [replace(one, subsets={**one.subsets, file.stem: read_votes(file)}) for one in made]
    names = [method.name for made in found.values() for method in made]
    return [
        method if names.count(method.name) == 1 else replace(method, name=f"{folder.parent}/{method.name}")
        for folder, made in found.items()
        for method in made
    ]


def read_votes(path: Path) -> dict[str, Query]:
    """The queries of a file by id.

    Raises:
        PreflightError: it cannot be read, a vote is none, or a query lacks a vote that another one has.
    """
    found: dict[str, Query] = {}
    numbers: list[str] = []
    try:
        for name, entry in read_json(path).items():
            votes = {number: worth(entry["is_solved"][number]) for number in sorted(entry["is_solved"], key=int)}
            known_votes = [vote for vote in votes.values() if vote is not None]
            if not votes or len(known_votes) < len(votes) or [*votes] != (numbers := numbers or [*votes]):
                raise ValueError(f"query {name}: is_solved needs {', '.join(SOLVED)} for votes {', '.join(numbers)}")
            found[name] = Query(tuple(known_votes), entry.get("cluster", f"{path}\n{name}"))
    except (Damaged, ValueError, KeyError, TypeError, AttributeError) as error:
        form = '{"query": {"is_solved": {"0": "Solved"}}}'
        raise PreflightError(f"{path} holds no votes, {type(error).__name__}: {error}\nexpected {form}") from error
    return found


def episodes(path: Path) -> list[Method] | None:
    """Those of an evaluation's folder, or of each stage of a run; None where the folder is neither."""
    if not (path / EPISODES).is_file():
        last = columns(path)
        stages = [stage for stage in trained_stages(path) if stage.name in last]
        return [source for stage in stages for source in _of_stage(path, stage, last[stage.name])] or None
    played = []
    for (_, sample), (_, record) in finished_lines(path / EPISODES).items():
        environment = record.environment
        task = load_tasks(environment).get(record.task_id) if environment in known() else None
        cluster = environment, record.task_id if task is None else task.cluster
        passed = record.outcome is not None and record.outcome.passed
        names = task_name(environment, record.category), task_name(environment, record.task_id)
        called = any(step.calls for turn in record.turns for step in turn.steps)
        official = passed_official(record.to_dict())
        played.append(Played(*names, sample, cluster, passed, called, record.to_dict, official))
    spent = cost_of([path / EPISODES])
    notes = [spent["text"]] if spent is not None and spent["strategy"] != "plain" else []
    settings: Mapping[str, Any] = {}
    with suppress(FileNotFoundError, Damaged):
        settings = read_json(path / "settings.json")
    return [_method(path.name, played, notes, settings)] if played else []


def _of_stage(run: Path, stage: Path, path: Path) -> list[Method]:
    """Its last validation, and what was played in it for a guard."""
    decided = choosing.sentence(choosing.of_run(run))
    note = f"the validation of {stage.name} after step {int(path.stem)}{f'. {decided}' if decided else ''}".rstrip(".")
    played: dict[str, list[Played]] = defaultdict(list)
    for place in reported(run, path):
        header, environment = place.header, place.header["environment"]
        cluster, passed = (environment, header["cluster"]), header["reward"].get("acc") == 1.0
        record = partial(lambda place: (read_record(place) or {}).get("episode"), place)
        names = task_name(environment, header["category"]), task_name(environment, header["task_id"])
        title = f"{run.name}/{stage.name}{', guard' if is_guard(header) else ''}"
        scores = {"acc_official": header["reward"].get("acc"), **header["reward"]}
        called, official = scores["calls"] > 0 if "calls" in scores else None, scores["acc_official"] == 1.0
        played[title].append(Played(*names, header["session_id"], cluster, passed, called, record, official))
    return [_method(title, found, [note]) for title, found in sorted(played.items())]


def recipes(a: Sequence[Path], b: Sequence[Path]) -> list[Method]:
    """Recipes A and B with a vote of each seed, a run's last validation or an evaluation, on the tasks that all have.

    Where the official verdicts are others, the same by these. Raises PreflightError where no task is in all,
    or a recipe has two evaluations of one model.
    """
    tasks, starts, found = dict[Path, set[tuple[str, str]]](), defaultdict[str, list[str]](list), list[Any]()
    for name, paths in (("A", a), ("B", b)):
        played, notes, settings = list[Played](), list[str](), defaultdict[str, list[Any]](list)
        for seed, path in enumerate(dict.fromkeys(paths)):
            final = [Method("", {}), *(one for one in episodes(path) or () if not one.name.endswith(GUARD_MARK))][-1]
            counted = [_seed(item, seed) for item in final.played if item.task in final.subsets.get(item.subset, ())]
            tasks[path], played = {(item.subset, item.task) for item in counted}, played + counted
            notes.append(f"{name}: {', '.join([str(path), *final.notes])}")
            told, run = final.settings or {}, path
            if told.get("endpoint", "") is None:
                run = Path(told["model"].rpartition(" ")[0].rpartition(" with ")[2]).parent.parent
            if run != path and told["model"] in settings["model"]:  # its weights' fingerprint
                raise PreflightError(f"{path} evaluates the model of another seed of {name}: it is no second seed")
            for key, value in told.items():
                settings[key] += [value] * (value not in settings[key])
            for began in (state.look(stage).began for stage in trained_stages(run)[:1]):
                if began and began.made:
                    starts[began.weights or began.model].append(str(path))
        found.append((name, played, notes, dict(settings) or None))
    if not (common := set.intersection(*tasks.values())):
        sizes = ", ".join(f"{path} has {len(those)}" for path, those in tasks.items())
        raise PreflightError(f"no held-out task is in all of these runs and evaluations: {sizes}")
    shared = [", ".join(seeds) for seeds in starts.values() if len(seeds) > 1]
    notes += [f"{seeds} share a warm start; others are covered only where seeds differ in it" for seeds in shared]
    if left_out := len(set.union(*tasks.values()) - common):
        notes.append(f"{left_out} tasks that not all seeds have are left out")
    own, official = list[Method](), list[Method]()
    for name, played, *said in found:
        counted = [item for item in played if (item.subset, item.task) in common]
        judged = [item._replace(passed=item.official) for item in counted]
        own.append(replace(_method(name, counted, *said), seeds=True))
        official.append(replace(_method(f"{name}, official", judged, ()), seeds=True))
    return own if [one.subsets for one in own] == [one.subsets for one in official] else official + own


def _seed(item: Played, seed: int) -> Played:
    """Of a task from a file with the user's first words: in another seed's file the same id may be another task's."""
    turns = (item.record() or {}).get("turns", []) if item.cluster[0] not in ENVIRONMENTS else []
    return item._replace(sample=seed, task=" ".join([item.task, *(turn["user"] for turn in turns[:1])]))
