"""The numbers of the page of two seeds of one experiment."""

import json
import random
import re
from pathlib import Path

from support.runs import validated, write_metrics

from interaction.episode_file import append, path_of
from recipe.report import page
from recipe.stage import state

GOLDEN = Path(__file__).parent / "golden.txt"
STAGES = ("stage1_format", "stage2_base")
STEPS = 12
NAMES = [f"multi_turn_base_{index}" for index in range(3, 9)]


def golden_run(run: Path, seed: int) -> Path:
    """A warm start and two stages of 12 steps, validated before, between and after, with a guard."""
    draw = random.Random(seed)

    def validation_of(stage: str, step: int, gain: float) -> None:
        for part, names in (("dev", NAMES[::3]), ("test", [*NAMES[1:3], *NAMES[4:]]), ("guard", ["base_9"])):
            for name in names:
                acc = int(draw.random() < 0.3 + gain)
                told = {"acc_official": 1 - acc, "progress": (1 + 3 * acc) / 4, "calls": 3 * acc}
                validated(run, step, {name: [acc]}, part, stage, told | {"surplus": 2 * acc * (step > 0)})

    write_metrics(run, "stage0_sft", "1.jsonl", [(step, {"train/loss": 2 - step**0.5}) for step in range(1, 13)])
    losses = [(step, {"val/loss": loss}) for step, loss in ((4, 1.5 + seed), (8, 1.25), (12, 1.375))]
    write_metrics(run, "stage0_sft", "2.jsonl", losses)
    validation_of("before", 0, 0.0)
    for place, stage in enumerate(STAGES):
        validation_of(stage, 0, place / 2)
        validation_of(stage, STEPS, (place + 1) / 2)
        metrics = []
        for step in range(1, STEPS + 1):
            gain = (place * STEPS + step) / 40
            for name in NAMES[:4]:
                score = round(gain + draw.random(), 3)
                line = {"step": step, "uid": name, "session_id": 0, "task_id": name, "environment": "bfcl"}
                line |= {"category": "base", "cluster": name[-1], "score": score, "reward": {"progress": score / 2}}
                if step == STEPS and name in NAMES[:2]:
                    line["seconds"] = {"total": score, "generate": score / 2, "environment": 0.25}
                append(path_of(run / stage / "rollouts", "train", step), {**line, "episode": {}})
            data = {"critic/score/mean": gain, "train/progress": gain / 2, "actor/kl_loss": gain / 10}
            data |= {"train/stop/completed": 0.75, "train/stop/max_tokens": 0.25, "timing_s/step": 4.0 + gain}
            data |= {"training/rollout_actor_probs_pearson_corr": 1 - seed * step / 1000, "timing_s/gen": 1.0}
            data |= {"resample/mastered": 3.0, "resample/edge": 5.0, "resample/replaced": step}
            metrics.append((step, data))
        write_metrics(run, stage, "1.jsonl", metrics)
    ended = {"status": "done", "global_step": STEPS, "target": STEPS}
    listed = [{"name": stage, "folder": stage, **ended} for stage in STAGES]
    (run / "curriculum.json").write_text(json.dumps({"stages": [*listed, {"name": "stage3", "status": "waiting"}]}))
    (run / "manifest.json").write_text(json.dumps({"starts": [{"stage": STAGES[0], "time": "2026-01-01T10:00:00"}]}))
    return run


def numbers(html: str) -> list[str]:
    """The rows of the tables of a page, and of a figure what labels it and how many lines it has."""
    html = re.sub(r"<(script|style|defs|metadata)\b.*?</\1>", "", html, flags=re.DOTALL)
    for svg in re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL):
        labels = ", ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))
        html = html.replace(svg, f"<p>figure: {labels}; {svg.count('<path')} paths", 1)
    html = re.sub(r"</t[dh]>\s*<t[dh][^>]*>", " | ", html)
    html = re.sub(r"\s*\n\s*", " ", html)
    html = re.sub(r"<(tr|h1|h2|p|table|summary|pre|nav|div|label)\b[^>]*>", "\n", html)
    lines = (re.sub(r"<[^>]+>", "", line).strip() for line in html.partition("Keys</h2>")[0].splitlines())
    return [line for line in lines if " | " in line or line.startswith(("figure", "Held-out"))]


def test_the_numbers_of_the_page_are_as_they_were(tmp_path: Path) -> None:
    one, two = (golden_run(tmp_path / name, seed) for name, seed in (("one", 1), ("two", 2)))
    found = numbers(page.write(one, (two,)).read_text())
    assert found == GOLDEN.read_text().splitlines()
    note = {"stage": STAGES[0], "setting": "stage.gate.metric", "metric": "val_dev/acc"}
    state.update(two / STAGES[0], done=state.Done(STEPS, STEPS, STEPS, 0.0), chose=(note,))
    text = "\n".join(numbers(page.write(two).read_text()))
    assert f"{STAGES[0]} | all | two | 4 | " in text, "dev tasks no longer count as held out"
