"""A model that stops with the token that opens the next message (GLM): verl gives that token to the environment."""

import asyncio
from typing import Any

import pytest
from verl.utils.tokenizer.continuous_token import MergeResult

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from recipe.cpu.tiny_policy import make_tokenizer

PROTOCOL = get_protocol("think_xml", docs="signature")
SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)
GOLD = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
def test_the_token_that_verl_takes_from_a_step_is_the_environments(make_loop, engine, model_type: str):
    tokenizer = make_tokenizer(GOLD)
    ending = [tokenizer.eos_token_id, *tokenizer.encode("\n", add_special_tokens=False)]

    def merge(runtime: list[int], appended: list[int], **_: Any) -> MergeResult:
        assert runtime[-2:] == ending, "the end of the step, and the newline that the loop has restored"
        return MergeResult(
            token_ids=[*runtime[:-2], *ending, *appended],
            appended_token_count=2 + len(appended),
            kind="context",
            removed_prefix_token_count=2,
        )

    def played(taken: bool) -> Any:
        async def run() -> Any:
            loop = make_loop(tokenizer, engine(tokenizer, GOLD), hf_model_type=model_type)
            if taken:
                loop.continuous_token_builder._merge_context_token_ids = merge
            row = {"extra_info": {"split": "train", "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}
            output = await loop.run({}, **row, global_steps=1)
            output.reward_score = 1.0
            return output, output.as_dict()

        return asyncio.run(run())

    (plain, plain_fields), (output, fields) = played(False), played(True)
    assert output.extra_fields["episode"]["stop_reason"] == "completed"
    assert output.response_ids == plain.response_ids
    ends = [span.end for span in output.spans]
    assert ends == [span.end - 1 for span in plain.spans[:-1]] + [plain.spans[-1].end]
    differ = [
        place
        for place, pair in enumerate(zip(output.response_mask, plain.response_mask, strict=True))
        if len(set(pair)) == 2
    ]
    assert differ == ends[:-1]
    assert fields["rm_scores"].equal(plain_fields["rm_scores"])
