"""From a reward's `step_scores` to rewards on tokens: the record, the engine's tokens and verl's fields agree."""

import asyncio
import json
import math
from typing import Any

import pytest
import torch

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.agent_loop import EpisodeOutput
from interaction.token_rewards import Span, number_tokens, place, steps_of
from recipe.cpu.tiny_policy import make_tokenizer

PROTOCOL = get_protocol("think_xml", docs="signature")
SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer([message["content"] for message in gold_messages(SCENARIO, PROTOCOL)])


def played(make_loop: Any, engine: Any, tokenizer: Any, replies: list[Any], **settings: Any) -> EpisodeOutput:
    async def run() -> Any:
        row = {"extra_info": {"split": "train", "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}
        loop = make_loop(tokenizer, engine(tokenizer, replies), **settings)
        return await loop.run({"temperature": 1.0}, **row, global_steps=1)

    return asyncio.run(run())


def scored(output: EpisodeOutput, step_scores: Any, score: float | None = None) -> EpisodeOutput:
    """As verl leaves it after the reward: its score in `reward_score`, all it returned in `reward_extra_info`."""
    output.reward_score = math.fsum(step_scores) if score is None else score
    output.extra_fields["reward_extra_info"] = {"score": output.reward_score, "acc": 0.0, "step_scores": step_scores}
    return output


@pytest.fixture
def gold_episode(make_loop, engine, tokenizer, tmp_path) -> EpisodeOutput:
    replies = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]
    return played(make_loop, engine, tokenizer, replies, record_dir=tmp_path)


def test_each_score_is_on_the_last_token_of_its_step(gold_episode):
    steps = [step for turn in gold_episode.extra_fields["episode"]["turns"] for step in turn["steps"]]
    scores = [round(0.1 * (number + 1), 1) for number in range(len(steps))]
    fields = scored(gold_episode, scores).as_dict()
    rewards = fields["rm_scores"]
    assert rewards.dtype == torch.float32 and rewards.shape == fields["response_mask"].shape
    for step, score in zip(steps, scores, strict=True):
        assert rewards[step["tokens"][1] - 1].item() == pytest.approx(score)
    assert (rewards != 0).sum() == len(scores)
    assert not rewards[fields["response_mask"] == 0].any()
    assert rewards.sum().item() == pytest.approx(gold_episode.reward_score)


def test_without_step_scores_the_whole_score_is_on_the_last_token_of_the_model(gold_episode):
    gold_episode.reward_score = 0.75
    gold_episode.response_ids += [0, 0]
    gold_episode.response_mask += [0, 0]  # as if the environment had had the last word
    gold_episode.response_logprobs = None
    fields = gold_episode.as_dict()
    assert fields["rm_scores"].nonzero().tolist() == [[len(fields["response_mask"]) - 3]]
    assert fields["response_mask"][-3] == 1 and fields["rm_scores"].sum() == 0.75


def test_the_list_reaches_neither_verls_metrics_nor_transferqueue_but_the_record_file(gold_episode, tmp_path):
    scores = [0.25] * steps_of(gold_episode.extra_fields["episode"])
    fields = scored(gold_episode, scores).as_dict()
    info = fields["extra_fields"]["reward_extra_info"]
    assert info.pop("part") == SCENARIO.part
    assert all(isinstance(value, int | float) for value in info.values()), info
    assert {"spans", "record_file", "record_header", "step_scores"}.isdisjoint(fields)
    (line,) = (tmp_path / "train" / "000001.jsonl").read_text().splitlines()
    assert json.loads(line)["step_scores"] == scores


def test_a_step_cut_by_the_response_length_keeps_its_reward(make_loop, engine, tokenizer):
    replies = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]
    whole = played(make_loop, engine, tokenizer, replies)
    second = whole.spans[1]
    output = played(make_loop, engine, tokenizer, replies, response_length=second.start + 20)
    assert len(output.response_mask) <= second.start + 20
    fields = scored(output, [0.5] * steps_of(output.extra_fields["episode"])).as_dict()
    assert not fields["rm_scores"][fields["response_mask"] == 0].any()
    assert fields["rm_scores"].sum().item() == pytest.approx(output.reward_score)


def test_a_score_of_a_cut_step_goes_to_the_token_before_and_steps_that_touch_or_miss_the_mask_are_refused():
    assert place([0.5, 0.25], [Span(0, 0, 2), Span(0, 4, 6)], [1, 1, 0]) == [0.0, 0.75, 0.0]
    with pytest.raises(ValueError, match="step 1 begins at token 2 without a token of the environment before it"):
        number_tokens([Span(0, 0, 2), Span(1, 2, 4)], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="the response mask has 3 tokens of the model"):
        number_tokens([Span(0, 0, 2)], [1, 1, 0, 1])
