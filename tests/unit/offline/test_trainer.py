"""What stands in for the agent loop offline: verl's trainer reads the same columns as of an episode that was played."""

import json
from dataclasses import replace
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import verl.trainer.ppo.v1.agent_loop_tq as verls
from omegaconf import OmegaConf
from support.gold_episode import play
from support.gold_episode import tokenizer as gold_tokenizer
from support.queue import Store, nested
from support.stored import line, tokenizer, write_lines
from transfer_queue import KVBatchMeta
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
    stored = replace(read(place, limits, words), truncated=True)
    without = trainer.output_of(stored, log_probs=False).as_dict()
    about = [without["extra_fields"][name] for name in ("min_global_steps", "max_global_steps", "truncated")]
    assert about == [0, 0, True] and "rollout_log_probs" not in without
    assert without["num_turns"] == 2 * len(stored.trajectory.spans)


def test_what_verl_draws_is_put_where_it_looks_for_what_was_played(tmp_path: Path, monkeypatch: Any) -> None:
    lines = [line(scores=(at / 8, 1.0), uid=str(at % 11), session=at // 11) for at in range(12)]
    path = write_lines(tmp_path / "000001.jsonl", lines)
    stored = {"limits": ROOMY, "vocabulary": 2048, "grouped": False, "log_probs": True}
    config = OmegaConf.create({"paths": {"stage": str(tmp_path)}, "data": {"stored": stored}})
    data = trainer.StoredRows([str(path)], tokenizer=tokenizer(), config=config.data)
    kept = path.rename(tmp_path / "elsewhere")  # a second data set, of the validation, does not read it again
    for most, length in ((-1, 12), (0, 12), (1, 1), (5, 5)):
        assert len(trainer.StoredRows([str(path)], tokenizer(), config.data, max_samples=most)) == length
    kept.rename(path)
    with pytest.raises(RuntimeError, match="have changed since the start"):
        trainer.StoredRows([str(write_lines(tmp_path / "bad.jsonl", [{}]))], tokenizer(), config.data)
    groups = OmegaConf.merge(config.data, {"stored": {"grouped": True}})
    assert len(grouped := trainer.StoredRows([str(path)], tokenizer(), groups)) == 1
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
    first, second = {"x_0_0": 5, "y_0_0": 1}, {"x_0_0": 0, "x_1_0": 11}
    for at, rows, scored in ((9, [data[6], data[2]], first), (10, [grouped[0]], second)):
        batch = get_tensordict({**collate_fn(rows), "uid": ["x", "y"][: len(rows)]})
        assign_non_tensor_data(batch, "global_steps", at)
        manager.generate_sequences(batch)
        assert tags["x_0_0"]["global_steps"] == at and tags["x_0_0"]["seq_len"] == 9
        assert fields["x_0_0"]["input_ids"].tolist() == [1, 2, 3, 5, 6, 4, 7, 8, 9]
        for key, number in scored.items():
            assert fields[key]["rm_scores"].tolist() == [0, number / 8, 0, 0, 0, 1.0], key
    assert set(tags) == {"x", "y", "x_0_0", "y_0_0", "x_1_0"} and tags["x"] == {"status": "finished"}
    steps = [json.loads(line) for line in (tmp_path / "batches.jsonl").read_text().splitlines()]
    said = [(step["step"], [place.rpartition(" ")[2] for place in step["trajectories"]]) for step in steps]
    assert said == [(9, ["6", "2"]), (10, ["1", "12"])]


@pytest.mark.parametrize("old, weighted", [("step", "token"), ("start", None), ("start", "token")])
def test_the_start_model_may_give_the_old_log_probabilities_and_what_corrects_for_them(old, weighted, monkeypatch):
    ref = [torch.tensor([-1.0, -0.5]), torch.tensor([-2.0])]
    sampled = [torch.tensor([-1.5, -0.25]), torch.tensor([-2.5])]
    masks = nested([torch.ones_like(one) for one in ref])
    store = Store(ref_log_prob=nested(ref), rollout_log_probs=nested(sampled), response_mask=masks)
    monkeypatch.setattr(trainer, "tq", store)
    monkeypatch.setattr(trainer.CurriculumTrainer, "_compute_advantage", lambda *_: "updated")
    monkeypatch.setattr(trainer.CurriculumTrainer, "__init__", lambda self, config: None)
    config = OmegaConf.create({"reward": {"num_workers": 8}, "actor_rollout_ref": {"rollout": {"nnodes": 0}}})
    one, metrics = trainer.OfflineTrainer(config), dict[str, float]()
    assert (config.reward.num_workers, config.actor_rollout_ref.rollout.nnodes) == (0, 1)
    assert not one._enable_hybrid_replicas and one.alarms({"train/format_rate": 0.0}) == []
    correction = {"rollout_is": weighted, "rollout_is_threshold": 9.0, "rollout_rs": None}
    one.config = OmegaConf.create({"offline": {"old_log_probs": old}, "algorithm": {"rollout_correction": correction}})
    batch = KVBatchMeta(partition_id="train", keys=["a_0_0", "b_0_0"], tags=[{}, {}])
    assert one._compute_advantage(batch, metrics) == "updated" and one._missing_share(4) == 0.0
    written = {name: values.tolist() for name, values in store.written.items()}
    weights = [[exp(0.5), exp(-0.25)], [exp(0.5), 0.0]]
    expected = {"old_log_probs": [[-1.0, -0.5], [-2.0, 0.0]]} if old == "start" else {}
    assert {name: rows for name, rows in written.items() if "weights" not in name} == expected
    assert [*map(pytest.approx, weights)] * (old == "start" and bool(weighted)) == written.get("rollout_is_weights", [])
    assert bool(metrics) is ("rollout_is_weights" in written)
