"""The arrow between rooms: environments know the vocabulary, and the room of conversations knows no environment."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from interaction.environment import load_tasks

ROOT = Path(__file__).parents[3]


def test_it_does_not_matter_which_room_is_imported_first() -> None:
    for first in ("bfcl_env", "interaction", "interaction.environment"):
        code = f"import sys, {first}; print(sorted({{'torch', 'verl', 'ray', 'transformers'}} & set(sys.modules)))"
        answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
        assert answer.stdout.strip() == "[]", answer.stderr


def test_tasks_are_found_by_the_name_of_their_environment() -> None:
    assert len(load_tasks("bfcl")) == 800 and load_tasks().keys() == load_tasks("bfcl").keys()
    with pytest.raises(ValueError, match=r"unknown environment 'nowhere'; known: bfcl") as error:
        load_tasks("nowhere")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value), "as other processes hear of it"
