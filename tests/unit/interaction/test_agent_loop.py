"""What the agent loop hands to the trainer and stores, token by token, with a scripted engine in place of vLLM."""

import asyncio
import json
import socket
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from support.gold_episode import GOLD, SCENARIO, tokenizer
from verl.utils.tokenizer.continuous_token import MergeResult

from interaction.conversation import Conversation
from interaction.episode_file import path_of
from interaction.gold import given_turns, most_given, play_first
from interaction.policy import FromGold
from interaction.protocol import get_protocol
from interaction.record import EpisodeRecord
from rewards.step import compute_score

XML = get_protocol("think_xml")


@pytest.fixture
def play(make_loop, engine, tmp_path):
    """Plays one episode, in a loop that `changed` may change; returns verl's output and the engine."""

    def play(changed: Any = None, split: str = "train", said: Any = GOLD, **settings: Any) -> tuple[Any, Any]:
        talker = engine(tokenizer(), said)

        async def run() -> Any:
            loop = make_loop(tokenizer(), talker, record_dir=tmp_path, **settings)
            if changed:
                changed(loop)
            info = {"split": split, "task_id": SCENARIO.id, "part": "dev"}
            row = {"extra_info": info, "data_source": "bfcl/miss_func", "uid": "u", "session_id": 2}
            return await loop.run({"temperature": 1.0}, **row, global_steps=7)

        return asyncio.run(run()), talker

    return play


def test_an_episode_without_room_for_a_reply_ends_and_never_exceeds_the_budget(play):
    whole, engine = play()
    assert len(play(docs="json")[0].prompt_ids) > (prompt := len(whole.prompt_ids))
    assert play(prompt_length=prompt)[0].prompt_ids == whole.prompt_ids
    assert play(prompt_length=prompt - 1)[0] == [], "verl would cut the beginning away, where the functions stand"
    half, second, longest = len(whole.response_ids) // 2, whole.spans[1].start, max(map(len, engine.outputs))
    for room in (15, 16):  # the least in which a reply fits
        for limits in ({"response_length": second + room}, {"max_model_len": prompt + second + room}):
            assert [span.start for span in play(**limits)[0].spans] == [0, second][: room - 14], limits
    for most, reason in ((longest, "completed"), (longest - 1, "max_tokens")):
        assert play(max_tokens_per_reply=most)[0].extra_fields["episode"]["stop_reason"] == reason
    for limits in ({"max_tokens_per_reply": 5}, {"response_length": half}, {"max_model_len": prompt + half}):
        output, _ = play(**limits)
        assert 0 < len(output.response_ids) <= limits.get("max_tokens_per_reply", half), limits
        assert output.extra_fields["episode"]["stop_reason"] == "max_tokens", limits
        assert len(output.response_mask) == len(output.response_ids) == len(output.response_logprobs)
        assert output.response_mask[-1] == 1, "no environment tokens at the end that nothing answers"


def test_the_engine_is_asked_with_verls_sampling_the_room_that_is_left_and_its_place_in_the_queue(play):
    asked: list[dict[str, Any]] = []

    def noted(loop: Any, **rollout: Any) -> None:
        generate = loop.server_manager.generate
        asked.clear()
        loop.rollout_config.update(rollout)

        async def ask(priority: int | None = None, **given: Any) -> Any:
            asked.append({**given, "priority": priority})
            await asyncio.sleep(0.01)
            return await generate(**given)

        loop.server_manager.generate = ask

    output, engine = play(changed=noted)
    sampled = [given["sampling_params"] for given in asked]
    left = [4096 - span.start for span in output.spans]
    fixed = {"temperature": 1.0, "detokenize": False, "stop_token_ids": engine.stops[0]}
    assert sampled == [{**fixed, "max_tokens": room} for room in left] and not any(given["priority"] for given in asked)
    assert output.num_turns == 2 * len(left), "system prompt, requests, results and messages but the last"
    steps = [step for turn in output.extra_fields["episode"]["turns"] for step in turn["steps"]]
    assert sum(step["generate_seconds"] for step in steps) == pytest.approx(output.metrics.generate_sequences, abs=2e-3)
    assert [output.response_ids[slice(*step["tokens"])] for step in steps] == engine.outputs
    versions = output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"]
    assert versions == (1, len(engine.prompts))
    play(changed=lambda loop: noted(loop, scheduling_policy="priority", name="sglang"))
    assert [given["priority"] for given in asked] == [-2 * number for number, _ in enumerate(left, 1)]
    assert "detokenize" not in asked[0]["sampling_params"]


def test_validation_has_turns_and_guards_of_its_own_and_each_worker_of_a_launch_in_a_cluster_a_file(play, monkeypatch):
    monkeypatch.setenv("BFCL_LAUNCHED", "20261122")
    monkeypatch.setenv("BFCL_LAUNCH", "second")

    def guarded(loop: Any) -> None:
        own = {"environment": {"guarded": ["bfcl/miss_func"]}, "interaction": {"val": {"max_steps_per_turn": 1}}}
        loop.config = OmegaConf.merge(loop.config, own)

    for split, part, end in (("val", "guard", "max_steps"), ("train", "dev", "completed")):
        output, _ = play(changed=guarded, split=split)
        assert (output.extra_fields["episode"]["stop_reason"], output.record_header["launch"]) == (end, "second")
        output.extra_fields["reward_extra_info"] = {"score": 1.5}
        told = output.as_dict()["extra_fields"]["reward_extra_info"]
        assert (output.record_header["part"], told["part"]) == (part, part)
        assert output.record_file.name.startswith(f"000007.20261122-{socket.gethostname()}-")


def test_the_token_that_verl_takes_from_a_step_is_the_environments(play):
    """A model may stop with the token that opens the next message (GLM): verl gives it to the environment."""
    ending = [tokenizer().eos_token_id, *tokenizer().encode("\n", add_special_tokens=False)]

    def merge(runtime: list[int], appended: list[int], **_: Any) -> MergeResult:
        assert runtime[-2:] == ending, "the end of the step, and the newline that the loop has restored"
        return MergeResult([*runtime, *appended], 2 + len(appended), kind="context", removed_prefix_token_count=2)

    def taken(loop: Any) -> None:
        loop.continuous_token_builder._merge_context_token_ids = merge

    for model_type in ("llama", "qwen2"):
        (plain, _), (output, _) = play(hf_model_type=model_type), play(changed=taken, hf_model_type=model_type)
        assert output.response_ids == plain.response_ids
        ends = [span.end for span in output.spans]
        assert ends == [span.end - 1 for span in plain.spans[:-1]] + [plain.spans[-1].end]
        pairs = zip(output.response_mask, plain.response_mask, strict=True)
        assert [place for place, (one, other) in enumerate(pairs) if one != other] == ends[:-1]


def test_the_stored_tokens_and_scores_are_those_that_verl_got_and_verl_stores_no_record(play, tmp_path):
    def scored(**settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Plays and scores one episode; gives verl's fields and the stored line."""
        output, _ = play(**settings)
        result = compute_score("bfcl/miss_func", "", "[]", {"episode": output.extra_fields["episode"]})
        output.reward_score, output.extra_fields["reward_extra_info"] = result["score"], {**result, "note": "text"}
        fields = output.as_dict()
        return fields, json.loads(path_of(tmp_path, "train", 7).read_text().splitlines()[-1])

    for settings in ({}, {"response_length": 300}, {"overlong": {"penalty": 1.0, "window": 1.0}}):
        fields, line = scored(record_tokens=True, **settings)
        tokens = line["tokens"]
        assert list(line)[-5:] == ["score", "reward", "episode", "step_scores", "tokens"]
        assert "note" not in line["reward"]
        assert torch.equal(torch.tensor(tokens["prompt"]), fields["prompts"])
        assert torch.equal(torch.tensor(tokens["response"]), fields["responses"])
        assert torch.equal(torch.tensor(tokens["mask"]), fields["response_mask"])
        assert torch.equal(torch.tensor(tokens["logprobs"], dtype=torch.float32), fields["rollout_log_probs"])
        for step in (step for turn in line["episode"]["turns"] for step in turn["steps"]):
            assert set(tokens["mask"][slice(*step["tokens"])]) == {1}
        for score in (sum(line["step_scores"]), line["score"]):
            assert score == pytest.approx(fields["rm_scores"].sum().item(), abs=1e-5)
    fields, line = scored()
    assert "episode" not in fields["extra_fields"] and "tokens" not in line
    assert {"tokens", "record_tokens", "record_file", "record_header", "spans", "overlong_penalty"}.isdisjoint(fields)
    told = {"step": 7, "split": "train", "uid": "u", "session_id": 2, "environment": "bfcl", "launch": None}
    told |= {"task_id": SCENARIO.id, "category": SCENARIO.category, "cluster": SCENARIO.cluster, "part": "dev"}
    told |= {"prompt_tokens": len(fields["prompts"]), "response_tokens": len(fields["responses"])}
    told |= {"engine_tokens": int(fields["response_mask"].sum())}
    assert line.items() >= told.items() and line["episode"]["turns"] and "given_turns" not in line


def test_behind_turns_that_gold_has_played_the_model_is_judged_and_learns_by_its_own_alone(play):
    whole, _ = play()
    turns, spans = whole.extra_fields["episode"]["turns"], whole.spans
    first = most_given(SCENARIO)
    left = [step["text"] for turn in turns[first:] for step in turn["steps"]]
    output, _ = play(said=left, policy={"from_gold": {"share": 1.0, "steps": 10**6}})
    episode = output.extra_fields["episode"]
    assert (len(episode["given"]), len(episode["turns"])) == (first, len(turns) - first) and first
    assert output.prompt_ids + output.response_ids == whole.prompt_ids + whole.response_ids
    assert output.spans == spans[-len(left) :]
    learned = {place for span in output.spans for place in range(span.start, span.end)}
    assert learned == {place for place, mask in enumerate(output.response_mask) if mask}
    assert EpisodeRecord.from_dict(episode).to_dict() == episode
    result = compute_score("bfcl/miss_func", "", "[]", {"episode": episode})
    output.reward_score, output.extra_fields["reward_extra_info"] = result["score"], result
    fields = output.as_dict()
    assert fields["extra_fields"]["reward_extra_info"]["given_turns"] == first
    assert fields["rm_scores"].nonzero().min() >= output.spans[0].start
    with Conversation(SCENARIO, XML, calls_per_message="first") as one:
        one.begin()
        given = [given_turns(one, FromGold(share=1.0, steps=4), step) for step in range(1, 6)]
        drawn, again = ([given_turns(one, FromGold(share=0.4, steps=10**6), step) for step in range(40)] for _ in "ab")
        with pytest.raises(RuntimeError, match="does not pass"):
            play_first(one, first)
    assert given == [first, 3, 2, 1, 0] and {*drawn} == {1, 2} and drawn == again, "the same in all attempts"
    later, _ = play(policy={"from_gold": {"share": 1.0, "steps": 6}})  # it is step 7
    assert later.response_mask == whole.response_mask
