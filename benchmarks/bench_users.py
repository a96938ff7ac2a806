"""Whether episodes wait for their users side by side: many against one, each user asked three times.

    python benchmarks/bench_users.py [--episodes 32] [--seconds 0.2]

The agent loop is the real one; the engine answers after 5 ms, the user after SECONDS. Prints the shortest of three
times for one episode, and for all of them at once.
"""

import argparse
import asyncio
import logging
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench_agent_loop import PROTOCOL, GoldEngine, configuration, play
from omegaconf import OmegaConf
from phone import WORDS

from interaction.environment import load_tasks, register
from interaction.gold import play_gold
from recipe.cpu.tiny_policy import make_tokenizer

TIMES = 3


async def together(episodes: int, replies: list[list[int]], tokenizer: Any, config: Any) -> float:
    """Seconds for so many episodes at once."""
    began = time.perf_counter()
    await asyncio.gather(
        *(play(f"phone_{number}", GoldEngine(replies), tokenizer, config, "phone") for number in range(episodes))
    )
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=32, help="at once")
    parser.add_argument("--seconds", type=float, default=0.2, help="until a user has answered")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    file = str(Path(__file__).with_name("phone.py"))
    register({"phone": file})
    messages, _ = play_gold(load_tasks("phone")["phone_0"], PROTOCOL)
    tokenizer = make_tokenizer([message["content"] for message in messages])
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    replies = [tokenizer.encode(f"{text}<|im_end|>") for text in said]
    with TemporaryDirectory() as folder:
        config = configuration(folder)
        config.interaction.user = {"kind": "scripted", "lines": list(WORDS), "seconds": given.seconds}
        config.interaction.environments = OmegaConf.create({"phone": file})
        asyncio.run(together(1, replies, tokenizer, config))  # what is loaded once
        took = {
            number: min(asyncio.run(together(number, replies, tokenizer, config)) for _ in range(TIMES))
            for number in (1, given.episodes)
        }
    one, many = took[1], took[given.episodes]
    print(f"1 episode {one:.2f} s, {given.episodes} at once {many:.2f} s: {many / one:.2f} times")


if __name__ == "__main__":
    main()
