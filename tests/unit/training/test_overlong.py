"""Long episodes: what their length costs, with whatever reward, and that cut ones do not train where that is asked."""

import asyncio
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.queue import Store, nested
from tensordict import NonTensorStack
from transfer_queue import KVBatchMeta

from bfcl_env import load_scenarios
from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.overlong import overlong_penalty
from recipe.cpu.tiny_policy import make_tokenizer
from recipe.training.left_out import leave_out_cut_episodes

PROTOCOL = get_protocol("think_xml", docs="signature")
SCENARIO = next(item for item in load_scenarios("multi_turn_miss_func") if item.index == 93)
GOLD = [message["content"] for message in gold_messages(SCENARIO, PROTOCOL) if message["role"] == "assistant"]


@given(
    used=st.integers(0, 3000),
    budget=st.integers(1, 3000),
    window=st.floats(0.01, 1.0),
    penalty=st.floats(0.01, 10.0),
)
def test_the_price_rises_from_nothing_to_all_of_it_over_the_window(used, budget, window, penalty):
    price = overlong_penalty(used, budget, False, window=window, penalty=penalty)
    assert 0 <= price <= penalty
    assert price <= overlong_penalty(used + 1, budget, False, window=window, penalty=penalty)
    if used <= (1 - window) * budget:
        assert price == 0
    if used >= budget:
        assert price == pytest.approx(penalty)
    assert overlong_penalty(used, budget, True, window=window, penalty=penalty) == penalty


@pytest.fixture
def play(make_loop, engine, tmp_path):
    """Plays gold and scores it as verl does; gives verl's fields and the line of the record."""
    tokenizer = make_tokenizer(GOLD)

    def run(split: str = "train", step_scores: list[float] | None = None, **settings: Any) -> tuple[dict, dict]:
        row = {"extra_info": {"split": split, "task_id": SCENARIO.id}, "uid": "u", "session_id": 0}

        async def episode() -> Any:
            loop = make_loop(tokenizer, engine(tokenizer, GOLD), record_dir=tmp_path, **settings)
            return await loop.run({"temperature": 1.0}, **row, global_steps=1)

        output = asyncio.run(episode())
        output.reward_score = 1.0 if step_scores is None else math.fsum(step_scores)
        info = {"score": output.reward_score, "mine": 7}
        output.extra_fields["reward_extra_info"] = info | ({"step_scores": step_scores} if step_scores else {})
        fields, path = output.as_dict(), tmp_path / split / "000001.jsonl"
        (line,) = path.read_text().splitlines()
        path.unlink()
        return fields, json.loads(line)

    return run


def test_a_long_episode_pays_with_any_reward_and_record_and_metrics_show_it(play):
    length = len(play()[0]["response_mask"])
    fields, line = play(response_length=length + 20, overlong={"penalty": 0.5, "window": 0.5})
    price = overlong_penalty(length, length + 20, False, window=0.5, penalty=0.5)
    assert 0.3 < price < 0.5
    assert fields["rm_scores"].sum().item() == pytest.approx(1.0 - price)
    assert line["score"] == pytest.approx(1.0 - price)
    assert line["reward"] == {"score": 1.0, "mine": 7, "overlong_penalty": pytest.approx(price)}
    assert fields["extra_fields"]["reward_extra_info"]["overlong_penalty"] == pytest.approx(price)
    scores = [0.5] * len(GOLD)
    fields, line = play(step_scores=scores, overlong={"penalty": 4.0, "window": 1.0}, response_length=4096)
    price = line["reward"]["overlong_penalty"]
    assert price > 0 and line["step_scores"] == [*scores[1:], pytest.approx(0.5 - price)], "the last step pays"
    assert math.fsum(line["step_scores"]) == pytest.approx(line["score"]) == pytest.approx(fields["rm_scores"].sum())
    fields, line = play(response_length=length - 5, overlong={"penalty": 0.5})
    assert line["episode"]["stop_reason"] == "max_tokens"
    assert line["score"] == 0.5 and fields["extra_fields"]["truncated"] is True
    for split, penalty in (("val", 0.5), ("train", 0.0)):
        fields, line = play(split, overlong={"penalty": penalty, "window": 1.0})
        assert line["score"] == fields["rm_scores"].sum().item() == 1.0 and "overlong_penalty" not in line["reward"]


def test_a_step_of_cut_episodes_alone_stops():
    cut = NonTensorStack(*({"truncated": row < 3} for row in range(4)))
    store = Store(response_mask=nested([torch.ones(2)] * 4), extra_fields=cut)
    tags = [{"is_padding": row == 3} for row in range(4)]
    batch = KVBatchMeta(partition_id="train", keys=[f"u{row}_0_0" for row in range(4)], tags=tags)
    with pytest.raises(RuntimeError, match="cut all 3 episodes"):
        leave_out_cut_episodes(store, batch)
