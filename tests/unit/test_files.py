"""Values from outside: dataclasses read strictly, state files written whole and never read with a traceback."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from unittest.mock import Mock

import pytest
from pydantic import Field

from recipe.files import Damaged, StateFile, one_line, set_aside, shown, write_atomic


@dataclass(frozen=True)
class Sample(StateFile):
    """One of each kind of field."""

    kind: Literal["a", "b"]
    steps: Annotated[int, Field(ge=1)] = 1
    share: float = 0.5
    names: tuple[str, ...] = ()


GOOD = {"kind": "a", "steps": 3, "share": 1, "names": ["x"]}


def test_a_state_file_gives_back_what_was_written_and_a_damaged_one_is_a_line_that_names_it(tmp_path: Path) -> None:
    value, path = Sample("b", 7, 0.25, ("ä", "x")), tmp_path / "s.json"
    value.write(path)
    assert (Sample.read(path), Sample.read(tmp_path / "other.json")) == (value, None)
    whole = json.dumps(GOOD).encode()
    odd = {"steps": 0}, {"steps": "3"}, {"share": float("nan")}, {"stepz": 1}
    harmed = [json.dumps(GOOD | change).encode() for change in odd]
    for content in (b"", b"\0" * 40, whole[:-5], b"\xff" + whole, b"[]", b"[" * 200_000, b'{"extra": 1}', *harmed):
        path.write_bytes(content)
        with pytest.raises(Damaged) as error:
            Sample.read(path)
        said = str(error.value)
        assert str(path) in said and "\n" not in said and len(said) < 500 and path.read_bytes() == content


def test_a_write_that_fails_leaves_what_was_there_and_setting_aside_loses_nothing(tmp_path: Path, monkeypatch) -> None:
    Sample("a").write(tmp_path / "s.json")
    with monkeypatch.context() as full, pytest.raises(OSError):
        full.setattr("os.replace", Mock(side_effect=OSError))
        Sample("b").write(tmp_path / "s.json")
    assert Sample.read(tmp_path / "s.json") == Sample("a")
    write_atomic(tmp_path / "f", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(tmp_path / "f", "half \ud800")
    (tmp_path / "f.part").unlink()
    for text in ("two", "three"):
        set_aside(tmp_path / "f")
        (tmp_path / "f").write_text(text)
    kept = {path.name: path.read_text() for path in tmp_path.glob("f*")}
    assert kept == {"f.aside": "old", "f.aside.2": "two", "f": "three"}


def test_a_text_in_a_message_is_whole_up_to_its_longest_and_cut_from_there_on() -> None:
    for text, longest in ((one_line, 200), (lambda value: shown(value, quote=False), 80)):
        assert [text("x" * size) for size in (longest, longest + 1)] == ["x" * longest, "x" * longest + "..."]
