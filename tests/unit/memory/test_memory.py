"""The estimate of memory: right where it was measured, refusing what cannot fit, and advising what does."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache

import pytest

from recipe.errors import PreflightError
from recipe.memory.__main__ import compose_stage, main
from recipe.memory.advice import advise, overrides, shortfalls
from recipe.memory.architecture import UnknownArchitecture, load_architecture, read_architecture, shipped_models
from recipe.memory.check import card_bytes, check_memory, nominal_bytes, problem
from recipe.memory.host import checkpoint_parts, host_parts
from recipe.memory.settings import Critic, read_settings
from recipe.memory.terms import cache_tokens, phases

GB = 1e9

PUBLISHED = {
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "llama-3.1-8b": 8_030_261_248,
}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("MODEL", "RUN", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_gpus(monkeypatch):
    monkeypatch.setenv("PATH", "")


@cache
def settings_for(card=80, stage="stage3", given=()):
    return read_settings(compose_stage(stage, list(given)), nominal_bytes(card))


def test_a_micro_batch_holds_the_longest_conversation_whatever_its_budget():
    found = settings_for(given=("data.max_response_length=57344",))
    assert (found.update_tokens, found.forward_tokens, found.longest) == (65536, 65536, 65536)
    cut = ("data.max_response_length=57344", "actor_rollout_ref.actor.ulysses_sequence_parallel_size=4")
    assert settings_for(given=cut).update_tokens == 32768


def test_the_parameters_of_each_model_are_as_many_as_published():
    assert {name: load_architecture(name).parameters for name in shipped_models()} == PUBLISHED


@pytest.mark.parametrize("stage", ["stage1", "stage3"])
def test_the_profile_for_eight_gpus_fits_80_gb(stage):
    for model in PUBLISHED:
        assert shortfalls(load_architecture(model), settings_for(stage=stage)) == []


def test_what_does_not_fit_is_refused_with_the_key_to_change(no_gpus):
    config = compose_stage("stage3", ["actor_rollout_ref.model.use_fused_kernels=false"])
    config.actor_rollout_ref.model.path = "qwen2.5-7b"
    with pytest.raises(PreflightError, match=r"update takes \d+ GB of 85.*logits.*use_fused_kernels=true"):
        check_memory(config)
    config.launcher.check_gpu_memory = False
    assert "does not fit" in check_memory(config)


@pytest.mark.parametrize("card", [24, 40, 80])
@pytest.mark.parametrize("change", [{}, {"packed": False}, {"shards": 1, "gpus": 1}, {"lora_rank": 32}])
def test_what_is_advised_fits_and_still_holds_the_longest_conversation(card, change):
    for model in map(load_architecture, PUBLISHED):
        before = replace(settings_for(), card=nominal_bytes(card), **change)
        better = advise(model, before)
        if better is None:
            assert shortfalls(model, before)
        else:
            assert shortfalls(model, better) == []
            assert min(better.update_tokens, better.forward_tokens, better.reference_tokens) >= better.longest


def test_the_advice_as_overrides_makes_the_settings_that_were_advised():
    before = settings_for(24)
    better = advise(load_architecture("qwen3-8b"), before)
    advice = overrides(before, better, prompt=8192)
    assert "data.max_response_length" in str(advice) and "tensor_model_parallel_size=2" in str(advice)
    assert settings_for(24, given=tuple(advice)) == better


def test_nothing_is_advised_where_nothing_is_wrong():
    before = settings_for()
    assert advise(load_architecture("qwen2.5-7b"), before) == before
    assert problem(load_architecture("qwen2.5-7b"), before, 8192) is None


def largest(model, settings):
    return {phase.name: phase.bytes for phase in phases(load_architecture(model), settings)}


@pytest.mark.parametrize(
    "change",
    [
        {"update_tokens": 65536, "forward_tokens": 131072, "reference_tokens": 131072},
        {"shards": 4},
        {"fused": False},
        {"packed": False},
        {"checkpointing": False},
        {"critic": Critic(4, param_offload=False, optimizer_offload=False, offload_policy=False)},
        {"deferred_gradients": True},
    ],
)
def test_what_costs_memory_costs_it_in_the_estimate(change):
    before = settings_for()
    less, more = largest("qwen3-8b", before), largest("qwen3-8b", replace(before, **change))
    assert all(more[name] >= less[name] for name in less)
    assert more["update"] > less["update"]


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        ({"lora_rank": 32}, "update"),
        ({"optimizer_offload": True}, "generation"),
        ({"param_offload": True}, "generation"),
        ({"offload_policy": True}, "update"),
        ({"model_bytes": 2}, "update"),
    ],
)
def test_what_saves_memory_saves_it_in_the_estimate(change, phase):
    before = settings_for()
    assert largest("qwen3-8b", replace(before, **change))[phase] < largest("qwen3-8b", before)[phase]


def test_an_engine_that_does_not_sleep_keeps_its_share_through_the_update():
    before = settings_for()
    kept = replace(before, engine=replace(before.engine, sleeps=False))
    assert "update takes" in str(shortfalls(load_architecture("qwen2.5-7b"), kept))


def test_a_stage_that_learns_from_stored_trajectories_has_no_engine():
    model = load_architecture("qwen2.5-7b")
    found = settings_for(stage="offline", given=("offline.files=x", "actor_rollout_ref.rollout.max_model_len=4096"))
    plays = replace(found, plays=True)
    assert found.longest == 4096 and {"generation", "weights"} == {
        *(phase.name for phase in phases(model, plays)),
    } - {phase.name for phase in phases(model, found)}
    assert not any("vLLM" in part.name for phase in phases(model, found) for part in phase.parts)
    small = replace(found, engine=replace(found.engine, utilization=0.01))
    assert not any("vLLM" in line for line in shortfalls(model, small))


def test_a_share_of_vllm_without_room_for_a_conversation_is_refused():
    tight = replace(settings_for(), card=nominal_bytes(24))
    assert "vLLM's share leaves room for 0 tokens" in str(shortfalls(load_architecture("qwen3-8b"), tight))


def test_the_cache_is_what_vllm_has_left():
    settings = settings_for()
    for model, tokens in (("qwen2.5-7b", 11200), ("qwen3-8b", 4300), ("qwen3-4b", 5200)):
        assert cache_tokens(load_architecture(model), settings) / 64 == pytest.approx(tokens, rel=0.03)


def test_a_tied_model_is_read_by_every_worker_and_an_untied_one_once():
    settings = settings_for()
    host = {m: sum(part.bytes for part in host_parts(load_architecture(m), settings)) / GB for m in PUBLISHED}
    assert host["qwen3-4b"] == pytest.approx(8 * 4 * 4.02 + 2 * 4.02, rel=0.01)
    assert host["qwen2.5-7b"] == pytest.approx(4 * 7.62 + 2 * 7.62, rel=0.01)


def test_training_that_lives_on_the_host_is_counted_there():
    settings = replace(settings_for(), offload_policy=True)
    parts = {part.name: part.bytes / GB for part in host_parts(load_architecture("qwen2.5-7b"), settings)}
    assert parts["offloaded training"] == pytest.approx(122, rel=0.01)


def test_a_checkpoint_of_a_7b_model_has_122_gb_and_with_lora_half_of_it():
    model = load_architecture("qwen2.5-7b")
    full, export = checkpoint_parts(model, settings_for())
    assert (full / GB, export / GB) == (pytest.approx(121.8, rel=0.01), pytest.approx(30.5, rel=0.01))
    assert checkpoint_parts(model, replace(settings_for(), lora_rank=32))[0] < 0.52 * full


def test_the_card_is_what_nvidia_smi_says_and_else_what_the_profile_says(tmp_path, monkeypatch):
    config = compose_stage("stage3", ["launcher.needs.gpu_memory_gb=40"])
    monkeypatch.setenv("PATH", "")
    assert card_bytes(config) == nominal_bytes(40)
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 81559\necho 24564\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert card_bytes(config) == pytest.approx(24564 * 2**20, rel=0.02)


def test_a_model_of_unknown_layers_is_told_and_not_refused(tmp_path, no_gpus):
    with pytest.raises(UnknownArchitecture, match="mixtral"):
        read_architecture({"model_type": "mixtral"}, "x")
    with pytest.raises(UnknownArchitecture, match="no hidden_size"):
        read_architecture({"model_type": "qwen2"}, "x")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mixtral"}))
    config = compose_stage("stage3", [f"actor_rollout_ref.model.path={tmp_path}"])
    assert "no estimate" in check_memory(config)


def test_the_cpu_profile_has_no_estimate():
    assert check_memory(compose_stage("stage3", ["hardware=tiny"])) == ""


def test_the_command_prints_a_table_and_its_status_says_whether_it_fits(capsys, no_gpus):
    assert main(["qwen2.5-7b", "--card", "80"]) == 0
    shown = capsys.readouterr().out
    assert "generation takes most" in shown and "checkpoints" in shown and "preemption" in shown
    assert main(["qwen2.5-7b", "--card", "24", "trainer.n_gpus_per_node=4"]) == 1
    assert "does not fit on 4 GPUs" in capsys.readouterr().out
    assert main(["no-such-model"]) == 2


def test_the_estimate_imports_no_torch():
    code = "import sys, recipe.memory.check, recipe.preflight.machine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("profile", "card"), [("gpu1", 80), ("gpu8_24gb", 24)])
def test_the_other_profiles_fit_what_they_are_for(profile, card):
    settings = settings_for(card, given=(f"hardware={profile}",))
    assert {model: shortfalls(load_architecture(model), settings) for model in PUBLISHED} == dict.fromkeys(
        PUBLISHED, []
    )


@pytest.mark.parametrize("model", ["qwen2.5-7b", "qwen3-8b"])
@pytest.mark.parametrize("gpus", [4, 8])
def test_the_profile_that_fits_is_named_and_fits(model, gpus, capsys):
    given = [model, "--card", "24", f"trainer.n_gpus_per_node={gpus}"]
    assert main(given) == 1
    said = capsys.readouterr().out
    assert (
        "It would fit with the profile hardware=gpu8_24gb and the same overrides. Changing less, it would fit with: "
        in said
    )
    assert main([*given, "hardware=gpu8_24gb"]) == 0


@pytest.mark.parametrize(
    "given",
    [
        ["--card", "16"],  # none fits
        ["--card", "24", "hardware=gpu1"],  # the other profiles are for 8 cards
        ["--card", "24", "hardware=gpu1", "trainer.n_gpus_per_node=8"],  # LoRA, and the one that fits trains everything
    ],
)
def test_no_profile_is_named_that_does_not_fit_or_is_for_other_cards(given, capsys):
    assert main(["qwen2.5-7b", *given]) == 1
    assert "with the profile" not in capsys.readouterr().out


@pytest.mark.parametrize(("card", "programs"), [("24", "25.5"), ("40", "42.5"), ("80", "85.0"), ("23.5", "25.0")])
def test_a_card_is_shown_in_the_unit_in_which_it_was_given(card, programs, capsys):
    main(["qwen2.5-7b", "--card", card])
    said = capsys.readouterr().out
    assert f"GPUs of {card} GB ({programs} x 10^9 bytes for programs)" in said.splitlines()[0]
    if "does not fit" in said:
        assert f"does not fit on 8 GPUs of {card} GB ({programs}" in said and f"GB of {programs}" in said


@pytest.mark.parametrize(("hardware", "model", "card"), [("gpu8_24gb", "qwen2.5-7b", 24), ("gpu1", "qwen3-4b", 80)])
def test_a_critic_is_counted_with_its_own_settings(hardware, model, card):
    model, resident = load_architecture(model), "critic.fsdp.offload_policy=false"
    both = [
        read_settings(compose_stage("stage3", [f"hardware={hardware}", "algorithm=appo", setting]), nominal_bytes(card))
        for setting in (resident, resident.replace("false", "true"))
    ]
    here, on_host = ({phase.name: phase.bytes for phase in phases(model, settings)} for settings in both)
    whole = 12 * model.parameters / both[0].shards  # parameters and two moments, whatever LoRA the policy has
    assert all(here[name] - on_host[name] == pytest.approx(whole) for name in here)
    assert here["generation"] > nominal_bytes(card) > on_host["generation"]
    first, second = (sum(part.bytes for part in host_parts(model, settings)) for settings in both)
    assert second - first == pytest.approx(16 * model.parameters)
    better = advise(model, both[0])
    assert better is not None and not shortfalls(model, better)
    if hardware == "gpu8_24gb":  # where the policy is on the host already
        assert "critic.fsdp.offload_policy=true" in overrides(both[0], better, 8192)


SIZES = {
    "model_type": "qwen2",
    **{"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100, "intermediate_size": 128},
    "num_hidden_layers": 2,
}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "null",
        "[" * 200_000,
        *[json.dumps({**SIZES, "hidden_size": value}) for value in ("wide", None, [], {}, float("inf"), float("nan"))],
        json.dumps({**SIZES, "num_attention_heads": 0}),
        json.dumps({**SIZES, "model_type": []}),
    ],
    ids=lambda text: text[:50],
)
def test_a_config_whose_sizes_cannot_be_read_is_of_no_known_architecture(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnknownArchitecture):
        load_architecture(str(tmp_path))
