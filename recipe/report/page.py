"""Pages: one HTML file with everything in it, made to be opened from disk, sent by mail, or kept with a paper.

Episodes are written by models, so nothing of them becomes markup: they travel as compressed JSON in base64, and the
page's script puts their texts into text nodes only.
"""

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from interaction.episode_file import steps_in
from recipe.files import Damaged, read_json, write_atomic
from recipe.report import episodes, figures, head, tables, validation
from recipe.stage import choosing
from recipe.stage.metrics_log import TIMED, read_steps
from recipe.stage.starts import BEFORE
from recipe.stage.state import BATCHES_FILE, look

EPISODES = 2000
"""How many a page holds."""
TEMPLATES = Path(__file__).parents[1] / "templates"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
OF_A_LAUNCH = "ray_kwargs.ray_init.runtime_env."
"""Begins the settings that every launch has of its own."""
LONGEST = 200
"""Characters of a setting's value."""


def render(template: str, **values: Any) -> str:
    """The text of a page; values are escaped, but for `Markup`. `asset` is a style or script of ours, as it is."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    environment.globals["asset"] = lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8"))
    return environment.get_template(template).render(**values)


def write(run: Path, others: tuple[Path, ...] = ()) -> Path:
    """Write `report.html` and `curves.png` into `run`; returns the page's path. `others` are further seeds of `run`."""
    runs, begins, stages = [run, *others], figures.stage_begins(run), tables.trained_stages(run)
    validated = [validation.validations(path) for path in runs]
    lines = [figures.timeline(found, begins) for found in validated]
    names = [path.name for path in runs]
    panels, constant = figures.curves(runs, lines)
    starts = entries(run / "manifest.json", "starts")
    config = _configuration(run / [*begins][-1]) if begins else {}
    slow = [found for stage in stages if (found := episodes.slowest(stage))]
    first = [one["place"] for found in slow for one in found["named"]]
    known = {(place.path, place.offset) for place in first}
    further = [place for place in episodes.choose(stages, EPISODES) if (place.path, place.offset) not in known]
    chosen = list(episodes.load([*first, *further[: EPISODES - len(first)]]))
    timed = figures.stage_times(runs)

    def configuration(stage: Path) -> dict[str, str]:
        """The overrides, and the whole configuration of the last start, as YAML."""
        files = {name: stage / "config" / f"{name}.yaml" for name in ("overrides", "resolved")}
        return {name: path.read_text("utf-8", errors="replace") for name, path in files.items() if path.exists()}

    page = render(
        "report.html",
        runs=names,
        several=len(runs) > 1,
        facts=head.facts(config, run, starts, (record["environment"] for record in chosen)),
        verdict=head.verdict(runs),
        rows=tables.stage_rows(runs),
        warm_starts=tables.loss_rows(run),
        tables=tables,
        curves=figures.draw_panels(panels, names),
        constant=constant,
        times=timed,
        time_parts=[part for part in TIMED if any(part in time["parts"] for time in timed)],
        time_bars=Markup(figures.draw_times(timed)),
        slowest=slow,
        id_of=lambda place: quote(_id({"stage": place.stage, **place.header}), safe=""),
        validations=validation.first_and_last(validated[0]),
        beside=validation.beside(validated) if others else [],
        metrics=validation.METRICS,
        validation_curves=figures.draw_panels(figures.validated_panels(names, lines, begins), names),
        moved=validation.moved(runs),
        held_out=validation.MEANING,
        chosen=choosing.sentence(choosing.of_run(run)),
        curriculum=entries(run / "curriculum.json", "stages"),
        starts=starts,
        differing=differing(runs, list(begins)) if others else [],
        configurations={stage.name: configuration(stage) for stage in stages},
        missing=_missing(run, stages),
        count=len(chosen),
        episodes=packed({"episodes": chosen, "tasks": head.tasks(chosen, config)}),
    )
    (run / "curves.png").write_bytes(figures.draw_png(panels))
    write_atomic(run / "report.html", page)
    return run / "report.html"


def packed(data: Any) -> str:
    """What a page's script unpacks again."""
    return base64.b64encode(gzip.compress(json.dumps(data).encode(), mtime=0)).decode()


def _id(record: dict[str, Any]) -> str:
    """What tells an episode of a run from all others; the page's script makes the same."""
    return "/".join(str(record.get(key)) for key in ("stage", "split", "step", "task_id", "session_id"))


def entries(path: Path, name: str) -> list[dict[str, Any]]:
    """The objects in a list of a JSON file; none where it is missing or damaged."""
    try:
        return list(read_json(path)[name])
    except (FileNotFoundError, Damaged, KeyError, TypeError):
        return []


def _missing(run: Path, stages: list[Path]) -> list[str]:
    """What a reader may look for in vain, and why."""
    started = sorted(path.parents[1] for path in run.glob("*/config/config.yaml"))
    idle = [stage.name for stage in started if stage.name != BEFORE and max(read_steps(stage), default=0) < 1]
    notes = [f"{name} has not logged a training step (see logs/)" for name in idle]
    for stage in stages:
        files = steps_in(stage / "rollouts" / "train")
        if (stage / BATCHES_FILE).exists():
            notes.append(
                f"{stage.name} has learned from stored trajectories, which {BATCHES_FILE} lists; it has played none"
            )
            continue
        if not any(episodes.headers(path) for path in files):
            notes.append(
                f"{stage.name} has no stored episodes{' that can be read' if files else ''} (interaction.record_dir)"
            )
        if not episodes.validation_files(stage):
            notes.append(f"{stage.name} has no validation so far (trainer.test_freq)")
    return notes


def differing(runs: Sequence[Path], stages: Sequence[str]) -> list[tuple[str, str, list[str]]]:
    """Stage, setting, and its value in each run, of the settings in which several runs differ.

    A run's own folder counts as the same in all.
    """
    found = []
    for stage in stages:
        settings = [_settings(run / stage) for run in runs]
        given = [values for values in settings if values]
        for key in sorted({key for values in given for key in values if not key.startswith(OF_A_LAUNCH)}):
            if len({values.get(key) for values in given}) > 1:
                found.append((stage, key, [values.get(key, "")[:LONGEST] for values in settings]))
    return found


def _configuration(stage: Path) -> dict[str, Any]:
    """That of the stage's last start; empty where it is missing."""
    path = stage / "config" / "resolved.yaml"
    return dict(yaml.load(path.read_text(encoding="utf-8"), LOADER)) if path.is_file() else {}


def _settings(stage: Path) -> dict[str, str]:
    """Key -> its value as text; empty where the configuration is missing."""
    values = dict(_flat(_configuration(stage), ""))
    own = values.get("paths.run")
    return {key: text.replace(own, "RUN") if own else text for key, text in values.items()}


def _flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _flat(item, f"{key}.{name}" if key else str(name))
    else:
        yield key, value if isinstance(value, str) else json.dumps(value, default=str)


def is_run(folder: Path) -> bool:
    """Whether a folder holds a run that has begun."""
    begun = any((folder / name).exists() for name in ("manifest.json", "curriculum.json"))
    return begun or bool(tables.stage_dirs(folder))


def write_index(folder: Path) -> tuple[Path, int]:
    """Write `index.html` into a folder of runs, the latest first; returns its path, and how many it lists.

    A folder without a run gets none.

    Raises:
        OSError: the folder cannot be read or written.
    """
    runs = [_listed(run) for run in sorted(folder.iterdir()) if run.is_dir() and is_run(run)]
    path = folder / "index.html"
    if runs:
        runs.sort(key=lambda run: run["begun"], reverse=True)
        write_atomic(path, render("index.html", folder=folder.absolute().name, runs=runs, tables=tables))
    return path, len(runs)


def _listed(run: Path) -> dict[str, Any]:
    """A run of the index: how far its stages got, and how far the share of held-out tasks solved moved."""
    planned = {
        entry.get("folder") or entry["name"]: entry["status"] for entry in entries(run / "curriculum.json", "stages")
    }
    folders = {stage.name: stage for stage in tables.stage_dirs(run)}
    names = [name for name in planned if name in folders] + [name for name in folders if name not in planned]
    stages = []
    for name in names:
        files, state = episodes.validation_files(folders[name]), look(folders[name])
        stages.append(
            {
                "name": name,
                "status": "done" if state.done else planned.get(name, "begun"),
                "steps": max(read_steps(folders[name]), default=0),
                "target": state.target.total_steps if state.target else None,
                "reward": tables.rise([folders[name]], tables.REWARD),
                "validated": validation.overall(validation.validation(run, files[-1])) if files else None,
            }
        )
    stages += [{"name": name, "status": status, "steps": 0} for name, status in planned.items() if name not in names]
    moved = [since for name, _, since in validation.rows([run])[1] if name == validation.OVERALL]
    return {
        "name": run.name,
        "begun": next((start["time"] for start in entries(run / "manifest.json", "starts")), ""),
        "has_page": (run / "report.html").exists(),
        "stages": stages,
        "done": sum(stage["status"] == "done" for stage in stages),
        "moved": next(iter(moved[0].values())) if moved else None,
    }
