"""Gold of one scenario, played through the agent loop and scored as verl does it."""

import asyncio
import math
from functools import cache
from typing import Any

from tokenizers.processors import TemplateProcessing

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.agent_loop import EpisodeOutput
from recipe.cpu.tiny_policy import make_tokenizer

SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)
MESSAGES = gold_messages(SCENARIO, get_protocol("think_xml", docs="signature"))
GOLD = [message["content"] for message in MESSAGES if message["role"] == "assistant"]


@cache
def tokenizer() -> Any:
    """Puts a token before a text, as Llama's do, unless it is told not to."""
    made = make_tokenizer([message["content"] for message in MESSAGES])
    start = (made.convert_ids_to_tokens(made.eos_token_id), made.eos_token_id)
    made.backend_tokenizer.post_processor = TemplateProcessing(single=f"{start[0]} $A", special_tokens=[start])
    return made


def play(make_loop: Any, engine: Any, split: str = "train", **settings: Any) -> EpisodeOutput:
    async def run() -> Any:
        row = {"extra_info": {"split": split, "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}
        loop = make_loop(tokenizer(), engine(tokenizer(), GOLD), **settings)
        return await loop.run({"temperature": 1.0}, **row, global_steps=1)

    return asyncio.run(run())


def scored(output: EpisodeOutput, step_scores: list[float] | None = None) -> dict[str, Any]:
    """verl's fields after the reward, which gave 1.0 or a score for each step."""
    output.reward_score = 1.0 if step_scores is None else math.fsum(step_scores)
    steps = {} if step_scores is None else {"step_scores": step_scores}
    output.extra_fields["reward_extra_info"] = {"score": output.reward_score, "mine": 7, **steps}
    return output.as_dict()
