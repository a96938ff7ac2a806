"""What the agent loop costs beside the engine: the same requests to vLLM with and without it, 32 episodes at once.

    python benchmarks/bench_agent_loop_vllm.py [--episodes 32] [--rounds 5] [--hidden 128] [--layers 2]

With the loop, 32 gold episodes of multi_turn_base are played: `ConversationAgentLoop` builds the prompts, and for each
step vLLM generates as many tokens as gold has there, which are thrown away for gold's own. Bare, vLLM gets exactly
the prompts of that round again, each episode's one after the other, with the same number of tokens to generate. Rounds
alternate, the prefix cache is emptied before each, and medians are compared. Weights are random, in the CPU profile's
architecture and of its size unless said otherwise: the smaller the model, the larger the share of all the rest.
"""

import argparse
import asyncio
import os
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any
from uuid import uuid4

os.environ |= {"VERL_PLATFORM": "cpu", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
os.environ |= {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}

import torch
from bench_agent_loop import configuration, play
from transformers import Qwen2Config, Qwen2ForCausalLM
from verl.workers.rollout.replica import TokenOutput
from vllm import AsyncEngineArgs, SamplingParams
from vllm.inputs import TokensPrompt
from vllm.v1.engine.async_llm import AsyncLLM

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from recipe.cpu.tiny_policy import make_tokenizer

PROTOCOL = get_protocol("think_xml", docs="signature")
CONTEXT = 4096


class Replay:
    """Has vLLM generate as many tokens as each gold step has, and says the gold step. Notes what it was asked."""

    def __init__(self, llm: AsyncLLM, replies: list[list[int]]):
        self.llm, self.replies = llm, list(replies)
        self.requests: list[tuple[list[int], int]] = []

    async def generate(self, prompt_ids: list[int], **_: Any) -> TokenOutput:
        ids = self.replies.pop(0)
        self.requests.append((list(prompt_ids), len(ids)))
        await generate(self.llm, *self.requests[-1])
        return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids), stop_reason="completed")


async def generate(llm: AsyncLLM, prompt_ids: list[int], count: int) -> None:
    sampling = SamplingParams(temperature=1.0, max_tokens=count, min_tokens=count, ignore_eos=True, logprobs=0)
    async for output in llm.generate(TokensPrompt(prompt_token_ids=prompt_ids), sampling, uuid4().hex):
        final = output
    assert len(final.outputs[0].token_ids) == count


async def with_loop(llm: AsyncLLM, replies: dict[str, list[list[int]]], tokenizer: Any, config: Any) -> list[Replay]:
    engines = {name: Replay(llm, said) for name, said in replies.items()}
    await asyncio.gather(*(play(name, engine, tokenizer, config) for name, engine in engines.items()))
    return list(engines.values())


async def bare(llm: AsyncLLM, engines: list[Replay]) -> None:
    async def episode(requests: list[tuple[list[int], int]]) -> None:
        for prompt_ids, count in requests:
            await generate(llm, prompt_ids, count)

    await asyncio.gather(*(episode(engine.requests) for engine in engines))


def make_model(folder: Path, tokenizer: Any, hidden: int, layers: int) -> int:
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            intermediate_size=3 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=hidden // 32,
            num_key_value_heads=hidden // 64,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
        )
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


async def measure(episodes: int, rounds: int, hidden: int, layers: int) -> None:
    conversations = {item.id: gold_messages(item, PROTOCOL) for item in load_scenarios("multi_turn_base")}
    tokenizer = make_tokenizer([text["content"] for messages in conversations.values() for text in messages])
    encoded = {
        name: [tokenizer.encode(message["content"], add_special_tokens=False) for message in messages]
        for name, messages in conversations.items()
    }
    chosen = sorted(encoded, key=lambda name: sum(map(len, encoded[name])))[:episodes]
    replies = {
        name: [
            [*ids, tokenizer.eos_token_id]
            for ids, message in zip(encoded[name], conversations[name], strict=True)
            if message["role"] == "assistant"
        ]
        for name in chosen
    }
    with TemporaryDirectory() as folder:
        parameters = make_model(Path(folder), tokenizer, hidden, layers)
        arguments = AsyncEngineArgs(
            model=folder,
            dtype="float32",
            enforce_eager=True,
            max_model_len=CONTEXT,
            max_num_seqs=64,
            max_num_batched_tokens=8192,
            enable_prefix_caching=True,
        )
        llm = AsyncLLM.from_engine_args(arguments)
        config = configuration(str(Path(folder) / "records"), PROTOCOL)
        times: dict[str, list[float]] = {"bare vLLM": [], "agent loop": []}
        own = []
        for number in range(-1, rounds):  # the first round warms everything up and does not count
            await llm.reset_prefix_cache()
            began, cpu = perf_counter(), process_time()
            engines = await with_loop(llm, replies, tokenizer, config)
            looped, loop_cpu = perf_counter() - began, process_time() - cpu
            await llm.reset_prefix_cache()
            began, cpu = perf_counter(), process_time()
            await bare(llm, engines)
            alone, bare_cpu = perf_counter() - began, process_time() - cpu
            if number >= 0:
                times["agent loop"].append(looped)
                times["bare vLLM"].append(alone)
                own.append(loop_cpu - bare_cpu)
        requests = [request for engine in engines for request in engine.requests]
        llm.shutdown()
    loop, alone = median(times["agent loop"]), median(times["bare vLLM"])
    tokens = sum(count for _, count in requests)
    print(f"{parameters / 1e6:.2f}M parameters, {len(chosen)} episodes at once, {len(requests)} steps, {tokens} tokens")
    for name, values in times.items():
        print(f"{name:12} {median(values):6.2f} s   ({', '.join(f'{value:.2f}' for value in sorted(values))})")
    print(
        f"difference   {100 * (loop / alone - 1):+6.1f} %   "
        f"CPU time of the loop's process beyond bare's: {1e3 * median(own) / len(requests):.2f} ms a step"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32, help="at once")
    parser.add_argument("--rounds", type=int, default=5, help="of each kind")
    parser.add_argument("--hidden", type=int, default=128, help="hidden size; a multiple of 64")
    parser.add_argument("--layers", type=int, default=2)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.episodes, arguments.rounds, arguments.hidden, arguments.layers))


if __name__ == "__main__":  # vLLM starts its engine as another process, which imports this file again
    main()
