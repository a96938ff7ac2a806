"""The estimate of memory: right where it was measured, refusing what cannot fit, and advising what does."""

import json
from dataclasses import replace
from functools import cache

import pytest

from benchmarks.bench_memory import Point, estimate, measure
from recipe import memory
from recipe.memory import GB, UnknownArchitecture, compose_stage, load_architecture, nominal_bytes, peaks, shortfalls

MEASURED = [
    # points, and GB as `python -m benchmarks.bench_memory --cuda` printed them on an H200
    (Point("qwen2.5-1.5b", 8192, "fused", "update", 1), 30.94),
    (Point("qwen2.5-1.5b", 32768, "fused", "update"), 11.94),
    (Point("qwen2.5-7b", 32768, "fused", "update"), 35.99),
    (Point("qwen2.5-7b", 65536, "fused", "forward"), 22.90),
    (Point("qwen3-8b", 32768, "fused", "update"), 38.93),
    (Point("qwen2.5-7b", 32768, "fused", "update", 1, 32), 49.80),
]


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "")
    for name in ("MODEL", "RUN", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@cache
def settings_for(card=80, stage="stage3", given=()):
    return memory.read_settings(compose_stage(stage, list(given)), nominal_bytes(card))


def test_the_estimate_is_within_two_percent_of_what_was_measured():
    sizes = [8_030_261_248, 1_543_714_304, 7_615_616_512, 4_022_468_096, 8_190_735_360]  # as published
    assert [load_architecture(name).parameters for name in sorted(memory.SHIPPED)] == sizes
    assert [estimate(point) / GB for point, _ in MEASURED] == pytest.approx([peak for _, peak in MEASURED], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["fused", "packed"])
def test_what_was_measured_can_be_measured_again(path):
    point = Point("qwen2.5-1.5b", 2048, path, "update")
    assert estimate(point) == pytest.approx(measure(point)[1], rel=0.15)


def test_the_figures_of_some_runs_are_what_they_were():
    for card, given, name, sizes, tokens, host, checkpoint in (
        # card, settings, model, GB of each phase, tokens of the cache, GB of the host and of a checkpoint
        (80, (), "qwen2.5-7b", (72.8, 26.3, 26.3, 39.9, 34.0), 717860, 45.7, 121.8),
        (80, ("hardware=gpu1",), "qwen3-4b", (57.0, 26.5, 34.9, 31.6), 190778, 16.1, 32.7),
        (24, ("hardware=gpu8_24gb",), "qwen3-8b", (20.9, 9.7, 9.7, 19.4, 15.8), 129841, 180.2, 131.1),
        (80, ("algorithm=appo",), "llama-3.1-8b", (85.4, 37.3, 53.2, 47.4), 310680, 32.1, 224.8),
        (40, ("actor_rollout_ref.model.lora_rank=32",), "qwen2.5-1.5b", (32.4, 9.1, 12.3, 10.0), 864765, 49.4, 12.6),
    ):
        model, settings = load_architecture(name), settings_for(card, given=given)
        found = tuple(round(size / GB, 1) for size in peaks(model, settings).values())
        assert (found, int(memory.cache_tokens(model, settings))) == (sizes, tokens), (name, given)
        assert round(sum(memory.host_parts(model, settings).values()) / GB, 1) == host, (name, given)
        assert round(memory.checkpoint_parts(model, settings)[0] / GB, 1) == checkpoint, (name, given)


def test_a_micro_batch_holds_the_longest_conversation_whatever_its_budget():
    found = settings_for(given=("data.max_response_length=57344",))
    assert (found.update_tokens, found.forward_tokens, found.longest) == (65536, 65536, 65536)
    cut = ("data.max_response_length=57344", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4")
    assert settings_for(given=cut).update_tokens == 32768


def test_what_costs_memory_costs_it_in_the_estimate_and_what_saves_it_saves_it():
    before, model = settings_for(), load_architecture("qwen3-8b")
    less = peaks(model, before)
    for change in (
        {"update_tokens": 65536, "forward_tokens": 131072, "reference_tokens": 131072},
        *({"shards": 4}, {"fused": False}, {"packed": False}, {"checkpointing": False}),
        {"critic": True},
    ):
        more = peaks(model, replace(before, **change))
        assert all(more[name] >= less[name] for name in less) and more["update"] > less["update"], change
    for change, phase in (
        *(({"lora_rank": 32}, "update"), ({"offload_policy": True}, "update"), ({"model_bytes": 2}, "update")),
        *(({"optimizer_offload": True}, "generation"), ({"param_offload": True}, "generation")),
    ):
        assert peaks(model, replace(before, **change))[phase] < less[phase], change


def test_what_is_advised_fits_and_is_said_as_overrides_that_make_it():
    for card in (24, 80):
        for change in ({}, {"packed": False}, {"shards": 1, "gpus": 1}, {"lora_rank": 32}):
            for model in map(load_architecture, ("qwen2.5-7b", "qwen3-4b")):
                before = replace(settings_for(), card=nominal_bytes(card), **change)
                better = memory.advise(model, before)
                assert bool(shortfalls(model, better or before)) is (better is None)
                if better:
                    assert min(better.update_tokens, better.forward_tokens) >= better.longest
    before = settings_for(24)
    better = memory.advise(load_architecture("qwen3-8b"), before)
    advice = memory.overrides(before, better, prompt=8192)
    assert "data.max_response_length" in advice
    assert settings_for(24, given=tuple(f"{key}={value}" for key, value in advice.items())) == better


def test_engines_keep_their_share_or_are_not_there():
    model, before = load_architecture("qwen2.5-7b"), settings_for()
    assert "update takes" in str(shortfalls(model, replace(before, sleeps=False)))
    assert "vLLM's share leaves room for 0 tokens" in str(shortfalls(model, replace(before, card=nominal_bytes(24))))
    found = settings_for(stage="offline", given=("offline.files=x", "actor_rollout_ref.rollout.max_model_len=4096"))
    names = {name for parts in memory.phases(model, found).values() for name in parts}
    assert found.longest == 4096 and not any("vLLM" in name for name in names)


def test_the_card_is_what_nvidia_smi_says_and_else_what_the_profile_says(tmp_path, monkeypatch):
    config = compose_stage("stage3", ["launcher.needs.gpu_memory_gb=40"])
    assert memory.card_bytes(config) == nominal_bytes(40)
    (tool := tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 81559\necho 24564\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert memory.card_bytes(config) == pytest.approx(24564 * 2**20, rel=0.02)


def test_a_model_that_cannot_be_estimated_is_told(tmp_path):
    sizes = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    sizes |= {"intermediate_size": 128, "num_hidden_layers": 2}
    changes = ({"num_attention_heads": 0}, {"model_type": "mixtral"}, {"vocab_size": None})
    for text in ("", "[]", "null", *(json.dumps({**sizes, **change}) for change in changes)):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UnknownArchitecture):
            load_architecture(str(tmp_path))


def test_the_status_of_the_command_says_whether_the_model_fits():
    for given, status in (
        (["qwen2.5-7b", "--card", "80"], 0),
        (["qwen2.5-7b", "--card", "24", "trainer.n_gpus_per_node=4"], 1),
        (["no-such-model"], 2),
        (["qwen2.5-7b", "hardware=tiny"], 2),
    ):
        assert memory.main(given) == status, given
