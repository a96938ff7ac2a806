"""Tokens in, tokens out: what the agent loop hands to the trainer, with a scripted engine in place of vLLM."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.record import EpisodeRecord
from recipe.cpu.tiny_policy import make_tokenizer

PROTOCOL = get_protocol("think_xml", docs="signature")
SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)


@pytest.fixture(scope="module")
def tokenizer():
    texts = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL)]
    return make_tokenizer(texts)


@pytest.fixture
def play(make_loop, engine, tokenizer):
    """Plays one episode with an engine that says `replies`; returns verl's output and that engine."""

    def play(replies: list[Any], record_dir: Path | None = None, **settings: Any) -> tuple[Any, Any]:
        talker = engine(tokenizer, replies)
        row = {"extra_info": {"split": "train", "task_id": SCENARIO.id}, "uid": "u", "session_id": 2}

        async def run() -> Any:
            loop = make_loop(tokenizer, talker, record_dir=record_dir, **settings)
            return await loop.run({"temperature": 1.0}, **row, global_steps=7)

        return asyncio.run(run()), talker

    return play


def gold_replies() -> list[str]:
    return [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]


def test_vllm_is_not_asked_for_text_that_nobody_reads_and_another_engine_gets_no_word_of_it(play):
    for name, asked in (("vllm", {"detokenize": False}), ("sglang", {})):
        output, engine = play(gold_replies(), name=name)
        for sampling in engine.sampling:
            assert sampling == {"temperature": 1.0, "max_tokens": sampling["max_tokens"], **asked}
        assert output.extra_fields["episode"]["stop_reason"] == "completed"


def test_every_message_in_the_record_knows_its_tokens(play):
    output, engine = play(gold_replies())
    steps = [step for turn in output.extra_fields["episode"]["turns"] for step in turn["steps"]]
    assert [output.response_ids[slice(*step["tokens"])] for step in steps] == engine.outputs
    assert all(step["generate_seconds"] >= 0 and step["environment_seconds"] >= 0 for step in steps)
    episode = EpisodeRecord.from_dict(json.loads(json.dumps(output.extra_fields["episode"])))
    assert episode.to_dict() == output.extra_fields["episode"]


def test_the_first_weight_version_and_the_last_one_are_kept(play):
    output, engine = play(gold_replies())
    assert output.extra_fields["min_global_steps"] == 1
    assert output.extra_fields["max_global_steps"] == len(engine.prompts)


def test_a_reply_cut_by_its_limit_ends_the_episode_as_max_tokens(play):
    output, _ = play(gold_replies(), max_tokens_per_reply=5)
    episode = output.extra_fields["episode"]
    assert episode["stop_reason"] == "max_tokens"
    assert len(output.response_ids) == 5
    assert not any(turn["passed"] for turn in episode["turns"])


@pytest.mark.parametrize("limit", ["response_length", "max_model_len"])
def test_an_episode_without_room_for_a_reply_ends_and_never_exceeds_the_budget(play, limit):
    whole, _ = play(gold_replies())
    budget = len(whole.response_ids) // 2
    if limit == "max_model_len":
        budget += len(whole.prompt_ids)
    output, _ = play(gold_replies(), **{limit: budget})
    taken = len(output.response_ids) + (len(output.prompt_ids) if limit == "max_model_len" else 0)
    assert 0 < taken <= budget
    assert output.extra_fields["episode"]["stop_reason"] == "max_tokens"
    assert len(output.response_mask) == len(output.response_ids) == len(output.response_logprobs)
    assert output.response_mask[-1] == 1, "no environment tokens at the end that nothing answers"


def test_garbage_ends_with_a_stop_reason_and_at_least_one_token(play):
    for text in ("", "\x00", "<think>", "[" * 3000, "<tool_call>[]</tool_call>" * 50):
        output, _ = play([text] * 50)
        assert output.extra_fields["episode"]["stop_reason"] in {"format_errors", "max_tokens", "max_steps"}
        assert len(output.response_ids) >= 1


def test_the_record_is_written_with_its_score_and_kept_out_of_the_stored_fields(play, tmp_path):
    output, engine = play(gold_replies(), tmp_path)
    output.reward_score = 1.5
    output.extra_fields["reward_extra_info"] = {"score": 1.5, "note": "text"}
    fields = output.as_dict()
    assert "episode" not in fields["extra_fields"]
    assert not {"record_file", "record_header"} & set(fields)
    assert fields["rm_scores"].sum() == 1.5
    (line,) = (tmp_path / "train" / "000007.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert (record["score"], record["session_id"], record["task_id"]) == (1.5, 2, SCENARIO.id)
    assert record["engine_tokens"] == sum(map(len, engine.outputs))
    assert record["episode"]["turns"]


def test_the_trainer_is_told_the_part_of_the_task_beside_what_the_reward_says(play):
    output, _ = play(gold_replies())
    output.extra_fields["reward_extra_info"] = {"score": 1.5}
    assert output.as_dict()["extra_fields"]["reward_extra_info"] == {"score": 1.5, "part": "train"}


@pytest.mark.parametrize(("split", "part"), [("val", "guard"), ("train", "train")])
def test_a_validation_episode_of_a_guarded_source_is_the_guards(make_loop, engine, tokenizer, split, part):
    async def run() -> Any:
        loop = make_loop(tokenizer, engine(tokenizer, gold_replies()))
        loop.config = OmegaConf.merge(loop.config, {"environment": {"guarded": ["bfcl/base"]}})
        row = {"extra_info": {"split": split, "task_id": SCENARIO.id}, "data_source": "bfcl/base"}
        return await loop.run({"temperature": 1.0}, **row, global_steps=7)

    assert asyncio.run(run()).record_header["part"] == part
