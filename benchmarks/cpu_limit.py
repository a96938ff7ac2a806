"""How close an update of the CPU engine, and decoding, come to what the machine can do.

    python -m benchmarks.cpu_limit models/smollm2-135m-instruct                  # 8 x 8 short rows: 2 minutes
    python -m benchmarks.cpu_limit models/smollm2-135m-instruct --multi-turn     # prompts of 480, responses of 500
    python -m benchmarks.cpu_limit models/smollm2-135m-instruct --decode
    python -m benchmarks.cpu_limit models/smollm2-135m-instruct --prefill launcher.precision=float32

Update: wall time of verl's `update_actor`, optimizer included, on rows of random tokens. Limit: six operations for each
weight and token (2 forwards, 4 backwards), for the head only where a token is learned, at the rate of torch's own
multiplications of these shapes in the same run. The operations of attention are not among those needed. Given for all
tokens of the rows, and for those that are left when what rows have in common is counted once.

Decode: tokens a second of vLLM with 64 requests at once; prefill: of their prompts. Limits of decode: each step reads
all weights once, at the rate of a sum over a tensor; and two operations for each weight and token.

Rounds of limit and work alternate, the fastest of each counts. Nothing else should run; the load is printed. With
`--beside 19` a busy process of that niceness does, and the median of the work counts. Its terminal is the same: between
terminals niceness need not count.
"""

import argparse
import os
import subprocess
import sys
import timeit
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import DictConfig

from recipe.cpu import precision
from recipe.settings import compose

ROUNDS = 3
SHORT, LONG = ((90, 150), (20, 60)), ((400, 560), (300, 700))  # tokens of prompts and of responses


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """Of the fastest."""
    return min(timeit.repeat(work, number=1, repeat=repeats))


def peak() -> float:
    """GB of this process at most."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024 / 1e9


def rows(config: DictConfig, vocabulary: int, long: bool) -> Any:
    """A batch as verl's trainer gives it to the actor."""
    from verl.utils import tensordict_utils as tu

    generator = torch.Generator().manual_seed(1)
    samples, sizes = config.actor_rollout_ref.rollout.n, LONG if long else SHORT

    def tokens(low: int, high: int) -> torch.Tensor:
        size = int(torch.randint(low, high + 1, (1,), generator=generator))
        return torch.randint(5, vocabulary, (size,), generator=generator)

    columns: dict[str, list[torch.Tensor]] = defaultdict(list)
    for _ in range(config.data.train_batch_size):
        prompt = tokens(*sizes[0])
        for _ in range(samples):
            response = tokens(*sizes[1])
            mask = torch.ones(len(response), dtype=torch.long)
            if long:  # a third are results of calls
                mask[len(mask) // 3 : 2 * len(mask) // 3] = 0
            columns["input_ids"].append(torch.cat([prompt, response]))
            columns["position_ids"].append(torch.arange(len(prompt) + len(response)))
            columns["prompts"].append(prompt)
            columns["responses"].append(response)
            columns["response_mask"].append(mask)
            columns["loss_mask"].append(mask)
            columns["old_log_probs"].append(torch.full((len(response),), -9.0))
            columns["advantages"].append(torch.randn(1, generator=generator).expand(len(response)))
    size = config.actor_rollout_ref.actor.ppo_mini_batch_size * samples
    numbers = {"global_batch_size": size, "mini_batch_size": size, "epochs": 1, "seed": 1, "pad_token_id": 0}
    off = dict.fromkeys(("calculate_entropy", "distillation_use_topk", "distillation_only"), False)
    temperature = {"temperature": config.actor_rollout_ref.rollout.temperature}
    return tu.get_tensordict(
        {name: torch.nested.as_nested_tensor(rows, layout=torch.jagged) for name, rows in columns.items()},
        {**numbers, **off, **temperature, "dataloader_kwargs": {"shuffle": False}},
    )


def limit(model: Any, dtype: Any, tokens: int, once: int, learned: int, part: int) -> tuple[float, float, float]:
    """Seconds for all tokens, for those left when beginnings count once, and GFLOPS of the body."""
    head = model.get_output_embeddings()
    shapes = [module.weight.shape for module in model.modules() if isinstance(module, torch.nn.Linear)]
    body = [shape for shape in shapes if shape != head.weight.shape]

    def time_of(out: int, into: int, batch: int) -> float:
        x, w, g = (torch.randn(shape).to(dtype) for shape in ((batch, into), (out, into), (batch, out)))
        return seconds(lambda: (x @ w.t(), g @ w, g.t() @ x))

    each = {shape: time_of(*shape, part) for shape in dict.fromkeys(body)}
    body_token = sum(each[shape] for shape in body) / part
    some = max(1, part * learned // once)
    of_head = time_of(*head.weight.shape, some) / some * learned
    rate = 6 * sum(shape.numel() for shape in body) / body_token / 1e9
    return body_token * tokens + of_head, body_token * once + of_head, rate


def update(config: DictConfig, long: bool, choose: Callable[[list[float]], float]) -> None:
    """Prints what an update takes, beside what it must take."""
    from verl.utils.torch_dtypes import PrecisionType
    from verl.workers.engine_workers import ActorRolloutRefWorker

    worker = ActorRolloutRefWorker(config=config.actor_rollout_ref, role="actor")
    worker.init_model()
    import recipe.cpu.engine as engine

    model = worker.actor.engine.module
    vocabulary = model.config.vocab_size - 64
    data = rows(config, vocabulary, long)
    ids = sorted(data["input_ids"].unbind(), key=lambda row: row.tolist())
    tokens, learned = sum(map(len, ids)), int(data["loss_mask"].values().sum())
    once, limits, updates, peaks = tokens - sum(engine._shared(ids)), [], [], [peak()]
    dtype = PrecisionType.to_dtype(config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype)
    for _ in range(ROUNDS):
        limits.append(limit(model, dtype, tokens, once, learned, min(once, 1024)))
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        updates.append(seconds(lambda: worker.update_actor(rows(config, vocabulary, long)), 1))
        peaks.append(peak())
    (all_rows, of_once, rate), best = min(limits), choose(updates)
    print(f"{len(ids)} rows, {tokens} tokens, {once} with beginnings once, {learned} learned; {rate:.0f} GFLOPS")
    print(f"update {best:.2f} s | limit {all_rows:.2f} s for all tokens: {all_rows / best:.0%}", end=" | ")
    print(f"{of_once:.2f} s for those left: {of_once / best:.0%}")
    print("memory at most, GB: model, updates " + ", ".join(f"{size:.2f}" for size in peaks))


def decode(config: DictConfig, path: str, prefill: bool, choose: Callable[[list[float]], float]) -> None:
    """Prints how fast vLLM decodes, beside how fast memory and cores would let it; or how fast it reads prompts."""
    from vllm import LLM, SamplingParams

    rollout = config.actor_rollout_ref.rollout
    llm = LLM(
        path,
        dtype=rollout.dtype,
        enforce_eager=rollout.enforce_eager,
        **rollout.engine_kwargs.vllm,
        max_model_len=512,
        max_num_seqs=rollout.max_num_seqs,
        max_num_batched_tokens=rollout.max_num_batched_tokens,
        enable_prefix_caching=False,
        logprobs_mode=rollout.logprobs_mode,
    )
    prompts = [{"prompt_token_ids": [5 + number] * 120} for number in range(64)]

    def play(tokens: int) -> float:
        sampling = SamplingParams(temperature=1.0, max_tokens=tokens, ignore_eos=True, logprobs=0)
        return seconds(lambda: llm.generate(prompts, sampling, use_tqdm=False), 1)

    if prefill:
        best = choose([play(1) for _ in range(ROUNDS + 2)][1:])
        print(f"prefill {sum(len(prompt['prompt_token_ids']) for prompt in prompts) / best:.0f} tokens/s, {best:.2f} s")
        return
    from transformers import AutoModelForCausalLM

    shapes = [tensor.shape for tensor in AutoModelForCausalLM.from_pretrained(path).parameters() if tensor.dim() == 2]
    weights, dtype = sum(shape.numel() for shape in shapes), getattr(torch, rollout.dtype)
    large = torch.ones(2**28, dtype=dtype)
    steps, reading, computing = [], [], []
    for _ in range(ROUNDS):
        steps.append((play(65) - play(1)) / 64)
        reading.append(dtype.itemsize * weights / (large.nbytes / seconds(large.sum)))
        tensors = {shape: (torch.randn(64, shape[1]).to(dtype), torch.randn(shape).to(dtype)) for shape in {*shapes}}
        times = {shape: seconds(lambda x=x, w=w: x @ w.t(), 5) for shape, (x, w) in tensors.items()}
        computing.append(sum(times[shape] for shape in shapes))
    step, read, compute = choose(steps), min(reading), min(computing)
    speed = dtype.itemsize * weights / read / 1e9
    print(f"decode {64 / step:.0f} tokens/s | limit of memory, at {speed:.1f} GB/s, {64 / read:.0f}: {read / step:.0%}")
    print(f"limit of multiplications {64 / compute:.0f}: {compute / step:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--hardware", default="cpu", help="profile: cpu or tiny")
    parser.add_argument("--beside", metavar="NICENESS", help="one busy process of this niceness meanwhile")
    parser.add_argument("--multi-turn", action="store_true")
    parser.add_argument("--decode", action="store_true")
    parser.add_argument("--prefill", action="store_true")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="of the training's configuration")
    given = parser.parse_intermixed_args()
    path = str(Path(given.model).absolute())
    sizes = ["data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8"]
    own = [f"hardware={given.hardware}", f"actor_rollout_ref.model.path={path}", *sizes]
    config = compose("stage1", [*own, *given.settings])
    wanted = {name: str(value) for name, value in config.launcher.env.items()}
    wanted |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29000 + os.getpid() % 99)}
    if wanted.keys() - os.environ.keys():  # some are read before Python starts
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], wanted | os.environ)
    precision.settle(config)
    print(f"{config.actor_rollout_ref.rollout.dtype}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    loop = ["nice", "-n", given.beside or "0", sys.executable, "-c", "while True: pass"]
    busy = subprocess.Popen(loop) if given.beside else None
    choose: Callable[[list[float]], float] = median if busy else min
    try:
        if given.decode or given.prefill:
            decode(config, path, given.prefill, choose)
        else:
            update(config, given.multi_turn, choose)
    finally:
        if busy:
            busy.kill()


if __name__ == "__main__":
    main()
