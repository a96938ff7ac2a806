"""The packed attention and its trial before a start; what GPU profiles compute, and what a trial keeps of a run."""

import gc
import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from support.runs import STAGE, validated, write_metrics
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention.varlen import varlen_attn

from benchmarks.gpu import trial
from recipe.files import PreflightError
from recipe.gpu import attention
from recipe.gpu.attention import Bounds, bounds_of, flash, sequence_by_sequence, varlen, varlen_repeat_kv
from recipe.gpu.selfcheck import LIMITS, errors, judge
from recipe.preflight import machine
from recipe.preflight.machine import choose_attention, head_shape
from recipe.preflight.model import load_settings
from recipe.settings import compose

HEADS, KV_HEADS, SIZE, SCALE = 6, 2, 8, 0.3
MODULE = SimpleNamespace(is_causal=True)
LENGTHS = [5, 1, 40, 3]


@pytest.fixture(autouse=True)
def one_thread():
    """A second one gains nothing on tensors this small, and waits for the first on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def positions(lengths: list[int]) -> torch.Tensor:
    return torch.cat([torch.arange(length) for length in lengths])[None]


def random_rows(tokens: int) -> list[torch.Tensor]:
    """Query, key and value as transformers hands them over: (1, heads, tokens, size)."""
    torch.manual_seed(0)
    return [torch.randn(1, n, tokens, SIZE, requires_grad=True) for n in (HEADS, KV_HEADS, KV_HEADS)]


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: list[int], window: int = 10**6) -> torch.Tensor:
    """Softmax attention with the whole mask written out: (1, heads, tokens, size) to (1, tokens, heads, size)."""
    sequence = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    index = torch.arange(len(sequence))
    back = index[:, None] - index[None, :]
    seen = (sequence[:, None] == sequence[None, :]) & (back >= 0) & (back < window)
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) * SCALE).masked_fill(~seen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2)


def test_output_and_gradients_are_those_of_attention_within_each_sequence():
    for implementation, window in itertools.product((varlen, varlen_repeat_kv), (None, 4, 40)):
        q, k, v = random_rows(sum(LENGTHS))
        how = {"scaling": SCALE, "position_ids": positions(LENGTHS), "sliding_window": window}
        out, weights = implementation(MODULE, q, k, v, None, **how)
        expected = by_hand(q, k, v, LENGTHS, window or 10**6)
        assert weights is None and out.shape == (1, sum(LENGTHS), HEADS, SIZE)
        weight = torch.randn_like(out)
        ours, theirs = (torch.autograd.grad((x * weight).sum(), (q, k, v)) for x in (out, expected))
        for mine, other in zip((out, *ours), (expected, *theirs), strict=True):
            torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_bounds_are_those_of_the_tensor_as_it_is():
    for lengths in ([3, 5], [5, 3], [8], [1, 7]):  # the same shape, and usually the same address
        ids = positions(lengths)
        bounds = bounds_of(ids)
        assert bounds.cumulative.diff().tolist() == lengths and bounds.longest == max(lengths)
        del ids, bounds
        gc.collect()
    ids = positions([3, 5])
    bounds_of(ids)
    ids[:] = positions([2, 6])
    assert bounds_of(ids).cumulative.tolist() == [0, 2, 8]


def test_what_the_attention_does_not_compute_is_refused():
    for ids in ([1, 2, 3], [0, 1, 3], [0, 1, 1]):
        with pytest.raises(ValueError, match="varlen reads from position ids"):
            bounds_of(torch.tensor([ids]))
    q, k, v = random_rows(8)
    call = {"module": MODULE, "query": q, "key": k, "value": v, "attention_mask": None, "position_ids": positions([8])}
    for change, words in (
        ({"attention_mask": torch.ones(1, 8)}, "an attention mask.*use_remove_padding=true"),
        ({"dropout": 0.1}, "dropout"),
        ({"module": SimpleNamespace(is_causal=False)}, "attention to later tokens"),
        ({"s_aux": torch.ones(HEADS)}, "s_aux"),
        ({"softcap": 30.0}, "softcap"),
        ({"query": torch.randn(1, HEADS, 1, SIZE), "position_ids": torch.zeros(1, 1)}, "keys from a cache"),
    ):
        with pytest.raises(ValueError, match=words):
            varlen(**(call | change))


@pytest.mark.parametrize("window", [None, 4])
def test_the_gpu_kernel_is_called_in_its_own_form(window, monkeypatch: pytest.MonkeyPatch):
    """Without a GPU: shapes and types of PyTorch's own function, forward and backward, on tensors without numbers."""
    seen = []
    monkeypatch.setattr(attention, "varlen_attn", lambda *a, **k: seen.append(k) or varlen_attn(*a, **k))
    with FakeTensorMode(allow_non_fake_inputs=True):
        empty = {"dtype": torch.bfloat16, "requires_grad": True}
        q, k, v = (torch.empty(49, heads, SIZE, **empty) for heads in (HEADS, KV_HEADS, KV_HEADS))
        bounds = Bounds(torch.empty(5, dtype=torch.int32), 40)
        out = flash(q, k, v, bounds, 0.5, window)
        assert out.shape == q.shape and out.dtype == torch.bfloat16
        out.sum().backward()
        assert k.grad is not None and k.grad.shape == k.shape
        with pytest.raises(TypeError, match="half precision.*fsdp_config.mixed_precision=null"):
            flash(q.float(), k.float(), v.float(), bounds)
    assert (seen[0]["window_size"], seen[0]["scale"]) == ((-1, 0) if window is None else (3, 0), 0.5)


SHAPE = {"heads": 6, "kv_heads": 2, "head_size": 16}


def wrong(compute):
    """An implementation from a function of (query, key, value, bounds) over tokens x heads x size."""

    def implementation(module, query, key, value, mask, position_ids=None, sliding_window=None):
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        return compute(q, k, v, bounds_of(position_ids))[None], None

    return implementation


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_wrong_attention_is_found_and_the_right_one_is_let_through(dtype):
    right = sequence_by_sequence
    for name, compute in {
        "sequences see the ones before": lambda q, k, v, b: right(q, k, v, Bounds(b.cumulative[[0, -1]], len(q))),
        "query heads with other KV heads": lambda q, k, v, b: right(q, k.flip(1), v.flip(1), b),
        "the keys' gradient is doubled": lambda q, k, v, b: right(q, 2 * k - k.detach(), v, b),
        "not a number": lambda q, k, v, b: right(q, k, v, b).index_fill(0, torch.tensor([9]), torch.nan),
    }.items():
        verdict = judge(wrong(compute), **SHAPE, dtype=dtype)
        assert not verdict["right"] and "relative error" in verdict["says"], name
    for implementation in (varlen, varlen_repeat_kv):
        found = errors(implementation, 6, 2, 16, window=100, dtype=dtype)
        assert max(found.values()) < LIMITS[dtype] / 2, found


def test_the_models_heads_are_tried_and_kv_heads_repeated_only_where_the_grouped_form_is_wrong(tmp_path, monkeypatch):
    shape = {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 96}
    text = {"model_type": "qwen2", **shape, "sliding_window": 8, "use_sliding_window": False}
    (tmp_path / "config.json").write_text(json.dumps(text))
    config = compose("stage2", ["hardware=gpu1", f"actor_rollout_ref.model.path={tmp_path}"])
    settings = load_settings(config.actor_rollout_ref.model.path)
    assert head_shape(settings, "") == SHAPE | {"window": None}
    of_mistral = SimpleNamespace(num_attention_heads=6, hidden_size=96, sliding_window=8)  # which has no such switch
    assert head_shape(of_mistral, "") == SHAPE | {"kv_heads": 6, "window": 8}
    (line,) = choose_attention(config, "cpu", settings)
    assert "varlen is right on cpu with" in line
    with pytest.raises(PreflightError, match="cannot be tried on a GPU: .*CUDA.*hardware=cpu"):
        machine.check_attention(config, settings, [])  # torch for CPUs
    for right, result in ((True, "varlen"), (False, "varlen_repeat_kv")):
        verdicts = {"varlen": {"right": right, "says": ""}, "varlen_repeat_kv": {"right": True, "says": ""}}
        answer = {"device": "H100", **verdicts}
        monkeypatch.setattr(machine, "run_selfcheck", lambda *_, answer=answer: answer)
        machine.check_attention(config, settings, [])
        assert config.actor_rollout_ref.model.override_config.attn_implementation == result


ROOT = Path(__file__).parents[3]
TRAINED = {"tied": "embed_tokens", "untied": "lm_head", "untied_lora": "lora_", "untied_window": "lm_head"}


def test_packed_and_fused_gradients_are_those_of_padded_rows_and_logits(tmp_path: Path):
    """Two processes, half a minute each."""
    command = [sys.executable, "benchmarks/gpu_path_gradients.py", "--json", str(tmp_path / "found.json")]
    subprocess.run(command, cwd=ROOT, check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    for model, trained in TRAINED.items():
        exact, rounded = found[f"{model} fp32"], found[f"{model} bf16"]
        assert max(tensor["difference"] for tensor in exact.values()) <= 1e-4, model
        assert min(tensor["cosine"] for tensor in rounded.values()) >= 0.99, model
        assert any(trained in name for name in exact), model


CODE = """
import sys, verl, recipe.gpu.platform, verl.checkpoint_engine
from verl.plugin.platform.platform_cuda import PlatformCUDA
print("vllm" in sys.modules, PlatformCUDA().is_ipc_supported())
"""


def test_no_process_imports_vllm_for_another_makers_engine_and_one_variable_does_without_cuda_ipc():
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["verl.plugins"]
    assert "recipe.gpu.platform" in plugins.values()
    for given, supported in (({}, True), ({"BFCL_CUDA_IPC": "0"}, False)):
        environment = {name: value for name, value in os.environ.items() if name != "VERL_PLATFORM"} | given
        done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, cwd=ROOT, env=environment)
        assert done.stdout.split() == ["False", str(supported)], done.stderr


def test_a_trial_keeps_seconds_norms_and_memory_beside_its_estimate(tmp_path: Path) -> None:
    run, step = tmp_path / "run", {"actor/lr": 1e-4, "actor/grad_norm": 0.25, "critic/score/mean": 0.5}
    step |= {"timing_s/step": 4.0, "timing_s/gen": 3.0, "actor/perf/max_memory_allocated_gb": 10.0, "not/kept": 1.0}
    write_metrics(run, STAGE, "1.jsonl", [(1, step), (2, step | {"actor/grad_norm": float("nan")})])
    validated(run, 0, {"a": [1.0]})
    config = compose("stage1", ["hardware=gpu1", "actor_rollout_ref.model.path=qwen2.5-7b"])
    (run / STAGE / "config").mkdir()
    OmegaConf.save(config, run / STAGE / "config" / "resolved.yaml", resolve=True)
    (run / "logs").mkdir()
    (run / "logs" / "steps.txt").write_text(f"data 0 90 95\n{STAGE} 1 100 160\n")
    (run / "logs" / "memory.txt").write_text("99 70000\n120 50000\n121\n130 40000\n")
    trial.main(run, tmp_path)
    memory, metrics = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("memory", "metrics"))
    found = memory[STAGE]
    assert (found["card"], found["trainer"]) == (52.43, 10.74) and 60 < found["estimate"] < 80
    assert metrics[STAGE]["1"]["parts"]["generation"] == 3.0 and "not/kept" not in metrics[STAGE]["1"]
    summary = (tmp_path / "summary.md").read_text()
    for row in ("| stage1_format | 1 | 60 |", "| stage1_format | 2 | 4.0 | generation 3.0, rest 1.0 |"):
        assert row in summary
