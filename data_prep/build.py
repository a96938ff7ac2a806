"""The files of a data set, and the manifest that says how they came to be. The environment says what goes into them."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from data_prep import laptop
from data_prep.card import write_card
from data_prep.mixture import Sets, full_names, mixed, of_categories, read, where
from data_prep.rows import replacing, rl_table, sft_table, write_table
from interaction import get_protocol
from interaction.environment import (
    DEFAULT,
    DataSet,
    Task,
    data_sets,
    is_own_code,
    named,
    read_options,
    source_of,
    task_name,
    waits,
)
from interaction.gold import beside_each_other, check_gold, check_task, unwritable
from interaction.masked import masked
from interaction.protocol import DocStyle, Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """What the files depend on, besides the data. `None` stands for the default of the chosen size."""

    protocol: str = "think_xml"
    docs: DocStyle | None = None
    tiny: bool = False
    max_result_chars: int | None = None
    environment: str = DEFAULT
    """A name, or a file of one's own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The environment's own settings; of a mixture, `environment.setting`."""
    categories: tuple[str, ...] = ()
    """Of the environment, in place of all."""
    mixture: Mapping[str, float] = field(default_factory=dict)
    """Names and weights (`data_prep.mixture`), in place of one environment."""
    rows: int | None = None
    """Of a mixture, to train on."""
    val_rows: int | None = None
    """Of a mixture, to validate on."""
    laptop: bool = False
    """The files of the CPU profile (`data_prep.laptop`), in place of one environment."""
    seed: int = 1
    """Of these."""
    unplayed: bool = False
    """Call no tool that waits: no check of such tasks, and no gold conversations."""
    leave_out: str | None = None
    """`FILE` or `FILE=REASON`: tasks that are not trained on, as `bfcl_env validate --list` writes them."""

    @property
    def docs_style(self) -> DocStyle:
        """Full JSON docs; signatures for models on a CPU, whose context they would not leave room in."""
        return self.docs or ("signature" if self.tiny or self.laptop else "json")

    def command(self, result_chars: int | None) -> str:
        """The command that makes the same files again."""
        quote = shlex.quote
        given = {
            "--protocol": self.protocol,
            "--docs": self.docs_style,
            "--max-result-chars": result_chars,
            "--environment": quote(self.environment) if self.environment != DEFAULT else None,
            "--categories": ",".join(self.categories),
            "--mixture": shlex.join(f"{name}={weight:g}" for name, weight in self.mixture.items()),
            "--rows": self.rows,
            "--val-rows": self.val_rows,
        }
        parts = [f"{name} {value}" for name, value in given.items() if value]
        options = masked(dict(self.options))
        parts += [f"--option {quote(f'{key}={json.dumps(value)}')}" for key, value in options.items()]
        parts += ["--tiny"] * self.tiny + ["--laptop"] * self.laptop + [f"--seed {self.seed}"] * (self.seed != 1)
        parts += ["--unplayed"] * self.unplayed
        parts += [f"--leave-out {quote(self.leave_out)}"] if self.leave_out else []
        return " ".join(["python -m data_prep --out DIR", *parts])


def build(out: Path, options: Options) -> dict:
    """Writes all files and their card into `out` and returns the manifest, which is also written there, last of all.

    Raises:
        OSError: the folder cannot be made or written.
        ValueError: unknown environment, protocol or documentation style.
        RuntimeError: what the tasks are made from is missing, or is not the pinned release.
    """
    protocol = get_protocol(options.protocol, docs=options.docs_style)
    if options.laptop:
        sets, given, made, left_out = _laptop(options, protocol, out)
    else:
        sets, given, made, left_out = (_mixture if options.mixture else _one)(options, protocol)
    if options.leave_out:
        sets = _without(sets, options.leave_out)
    sets = _told(sets, options.unplayed)
    _check_own(sets, given, options.unplayed)
    chars = options.max_result_chars or next((one.max_result_chars for one in sets.values() if one.kind == "sft"), None)
    tables = {
        name: sft_table(one.tasks, protocol, chars, given)
        if one.kind == "sft"
        else rl_table(one.tasks, one.kind, protocol, given)
        for name, one in sets.items()
    }
    if _own_tasks(sets):
        trained, held_out = (
            [str(row) for name, one in sets.items() if one.kind == kind for row in tables[name]["prompt"].to_pylist()]
            for kind in ("train", "val")
        )
        if shared := sum(map({*trained}.__contains__, held_out)):
            print(f"NOTE {shared} of {len(held_out)} held-out rows have the prompt of a training row")
    out.mkdir(parents=True, exist_ok=True)
    entries = {}
    for name, table in tables.items():
        write_table(table, out / name)
        entries[name] = {"rows": table.num_rows, "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest()}
    manifest = {
        "command": options.command(chars),
        **made,
        "protocol": options.protocol,
        "docs": options.docs_style,
        **({"options": masked(dict(options.options))} if options.options else {}),
        **({"left_out": left_out} if left_out else {}),
        "max_result_chars": chars,
        "pyarrow": pa.__version__,
        "files": entries,
    }
    write_card(out, manifest, {name: data_set.kind for name, data_set in sets.items()}, list(given))
    with replacing(out / "manifest.json") as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


Given = Mapping[str, Mapping[str, Any]]
"""Environment -> its own settings."""


def _one(options: Options, protocol: Protocol) -> tuple[dict[str, DataSet], Given, dict[str, Any], dict[str, str]]:
    """The files of one environment, its settings, what it was made from, and what was left out."""
    environment = named(options.environment)
    read_options(environment, options.options)
    sets = data_sets(environment, options.tiny, options.options)
    if options.categories:
        sets = of_categories(sets, full_names(environment, options.categories))
    files, left_out = _writable(sets, protocol)
    return files, {environment: options.options}, source_of(environment), left_out


def _mixture(options: Options, protocol: Protocol) -> tuple[dict[str, DataSet], Given, dict[str, Any], dict[str, str]]:
    """The same of a mixture."""
    if options.categories or options.tiny or options.environment != DEFAULT:
        raise ValueError("a mixture says by name what it takes; leave out --environment, --categories and --tiny")
    ingredients = read(options.mixture)
    environments = list(dict.fromkeys(item.environment for item in ingredients))
    given: dict[str, dict[str, Any]] = {name: {} for name in environments}
    for key, value in options.options.items():
        name, _, setting = key.partition(".")
        if name not in given:
            raise ValueError(f"--option {key}: in a mixture, begin with one of {', '.join(environments)} and a dot")
        given[name][setting] = value
    sets: dict[str, Sets] = {}
    left_out: dict[str, str] = {}
    for name in environments:
        read_options(name, given[name])
        sets[name], reasons = _writable(data_sets(name, options=given[name]), protocol)
        left_out |= reasons
    files, made = mixed(ingredients, sets, {"train": options.rows, "val": options.val_rows})
    return files, given, {"mixture": made, "made_from": {name: source_of(name) for name in environments}}, left_out


def _laptop(
    options: Options, protocol: Protocol, out: Path
) -> tuple[dict[str, DataSet], Given, dict[str, Any], dict[str, str]]:
    """The same of the CPU profile's files."""
    if options.categories or options.tiny or options.mixture or options.options:
        raise ValueError("--laptop says itself what it takes; leave out --categories, --tiny, --mixture and --option")
    own = None if options.environment == DEFAULT else named(options.environment)
    sets = laptop.data_sets(out, options.seed, own)
    files, left_out = _writable(sets, protocol)
    names = sorted({task.environment for one in sets.values() for task in one.tasks})
    made = {"seed": options.seed, "made_from": {name: source_of(name) for name in names}}
    return files, {name: {} for name in names}, made, left_out


def _without(sets: Sets, asked: str) -> dict[str, DataSet]:
    """The same without tasks that somebody does not want to train on. Validation stays as it is."""
    path, _, reason = asked.partition("=")
    try:
        listed = json.loads(Path(path).read_text())
        ids = {name for name, found in listed.items() if any(reason in one["reason"] for one in found)}
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"--leave-out {path} is not what `bfcl_env validate --list` writes: {error}") from error
    if not ids:
        raise ValueError(f"{path} names no task with the reason {reason!r}")
    trained = {name: one for name, one in sets.items() if one.kind != "val"}
    kept = where(trained, lambda task: task.id not in ids)
    rows = sum(len(trained[name].tasks) - len(kept[name].tasks) for name in trained)
    print(f"left out of training: {rows} rows, as {path} says")
    return {**sets, **kept}


def _writable(sets: Sets, protocol: Protocol) -> tuple[dict[str, DataSet], dict[str, str]]:
    """The tasks whose gold the protocol can write, and why not for each that is left out: nobody could do those.

    Raises:
        ContractError: gold of a user's task is not what it should be.
    """
    for task in _own_tasks(sets):
        check_gold(task)
    tasks = {task_name(task.environment, task.id): task for one in sets.values() for task in one.tasks}
    reasons = {name: reason for name, task in tasks.items() if (reason := unwritable(task, protocol)) is not None}
    return where(sets, lambda task: task_name(task.environment, task.id) not in reasons), reasons


def _told(sets: Sets, unplayed: bool) -> dict[str, DataSet]:
    """Says that tools which wait will be called; the files without their gold conversations, if they must not."""
    waiting = [task for task in _own_tasks(sets) if waits(task)]
    if unplayed:
        left = {name: [t for t in one.tasks if one.kind != "sft" or not waits(t)] for name, one in sets.items()}
        return {name: replace(one, tasks=left[name]) for name, one in sets.items()}
    if waiting:
        print(
            f"NOTE {len(waiting)} tasks have tools that wait. They are called by gold, twice a task, and by two short "
            "plays that check it; --unplayed calls none",
            flush=True,
        )
    return dict(sets)


def _check_own(sets: Sets, given: Given, unplayed: bool) -> None:
    """All tasks of users' environments fulfil the contract. Prints what a person should know, of the first such task.

    Raises:
        ContractError: one does not.
    """
    noted: set[str] = set()
    settings = {name: read_options(name, one) for name, one in given.items()}
    tasks = [task for task in _own_tasks(sets) if not (unplayed and waits(task))]
    notes = beside_each_other(lambda task: check_task(task, settings[task.environment]), tasks)
    for task, note in zip(tasks, notes, strict=True):
        if note and task.environment not in noted:
            noted.add(task.environment)
            print(f"NOTE {note}", flush=True)


def _own_tasks(sets: Sets) -> list[Task]:
    """Those of users' environments, each once."""
    tasks = {(task.environment, task.id): task for one in sets.values() for task in one.tasks}
    return [task for task in tasks.values() if is_own_code(task.environment)]
