"""The page: one HTML file with everything in it, made to be opened from disk, sent by mail, or kept with a paper.

Episodes are written by models, so nothing of them becomes markup: they travel as compressed JSON in base64, and the
page's script puts their texts into text nodes only.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from interaction.episode_file import steps_in
from recipe.files import Damaged, read_json
from recipe.report import curves, episodes, held_out, losses, tables, times, validation, validation_curves
from recipe.report.differing import differing
from recipe.report.render import render
from recipe.report.slowest import slowest
from recipe.stage import choosing, step_times
from recipe.stage.metrics_log import read_steps
from recipe.stage.notes import BATCHES_FILE
from recipe.stage.starts import BEFORE

EPISODES = 2000
"""How many a page holds."""


def write(run: Path, others: tuple[Path, ...] = ()) -> Path:
    """Write `report.html` and `curves.png` into `run`; returns the page's path. `others` are further seeds of `run`."""
    runs = [run, *others]
    rows = tables.stage_rows(runs)
    stages = tables.trained_stages(run)
    validated = [validation.validations(path, every=True) for path in runs]
    ends = tables.stage_ends(run, [stage.name for stage in stages])
    begins = dict(zip([stage.name for stage in stages], [0, *ends], strict=False))
    lines = [validation_curves.timeline(found, begins) for found in validated]
    png, svg = curves.draw(runs, lines)
    slow = [found for stage in stages if (found := slowest(stage))]
    chosen, shown_at = _episodes(stages, [one.place for found in slow for one in found.named])
    timed = times.stage_times(runs)
    moved, words = held_out.lines(runs)
    page = render(
        "report.html",
        runs=[str(path.name) for path in runs],
        several=len(runs) > 1,
        rows=rows,
        warm_starts=losses.loss_rows(run),
        tables=tables,
        curves=Markup(svg),
        times=timed,
        time_parts=[part for part in step_times.TIMED if any(part in time.parts for time in timed)],
        time_bars=Markup(times.draw(timed)),
        slowest=slow,
        shown_at=shown_at,
        validations=validation.first_and_last(validated[0]),
        beside=validation.beside(validated) if others else [],
        metrics=validation.METRICS,
        validation_curves=Markup(validation_curves.draw([path.name for path in runs], lines, ends[:-1])),
        moved=moved,
        held_out=words,
        chosen=choosing.sentence(choosing.of_run(run)),
        curriculum=entries(run / "curriculum.json", "stages"),
        starts=entries(run / "manifest.json", "starts"),
        differing=differing(runs, list(begins)) if others else [],
        configurations={stage.name: _configuration(stage) for stage in stages},
        missing=_missing(run, stages),
        count=len(chosen),
        episodes=base64.b64encode(gzip.compress(json.dumps(chosen).encode(), mtime=0)).decode(),
    )
    (run / "curves.png").write_bytes(png)
    path = run / "report.html"
    part = path.with_suffix(".part")
    part.write_text(page, encoding="utf-8")
    part.replace(path)
    return path


def _episodes(stages: list[Path], slow: list[episodes.Place]) -> tuple[list[dict[str, Any]], list[int | None]]:
    """What a page shows, the slowest ones and those that are chosen; and where among it each of the slowest is."""
    known = {(place.path, place.offset) for place in slow}
    others = [place for place in episodes.choose(stages, EPISODES) if (place.path, place.offset) not in known]
    shown = list(episodes.load([*slow, *others[: EPISODES - len(slow)]]))
    number = {_name(record): position for position, record in enumerate(shown)}
    return shown, [number.get(_name({"stage": place.stage, **place.header})) for place in slow]


def _name(record: dict[str, Any]) -> tuple[str, ...]:
    """What tells an episode of a run from all others."""
    return tuple(repr(record.get(key)) for key in ("stage", "split", "step", "task_id", "session_id", "uid"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (FileNotFoundError, Damaged):
        return {}
    return content if isinstance(content, dict) else {}


def entries(path: Path, name: str) -> list[dict[str, Any]]:
    """The objects in a list of a JSON file."""
    found = _read_json(path).get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _configuration(stage: Path) -> dict[str, str]:
    """What was overridden, and the whole configuration of the last start, as YAML."""
    texts = {}
    for name in ("overrides", "resolved"):
        path = stage / "config" / f"{name}.yaml"
        if path.exists():
            texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return texts


def _missing(run: Path, stages: list[Path]) -> list[str]:
    """What a reader may look for in vain, and why."""
    started = sorted(path.parents[1] for path in run.glob("*/config/config.yaml"))
    idle = [stage.name for stage in started if stage.name != BEFORE and max(read_steps(stage), default=0) < 1]
    notes = [f"{name} has not logged a training step (see logs/)" for name in idle]
    for stage in stages:
        if (stage / BATCHES_FILE).exists():
            notes.append(
                f"{stage.name} has learned from stored trajectories, which {BATCHES_FILE} lists; it has played none"
            )
            continue
        files = steps_in(stage / "rollouts" / "train")
        if not files:
            notes.append(f"{stage.name} has no stored episodes (interaction.record_dir)")
        elif not any(episodes.headers(path) for path in files):
            notes.append(f"{stage.name} has no stored episode that can be read: one JSON object a line is expected")
        if not episodes.validation_files(stage):
            notes.append(f"{stage.name} has no validation so far (trainer.test_freq)")
    return notes
