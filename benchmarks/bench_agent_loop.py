"""How long the agent loop keeps its event loop from serving other episodes.

    python benchmarks/bench_agent_loop.py [--episodes 32] [--category CATEGORY | --environment FILE] [--record-tokens]

All episodes of a worker share one event loop; while one piece of code holds it, no other episode can send its next
prompt to the engine. Gold is played in many episodes at once, with an engine that answers after a few milliseconds.
Two numbers, each once for the first wave, which executes gold for the first time, and once for a second one:

    longest step   CPU time of the longest piece of code between two awaits, in the event loop's own thread
    longest gap    wall time by which a task that wants to run every millisecond came late; it also has in it what the
                   operating system and Python's lock between threads add, and other processes on the machine

With tools that wait (`--environment`), the seconds of a wave say whether they wait beside each other.
"""

import argparse
import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from bfcl_env import gold
from bfcl_env.source import CATEGORIES
from data_prep.sft import gold_messages
from interaction import get_protocol, tool_environment
from interaction.agent_loop import ConversationAgentLoop
from interaction.environment import load_tasks, named
from recipe.cpu.tiny_policy import make_tokenizer

ENGINE_SECONDS = 0.005
PROTOCOL = get_protocol("think_xml")


class GoldEngine:
    """Says the gold messages of one scenario."""

    def __init__(self, replies: list[list[int]]):
        self.replies = list(replies)

    async def generate(self, **_: Any) -> TokenOutput:
        await asyncio.sleep(ENGINE_SECONDS)
        ids = self.replies.pop(0)
        return TokenOutput(token_ids=ids, log_probs=[0.0] * len(ids), stop_reason="completed")


def configuration(record_dir: str, record_tokens: bool) -> Any:
    policy = {"max_steps_per_turn": 20}
    interaction = {
        **{"protocol": PROTOCOL.name, "docs": PROTOCOL.docs, "max_tokens_per_reply": None, "engine_timeout": 600},
        **{"waiting": 64, "record_dir": record_dir, "record_tokens": record_tokens, "train": policy, "val": policy},
    }
    rollout = {"prompt_length": 10**6, "response_length": 10**6, "max_model_len": None}
    return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}, "interaction": interaction})


async def play(task_id: str, engine: Any, tokenizer: Any, config: Any) -> None:
    """One episode through the agent loop, as verl's worker runs it."""
    loop = ConversationAgentLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=engine,
        tokenizer=tokenizer,
        processor=None,
        dataset_cls=SimpleNamespace,
        data_config=DictConfigWrap(config.data),
        hf_model_type="qwen2",
    )
    environment, _, task_id = task_id.partition("/")
    about = {"split": "train", "environment": environment, "task_id": task_id}
    output = await loop.run({}, extra_info=about, global_steps=1)
    assert not isinstance(output, list), "the episode was dropped"
    assert output.extra_fields["episode"]["stop_reason"] in ("completed", "user_stop")
    output.reward_score = 1.0
    output.as_dict()  # in the event loop: writes the record


async def heartbeat(gaps: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.001)
        gaps.append(time.perf_counter() - before - 0.001)


async def wave(replies: dict[str, list[list[int]]], tokenizer: Any, config: Any) -> list[float]:
    """Play one episode of each scenario, all at once; returns the gaps of the heartbeat in seconds."""
    gaps: list[float] = []
    beat = asyncio.create_task(heartbeat(gaps))
    await asyncio.gather(*(play(name, GoldEngine(said), tokenizer, config) for name, said in replies.items()))
    beat.cancel()
    return gaps


def blocking(category: str, file: str | None, count: int, record_tokens: bool) -> None:
    environment = named(file) if file else "bfcl"
    tasks = [task for task in load_tasks(environment).values() if file or task.category == category][:count]
    replies, texts = {}, []
    with ThreadPoolExecutor(64 if file else 1) as pool:
        played = [*pool.map(lambda task: gold_messages(task, PROTOCOL), tasks)]
    for task, messages in zip(tasks, played, strict=True):
        texts += [message["content"] for message in messages[:2]]
        replies[f"{environment}/{task.id}"] = [each["content"] for each in messages if each["role"] == "assistant"]
    tokenizer = make_tokenizer(texts)
    encoded = {
        name: [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in said]
        for name, said in replies.items()
    }
    gold._KNOWN.clear()  # making the messages has executed it
    tool_environment._kept.clear()
    steps: list[float] = []
    run = asyncio.events.Handle._run

    def timed(handle: Any) -> None:
        before = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - before)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    with TemporaryDirectory() as folder:
        config = configuration(folder, record_tokens)
        for name in ("first wave", "second wave"):
            steps.clear()
            began = time.perf_counter()
            gaps = sorted(asyncio.run(wave(encoded, tokenizer, config)))
            took = time.perf_counter() - began
            print(
                f"{file or category} {name}: {len(tasks)} episodes in {took:.2f} s, "
                f"longest step {1e3 * max(steps):.1f} ms, longest gap {1e3 * gaps[-1]:.1f} ms, "
                f"99 % of gaps under {1e3 * gaps[int(0.99 * len(gaps))]:.1f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32, help="at once")
    parser.add_argument("--record-tokens", action="store_true", help="with interaction.record_tokens")
    parser.add_argument("--category", choices=CATEGORIES, default="multi_turn_long_context")
    parser.add_argument("--environment", metavar="FILE", help="tools of one's own, in place of a category")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    blocking(arguments.category, arguments.environment, arguments.episodes, arguments.record_tokens)


if __name__ == "__main__":
    main()
