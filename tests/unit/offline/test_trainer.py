"""What stands in for the agent loop offline: verl's trainer reads the same columns as of an episode that was played."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import verl.trainer.ppo.v1.agent_loop_tq as verls
from omegaconf import OmegaConf
from support.gold_episode import play
from support.gold_episode import tokenizer as gold_tokenizer
from support.stored import line, tokenizer, write_lines
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict

from interaction.episode_file import path_of
from recipe.offline import trainer
from recipe.offline.trajectories import Limits, read, survey
from rewards.step import compute_score

ROOMY = {"prompt": 5000, "response": 9000, "context": None, "reply": None, "final_only": False}


def test_verl_gets_the_columns_of_the_episode_as_it_was_played(make_loop: Any, engine: Any, tmp_path: Path) -> None:
    output, words = play(make_loop, engine, record_dir=tmp_path, record_tokens=True), gold_tokenizer()
    result = compute_score("bfcl/miss_func", "", "[]", {"episode": output.extra_fields["episode"]})
    output.reward_score, output.extra_fields["reward_extra_info"] = result["score"], dict(result)
    played = output.as_dict()
    limits = Limits(**ROOMY)
    found = survey([path_of(tmp_path, "train", 1)], limits, words, 2048)
    ((place,),) = found.items(grouped=False)
    again = trainer.output_of(read(place, limits, words), log_probs=True).as_dict()
    for name in ("prompts", "responses", "response_mask", "rollout_log_probs", "rm_scores", "step_ids", "turn_ids"):
        assert torch.equal(played[name], again[name]), name
    assert set(again) - {"reward_score"} == set(played) - {"reward_score"}
    numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
    assert again["extra_fields"]["reward_extra_info"] == pytest.approx(numbers)


def test_what_verl_draws_is_put_where_it_looks_for_what_was_played(tmp_path: Path, monkeypatch: Any) -> None:
    path = write_lines(tmp_path / "000001.jsonl", [line(uid=str(number)) for number in range(12)])
    stored = {"limits": ROOMY, "vocabulary": 2048, "grouped": False, "log_probs": True}
    config = OmegaConf.create({"paths": {"stage": str(tmp_path)}, "data": {"stored": stored}})
    data = trainer.StoredRows([str(path)], tokenizer=tokenizer(), config=config.data)
    tags, fields = dict[str, Any](), dict[str, Any]()

    async def put(keys: list[str], fields: Any, tags: list[Any], partition_id: str) -> None:
        for number, key in enumerate(keys):
            put_one(key, partition_id, tags[number], fields[number])

    def put_one(key: str, partition_id: str, tag: dict[str, Any], values: Any = None) -> None:
        assert partition_id == "train"
        tags[key], fields[key] = tag, values

    for module in (verls, trainer):
        monkeypatch.setattr(module, "tq", SimpleNamespace(async_kv_batch_put=put, kv_put=put_one))
    manager = trainer.StoredTrajectories.create(config=config, llm_client=None)
    batch = get_tensordict({**collate_fn([data[5], data[2]]), "uid": ["x", "y"]})
    assign_non_tensor_data(batch, "global_steps", 9)
    manager.generate_sequences(batch)
    assert set(tags) == {"x", "y", "x_0_0", "y_0_0"} and tags["x"] == {"status": "finished"}
    assert tags["x_0_0"]["global_steps"] == 9 and tags["x_0_0"]["seq_len"] == 9
    assert fields["x_0_0"]["input_ids"].tolist() == [1, 2, 3, 5, 6, 4, 7, 8, 9]
    assert fields["x_0_0"]["rm_scores"].tolist() == [0, 0.25, 0, 0, 0, 1.0]
    step = json.loads((tmp_path / "batches.jsonl").read_text())
    assert step["step"] == 9 and [place.rpartition(" ")[2] for place in step["trajectories"]] == ["6", "3"]
