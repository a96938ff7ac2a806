"""GRPO by TRL's GRPOTrainer and by this project: speed, memory and held-out accuracy on the same task.

    python -m benchmarks.against_trl --model MODEL --data DIR --out OUT

MODEL is a folder that solves some tasks and not all, such as a short warm start of SmolLM2-135M; DIR is made with

    python -m data_prep --mixture bfcl_single/simple_python=2 bfcl_single/multiple=1 bfcl_single/irrelevance=1 \
      --protocol python_calls --docs signature --rows 64 --val-rows 64 --out DIR

Both sides train all weights, kept in float32 and multiplied in `--precision`, on the same rows in the same order.
Prompts, judge, reward, rollouts, sampling, optimizer and loss are the same: GRPO with a mean over tokens and no KL. TRL
is installed once, in OUT/env, and samples with transformers: its vLLM mode ends on a CPU when it writes the first
weights.

The sides take turns: each trains `--block` steps in a process of its own and goes on from its checkpoint. Then the
faster one goes on until its steps have taken as long as the slower one's. `recipe.evaluate` plays the held-out tasks.
A step is timed without start and checkpoint. Tokens are those of prompts and replies, without padding. Memory is the
peak over all processes of a side, shared pages counted once. OUT/table.md has the table; 10 GB of disk.
"""

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pyarrow.parquet as pq

SIDES = ("trl", "ours")
ROLLOUTS, REPLY, LR, BETA2 = 8, 96, 1e-5, 0.95
CHECKPOINTS = "ours/stage2_base/checkpoints"
PACKAGES = ("torch==2.13.0", "trl==1.16.0", "pydantic", "psutil"), ("--no-deps", "bfcl-eval==2026.3.23")
ALLOCATOR = dict(MALLOC_ARENA_MAX="1", MALLOC_MMAP_THRESHOLD_="4000000000", MALLOC_TRIM_THRESHOLD_="8000000000")
"""As in recipe/config/hardware/cpu.yaml: TRL is faster with it too."""


def train_with_trl(given: argparse.Namespace) -> None:
    """Train up to a step, from the last checkpoint if there is one. Runs in TRL's environment."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from interaction.conversation import Conversation
    from interaction.environment import task_of
    from interaction.protocol import get_protocol
    from rewards.progress import compute_score

    def score(reply: list[dict], ids: list[int], info: dict) -> float:
        with Conversation(task_of(info), get_protocol("python_calls", docs="signature")) as conversation:
            conversation.start()
            cut = len(ids) >= REPLY and ids[-1] not in trainer.eos_token_ids
            conversation.reply(reply[0]["content"], truncated=cut)
            return compute_score("", "", None, {"episode": conversation.record().to_dict()})["score"]

    def reward(completions: list, completion_ids: list, extra_info: list, **_: Any) -> list[float]:
        return [*map(score, completions, completion_ids, extra_info)]

    class Steps(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.began, self.before = time.perf_counter(), state.num_input_tokens_seen

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds, tokens = time.perf_counter() - self.began, state.num_input_tokens_seen - self.before
            with open(given.out / "trl.jsonl", "a") as file:
                print(json.dumps({"step": state.global_step, "seconds": seconds, "tokens": tokens}), file=file)

    config = GRPOConfig(
        output_dir=str(given.out / "trl"),
        per_device_train_batch_size=ROLLOUTS,
        gradient_accumulation_steps=given.prompts,  # the rollouts of a step are still sampled in one batch
        num_generations=ROLLOUTS,
        max_completion_length=REPLY,
        learning_rate=LR,
        lr_scheduler_type="constant",
        adam_beta2=BETA2,
        shuffle_dataset=False,  # the file is
        model_init_kwargs={"dtype": "float32"},
        bf16=given.precision == "bfloat16",
        gradient_checkpointing=False,
        use_cpu=True,
        max_steps=given.trl_until,
        save_steps=given.trl_until,
        logging_steps=1,
    )
    rows = pq.read_table(given.out / "train.parquet", columns=["prompt", "extra_info"]).to_pylist()
    trainer = GRPOTrainer(str(given.model), reward, config, Dataset.from_list(rows), callbacks=[Steps()])
    if not (given.out / "trl" / f"checkpoint-{given.trl_until}").exists():  # else it would train a step more
        trainer.train(resume_from_checkpoint=any((given.out / "trl").glob("checkpoint-*")))


def command(side: str, given: argparse.Namespace, until: int) -> tuple[list[str], dict[str, str]]:
    """What trains a side up to a step, and variables of its environment."""
    if side == "trl":
        words = f"{given.out}/env/bin/python -m benchmarks.against_trl --trl-until {until}".split()
        return [*words, *sys.argv[1:]], ALLOCATOR | {"OMP_NUM_THREADS": str(os.cpu_count())}
    overrides = f"""paths.run={given.out}/ours stage.previous=null data.train_files={given.out}/train.parquet
        data.shuffle=false data.val_files=[] trainer.test_freq=-1 trainer.val_before_train=false
        trainer.total_epochs=1000 trainer.total_training_steps={until} trainer.save_freq={until}
        data.max_response_length={REPLY} interaction.max_tokens_per_reply={REPLY}
        interaction.protocol=python_calls interaction.docs=signature
        reward.custom_reward_function.path=pkg://rewards.progress actor_rollout_ref.actor.optim.lr={LR}
        actor_rollout_ref.actor.optim.betas=[0.9,{BETA2}] actor_rollout_ref.actor.loss_agg_mode=token-mean
        actor_rollout_ref.rollout.n={ROLLOUTS} actor_rollout_ref.rollout.temperature=1.0
        launcher.precision={given.precision}"""
    sizes = dict.fromkeys(("TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE"), str(given.prompts))
    return ["bash", "run_stage2.sh", *overrides.split(), *given.override], sizes | {"MODEL": str(given.model)}


def prepare(given: argparse.Namespace) -> None:
    """TRL's environment, and the rows in the order in which both sides train on them."""
    environment = given.out / "env"
    if not (environment / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        for packages in PACKAGES:
            subprocess.run([environment / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)
        (environment / "ready").touch()
    rows = pq.read_table(given.data / "mixture_train.parquet")
    pq.write_table(rows.take(random.Random(1).sample(range(len(rows)), len(rows))), given.out / "train.parquet")


def train(side: str, given: argparse.Namespace, until: int) -> float:
    """Train a side up to a step; returns the peak of its memory in GB."""
    words, variables = command(side, given, until)
    began, peak = time.time(), 0.0
    with open(given.out / f"{side}.log", "a") as log:
        process = psutil.Popen(words, stdout=log, stderr=log, env=os.environ | variables)
    while process.poll() is None:
        with suppress(psutil.Error):  # one has just ended
            tree = [process, *process.children(recursive=True)]
            peak = max(peak, sum(item.memory_full_info().pss for item in tree) / 1e9)
        time.sleep(2)
    if process.returncode:
        raise SystemExit(f"{side} failed: see {log.name}")
    print(f"{side}: step {until}, {time.time() - began:.0f} s with start and checkpoint", flush=True)
    return peak


def steps(side: str, given: argparse.Namespace) -> list[dict[str, float]]:
    """Seconds and tokens of each step so far."""
    from recipe.stage.metrics_log import read_steps

    if side == "trl":
        lines = map(json.loads, (given.out / "trl.jsonl").read_text().splitlines())
        return [*{line["step"]: line for line in lines}.values()]  # a turn that was interrupted is played again
    return [
        {
            "seconds": one["timing_s/step"] - one.get("timing_s/save_checkpoint", 0.0),
            "tokens": one["perf/total_num_tokens"],
        }
        for one in read_steps(given.out / "ours" / "stage2_base").values()
    ]


def solved(side: str, step: int, given: argparse.Namespace) -> dict[str, float]:
    """Held-out task -> 1 if the model of a step solves it, played greedily."""
    from recipe.evaluation.store import read_episodes
    from rewards.metrics import episode_metrics

    path = f"trl/checkpoint-{step}" if side == "trl" else f"{CHECKPOINTS}/global_step_{step}/actor/huggingface"
    model, out = given.out / path if step else given.model, given.out / f"held_out_{side if step else 'start'}_{step}"
    words = f"""-m recipe.evaluate --model {model} --out {out} --environment bfcl_single --split test
        --category simple_python --category multiple --category irrelevance
        --protocol python_calls --docs signature --max-tokens {REPLY} --limit {given.limit}"""
    with open(given.out / "held_out.log", "a") as log:
        subprocess.run([sys.executable, *words.split()], check=True, stdout=log, stderr=log)
    return {one.task_id: episode_metrics(one.to_dict())["acc"] for _, one in read_episodes(out / "episodes.jsonl")[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--model", "--data", "--out"):
        parser.add_argument(name, type=lambda text: Path(text).absolute(), required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--block", type=int, default=4, help="steps in one turn")
    parser.add_argument("--prompts", type=int, default=8, help="of a step")
    parser.add_argument("--limit", type=int, default=1000, help="held-out tasks of each category")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--override", action="append", default=[], help="of our configuration")
    parser.add_argument("--trl-until", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trl_until:
        return train_with_trl(given)
    from benchmarks.rises import git
    from interaction.environment import load_tasks
    from recipe.evaluation.intervals import CHANGE, brackets, interval

    prepare(given)
    peak = dict.fromkeys(SIDES, 0.0)
    for until, side in product(range(given.block, given.steps + 1, given.block), SIDES):
        peak[side] = max(peak[side], train(side, given, until))
    spent, tokens = ([sum(step[of] for step in steps(side, given)) for side in SIDES] for of in ("seconds", "tokens"))
    last = [int(given.steps * max(spent) / seconds) for seconds in spent]
    if max(last) > given.steps:
        train(SIDES[last.index(max(last))], given, max(last))
    text = [f"| | {PACKAGES[0][1].replace('trl==', 'TRL ')} | this project | |", "| --- | --- | --- | --- |"]
    for name, (theirs, ours) in {
        "seconds a step": [seconds / given.steps for seconds in spent],
        "tokens a second": [count / seconds for count, seconds in zip(tokens, spent, strict=True)],
        "peak memory, GB": [*peak.values()],
    }.items():
        text.append(f"| {name} | {theirs:.1f} | {ours:.1f} | x {ours / theirs:.2f} |")
    for name, at in {
        "before": [0, 0],
        f"after {given.steps} steps": [given.steps] * 2,
        f"after {max(spent):.0f} s: {last[0]} and {last[1]} steps": last,
    }.items():
        theirs, ours = (solved(side, step, given) for side, step in zip(SIDES, at, strict=True))
        more = [ours[task] - theirs[task] for task in ours]
        sure = brackets(interval(more, [load_tasks("bfcl_single")[task].cluster for task in ours], bounds=CHANGE))
        means = f"{fmean(theirs.values()):.3f} | {fmean(ours.values()):.3f}"
        text.append(f"| held-out tasks solved, {name} | {means} | {fmean(more):+.3f}{sure} |")
    source = shlex.join(["python", "-m", "benchmarks.against_trl", *sys.argv[1:]])
    text += ["", f"`{source}`, {time.strftime('%Y-%m-%d')}, commit {git('rev-parse', '--short', 'HEAD')}"]
    (given.out / "table.md").write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
