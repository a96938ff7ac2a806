"""Two seeds of one experiment with all that a report shows, from a seed of their own; nothing of them was trained."""

import json
import random
from pathlib import Path

import yaml

from interaction import Conversation, get_protocol
from interaction.environment import load_tasks

STAGES = ("stage1_format", "stage2_base")
STEPS, ROLLOUTS = 12, 2


def _played(task_id: str, text: str) -> dict:
    """The record of an episode in which the model says one text, again and again."""
    with Conversation(load_tasks()[task_id], get_protocol("think_xml")) as conversation:
        conversation.start()
        while not conversation.done:
            conversation.reply(text)
        return conversation.record().to_dict()


def _write(path: Path, lines: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def golden_run(run: Path, seed: int) -> Path:
    """A warm start and two stages of 12 steps, validated before, between and after, with a guard."""
    draw, said = random.Random(seed), get_protocol("think_xml").render_answer("thought", "It is done.")
    names = [f"multi_turn_{kind}_{index}" for kind in ("base", "miss_func") for index in (3, 5, 7)]
    records = {name: _played(name, said) for name in (*names, "multi_turn_base_9")}

    def line(name: str, step: int, split: str, number: int, part: str, gain: float) -> dict:
        passed = float(draw.random() < 0.3 + gain)
        head = {"step": step, "split": split, "launch": "a", "uid": f"{name}{step}{part}", "session_id": number}
        task = {"environment": "bfcl", "task_id": name, "category": name.rpartition("_")[0], "cluster": name[-1]}
        reward = {"acc": passed, "acc_official": passed, "progress": round((passed + draw.random()) / 2, 3)}
        total = round(draw.uniform(1, 9), 2)
        seconds = {"total": total, "generate": total / 2, "environment": 0.25, "user": 0.0}
        scored = {"score": 2 * reward["progress"], "reward": reward, "seconds": seconds}
        return {**head, **task, "part": part, **scored, "episode": records[name]}

    def validation(stage: str, step: int, gain: float) -> None:
        parts = {name: "dev" if name[-1] == "3" else "test" for name in names} | {"multi_turn_base_9": "guard"}
        lines = [line(name, step, "val", 0, part, gain) for name, part in parts.items()]
        _write(run / stage / "rollouts" / "val" / f"{step:06d}.jsonl", lines)

    losses = [{"step": step, "data": {"train/loss": 2 - step / 10}} for step in range(1, 11)]
    _write(run / "stage0_sft" / "metrics" / "1.jsonl", losses)
    _write(run / "stage0_sft" / "metrics" / "2.jsonl", [{"step": 5, "data": {"val/loss": 1.5 + seed}}])
    validation("before", 0, 0.0)
    _write(run / "before" / "metrics" / "1.jsonl", [{"step": 0, "data": {"val/acc": 0.1}}])
    for place, stage in enumerate(STAGES):
        metrics = []
        for step in range(STEPS + 1):
            gain = (place * STEPS + step) / 40
            data = {"val/progress": 0.4 + gain, "val/acc": 0.3 + gain} if step % STEPS == 0 else {}
            if step % STEPS == 0:
                validation(stage, step, gain)
            if step:
                lines = [line(name, step, "train", n, "train", gain) for name in names[:4] for n in range(ROLLOUTS)]
                _write(run / stage / "rollouts" / "train" / f"{step:06d}.jsonl", lines)
                for metric in ("progress", "acc", "acc_official"):
                    data[f"train/{metric}"] = sum(one["reward"][metric] for one in lines) / len(lines)
                data |= {
                    "critic/score/mean": 2 * data["train/progress"],
                    "training/rollout_actor_probs_pearson_corr": 0.99,
                }
                data |= {"train/stop/completed": 0.75, "train/stop/max_tokens": 0.25, "actor/kl_loss": gain / 10}
                data |= {"timing_s/step": 4.0 + gain, "timing_s/gen": 1.0, "timing_s/update_actor": 2.0}
            metrics.append({"step": step, "data": data})
        _write(run / stage / "metrics" / "1.jsonl", metrics)
        (run / stage / "config").mkdir()
        settings = {"paths": {"run": str(run)}, "data": {"seed": seed}, "trainer": {"total_epochs": 20}}
        (run / stage / "config" / "resolved.yaml").write_text(yaml.safe_dump(settings))
        (run / stage / "config" / "overrides.yaml").write_text(f"- data.seed={seed}\n")
    listed = [
        {"name": stage, "folder": stage, "status": "done", "global_step": STEPS, "target": STEPS} for stage in STAGES
    ]
    (run / "curriculum.json").write_text(
        json.dumps({"stages": [*listed, {"name": "stage3_full", "status": "waiting"}]})
    )
    starts = [{"stage": stage, "time": f"2026-01-0{place + 1}T10:00:00+0000"} for place, stage in enumerate(STAGES)]
    (run / "manifest.json").write_text(json.dumps({"starts": starts}))
    return run
