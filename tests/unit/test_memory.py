"""The estimate of memory: right where it was measured, refusing what cannot fit, and advising what does."""

import json
import subprocess
from dataclasses import replace
from functools import cache

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.bench_memory import Point, estimate, measure
from recipe import memory
from recipe.memory import GB, UnknownArchitecture, load_architecture, nominal_bytes, peaks, shortfalls
from recipe.settings import compose

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


@cache
def settings_for(card=80, stage="stage3", given=()):
    return memory.read_settings(compose(stage, ["hardware=gpu8", *given]), nominal_bytes(card))


def test_the_estimate_is_within_two_percent_of_what_was_measured():
    sizes = [8_030_261_248, 1_543_714_304, 7_615_616_512, 4_022_468_096, 8_190_735_360]  # as published
    assert [load_architecture(name).parameters for name in sorted(memory.SHIPPED)] == sizes
    assert [estimate(point) / GB for point, _ in MEASURED] == pytest.approx([peak for _, peak in MEASURED], rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["fused", "packed"])
def test_what_was_measured_can_be_measured_again(path):
    point = Point("qwen2.5-1.5b", 2048, path, "update")
    assert estimate(point) == pytest.approx(measure(point)[1], rel=0.15)


MODEL, ACTOR, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "rollout"))
PADDED = {"packed": False, "fused": False, "tensor_parallel": 2}
LORA, WHOLE = {"checkpointing": False, "lora_rank": 16, "fused": False, "shards": 4}, {"fused": False, "entropy": False}
AWAKE = {"param_offload": True, "optimizer_offload": True, "sleeps": False, "model_bytes": 2}
AWAKE |= {"update_tokens": 600, "forward_tokens": 600, "reference_tokens": 400}
SMALL = {"plays": False, "update_tokens": 400, "forward_tokens": 100, "shards": 1}
ADAPTER = {"update_tokens": 10, "packed": False, "shards": 1, "lora_rank": 8, "fused": False}
AWAY = [{"critic_param_offload": True}, {"critic_optimizer_offload": True, "critic_bytes": 2}]
AWAY += [{"critic_offload": True, "param_offload": True, "nodes": 4}]
FIGURES = [
    # card, model, overrides, other settings; GB of each phase, tokens of the cache, GB of the host and of a checkpoint
    (80, "qwen2.5-7b", (), {}, (72.752, 26.341, 26.341, 39.884, 33.982), 717860, 45.694, 121.85),
    (80, "qwen3-4b", ("hardware=gpu1",), {}, (56.951, 26.549, 34.917, 31.631), 190778, 16.09, 32.708),
    (24, "qwen3-8b", ("hardware=gpu8_24gb",), {}, (20.934, 9.697, 9.697, 19.363, 15.828), 129841, 180.196, 131.052),
    (80, "llama-3.1-8b", ("algorithm=appo",), {}, (76.915, 37.284, 53.166, 47.4), 245800, 32.121, 224.847),
    (40, "qwen2.5-1.5b", (f"{MODEL}.lora_rank=32",), {}, (32.391, 9.059, 12.283, 9.996), 864765, 49.399, 12.645),
    (80, "qwen3-8b", (), PADDED, (73.614, 300.52, 300.52, 451.409, 28.114), 669985, 49.144, 131.052),
    (80, "qwen3-8b", (), WHOLE, (73.614, 122.272, 122.272, 85.263, 36.304), 275349, 49.144, 131.052),
    (80, "qwen2.5-7b", (), LORA, (69.065, 117.507, 117.507, 449.294, 30.295), 717860, 45.694, 61.248),
    (80, "qwen2.5-1.5b", (), AWAKE, (65.142, 64.168, 63.352, 67.098, 65.142), 1902856, 37.049, 15.437),
    (80, "qwen2.5-7b", (), SMALL, (94.726, 104.505, 155.035), 717860, 45.694, 121.85),
    (80, "qwen2.5-1.5b", (), ADAPTER, (67.614, 290.18, 290.18, 10.018, 15.454), 1902856, 52.486, 12.424),
    (80, "llama-3.1-8b", ("algorithm=tppo",), AWAY[0], (72.9, 33.269, 49.151, 43.385), 245800, 64.242, 224.847),
    (80, "llama-3.1-8b", ("algorithm=tppo",), AWAY[1], (66.877, 27.246, 43.128, 37.362), 245800, 64.242, 176.666),
    (80, "llama-3.1-8b", ("algorithm=tppo",), AWAY[2], (60.854, 25.239, 41.12, 31.34), 245800, 72.272, 224.847),
]


def test_the_figures_of_some_runs_are_what_they_were():
    for card, name, given, change, *expected in FIGURES:
        model, settings = load_architecture(name), replace(settings_for(card, given=given), **change)
        sizes = tuple(round(size / GB, 3) for size in peaks(model, settings).values())
        rest = sum(memory.host_parts(model, settings).values()), memory.checkpoint_parts(model, settings)[0]
        found = [sizes, int(memory.cache_tokens(model, settings)), *(round(size / GB, 3) for size in rest)]
        assert found == expected, (name, given, change)


MICRO, ULYSSES = "micro_batch_size_per_gpu", "ulysses_sequence_parallel_size"
READ = {
    # overrides, and what they change of what is read from the stage without them
    f"trainer.nnodes=2 {ACTOR}.fsdp_config.fsdp_size=9": {"nodes": 2, "shards": 9, "sequences": 32},
    f"{ACTOR}.fsdp_config.fsdp_size=8": {},
    f"{ACTOR}.fsdp_config.fsdp_size=1": {"shards": 1},
    f"{ACTOR}.use_dynamic_bsz=false {ACTOR}.ppo_{MICRO}=3": {
        **{"update_tokens": 98304, "forward_tokens": 32768, "reference_tokens": 32768}
    },
    f"{ROLLOUT}.log_prob_use_dynamic_bsz=false {ROLLOUT}.log_prob_{MICRO}=null": {"forward_tokens": 32768},
    f"{ROLLOUT}.max_model_len=null": {},
    f"{ROLLOUT}.max_model_len=20000": {"context": 20000},
    f"{ACTOR}.entropy_coeff=0": {"entropy": False},
    f"{ACTOR}.entropy_coeff=0 {ACTOR}.calculate_entropy=true": {},
    "algorithm.rollout_correction.bypass_mode=true": {"old_log_probs": False},
    f"{ACTOR}.use_kl_loss=false": {"reference": False},
    f"{ACTOR}.use_kl_loss=false algorithm.use_kl_in_reward=true": {},
    f"{MODEL}.lora_rank=8": {"lora_rank": 8, "reference": False},
    "actor_rollout_ref.ref.fsdp_config.model_dtype=fp32": {"reference_bytes": 4},
    "critic.fsdp.model_dtype=bf16": {"critic_bytes": 2},
    f"critic.fsdp.model_dtype=float16 {ACTOR}.fsdp_config.model_dtype=fp16": {"critic_bytes": 2, "model_bytes": 2},
    f"{ACTOR}.fsdp_config.model_dtype=float32": {},
    f"{ACTOR}.fsdp_config.model_dtype=bfloat16": {"model_bytes": 2},
    "trainer=separate": {"plays": False},
    f"{ROLLOUT}.max_num_seqs=9 {ROLLOUT}.tensor_model_parallel_size=2": {"tensor_parallel": 2, "sequences": 9},
    f"data.train_batch_size=63 {ROLLOUT}.n=7": {"sequences": 56},
    f"trainer.n_gpus_per_node=1 {ROLLOUT}.tensor_model_parallel_size=2 {ROLLOUT}.max_num_seqs=9999": {
        **{"gpus": 1, "shards": 1, "tensor_parallel": 2, "sequences": 512}
    },
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes=3": {"bucket": 3 * 2**20},
    f"{ACTOR}.{ULYSSES}=3 {ACTOR}.ppo_max_token_len_per_gpu=1": {"update_tokens": 10923},
    f"{ACTOR}.fsdp_config.{ULYSSES}=2 {ROLLOUT}.log_prob_max_token_len_per_gpu=1": {"forward_tokens": 16384},
    "data.max_response_length=57344": {"longest": 65536, "update_tokens": 65536},  # a micro-batch holds the longest one
}


def test_settings_that_a_user_gives_are_those_that_are_counted():
    for given, changed in READ.items():
        assert settings_for(given=tuple(given.split())) == replace(settings_for(), **changed), given


UPDATE, SHARE = "actor.ppo_max_token_len_per_gpu", "rollout.gpu_memory_utilization"
OFF, WIDE = "actor.fsdp_config.offload_policy=true", "rollout.tensor_model_parallel_size"
ONE, KEPT = "trainer.n_gpus_per_node=1 data.max_response_length=2000", f"{ROLLOUT}.free_cache_engine=false"
UNFUSED = f"{MODEL}.use_fused_kernels=false actor_rollout_ref.{SHARE}=0.95"
ADVICE = [
    # card, model, overrides, and the settings with which it would fit
    (24, "qwen3-8b", "", f"{UPDATE}=28672 {OFF} {WIDE}=2 rollout.max_model_len=28672 data.max_response_length=20480"),
    (50, "deep", "", f"{UPDATE}=12288 {OFF} {WIDE}=8 rollout.max_model_len=12288 data.max_response_length=4096"),
    (16, "qwen3-8b", "data.max_response_length=2048", f"{UPDATE}=10240 {OFF} {WIDE}=4"),
    (40, "llama-3.1-8b", "algorithm=tppo", OFF),
    (30, "qwen3-4b", "algorithm=tppo trainer.n_gpus_per_node=2", f"{OFF} critic.fsdp.offload_policy=true"),
    (85, "qwen3-4b", f"{ONE} {ROLLOUT}.max_model_len=250000", "actor.fsdp_config.optimizer_offload=true"),
    (50, "qwen3-8b", f"data.max_response_length=24000 {ROLLOUT}.max_model_len=40000", f"{SHARE}=0.65"),
    (44, "qwen3-8b", f"{ROLLOUT}.max_num_batched_tokens=65536", f"{SHARE}=0.6 rollout.max_num_batched_tokens=8192"),
    (99, "qwen3-4b", f"{ONE} {KEPT} actor_rollout_ref.{SHARE}=0.21", f"{SHARE}=0.16"),
    (100, "qwen3-4b", f"{ONE} {KEPT} actor_rollout_ref.{SHARE}=0.2", OFF),
    (40, "qwen2.5-7b", UNFUSED, f"model.use_fused_kernels=true {SHARE}=0.6"),
    (80, "qwen3-8b", f"{MODEL}.use_remove_padding=false", "model.use_remove_padding=true"),
]


def test_what_is_advised_fits_and_is_said_as_overrides_that_make_it():
    models = {name: load_architecture(name) for name in memory.SHIPPED}
    models["deep"] = replace(models["llama-3.1-8b"], layers=300)
    assert memory.advise(models["qwen2.5-7b"], replace(settings_for(24), gpus=1, shards=1)) is None
    for card, name, given, expected in ADVICE:
        before = settings_for(card, given=tuple(given.split()))
        better = memory.advise(models[name], before)
        advice = [f"{key}={value}" for key, value in memory.overrides(before, better, prompt=8192).items()]
        assert " ".join(advice).replace("actor_rollout_ref.", "") == expected, name
        after = settings_for(card, given=(*given.split(), *advice))
        assert replace(after, sequences=better.sequences) == better


def test_engines_keep_their_share_or_are_not_there_and_the_last_byte_and_token_count():
    model, before = load_architecture("qwen2.5-7b"), settings_for()
    found = settings_for(stage="offline", given=("offline.files=x", f"{ROLLOUT}.max_model_len=4096"))
    names = {name for parts in memory.phases(model, found).values() for name in parts}
    assert (found.longest, found.context, found.plays) == (4096, 4096, False)
    assert not any("vLLM" in name for name in names)
    alone, room = replace(before, plays=False), int(memory.cache_tokens(model, before))
    most = max(peaks(model, alone).values())
    for settings, lines in (
        *((replace(alone, card=most / 0.95 + 1), 0), (replace(alone, card=most / 0.95 - 1), 1)),
        *((replace(before, context=room), 0), (replace(before, context=room + 1), 1)),
        (replace(alone, context=room + 1), 0),
    ):
        assert len(shortfalls(model, settings)) == lines, settings
    assert "all of them at full length" in memory.cache_line(model, replace(before, sequences=2))


def test_the_card_is_what_nvidia_smi_says_and_else_what_the_profile_says(tmp_path, monkeypatch):
    config = compose("stage3", ["hardware=gpu8", "launcher.needs.gpu_memory_gb=40"])
    assert memory.card_bytes(config) == nominal_bytes(40) == 40 * 2**30 * 0.99
    (tool := tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 81559\necho 24564\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert memory.card_bytes(config) == 24564 * 2**20 * 0.99
    late = subprocess.TimeoutExpired("nvidia-smi", 20)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: (_ for _ in ()).throw(late))
    assert memory.card_bytes(config) == nominal_bytes(40)


def test_a_model_is_counted_as_transformers_makes_it_and_one_that_is_not_known_is_told(tmp_path):
    sizes = {"model_type": "qwen2", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    sizes |= {"intermediate_size": 128, "num_hidden_layers": 2}
    for kind, more in (
        *(("qwen2", {"num_key_value_heads": 2}), ("qwen3", {"num_key_value_heads": 1, "head_dim": 8})),
        ("qwen2", {"num_attention_heads": 6, "num_key_value_heads": 2}),  # of 10 dimensions and not 10.7
        *(("llama", {"tie_word_embeddings": True}), ("mistral", {"num_key_value_heads": 4, "head_dim": 32})),
    ):
        values = {"num_key_value_heads": 4, "tie_word_embeddings": False, **sizes, **more, "model_type": kind}
        (tmp_path / "config.json").write_text(json.dumps(values))
        with torch.device("meta"):
            made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
        for name in (tmp_path, tmp_path / "config.json"):
            assert load_architecture(str(name)).parameters == made.num_parameters(), kind
    changes = ({"num_attention_heads": 0}, {"model_type": "mixtral"}, {"vocab_size": None})
    for text in ("", "[]", "null", "{}", "[" * 200_000, *(json.dumps({**sizes, **change}) for change in changes)):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UnknownArchitecture):
            load_architecture(str(tmp_path))
    for name in ("/proc/self/mem", "x" * 5000, "~no_such_user/m"):  # cannot be read, nor be there
        with pytest.raises(UnknownArchitecture):
            load_architecture(name)


TAUGHT = ("qwen3-4b", "algorithm=opd", f"{memory.TEACHER}.model_path=qwen3-8b", "--card")
SERVED = f"{memory.TEACHER}.inference"
TOLD = {
    # arguments of the command, its status, and what it prints
    ("qwen2.5-7b", "--card", "80"): (
        *(0, "7.62 billion parameters, stage3_full, fits on 8 GPUs of 80 GB (85.0 x", "takes most: 72.8 of 85.0 GB"),
        "                    generation   log-probs   reference      update     weights\n",
        "checkpoints                                                    6.6\n",
        "left of the card          12.3        58.7        58.7        45.2        51.1\n",
        "59.5 GB for vLLM; 717,860 tokens for 64 conversations, 11,217 each; at full length (32768) 21 at once",
        *("host: 110 GB: processes 64, reference 15, loading, saving 30\n", "122 GB a checkpoint, 30 GB an exported"),
    ),
    ("qwen3-4b", "hardware=gpu1", "--card", "10.46"): (
        *(1, "does not fit on 1 GPUs of 10.5 GB (11.1 x", "generation takes 24 of 10.6 GB; log-probs takes 27 of 10.6"),
        *("update takes 35 of 10.6 GB; weights takes 32 of 10.6 GB", "room for 0 tokens of a conversation's 32768"),
        "5.0 GB for vLLM; 0 tokens for 128 conversations, 0 each; at full length (32768) 0 at once",
        "more or larger cards, LoRA, or a smaller model",
    ),
    (*TAUGHT, "24", f"{SERVED}.max_num_batched_tokens=8192"): (1, "room for 15976 of 32769", "15,976 tokens of"),
    (*TAUGHT, "80", f"{SERVED}.max_num_batched_tokens=16384"): (1, "takes 25.5 GB beside", "4 cards"),
    (*TAUGHT, "80", f"{SERVED}.gpu_memory_utilization=0.2"): (1, "room for 0 of 32769", " 0 tokens of cache"),
    (*TAUGHT, "80"): (0, "host: 128 GB: processes 64, loading 64\n", "16.4, 341,896 tokens of cache, 6.8 beside"),
    ("qwen3-4b", "algorithm=opd_topk", *TAUGHT[2:], "80"): (
        1,
        "101 of",
        "offload_policy=true",
        "max_response_length=20480",
    ),
    ("qwen3-4b", "algorithm=opd", f"{memory.TEACHER}.model_path=none"): (0, "GPU memory of the teacher: none"),
    ("qwen3-4b", "--config-name", "stage1"): (0,),
    ("no-such-model",): (2,),
    ("qwen2.5-7b", "hardware=tiny", "--card", "80"): (2,),
    ("qwen2.5-7b", "launcher.needs.gpu_memory_gb=null"): (2,),
}


def test_the_command_says_whether_the_model_fits_and_what_takes_how_much(capsys):
    for given, (status, *words) in TOLD.items():
        assert memory.main([*given]) == status, given
        said = capsys.readouterr().out
        assert [one for one in words if one not in said] == [], given
    taught = [["algorithm=opd", f"{memory.TEACHER}.model_path={name}"] for name in ("qwen3-8b", "none")]
    bytes_of = [memory.teacher_on_host(compose("stage3", ["hardware=gpu8", *given])) for given in ([], *taught)]
    assert bytes_of == [0, 2.5 * GB + 8 * load_architecture("qwen3-8b").parameters, 2.5 * GB]
