"""A command that is given a file of entries which it has to refuse."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.entries import write

from data_prep.__main__ import main as prepare_data

Run = Callable[[Any], str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Gives what the command says of a file that it refuses, and sees that nothing was written."""

    def run(content: Any, name: str = "plant.json") -> str:
        path = write(tmp_path, content, name)
        assert prepare_data(["--json", str(path), "--out", str(tmp_path / "out")]) == 1
        assert not (tmp_path / "out").exists()
        said = capsys.readouterr().err
        assert str(path) in said and "Traceback" not in said
        return said

    return run
