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
from interaction.agent_loop import ENGINE_ATTEMPTS
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


def test_a_gold_episode_has_exactly_the_token_ids_of_the_chat_template(play, tokenizer):
    output, engine = play(gold_replies())
    messages = gold_messages(SCENARIO, PROTOCOL, max_result_chars=300)
    whole = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    newline = tokenizer.encode("\n")
    assert output.prompt_ids + output.response_ids + newline == whole
    assert output.extra_fields["episode"]["stop_reason"] == "completed"
    assert all(turn["passed"] for turn in output.extra_fields["episode"]["turns"])


def test_vllm_is_not_asked_for_text_that_nobody_reads_and_another_engine_gets_no_word_of_it(play):
    for name, asked in (("vllm", {"detokenize": False}), ("sglang", {})):
        output, engine = play(gold_replies(), name=name)
        for sampling in engine.sampling:
            assert sampling == {"temperature": 1.0, "max_tokens": sampling["max_tokens"], **asked}
        assert output.extra_fields["episode"]["stop_reason"] == "completed"


def test_the_mask_is_one_on_engine_tokens_alone_and_log_probabilities_align(play):
    output, engine = play(gold_replies())
    marked = [token for token, mask in zip(output.response_ids, output.response_mask, strict=True) if mask]
    assert marked == [token for ids in engine.outputs for token in ids]
    pairs = list(zip(output.response_logprobs, output.response_mask, strict=True))
    assert [value for value, mask in pairs if mask] == [value for values in engine.log_probs for value in values]
    assert {value for value, mask in pairs if not mask} == {0.0}


def test_every_message_in_the_record_knows_its_tokens(play):
    output, engine = play(gold_replies())
    steps = [step for turn in output.extra_fields["episode"]["turns"] for step in turn["steps"]]
    assert [output.response_ids[slice(*step["tokens"])] for step in steps] == engine.outputs
    assert all(step["generate_seconds"] >= 0 and step["environment_seconds"] >= 0 for step in steps)
    episode = EpisodeRecord.from_dict(json.loads(json.dumps(output.extra_fields["episode"])))
    assert episode.to_dict() == output.extra_fields["episode"]


def test_each_prompt_extends_the_one_before_with_the_engines_own_ids(play, tokenizer):
    odd = tokenizer.encode("<think>x</think>", add_special_tokens=False)
    split = [tokenizer.encode(c, add_special_tokens=False)[0] for c in "<answer>done"]  # not how "done" is encoded
    reply = odd + split + tokenizer.encode("</answer>", add_special_tokens=False) + [tokenizer.eos_token_id]
    output, engine = play([reply] * len(SCENARIO.turns))
    for before, ids, after in zip(engine.prompts, engine.outputs, engine.prompts[1:], strict=False):
        assert after[: len(before) + len(ids)] == before + ids
    assert len(set(engine.requests)) == 1, "one request id an episode, so that the prefix cache works"


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


def test_an_engine_fault_is_answered_with_a_fresh_episode(play):
    replies = gold_replies()
    output, engine = play([replies[0], ConnectionError("gone"), *replies])
    assert all(turn["passed"] for turn in output.extra_fields["episode"]["turns"])
    assert len(set(engine.requests)) == 2


def test_a_dead_engine_gives_no_trajectory_instead_of_a_zero(play):
    output, engine = play([ConnectionError("gone")] * 10)
    assert output == []
    assert len(engine.prompts) == ENGINE_ATTEMPTS


def test_an_empty_reply_counts_as_an_engine_fault(play):
    assert play([[]] * 10)[0] == []


def test_an_engine_that_hangs_counts_as_an_engine_fault(play, engine):
    output, talker = play([engine.HANGS] * 10, engine_timeout=0.02)
    assert (output, len(talker.prompts)) == ([], ENGINE_ATTEMPTS)
    output, _ = play([engine.HANGS, *gold_replies()], engine_timeout=0.5)
    assert all(turn["passed"] for turn in output.extra_fields["episode"]["turns"])


def test_token_ids_that_no_tokenizer_has_are_never_trained_on(play, tokenizer):
    assert play([[-1, 5]] * 10)[0] == []
    assert play([[len(tokenizer), tokenizer.eos_token_id]] * 10)[0] == []


def test_a_fault_of_the_environment_ends_the_episode_with_its_own_reason(play, monkeypatch):
    def broken(self: Any, call: Any) -> None:
        raise OSError("disk")

    replies = gold_replies()
    monkeypatch.setattr("bfcl_env.Episode.execute", broken)
    output, _ = play(replies)
    episode = output.extra_fields["episode"]
    assert (episode["stop_reason"], episode["fault"]) == ("environment_error", "OSError: disk")


@pytest.mark.parametrize("text", ["", "\x00\ud800"[:1], "<think>", "[" * 3000, "<tool_call>[]</tool_call>" * 50])
def test_garbage_ends_with_a_stop_reason_and_at_least_one_token(play, text):
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
