"""How long an update, decoding and prefill take by how threads wait for each other, alone and beside another process.

    python -m benchmarks.cpu_threads models/smollm2-135m-instruct                  # 12 minutes
    python -m benchmarks.cpu_threads models/smollm2-135m-instruct GOMP_SPINCOUNT=20000

Each cell is a process of its own with the CPU profile's environment and the variables of its row: verl's update of 16
short rows, 16 tokens decoded for each of 64 requests, and their prompts of 120 tokens read. Seconds in the median of
five, and of the slowest. The other process multiplies nothing and never sleeps, at `nice -n 19` or as an ordinary one.
Nothing else should run.
"""

import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

from recipe.settings import compose

ROUNDS = 5
ROWS = ("OMP_NUM_THREADS=1", "", "OMP_WAIT_POLICY=PASSIVE", "GOMP_SPINCOUNT=1000", "GOMP_SPINCOUNT=10000")
BESIDE = {"alone": None, "nice 19": 19, "ordinary": 0}


def measure(path: str) -> None:
    """Prints the cell of this process's environment."""
    from vllm import LLM, SamplingParams

    from benchmarks.cpu_limit import rows
    from recipe.cpu import precision

    model = f"actor_rollout_ref.model.path={path}"
    config = compose("stage1", ["hardware=cpu", model])
    config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = 2
    precision.settle(config)
    from verl.workers.engine_workers import ActorRolloutRefWorker

    worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    worker.init_model()
    llm = LLM(
        path,
        dtype=config.actor_rollout_ref.rollout.dtype,
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=64,
        max_num_batched_tokens=config.actor_rollout_ref.rollout.max_num_batched_tokens,
        enable_prefix_caching=False,
        logprobs_mode="processed_logprobs",
    )
    prompts = [{"prompt_token_ids": [5 + number] * 120} for number in range(64)]

    def play(tokens: int) -> None:
        llm.generate(prompts, SamplingParams(max_tokens=tokens, ignore_eos=True, logprobs=0), use_tqdm=False)

    def seconds(work: object) -> float:
        began = perf_counter()
        work()  # type: ignore[operator]
        return perf_counter() - began

    words = 49152 - 64
    found = {
        "update": [seconds(lambda: worker.update_actor(rows(config, words, False))) for _ in range(ROUNDS + 1)][1:]
    }
    found["prefill"] = [seconds(lambda: play(1)) for _ in range(ROUNDS)]
    found["decode"] = [seconds(lambda: play(17)) - median(found["prefill"]) for _ in range(ROUNDS)]
    print("CELL", " ".join(f"{name} {median(times):.2f} ({max(times):.2f})" for name, times in found.items()))


def main() -> None:
    path, given = str(Path(sys.argv[1]).absolute()), sys.argv[2:] or ROWS
    if os.environ.get("CELL"):
        return measure(path)
    profile = compose("stage1", ["hardware=cpu"]).launcher.env
    base = {name: str(value) for name, value in profile.items()} | {"CELL": "1", "RANK": "0", "WORLD_SIZE": "1"}
    base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 999)}
    for row in given:
        for beside, nice in BESIDE.items():
            busy = [] if nice is None else ["nice", "-n", str(nice), sys.executable, "-c", "while True: pass"]
            other = subprocess.Popen(busy) if busy else None
            command = [sys.executable, "-m", "benchmarks.cpu_threads", path]
            variables = dict(part.split("=") for part in row.split())
            done = subprocess.run(command, env=os.environ | base | variables, capture_output=True, text=True)
            if other:
                other.kill()
                other.wait()
            cell = next((line for line in done.stdout.splitlines() if line.startswith("CELL")), done.stderr[-300:])
            print(f"{row or 'the profile':30}{beside:10}{cell.removeprefix('CELL ')}", flush=True)


if __name__ == "__main__":
    main()
