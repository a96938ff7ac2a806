"""The list of settings: nothing of ours without a meaning, and no default that a start would not take."""

import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from recipe.options.__main__ import main
from recipe.options.comments import read_keys
from recipe.options.listing import listing
from recipe.settings import CONFIG_DIR
from recipe.settings.additions import OURS

ROOT = Path(__file__).parents[3]
LISTED = {"stage1": ("recipe.train", "hardware"), "sft": ("recipe.sft", "sft_hardware")}
SETTING = re.compile(r"([a-z][\w.]*)=(.*?)(?:   \((.*)\))?")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    """Setting -> profile -> value, read from what the command prints; of the profile written for under ""."""
    assert main([*arguments]) == 0
    found = {}
    for line in capsys.readouterr().out.splitlines():
        if match := SETTING.fullmatch(line):
            others = dict(part.split(": ", 1) for part in (match[3] or "").split(" | ") if part)
            found[match[1]] = {name: yaml.safe_load(text) for name, text in {"": match[2], **others}.items()}
    return found


@cache
def job(name: str, profile: str) -> Any:
    """What `--cfg job` prints, in a process of its own."""
    module, group = LISTED[name]
    command = [sys.executable, "-m", module, "--config-name", name, "--cfg", "job", f"{group}={profile}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return OmegaConf.create(done.stdout)


@pytest.mark.parametrize("name", LISTED)
def test_every_setting_of_ours_has_a_meaning(name: str) -> None:
    mute = [option.key for option in listing(name).options if option.ours and not option.meaning]
    assert not mute, f"add a comment behind these in base.yaml, or a text under their field in recipe/settings: {mute}"


@pytest.mark.parametrize(("name", "profile"), [("stage1", "cpu"), ("stage1", "gpu8_24gb"), ("sft", "gpu1")])
def test_printed_defaults_are_those_that_a_start_takes(
    name: str, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config, compared = job(name, profile), 0
    for key, values in printed(capsys, "--config-name", name).items():
        shown = values.get(profile, values[""])
        parent, _, last = key.rpartition(".")
        section = OmegaConf.select(config, parent) if parent else config
        if OmegaConf.is_dict(section) and last in section:
            taken = OmegaConf.select(config, key, throw_on_missing=False)
            taken = OmegaConf.to_container(taken, resolve=True) if OmegaConf.is_config(taken) else taken
            assert shown == taken, key
            compared += 1
    assert compared > (40 if name == "sft" else 150)


@pytest.mark.parametrize("name", LISTED)
def test_every_setting_of_ours_that_a_start_has_is_listed(name: str) -> None:
    keys = {option.key for option in listing(name).options}

    def missing(node: Any, path: str) -> list[str]:
        if path in keys:
            return []
        if isinstance(node, dict):
            return [lack for below, value in node.items() for lack in missing(value, f"{path}.{below}".lstrip("."))]
        return [path] if path.startswith(OURS) or path == "preflight_only" else []

    group = LISTED[name][1]
    for profile in (path.stem for path in (CONFIG_DIR / group).glob("*.yaml")):
        assert not missing(OmegaConf.to_container(job(name, profile)), "")


def test_what_verl_has_is_listed_with_our_value_and_both_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--config-name", "stage1", "max_num_batched_tokens") == {
        "actor_rollout_ref.rollout.max_num_batched_tokens": {"": 16384, "cpu": 8192, "tiny": 8192, "gpu8_24gb": 8192}
    }
    main(["--config-name", "stage1", "max_num_batched_tokens"])
    text = capsys.readouterr().out
    assert "verl/rollout/rollout.yaml:" in text and "hardware/gpu8.yaml:" in text


def test_a_word_is_looked_for_in_names_and_in_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert "stage.poll_interval" in printed(capsys, "POLL_INT")
    assert "stage.poll_interval" in printed(capsys, "looks for finished rollouts")
    assert "stage.gate" not in printed(capsys, "poll_int")
    assert "data.val_share" in printed(capsys, "val_share")  # of the warm start alone


@pytest.mark.parametrize(
    ("word", "near"), [("totl_epochs", "trainer.total_epochs"), ("stage.handovr", "stage.handover"), ("%%%", "")]
)
def test_a_word_that_nothing_has_is_told_with_the_nearest(
    word: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([word]) == 1
    said = capsys.readouterr()
    assert not said.out and word in said.err and near in said.err and said.err.count("\n") == 1


def test_a_word_that_only_verls_own_settings_have_shows_them_as_verl_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["total_training_st"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "that this recipe leaves as they are" in said[0] and "trainer.total_training_steps=null" in said


def test_a_file_and_line_is_where_the_setting_stands() -> None:
    for option in listing("stage1").options:
        for place in option.said:
            if place.partition(":")[2] and not place.startswith("verl/"):
                name, line = place.split(":")
                text = (CONFIG_DIR / name).read_text().splitlines()[int(line) - 1]
                assert option.key.rpartition(".")[2] in text, place


def test_listing_imports_neither_torch_nor_ray() -> None:
    code = (
        "import sys, recipe.options.__main__ as o; o.main(['poll_interval'])\nprint({'torch', 'ray'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.endswith("set()\n"), done.stdout + done.stderr


WORDS = st.text("abc #'\":{}[]&*!|-", min_size=1, max_size=20).map(str.strip).filter(bool)
VALUES = st.one_of(st.integers(), st.booleans(), st.none(), WORDS, st.lists(st.integers(), max_size=2))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(VALUES, st.lists(WORDS.filter(lambda word: word.strip("# ")), max_size=3)), max_size=6))
def test_a_comment_is_what_stands_behind_a_value_and_below_it(entries: list[tuple[Any, list[str]]]) -> None:
    lines, wanted = ["# a head that is nobody's", "section:"], {"section": ""}
    for number, (value, comment) in enumerate(entries):
        text = yaml.safe_dump(value, default_flow_style=True, width=10**6).split("\n")[0]
        lines.append(f"  key{number}: {text}" + (f" # {comment[0]}" if comment else ""))
        lines += [f"      # {more}" for more in comment[1:]]
        wanted[f"section.key{number}"] = " ".join(" ".join(part.lstrip("# ").split()) for part in comment)
    with tempfile.TemporaryDirectory() as folder:
        (path := Path(folder) / "a.yaml").write_text("\n".join(lines) + "\n")
        assert {key: entry.comment for key, entry in read_keys(path).items()} == wanted


def test_what_an_alias_repeats_is_the_other_places(tmp_path: Path) -> None:
    (path := tmp_path / "a.yaml").write_text("a: &short\n  x: 1 # of x\nb: *short\nc: {x: 2, y: 3} # of c\n")
    found = read_keys(path)
    assert {key: (entry.line, entry.comment, entry.leaf) for key, entry in found.items()} == {
        "a": (1, "", False),
        "a.x": (2, "of x", True),
        "b": (3, "", False),
        "c": (4, "of c", False),
        "c.x": (4, "", True),
        "c.y": (4, "", True),
    }


def test_verls_files_have_their_comments_above(tmp_path: Path) -> None:
    (path := tmp_path / "a.yaml").write_text("# a check\n\n# of x,\n# at length\nx: 1\n\ny:\n  # of z\n  z: 2\n")
    assert {key: entry.comment for key, entry in read_keys(path, above=True).items()} == {
        "x": "of x, at length",
        "y": "",
        "y.z": "of z",
    }
