"""A changed bit in what was written is found, wherever it is: in torch's archives, in exported weights."""

import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

from recipe.stage.integrity import SUMS, broken_archive, broken_export, note_sums

TENSORS = {"a": torch.arange(60.0).reshape(6, 10), "b": torch.ones(7)}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    torch.save({"weights": TENSORS, "step": 3}, tmp_path / "x.pt")
    return tmp_path / "x.pt"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model folder in two files, as a large model is saved."""
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for number, name in enumerate(TENSORS, 1):
        save_file({name: TENSORS[name]}, folder / f"model-{number}.safetensors")
    index = {"weight_map": {name: f"model-{number}.safetensors" for number, name in enumerate(TENSORS, 1)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    note_sums(folder)
    return folder


def changed_unseen(path: Path) -> bool:
    """Whether torch reads something else from the file than what was saved, and does not refuse it."""
    try:
        found = torch.load(path)
    except Exception:
        return False
    return found["step"] != 3 or any(not found["weights"][name].equal(TENSORS[name]) for name in TENSORS)


def test_no_bit_of_an_archive_changes_what_is_read_without_being_found(archive: Path):
    assert broken_archive(archive) is None
    whole, found = archive.read_bytes(), 0
    for place in range(0, len(whole), 5):
        archive.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        if fault := broken_archive(archive):
            assert str(archive) in fault and "\n" not in fault
            found += 1
        else:
            assert not changed_unseen(archive), f"byte {place}"
    assert found > 100


@pytest.mark.parametrize("length", [0, 1, 30, 500, -1, -20, -200])
def test_an_archive_that_was_cut_off_is_found(archive: Path, length: int):
    archive.write_bytes(archive.read_bytes()[:length])
    assert "cut off or damaged" in str(broken_archive(archive))


def test_weights_in_the_old_format_of_torch_are_said_to_be_that(tmp_path: Path):
    for protocol in (2, 3, 4):
        torch.save(
            TENSORS,
            tmp_path / "pytorch_model.bin",
            pickle_protocol=protocol,
            _use_new_zipfile_serialization=False,
        )
        fault = str(broken_archive(tmp_path / "pytorch_model.bin"))
        assert "old format of torch" in fault and "save the model as safetensors" in fault and "damaged" not in fault


def test_an_archive_that_unpacks_to_more_than_it_holds_is_not_unpacked(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("data.pkl", bytes(1 << 24))
    assert "is not stored as torch does" in str(broken_archive(tmp_path / "x.pt"))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


HARMS: dict[str, Callable[[Path], object]] = {
    "a bit": lambda folder: flip(folder / "model-2.safetensors"),
    "a bit of the index": lambda folder: flip(folder / "model.safetensors.index.json"),
    "a file": lambda folder: (folder / "model-1.safetensors").unlink(),
    "the end": lambda folder: (folder / "model-1.safetensors").write_bytes(
        (folder / "model-1.safetensors").read_bytes()[:-1]
    ),
    "a longer file": lambda folder: (folder / "model-1.safetensors").open("ab").write(b"x"),
    "another model's file": lambda folder: save_file({"a": TENSORS["a"] + 1}, folder / "model-1.safetensors"),
    "the sums": lambda folder: (folder / SUMS).write_text("{"),
    "the sums' form": lambda folder: (folder / SUMS).write_text('{"files": {"model-1.safetensors": 3}}'),
    "sums of elsewhere": lambda folder: (folder / SUMS).write_text('{"files": {"../../x": {"size": 1, "crc32": "0"}}}'),
    "config.json": lambda folder: (folder / "config.json").unlink(),
    "an index of nothing": lambda folder: (folder / "model.safetensors.index.json").write_text("[]"),
    "a deep index": lambda folder: (folder / "model.safetensors.index.json").write_text("[" * 200_000),
    "a header without end": lambda folder: (folder / "model-1.safetensors").write_bytes(struct.pack("<Q", 1 << 62)),
    "a header that is a list": lambda folder: (folder / "model-1.safetensors").write_bytes(
        struct.pack("<Q", 2) + b"[]"
    ),
    "offsets that are words": lambda folder: (folder / "model-1.safetensors").write_bytes(
        struct.pack("<Q", 33) + b'{"a": {"data_offsets": [0, "x"]}}'
    ),
    "an empty file": lambda folder: (folder / "model-1.safetensors").write_bytes(b""),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_a_model_folder_that_is_not_what_was_written_is_found(model: Path, harm: Callable[[Path], object]):
    assert broken_export(model) is None
    harm(model)
    fault = str(broken_export(model))
    assert str(model) in fault and "\n" not in fault and len(fault) < 500


def test_a_model_folder_without_sums_is_judged_by_its_structure_and_one_that_was_copied_by_its_sums(model: Path):
    copy = Path(shutil.copytree(model, model.with_name("copy")))
    flip(copy / "model-2.safetensors")
    assert "sum differs" in str(broken_export(copy))
    (copy / SUMS).unlink()
    assert broken_export(copy) is None
    assert load_file(copy / "model-2.safetensors")


def test_what_a_person_may_edit_beside_the_weights_is_not_held_against_a_model(model: Path):
    (model / "config.json").write_text('{"edited": true}')
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert broken_export(model) is None
