"""From a reward to rewards on tokens: record, tokens and verl's fields agree, and long episodes pay."""

import json
import math

import pytest
from support.gold_episode import GOLD, SCENARIO, play, scored

from interaction.token_rewards import Span, number_tokens, overlong_penalty


def test_the_price_of_length_rises_from_nothing_to_all_of_it_over_the_window():
    prices = [overlong_penalty(used, 100, False, window=0.2, penalty=3.0) for used in (0, 80, 85, 90, 100, 200)]
    assert prices == pytest.approx([0, 0, 0.75, 1.5, 3.0, 3.0])
    assert overlong_penalty(10, 100, True, window=0.2, penalty=3.0) == 3.0, "a cut episode pays all of it"
    for mask in ([1, 1, 0, 1], [1, 0, 0, 0]):
        with pytest.raises(ValueError, match=f"the response mask has {sum(mask)} tokens of the model"):
            number_tokens([Span(0, 0, 2)], mask)


def test_a_long_episode_pays_with_any_reward_and_record_and_metrics_show_it(make_loop, engine, tmp_path):
    def paid(split="train", scores=None, **settings):
        fields = scored(play(make_loop, engine, split, record_dir=tmp_path, **settings), scores)
        path = tmp_path / split / "000001.jsonl"
        (line,) = path.read_text().splitlines()
        path.unlink()
        return fields, json.loads(line)

    whole = play(make_loop, engine)
    length, context = len(whole.response_ids), len(whole.prompt_ids + whole.response_ids)
    fields, line = paid(max_model_len=context + 20, overlong={"penalty": 0.5, "window": 0.5})
    price = overlong_penalty(length, length + 20, False, window=0.5, penalty=0.5)
    assert [fields["rm_scores"].sum(), line["score"]] == pytest.approx([1.0 - price] * 2)
    assert line["reward"] == {"score": 1.0, "mine": 7, "overlong_penalty": pytest.approx(price)}
    scores = [0.5] * len(GOLD)
    fields, line = paid(scores=scores, overlong={"penalty": 0.0})
    ends = [step["tokens"][1] - 1 for turn in line["episode"]["turns"] for step in turn["steps"]]
    assert fields["rm_scores"].nonzero()[:, 0].tolist() == ends and line["step_scores"] == scores
    info = fields["extra_fields"]["reward_extra_info"]
    assert info.pop("part") == SCENARIO.part and all(isinstance(value, int | float) for value in info.values())
    fields, line = paid(scores=scores, overlong={"penalty": 4.0, "window": 1.0}, response_length=4096)
    price = 4.0 * length / 4096
    assert line["step_scores"] == [*scores[1:], pytest.approx(0.5 - price)], "the last step pays"
    assert math.fsum(line["step_scores"]) == pytest.approx(line["score"]) == pytest.approx(fields["rm_scores"].sum())
    fields, line = paid(response_length=length - 5, overlong={"penalty": 0.5})
    assert line["score"] == 0.5 and fields["extra_fields"]["truncated"] is True
    for split, penalty in (("val", 0.5), ("train", 0.0)):
        fields, line = paid(split, overlong={"penalty": penalty, "window": 1.0})
        assert line["score"] == fields["rm_scores"].sum().item() == 1.0 and "overlong_penalty" not in line["reward"]
