"""Values from outside: dataclasses read strictly, state files written whole and never read with a traceback."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from recipe.errors import PreflightError
from recipe.files import Damaged, StateFile, lines, read_json, set_aside, write_atomic
from recipe.typed import STRICT, read, shown


@dataclass(frozen=True)
class Sample:
    """One of each kind of field."""

    __pydantic_config__ = STRICT
    kind: Literal["a", "b"]
    steps: Annotated[int, Field(ge=1)] = 1
    share: float = 0.5
    wanted: bool = False
    names: tuple[str, ...] = ()
    value: float | None = None


GOOD = {"kind": "a", "steps": 3, "share": 1, "names": ["x"], "value": None}
FILE = StateFile(Sample, version=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "c"}, ["sample.kind='c'", "'a' or 'b'"]),
        ({"steps": 0}, ["sample.steps=0", "greater than or equal to 1"]),
        ({"steps": "3"}, ["sample.steps='3'", "integer"]),
        ({"steps": True}, ["sample.steps=True"]),
        ({"steps": 1.5}, ["sample.steps=1.5"]),
        ({"share": float("nan")}, ["sample.share=nan", "finite"]),
        ({"share": float("inf")}, ["sample.share=inf", "finite"]),
        ({"wanted": "no"}, ["sample.wanted='no'"]),
        ({"wanted": 0}, ["sample.wanted=0"]),
        ({"names": "x"}, ["sample.names='x'"]),
        ({"stepz": 1}, ["sample.stepz is not known", "steps meant"]),
        ({"steps": 0, "kind": "c"}, ["sample.steps=0", "sample.kind='c'"]),
        ({"names": [object()]}, []),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(change: dict[str, Any], words: list[str]) -> None:
    if not words:  # what is no plain value is read as its text, and that is a string
        assert read(Sample, {**GOOD, **change}, "sample").names[0].startswith("<object")
        return
    with pytest.raises(PreflightError) as error:
        read(Sample, {**GOOD, **change}, "sample")
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(PreflightError, match=r"sample\.kind is missing"):
        read(Sample, {}, "sample")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    value = Sample("b", 7, 0.25, True, ("ä", "x"), 1.0)
    FILE.write(tmp_path / "s.json", value)
    assert FILE.read(tmp_path / "s.json") == value
    assert FILE.read(tmp_path / "other.json") is None


WHOLE = json.dumps({"version": 2, **GOOD}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 40,
        WHOLE[:-5],
        b"\xff" + WHOLE,
        WHOLE.decode().encode("utf-16"),
        b"[]",
        b"null",
        b'"x"',
        b"3",
        b"[" * 200_000,
        WHOLE.replace(b"2", b"3", 1),
        json.dumps(GOOD).encode(),
        json.dumps({"version": 2, **GOOD, "extra": 1}).encode(),
        json.dumps({"version": 2, **GOOD, "steps": -1}).encode(),
        json.dumps({"version": 2, **GOOD, "share": float("nan")}).encode(),
        json.dumps({"version": [2], **GOOD}).encode(),
    ],
    ids=lambda content: repr(content[:24]),
)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(Damaged) as error:
        FILE.read(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert path.read_bytes() == content


def test_a_folder_in_its_place_is_damage(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="cannot be read: it is a folder"):
        FILE.read(tmp_path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_atomic(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "half \ud800")
    assert path.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == ["s.json"]


def test_setting_aside_loses_nothing(tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        (tmp_path / "f").write_text(text)
        set_aside(tmp_path / "f")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "f.aside": "one",
        "f.aside2": "two",
        "f.aside3": "three",
    }


def test_what_is_no_plain_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(8 * 2**30)
    (tmp_path / "number").write_text("9" * 5000)
    for name in ("pipe", "loop", "folder", "huge", "number"):
        for read_file in (FILE.read, read_json):
            with pytest.raises(Damaged, match=f"{name} cannot be read") as error:
                read_file(tmp_path / name)
            assert "\n" not in str(error.value)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "nothing")


def test_lines_come_with_their_places_and_a_longer_one_than_may_be_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipe.files.LONGEST_LINE", 8)
    path = tmp_path / "f"
    path.write_bytes(b"one\n\n" + b"x" * 20 + b"\nend")
    found = list(lines(path))
    assert found == [(0, b"one\n"), (4, b"\n"), (5, b"x" * 8), (13, b"x" * 8), (21, b"xxxx\n"), (26, b"end")]


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("value", [Unprintable(), 10**5000, "a\nb", "x" * 10**6, {"a": Unprintable()}], ids=type)
def test_a_value_in_a_message_is_one_short_line_whatever_it_is(value: Any) -> None:
    assert "\n" not in shown(value) and len(shown(value)) < 100
