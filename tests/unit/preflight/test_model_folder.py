"""A model folder that is not whole is one line that names the file and what is wrong with it."""

import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recipe.errors import PreflightError
from recipe.preflight.model_folder import fault
from recipe.preflight.start import start_model

CONFIG = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 64}
TENSORS = {"a.weight": ("F32", [3, 4]), "b.weight": ("BF16", [8]), "scale": ("F32", [])}
WIDTHS = {"F32": 4, "BF16": 2}


def safetensors(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (kind, shape) in tensors.items():
        first, end = end, end + WIDTHS[kind] * math.prod(shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [first, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(index % 251 for index in range(end))


def write_model(folder: Path, weights: str = "one") -> Path:
    folder.mkdir(parents=True)
    for name, content in {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": 2},
        "tokenizer_config.json": {"tokenizer_class": "X"},
        "tokenizer.json": {"model": {}},
    }.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    if weights == "one":
        (folder / "model.safetensors").write_bytes(safetensors(TENSORS))
    elif weights == "zip":
        write_zip(folder / "pytorch_model.bin")
    else:
        parts = {name: f"model-0000{number}-of-00003.safetensors" for number, name in enumerate(TENSORS, 1)}
        for name, part in parts.items():
            (folder / part).write_bytes(safetensors({name: TENSORS[name]}))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    return folder


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"pickled" * 9)
        file.writestr("archive/data/0", bytes(range(200)))
    content = path.read_bytes()
    for place in (entry.start() for entry in re.finditer(b"PK\x01\x02", content)):  # torch gives no file modes
        content = content[: place + 38] + bytes(4) + content[place + 42 :]
    path.write_bytes(content)


def said(folder: Path) -> str:
    """The line on a folder that is not whole."""
    line = fault(folder)
    assert line is not None and "\n" not in line and len(line) < 500
    assert str(folder) in line
    return line


@pytest.mark.parametrize("weights", ["one", "zip", "parts"])
def test_a_whole_folder_has_no_fault(tmp_path: Path, weights: str) -> None:
    folder = write_model(tmp_path / "m", weights)
    assert fault(folder) is None and start_model(str(folder)) == str(folder)
    for name in ("model.safetensors.bak", "config.json.old", ".hidden", "pytorch_model.bin.part", "notes.json"):
        (folder / name).write_text("{")
    assert fault(folder) is None


def changed_settings(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        settings = {key: value for key, value in {**CONFIG, **values}.items() if value != "absent"}
        (folder / "config.json").write_text(json.dumps(settings))

    return change


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def to_folder(name: str) -> Callable[[Path], None]:
    return lambda folder: ((folder / name).unlink(), (folder / name).mkdir()) and None


def to_pipe(name: str) -> Callable[[Path], None]:
    return lambda folder: ((folder / name).unlink(missing_ok=True), os.mkfifo(folder / name)) and None


def to_itself(name: str) -> Callable[[Path], None]:
    return lambda folder: ((folder / name).unlink(missing_ok=True), (folder / name).symlink_to(name)) and None


def to_nothing(name: str) -> Callable[[Path], None]:
    return lambda folder: ((folder / name).unlink(missing_ok=True), (folder / name).symlink_to("nowhere")) and None


def grown(name: str) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, 40 * 2**30)


def header(**entry: Any) -> bytes:
    text = json.dumps({"a": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(48)


GOOD = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
PART = "model-00002-of-00003.safetensors"
HARMS: dict[str, tuple[str, Callable[[Path], Any], str]] = {
    "no config": ("one", removed("config.json"), "no config.json"),
    "no model_type": ("one", changed_settings(model_type="absent"), "no model_type"),
    "model_type is a number": ("one", changed_settings(model_type=3), "no model_type"),
    "a billion layers": ("one", changed_settings(num_hidden_layers=10**9), "num_hidden_layers=1000000000; expected"),
    "no architectures": ("one", changed_settings(architectures="absent"), "architectures=None"),
    "two architectures": ("one", changed_settings(architectures=["A", "B"]), "architectures=['A', 'B']"),
    "architectures as text": ("one", changed_settings(architectures="A"), "architectures='A'"),
    **{
        f"{name} {how}": ("one", written(name, content), name)
        for name in ("config.json", "generation_config.json", "tokenizer_config.json")
        for how, content in {
            "empty": b"",
            "zeros": bytes(50),
            "list": b"[]",
            "null": b"null",
            "cut": b'{"model_type": "qw',
            "utf-16": '{"a": 1}'.encode("utf-16"),
            "latin-1": b'{"model_type": "caf\xe9"}',
            "bom": b"\xef\xbb\xbf{}",
            "deep": b'{"a":' * 200_000,
        }.items()
    },
    **{
        f"{name} {harm.__name__}": (weights, harm(name), name)
        for weights, name in [
            *[
                ("one", name)
                for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
            ],
            *[("one", name) for name in ("generation_config.json", "chat_template.jinja")],
            ("zip", "pytorch_model.bin"),
            ("parts", "model.safetensors.index.json"),
            ("parts", PART),
        ]
        for harm in (to_folder, to_pipe, to_itself, to_nothing, grown)
    },
    "no tokenizer": (
        "one",
        lambda folder: [(folder / n).unlink() for n in ("tokenizer.json", "tokenizer_config.json")],
        "no tokenizer",
    ),
    "template in another encoding": ("one", written("chat_template.jinja", b"\xff\xfe{"), "chat_template.jinja"),
    "no weights": ("one", removed("model.safetensors"), "has no weights"),
    "no zip": ("zip", removed("pytorch_model.bin"), "has no weights"),
    "no index": ("parts", removed("model.safetensors.index.json"), "has no weights"),
    "no part": ("parts", removed(PART), f"{PART} is missing; model.safetensors.index.json names it"),
    "part of another model": ("parts", written(PART, safetensors({"x": ("F32", [1])})), "lacks 1 tensors"),
    "index outside": (
        "parts",
        written("model.safetensors.index.json", b'{"weight_map": {"a": "../m/model.safetensors"}}'),
        "not in the folder",
    ),
    "index without map": ("parts", written("model.safetensors.index.json", b"{}"), "weight_map=None"),
    "index of numbers": ("parts", written("model.safetensors.index.json", b'{"weight_map": {"a": 1}}'), "weight_map="),
    "index a list": ("parts", written("model.safetensors.index.json", b"[]"), "expected an object"),
    "empty weights": ("one", written("model.safetensors", b""), "header cannot be read"),
    "weights of zeros": ("one", written("model.safetensors", bytes(500)), "header cannot be read"),
    "header as long as memory": (
        "one",
        written("model.safetensors", b"\xff" * 500),
        "is cut off or damaged: its header",
    ),
    "header a list": ("one", written("model.safetensors", struct.pack("<Q", 2) + b"[]"), "header cannot be read"),
    "header too deep": (
        "one",
        written("model.safetensors", struct.pack("<Q", 200_000) + b"[" * 200_000),
        "header cannot be read",
    ),
    "a hole between tensors": (
        "one",
        written("model.safetensors", header(**{**GOOD, "data_offsets": [4, 48]})),
        "where the tensor 'a' is",
    ),
    "another shape": ("one", written("model.safetensors", header(**{**GOOD, "shape": [3, 5]})), "where the tensor"),
    "another width": ("one", written("model.safetensors", header(**{**GOOD, "dtype": "F16"})), "where the tensor"),
    "longer": ("one", written("model.safetensors", header(**GOOD) + b"x"), "bytes; its header says"),
    "no offsets": ("one", written("model.safetensors", header(dtype="F32", shape=[1])), "header cannot be read"),
    "no zip at all": ("zip", written("pytorch_model.bin", b"PK" + bytes(500)), "cut off or damaged"),
}


@pytest.mark.parametrize("case", HARMS)
def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path, case: str) -> None:
    weights, harm, words = HARMS[case]
    folder = write_model(tmp_path / "m", weights)
    harm(folder)
    assert words in said(folder)
    with pytest.raises(PreflightError, match="Set MODEL to a whole Hugging Face folder"):
        start_model(str(folder))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(weights=st.sampled_from(["one", "zip", "parts"]), place=st.floats(0, 1, exclude_max=True))
def test_weights_that_are_cut_anywhere_are_refused(tmp_path_factory: Any, weights: str, place: float) -> None:
    folder = write_model(tmp_path_factory.mktemp("cut") / "m", weights)
    path = folder / {"one": "model.safetensors", "zip": "pytorch_model.bin", "parts": PART}[weights]
    os.truncate(path, int(place * path.stat().st_size))
    assert path.name in said(folder)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(weights=st.sampled_from(["one", "zip"]), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_one_changed_byte_never_raises_and_in_a_zip_is_found(
    tmp_path_factory: Any, weights: str, place: float, flip: int
) -> None:
    folder = write_model(tmp_path_factory.mktemp("flip") / "m", weights)
    path = folder / {"one": "model.safetensors", "zip": "pytorch_model.bin"}[weights]
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= flip
    path.write_bytes(content)
    line = fault(folder)
    assert line is None or (path.name in line and "\n" not in line)
    if weights == "zip" and line is None:  # a date, or another field that no reader of weights looks at
        with zipfile.ZipFile(path) as file:
            assert [file.read(name) for name in file.namelist()] == [b"pickled" * 9, bytes(range(200))]


def test_a_lora_adapter_is_told_from_a_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(PreflightError, match="is a LoRA adapter, not a model. Merge it"):
        start_model(str(tmp_path))


def test_the_home_folder_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_model(tmp_path / "m")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert start_model("~/m") == str(folder)


@pytest.mark.parametrize("given", ["~/none", "~nobody-of-that-name/m", "x" * 5000, "a/" * 2000, "a\0b", "", "a b", "/"])
def test_what_names_no_folder_is_refused(given: str) -> None:
    with pytest.raises(PreflightError, match="is not a model folder"):
        start_model(given)


def test_a_file_a_pipe_and_a_link_to_itself_are_no_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("file", "pipe", "loop"):
        with pytest.raises(PreflightError, match=f"{name} is not a model folder"):
            start_model(str(tmp_path / name))
