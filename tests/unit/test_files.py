"""Values from outside: dataclasses read strictly, state files written whole and never read with a traceback."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from recipe.files import (
    STRICT,
    Damaged,
    PreflightError,
    StateFile,
    data_command,
    read,
    set_aside,
    write_atomic,
)
from recipe.settings import compose


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
FILE = StateFile(Sample)


def test_a_value_that_does_not_fit_is_refused_by_name() -> None:
    changes: list[dict[str, Any]] = [
        *({"kind": "c"}, {"steps": 0}, {"steps": "3"}, {"steps": True}, {"steps": 1.5}, {"share": float("nan")}),
        *({"share": float("inf")}, {"wanted": "no"}, {"wanted": 0}, {"names": "x"}, {"stepz": 1}),
    ]
    passed = []
    for change in changes:
        try:
            passed.append(read(Sample, {**GOOD, **change}, "sample"))
        except PreflightError as error:
            assert f"sample.{[*change][0]}" in str(error) and "\n" not in str(error)
    assert not passed
    with pytest.raises(PreflightError, match=r"sample\.kind is missing"):
        read(Sample, {}, "sample")


def test_a_state_file_gives_back_what_was_written_and_a_damaged_one_is_a_line_that_names_it(tmp_path: Path) -> None:
    value, path = Sample("b", 7, 0.25, True, ("ä", "x"), 1.0), tmp_path / "s.json"
    FILE.write(path, value)
    assert (FILE.read(path), FILE.read(tmp_path / "other.json")) == (value, None)
    whole, changes = json.dumps(GOOD).encode(), ({"extra": 1}, {"steps": -1}, {"share": float("nan")})
    bad = [b"", b"\0" * 40, whole[:-5], b"\xff" + whole, whole.decode().encode("utf-16"), b"[]", b"[" * 200_000]
    bad = [*bad, *(json.dumps({**GOOD, **change}).encode() for change in changes)]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(Damaged) as error:
            FILE.read(path)
        said = str(error.value)
        assert str(path) in said and "\n" not in said and len(said) < 500 and path.read_bytes() == content


def test_a_write_that_fails_leaves_what_was_there_and_setting_aside_loses_nothing(tmp_path: Path) -> None:
    write_atomic(tmp_path / "f", "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(tmp_path / "f", "half \ud800")
    (tmp_path / "f.part").unlink()
    for text in ("two", "three"):
        set_aside(tmp_path / "f")
        (tmp_path / "f").write_text(text)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"f.aside": "old", "f.aside.2": "two", "f": "three"}


def test_the_command_for_data_is_that_of_the_file() -> None:
    own = "+interaction.environments.made=my.json"
    for name, profile, file, expected in (
        ("stage1", "gpu8", "d/train_format_75.parquet", "data_prep --out d"),
        ("stage1", "gpu8", "d/bfcl_train.parquet", "data_prep --environment bfcl --out d"),
        ("stage1", "cpu", "d/stage1_format.parquet", "data_prep --laptop --out d"),
        ("stage1", "cpu", "d/stage1_format.parquet", "data_prep --laptop --environment my.json --out d"),
        ("stage1", "tiny", "d/tiny_val.parquet", "data_prep --tiny --out d"),
        ("stage1", "tiny", "d/made_val.parquet", "data_prep --environment my.json --out d"),
        ("stage1", "gpu8", "d/bfcl_single_train.parquet", "data_prep --environment bfcl_single --out d"),
        ("stage1", "gpu8", "d/mixture_val.parquet", "data_prep --mixture NAME=WEIGHT ... --out d"),
        ("sft", "cpu", "d/stage0_sft.parquet", "data_prep --laptop --out d"),
        ("sft", "tiny", "d/library_sft.parquet", "data_prep --environment FILE --out d"),
        ("tau_sft", "tiny", "d/tau/tau_sft.parquet", "data_prep --tiny --environment tau --option policy=none"),
        ("tau_solo", "gpu8", "d/tau/tau_solo.parquet", "data_prep --environment tau --option policy=workflow"),
    ):
        group = "sft_hardware" if "sft" in name else "hardware"
        config = compose(name, [f"{group}={profile}", *[own] * ("my.json" in expected)], group=group)
        said = data_command(config, file)
        assert expected in said and said.endswith(str(Path(file).parent)), (name, profile, file, said)
