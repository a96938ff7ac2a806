"""What the tests of the checks share: configurations, the tiny data and the tiny policy."""

from functools import cache

import pytest
from omegaconf import OmegaConf

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.files import PreflightError
from recipe.preflight import require
from recipe.settings import compose

_composed = cache(compose)


@pytest.fixture
def configured():
    """A stage's configuration; what chooses a group is composed once for all that have it in common."""

    def configured(*overrides, stage="stage2", hardware="tiny"):
        groups = [item for item in overrides if item.startswith(("algorithm=", "trainer=", "hardware="))]
        given = groups if any(item.startswith("hardware=") for item in groups) else [f"hardware={hardware}", *groups]
        rest = OmegaConf.from_dotlist([item.lstrip("+") for item in overrides if item not in groups])
        base = _composed(stage, tuple(given)).copy()
        OmegaConf.set_struct(base, False)
        config = OmegaConf.merge(base, rest)
        OmegaConf.set_struct(config, True)
        return config

    return configured


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    assert prepare_data(["--out", str(folder), "--tiny"]) == 0
    return folder


@pytest.fixture(scope="session")
def policy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    make_tiny_policy(folder)
    return folder


@pytest.fixture
def refusal():
    """What checks say is wrong, all of it; empty if nothing is. A function raises what is wrong itself."""

    def refusal(*checks):
        try:
            require(*(check() or () if callable(check) else check for check in checks))
        except PreflightError as error:
            return str(error)
        return ""

    return refusal
