"""A wrong attention is found before a start, whatever is wrong with it; the other form is taken, or nothing starts."""

import json
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig

from recipe.files import PreflightError
from recipe.gpu.attention import Bounds, bounds_of, sequence_by_sequence, varlen, varlen_repeat_kv
from recipe.gpu.selfcheck import LIMITS, errors, judge
from recipe.preflight import machine
from recipe.preflight.machine import choose_attention, head_shape
from recipe.preflight.model import load_settings
from recipe.settings import compose

SHAPE = {"heads": 6, "kv_heads": 2, "head_size": 16}


def wrong(compute):
    """An implementation from a function of (query, key, value, bounds) over tokens x heads x size."""

    def implementation(module, query, key, value, mask, position_ids=None, sliding_window=None):
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        return compute(q, k, v, bounds_of(position_ids))[None], None

    return implementation


right = sequence_by_sequence
WRONG = {
    "sequences see the ones before": lambda q, k, v, b: right(q, k, v, Bounds(b.cumulative[[0, -1]], len(q))),
    "query heads with other KV heads": lambda q, k, v, b: right(q, k.flip(1), v.flip(1), b),
    "the keys' gradient is doubled": lambda q, k, v, b: right(q, 2 * k - k.detach(), v, b),
    "not a number": lambda q, k, v, b: right(q, k, v, b).index_fill(0, torch.tensor([9]), torch.nan),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_attention_is_found_and_the_right_one_is_let_through(dtype):
    for name, compute in WRONG.items():
        verdict = judge(wrong(compute), **SHAPE, dtype=dtype)
        assert not verdict["right"] and "relative error" in verdict["says"], name
    for implementation in (varlen, varlen_repeat_kv):
        found = errors(implementation, 6, 2, 16, window=100, dtype=dtype)
        assert max(found.values()) < LIMITS[dtype] / 2, found


@pytest.fixture
def config(tmp_path: Path) -> DictConfig:
    shape = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 96}
    text = {"model_type": "qwen2", **shape, "sliding_window": 8, "use_sliding_window": False}
    (tmp_path / "config.json").write_text(json.dumps(text))
    return compose("stage2", ["hardware=gpu1", f"actor_rollout_ref.model.path={tmp_path}"])


def test_the_models_heads_are_tried_in_a_process_of_its_own(config):
    settings = load_settings(config.actor_rollout_ref.model.path)
    assert head_shape(settings, "") == SHAPE | {"window": None}
    (line,) = choose_attention(config, "cpu", settings)
    assert "varlen is right on cpu with" in line
    with pytest.raises(PreflightError, match="cannot be tried on a GPU: .*CUDA.*hardware=cpu"):
        machine.check_attention(config, settings, [])  # torch for CPUs


def test_kv_heads_are_repeated_only_where_the_grouped_form_is_wrong(config, monkeypatch: pytest.MonkeyPatch):
    for right, result in ((True, "varlen"), (False, "varlen_repeat_kv")):
        verdicts = {"varlen": {"right": right, "says": ""}, "varlen_repeat_kv": {"right": True, "says": ""}}
        answer = {"device": "H100", **verdicts}
        monkeypatch.setattr(machine, "run_selfcheck", lambda *_, answer=answer: answer)
        machine.check_attention(config, load_settings(config.actor_rollout_ref.model.path), [])
        assert config.actor_rollout_ref.model.override_config.attn_implementation == result
