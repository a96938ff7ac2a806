"""What a trial on a GPU keeps of a run."""

import json
from pathlib import Path

from omegaconf import OmegaConf
from support.runs import validated, write_metrics

from benchmarks.gpu import trial
from recipe.settings import compose

NAME = "stage1_format"


def test_a_trial_keeps_seconds_norms_and_memory_beside_its_estimate(tmp_path: Path) -> None:
    run, step = tmp_path / "run", {"actor/lr": 1e-4, "actor/grad_norm": 0.25, "critic/score/mean": 0.5}
    step |= {"timing_s/step": 4.0, "timing_s/gen": 3.0, "actor/perf/max_memory_allocated_gb": 10.0, "not/kept": 1.0}
    write_metrics(run, NAME, "1.jsonl", [(1, step), (2, step | {"actor/grad_norm": float("nan")})])
    validated(run, 0, {"a": [1.0]}, stage=NAME)
    config = compose("stage1", ["hardware=gpu1", "actor_rollout_ref.model.path=qwen2.5-7b"])
    (run / NAME / "config").mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, run / NAME / "config" / "resolved.yaml", resolve=True)
    (run / "logs").mkdir()
    (run / "logs" / "steps.txt").write_text(f"data 0 90 95\n{NAME} 1 100 160\n")
    (run / "logs" / "memory.txt").write_text("99 70000\n120 50000\n121\n130 40000\n")
    trial.main(run, tmp_path)
    memory, metrics = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("memory", "metrics"))
    found = memory[NAME]
    assert (found["card"], found["trainer"]) == (52.43, 10.74) and 60 < found["estimate"] < 80
    assert metrics[NAME]["1"]["parts"]["generation"] == 3.0 and "not/kept" not in metrics[NAME]["1"]
    summary = (tmp_path / "summary.md").read_text()
    assert (
        "| stage1_format | 1 | 60 |" in summary and "| stage1_format | 2 | 4.0 | generation 3.0, rest 1.0 |" in summary
    )
