"""What is stored of an episode: with `interaction.record_tokens` exactly what verl got; readers pass over it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from verl.workers.rollout.replica import TokenOutput

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.episode_file import append, line_of, path_of
from recipe import rescore
from recipe.cpu.tiny_policy import make_tokenizer
from recipe.report import episodes
from rewards.step import compute_score

PROTOCOL = get_protocol("think_xml", docs="signature")
SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)
GOLD = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer([message["content"] for message in gold_messages(SCENARIO, PROTOCOL)])


@pytest.fixture
def play(make_loop, engine, tokenizer, tmp_path):
    """Plays and scores one episode of the run in `tmp_path`; gives verl's fields and the line."""

    def play(replies: list[Any] = GOLD, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        folder = tmp_path / "stage2_base" / "rollouts"

        async def run() -> Any:
            loop = make_loop(tokenizer, engine(tokenizer, replies), record_dir=folder, **settings)
            row = {"extra_info": {"split": "train", "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}
            return await loop.run({"temperature": 1.0}, **row, global_steps=1)

        output = asyncio.run(run())
        result = compute_score("bfcl/miss_func", "", "[]", {"episode": output.extra_fields["episode"]})
        output.reward_score, output.extra_fields["reward_extra_info"] = result["score"], result
        fields = output.as_dict()
        (line,) = path_of(folder, "train", 1).read_text().splitlines()
        return fields, json.loads(line)

    return play


@pytest.mark.parametrize(
    "settings", [{}, {"response_length": 300}, {"overlong": {"penalty": 1.0, "window": 1.0}}], ids=str
)
def test_the_stored_tokens_are_those_that_verl_got(play, settings):
    fields, line = play(record_tokens=True, **settings)
    tokens = line["tokens"]
    assert torch.equal(torch.tensor(tokens["prompt"]), fields["prompts"])
    assert torch.equal(torch.tensor(tokens["response"]), fields["responses"])
    assert torch.equal(torch.tensor(tokens["mask"]), fields["response_mask"])
    assert torch.equal(torch.tensor(tokens["logprobs"], dtype=torch.float32), fields["rollout_log_probs"])
    assert set(tokens) == {"prompt", "response", "mask", "logprobs"}
    for step in (step for turn in line["episode"]["turns"] for step in turn["steps"]):
        assert set(tokens["mask"][slice(*step["tokens"])]) == {1}
    assert sum(line["step_scores"]) == pytest.approx(fields["rm_scores"].sum().item(), abs=1e-5)


def test_log_probabilities_that_an_engine_does_not_give_are_null(play, tokenizer):
    said = [[*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id] for text in GOLD]
    fields, line = play([TokenOutput(token_ids=ids) for ids in said], record_tokens=True)
    assert line["tokens"]["logprobs"] is None and "rollout_log_probs" not in fields
    assert line["tokens"]["response"] == fields["responses"].tolist()


def test_tokens_are_stored_only_where_they_are_asked_for_and_never_handed_to_verl(play):
    fields, line = play()
    assert "tokens" not in line
    assert {"tokens", "record_tokens", "record_file", "record_header", "spans", "overlong_penalty"}.isdisjoint(fields)


def test_readers_of_stored_episodes_pass_over_the_tokens(play, tmp_path: Path):
    _, line = play(record_tokens=True)
    (place,) = episodes.choose([tmp_path / "stage2_base"], 10)
    assert "tokens" not in place.header and place.header["score"] == line["score"]
    (shown,) = episodes.load([place])
    (record,) = episodes.read_records(path_of(tmp_path / "stage2_base" / "rollouts", "train", 1))
    assert "tokens" not in shown and "tokens" not in record and record["episode"] == line["episode"]
    column = rescore.rescore(tmp_path, compute_score_of)["stage2_base", "train", "all"]
    assert column.both == [(line["score"], pytest.approx(line["score"]))]


def compute_score_of(**question: Any) -> dict[str, Any]:
    return compute_score(**question)


def test_a_line_begins_with_what_is_needed_to_choose_it_and_keeps_the_numbers_of_the_reward(tmp_path: Path):
    path = path_of(tmp_path / "new", "val", 12)
    reward = {"acc": 1.0, "flag": True, "note": "text", "nothing": None}
    tokens: Any = {"prompt": [1], "response": [2], "mask": [1], "logprobs": None}
    line = line_of({"step": 12}, score=0.5, reward=reward, episode={"turns": []}, step_scores=[0.5], tokens=tokens)
    append(path, line)
    append(path, {**line, "note": "ä\n"})
    assert path == tmp_path / "new" / "val" / "000012.jsonl"
    first, second = path.read_text(encoding="utf-8").splitlines()
    assert list(json.loads(first)) == ["step", "score", "reward", "episode", "step_scores", "tokens"]
    assert json.loads(first)["reward"] == {"acc": 1.0, "flag": True}
    assert json.loads(second)["note"] == "ä\n"
