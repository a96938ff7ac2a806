"""A wrong attention is found before a start, whatever is wrong with it; the other form is taken, or nothing starts."""

import json
from pathlib import Path

import pytest
import torch
from omegaconf import DictConfig, OmegaConf

from recipe.files import PreflightError
from recipe.gpu.attention import Bounds, bounds_of, sequence_by_sequence, varlen, varlen_repeat_kv
from recipe.gpu.selfcheck import LENGTHS, LIMITS, errors, judge
from recipe.preflight import machine
from recipe.preflight.machine import choose_attention, head_shape

SHAPE = {"heads": 6, "kv_heads": 2, "head_size": 16}


@pytest.fixture(autouse=True)
def one_thread():
    """A second one gains nothing on tensors this small, and waits for the first on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def wrong(compute):
    """An implementation from a function of (query, key, value, bounds) over tokens x heads x size."""

    def implementation(module, query, key, value, mask, position_ids=None, sliding_window=None):
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        return compute(q, k, v, bounds_of(position_ids))[None], None

    return implementation


class KeyGradientDoubled(torch.autograd.Function):
    """Right forward, wrong backward."""

    @staticmethod
    def forward(ctx, key):
        return key.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def last_token_forgotten(q, k, v, bounds):
    """Nothing attends to the last token of a sequence, as with a length off by one."""
    outputs = []
    for start, end in zip(bounds.cumulative[:-1].tolist(), bounds.cumulative[1:].tolist(), strict=True):
        part = Bounds(torch.tensor([0, end - start]), end - start)
        v_cut = v[start:end].clone()
        v_cut[-1] = 0.0
        outputs.append(sequence_by_sequence(q[start:end], k[start:end], v_cut, part))
    return torch.cat(outputs)


def groups_interleaved(q, k, v, bounds):
    """Query head h with KV head h modulo their number instead of h divided by the group's size."""
    groups = q.shape[1] // k.shape[1]
    return sequence_by_sequence(q, k.repeat(1, groups, 1), v.repeat(1, groups, 1), bounds)


def one_row(q, k, v, bounds):
    """Sequences see the ones before them."""
    return sequence_by_sequence(q, k, v, Bounds(bounds.cumulative[[0, -1]], len(q)))


WRONG = {
    "sequences see the ones before": one_row,
    "groups interleaved": groups_interleaved,
    "the last token forgotten": last_token_forgotten,
    "wrong backward": lambda q, k, v, b: sequence_by_sequence(q, KeyGradientDoubled.apply(k), v, b),
    "not a number": lambda q, k, v, b: sequence_by_sequence(q, k, v, b).index_fill(0, torch.tensor([9]), torch.nan),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_attention_is_found(name, dtype):
    verdict = judge(wrong(WRONG[name]), **SHAPE, dtype=dtype)
    assert not verdict["right"] and "relative error" in verdict["says"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("window", [None, 100])
@pytest.mark.parametrize("heads", [(6, 2), (6, 6), (7, 1)])
@pytest.mark.parametrize("implementation", [varlen, varlen_repeat_kv])
def test_the_right_one_is_let_through(implementation, heads, window, dtype):
    found = errors(implementation, *heads, 16, window=window, dtype=dtype)
    assert max(found.values()) < LIMITS[dtype] / 2, found
    assert len(LENGTHS) > 2 and set(found) == {"output", "query", "key", "value"}


@pytest.fixture
def config(tmp_path: Path) -> DictConfig:
    text = {
        "model_type": "qwen2",
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_size": 96,
        "sliding_window": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(text | {"sliding_window": 8, "use_sliding_window": False}))
    model = {
        "path": str(tmp_path),
        "use_remove_padding": True,
        "external_lib": "recipe.gpu.plugin",
        "override_config": {"attn_implementation": "varlen"},
    }
    part = {"ulysses_sequence_parallel_size": 1, "fsdp_config": {"ulysses_sequence_parallel_size": 1}}
    parts = {"model": model, "actor": part, "ref": part}
    trainer = {"device": "cuda", "nnodes": 1}
    return OmegaConf.create({"preflight_only": False, "trainer": trainer, "actor_rollout_ref": parts})


def check_gpu(config: DictConfig) -> str:
    """The lines for the log."""
    notes: list[str] = []
    machine.check_attention(config, notes)
    return "\n".join(notes)


def test_the_models_heads_are_tried_in_a_process_of_its_own(config):
    assert head_shape(config.actor_rollout_ref.model.path) == SHAPE | {"window": None}
    (line,) = choose_attention(config, "cpu")
    assert "varlen is right on cpu with" in line and "relative error of output 0.00" in line
    with pytest.raises(PreflightError, match="cannot be tried on a GPU: .*CUDA.*hardware=cpu"):
        check_gpu(config)  # torch for CPUs


@pytest.mark.parametrize(
    ("varlen_right", "repeat_right", "result"), [(True, True, "varlen"), (False, True, "varlen_repeat_kv")]
)
def test_kv_heads_are_repeated_only_where_the_grouped_form_is_wrong(
    config, varlen_right, repeat_right, result, monkeypatch: pytest.MonkeyPatch
):
    answer = {
        "device": "H100",
        "varlen": {"right": varlen_right, "says": "figures one"},
        "varlen_repeat_kv": {"right": repeat_right, "says": "figures two"},
    }
    monkeypatch.setattr(machine, "run_selfcheck", lambda device, shape: answer)
    line = check_gpu(config)
    assert config.actor_rollout_ref.model.override_config.attn_implementation == result
    assert ("figures one" in line) and (("figures two" in line) is not varlen_right)
