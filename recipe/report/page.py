"""Pages: one HTML file with everything in it, made to be opened from disk, sent by mail, or kept with a paper.

Episodes are written by models, so nothing of them becomes markup: they travel as compressed JSON in base64, and the
page's script puts their texts into text nodes only.
"""

import base64
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from interaction import get_protocol
from interaction.environment import known, load_tasks, register
from interaction.gold import gold_turns, opening
from interaction.protocol.docs import DOC_STYLES
from recipe.evaluation.intervals import brackets
from recipe.files import Damaged, read_json, write_atomic
from recipe.report import episodes, figures, tables, validation
from recipe.stage import choosing
from recipe.stage.console import duration
from recipe.stage.metrics_log import TIMED, parts_of, read_steps, total_times

EPISODES = 2000
"""How many a page holds."""
TEMPLATES = Path(__file__).parents[1] / "templates"
OF_A_LAUNCH = "ray_kwargs.ray_init.runtime_env."
"""Begins the settings that every launch has of its own."""
OWN = "interaction.environments."
"""Begins the settings that name the file of a user's environment."""


def render(template: str, **values: Any) -> str:
    """The text of a page; values are escaped, but for `Markup`. `asset` is a style or script of ours, as it is."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True)
    environment.globals["asset"] = lambda name: Markup((TEMPLATES / name).read_text(encoding="utf-8"))
    return environment.get_template(template).render(**values)


def write(run: Path, others: tuple[Path, ...] = ()) -> Path:
    """Write `report.html` into `run`; returns its path. `others` are further seeds of `run`."""
    runs, begins, stages = [run, *others], figures.stage_begins(run), tables.trained_stages(run)
    names, validated = [path.name for path in runs], [validation.validations(path) for path in runs]
    panels, constant = figures.curves(runs)
    of_validation = figures.validation_panels(names, validated, begins)
    settings, starts = _settings(stages[-1]) if stages else {}, entries(run / "manifest.json", "starts")
    evaluated = episodes.of_evaluation(run)
    chosen = [*map(episodes.shortened, evaluated[:EPISODES])] or list(episodes.load(episodes.choose(stages, EPISODES)))
    tasks = _tasks(chosen, settings)
    shown = json.dumps({"episodes": chosen, "tasks": tasks}).encode()
    page = render(
        "report.html",
        runs=names,
        facts=_facts(run, settings, starts, {name.partition("/")[0] for name in tasks}),
        verdict=f"{sum(one['score'] for one in evaluated):g} of {len(evaluated)} passed."
        if evaluated
        else verdict(runs),
        moved=validation.moved(runs),
        stages=tables.stage_table(runs),
        warm_starts=tables.loss_rows(run),
        curriculum=_curriculum(run),
        times=_times(runs),
        slowest=episodes.slowest(stages),
        validations=validation.ends(names, validated),
        chosen=choosing.sentence(choosing.of_run(run)),
        validation_curves=figures.draw_panels(of_validation),
        curves=figures.draw_panels(panels),
        constant=constant,
        meaning={"moved": validation.MEANING, "stages": tables.MEANING},
        starts=starts,
        differing=differing(runs, list(begins)),
        configurations={stage.name: _configuration(stage) for stage in stages},
        count=len(chosen),
        episodes=base64.b64encode(gzip.compress(shown, mtime=0)).decode(),
    )
    write_atomic(run / "report.html", page)
    return run / "report.html"


def entries(path: Path, name: str) -> list[dict[str, Any]]:
    """The objects in a list of a JSON file; none where it is missing or damaged."""
    try:
        return list(read_json(path)[name])
    except (FileNotFoundError, Damaged, KeyError, TypeError):
        return []


def _facts(
    run: Path, settings: Mapping[str, str], starts: Sequence[Mapping[str, Any]], played: Iterable[str]
) -> dict[str, str]:
    """What was trained, how, and for how long; `played` are names of environments."""
    steps = [seconds for stage in tables.trained_stages(run) for seconds in tables.values_of(stage, "timing_s/step")]
    found = {"model": starts[0].get("model")} if starts else {}
    found["algorithm"] = settings.get("algorithm.adv_estimator")
    found["loss"] = settings.get("actor_rollout_ref.actor.policy_loss.loss_mode")
    found["environment"] = ", ".join(sorted(played))
    gpus = f"{settings.get('trainer.nnodes')} x {settings.get('trainer.n_gpus_per_node')} GPUs"
    found["hardware"] = {"cpu": "CPU", None: None}.get(settings.get("trainer.device"), gpus)
    found |= {"training steps": f"{len(steps)} in {duration(sum(steps))}"} if steps else {}
    found |= {"commit": (starts[-1].get("commit") or "")[:12]} if starts else {}
    return {name: text for name, text in found.items() if text}


def verdict(runs: Sequence[Path]) -> str:
    """Whether training helped, in one sentence."""
    titles, rows = validation.rows(runs)
    said = "No held-out tasks were played both before and after"
    for name, shares, since in rows:
        if name == validation.OVERALL:
            title, rise = [*since.items()][-1]
            begin, end = shares[titles.index(title)][0], shares[-1][0]
            sure = brackets(rise.interval)
            said = f"Held-out accuracy {begin:.3f} -> {end:.3f} since {title}: {rise.difference:+.3f}{sure}"
    rises = [row["reward"] for row in tables.stage_rows(runs) if row["reward"]]
    rose = [rise for rise in rises if rise.interval is not None and rise.interval[0] > 0]
    trained = f"training reward rose in {len(rose)} of {len(rises)} stages"
    return f"{said}; {trained if rises else 'no stage has ten steps to compare its reward by'}."


def _tasks(records: Iterable[Mapping[str, Any]], settings: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Environment/task -> the system prompt of its episodes, and gold's calls by turn.

    Tasks whose environment cannot be had here are left out.
    """
    own = {key.removeprefix(OWN): Path(path) for key, path in settings.items() if key.startswith(OWN)}
    register({name: str(path) for name, path in own.items() if name not in known() and path.is_file()})
    docs: Any = settings.get("interaction.docs")
    found = dict[str, dict[str, Any]]()
    for episode in (record["episode"] for record in records):
        name = f"{episode.get('environment')}/{episode['task_id']}"
        if name not in found:
            try:
                task = load_tasks(episode["environment"])[episode["task_id"]]
                protocol = get_protocol(episode["protocol"], docs=docs if docs in DOC_STYLES else "json")
                options = {episode["environment"]: episode.get("options") or {}}
                messages = opening(task, protocol, environments=options)
                gold = [[str(call) for message in turn for call in message.calls] for turn in gold_turns(task)]
            except Exception:  # another release's episodes, or a file of the user's that has gone
                found[name] = {}
            else:
                system = [message["content"] for message in messages if message["role"] == "system"]
                found[name] = {"system": "".join(system[:1]), "gold": gold}
    return {name: task for name, task in found.items() if task}


def _curriculum(run: Path) -> list[list[Any]]:
    keys = {"name": "stage", "status": "status", "global_step": "step", "target": "of", "reason": "why it ended"}
    stages = entries(run / "curriculum.json", "stages")
    rows = [["" if (value := stage.get(key)) is None else str(value) for key in keys] for stage in stages]
    return [[*keys.values()], *rows] if rows else []


def _times(runs: Sequence[Path]) -> list[list[str]]:
    """Seconds of a mean step by part, of the trained stages whose steps say how long they took; a head first."""
    found = []
    for stage in (stage for run in runs for stage in tables.trained_stages(run)):
        if timed := [numbers for numbers in read_steps(stage).values() if parts_of(numbers)]:
            found.append((stage, {part: spent / len(timed) for part, spent in total_times(timed).items()}))
    parts = [part for part in TIMED if any(part in times for _, times in found)]
    rows = [
        [stage.parent.name, stage.name, f"{sum(times.values()):.2f}"]
        + [f"{times[part]:.2f} ({times[part] / sum(times.values()):.0%})" if part in times else "" for part in parts]
        for stage, times in found
    ]
    return [["run", "stage", "s a step", *parts], *rows] if rows else []


def differing(runs: Sequence[Path], stages: Sequence[str]) -> list[list[str]]:
    """Stage, setting, and its value in each run, of the settings in which several runs differ; a head first.

    A run's own folder counts as the same in all.
    """
    found = [["stage", "settings in which the runs differ", *(run.name for run in runs)]]
    for stage in stages:
        settings = [_settings(run / stage) for run in runs]
        folders = [values.get("paths.run") or "\0" for values in settings]
        for key in sorted({key for values in settings for key in values if not key.startswith(OF_A_LAUNCH)}):
            texts = [of.get(key, "").replace(folder, "RUN") for of, folder in zip(settings, folders, strict=True)]
            if len({text for text, values in zip(texts, settings, strict=True) if values}) > 1:
                found.append([stage, key, *(text[:200] for text in texts)])
    return found if len(found) > 1 else []


def _configuration(stage: Path) -> dict[str, str]:
    """The overrides, and the whole configuration of the last start, as YAML."""
    files = {name: stage / "config" / f"{name}.yaml" for name in ("overrides", "resolved")}
    return {name: path.read_text("utf-8", errors="replace") for name, path in files.items() if path.exists()}


def _settings(stage: Path) -> dict[str, str]:
    """Name with dots -> value as text, in a stage's last start; empty where the configuration is missing."""

    def flat(value: Any, key: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict) and value:
            for name, item in value.items():
                yield from flat(item, f"{key}.{name}" if key else str(name))
        else:
            yield key, value if isinstance(value, str) else json.dumps(value, default=str)

    text = _configuration(stage).get("resolved")
    return dict(flat(yaml.load(text, yaml.CSafeLoader), "")) if text else {}
