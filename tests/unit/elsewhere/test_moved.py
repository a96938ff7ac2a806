"""Modules that are moved beneath another package: what names them follows, and nothing else changes."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = frozenset({"rewards", "rewards.votes", "bfcl_env", "bfcl_env.entries", "interaction", "interaction.call"})


@pytest.fixture(autouse=True)
def built_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "elsewhere"))


def moved(source: str) -> str:
    from moved import moved

    return moved(source, "top", MODULES)


FOLLOWS = {
    "from interaction.call import Call\n": "from top.interaction.call import Call\n",
    "from   rewards import votes as v\n": "from   top.rewards import votes as v\n",
    "def f():\n    from bfcl_env import (\n        x)\n": "def f():\n    from top.bfcl_env import (\n        x)\n",
    "x = 'é'; from rewards import votes\n": "x = 'é'; from top.rewards import votes\n",
    "files('bfcl_env')\n": "files('top.bfcl_env')\n",
    'import_module("bfcl_env.entries")\n': 'import_module("top.bfcl_env.entries")\n',
    "['-m', 'rewards.votes']\n": "['-m', 'top.rewards.votes']\n",
    '"""`python -m rewards.votes` and -m bfcl_env."""\n': '"""`python -m top.rewards.votes` and -m top.bfcl_env."""\n',
}
STAYS = (
    "from .call import Call\nfrom . import rewards\n",
    "from interactions import x\nimport json, os.path\n",
    "record['rewards'], 'interaction', rewards.votes\n",
    "'interaction.user', 'rewards.votes.x', ' bfcl_env', 'pkg://bfcl_env.entries'\n",
    "f'bfcl_env' + f'-m {bfcl_env}'\n",
    "# from rewards import votes, python -m rewards.votes\n",
    "'''from rewards import votes'''\n",
    "'python -m pip install bfcl_env'\n",
    "raise X from rewards\n",
    "",
)


def test_what_names_a_module_follows_it_and_nothing_else_changes() -> None:
    expected = FOLLOWS | {source: source for source in STAYS}
    assert {source: moved(source) for source in expected} == expected


def test_an_import_that_would_bind_another_name_is_refused_by_its_line() -> None:
    for source in ("import rewards\n", "if x:\n    import os, bfcl_env.entries as e\n"):
        with pytest.raises(ValueError, match=rf"line {source.count(chr(10))}: .*write `from"):
            moved(source)
