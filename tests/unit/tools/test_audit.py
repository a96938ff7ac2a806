"""The audit passes an honest environment with the rewards here, and finds what would teach a policy to do nothing."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.own_environment import example, write_example

import interaction.environment as environments
import interaction.new.library as library
from interaction.protocol import PROTOCOLS
from recipe.tools.audit import REWARDS, main
from recipe.tools.policies import CUT, POLICIES

Audit = Callable[..., tuple[int, str]]


@pytest.fixture
def audit(capfd: pytest.CaptureFixture[str]) -> Audit:
    """Runs the command: exit status, and all that it prints."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        environments._module.cache_clear()
        environments.load_tasks.cache_clear()
        status = main([str(item) for item in arguments])
        return status, "".join(capfd.readouterr())

    return run


def changed(folder: Path, old: str, new: str) -> Path:
    assert old in example()
    (path := folder / "inventory.py").write_text(example().replace(old, new))
    return path


def test_bfcl_passes_with_every_reward(audit: Audit) -> None:
    status, said = audit("--tasks", "16")
    assert status == 0 and "427 episodes" in said


def test_behind_turns_of_gold_the_rest_is_played_and_nothing_pays_that_did_not_before(audit: Audit) -> None:
    status, said = audit("--tasks", "8", "--given", "2")
    assert status == 0 and said != audit("--tasks", "8")[1]
    _, shown = audit("--given", "2", "--show", "multi_turn_base_0", "answers")
    assert shown.count("the turn passed") == 2 < shown.count("user")
    shown = audit("--show", "multi_turn_base_0", "skip first turn")[1]
    assert shown.count("    call  ") == 7, "all of gold's from the second turn on"


def test_tau_passes_with_what_its_official_reward_lets_through_listed(audit: Audit) -> None:
    status, said = audit("--environment", "tau", "--tasks", "60")
    assert status == 0 and "the official reward asks for no diagnosis" in said
    rows = [re.split(r"  +", line) for line in said.splitlines() if "telecom_solo_mms" in line]
    paid = {row[0]: row[-1] for row in rows if row[0] in REWARDS}
    assert (paid["outcome official"], paid["outcome clean"]) == ("1.000", "0.000")


def test_an_environment_without_single_steps_passes_without_the_reward_of_steps(tmp_path: Path, audit: Audit) -> None:
    status, said = audit("--environment", write_example(tmp_path), "--tasks", "all")
    assert status == 0 and "NOTE the reward step is left out" in said and "660 episodes" in said


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_words_refuse_in_any_protocol(protocol: str, tmp_path: Path, audit: Audit, monkeypatch) -> None:
    greets = Path(library.__file__).read_text().replace("[(f", '[("Hello.", []), (f')
    (own := tmp_path / "library.py").write_text(greets)
    modules = "bfcl_env.environment bfcl_env.single_turn.environment tau_env.environment interaction.tool_environment"
    for module, environment in zip(modules.split(), ("bfcl", "bfcl_single", "tau", own), strict=True):
        given = ("--environment", environment, "--protocol", protocol, "--tasks", "6")
        assert audit(*given)[0] == 0, environment
        monkeypatch.setattr(f"{module}.is_refusal", lambda *_: True)
        status, said = audit(*given)
        assert status == 1 and "FOUND: what is no refusal earns as much" in said, environment


REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info, *, pay=0.0):\n    return "
EPISODE = "extra_info['episode']"


def test_a_reward_that_pays_for_nothing_fails(tmp_path: Path, audit: Audit) -> None:
    own = ("--environment", write_example(tmp_path), "--tasks", "5")
    early = f"float(all([turn['passed'] for turn in {EPISODE}['turns']][:-1]))"
    for body, found in {
        "1.0": "what knows no gold earns as much",
        f"float({EPISODE}['stop_reason'] == 'completed')": "earns as much",
        f"sum(len(turn['steps']) for turn in {EPISODE}['turns'])": "gold does not earn the most",
        f"1. if {EPISODE}['outcome']['passed'] else pay": "what knows no gold earns more than half",
        early: "FOUND: what stops before the end earns as much",
    }.items():
        reward = tmp_path / f"reward{len(body)}.py"  # a file is run once in a process
        reward.write_text(f"{REWARD}{body}\n")
        status, said = audit(*(("--tasks", "16") if body == early else own), "--reward", reward, "pay=0.7")
        assert status == 1 and found in said and "the audit has failed" in said, body
    assert f"{reward}, {CUT}: multi_turn_" in said
    assert re.search(r"the first play, on task multi_turn_\w+:\n +user  .*\n +call  ", said), "message by message"


def test_an_environment_that_a_text_makes_fail_exit_or_hang_is_found(tmp_path: Path, audit: Audit) -> None:
    old = "good, pieces = call.arguments.get"
    for code, found in {
        "str(call.arguments).encode('ascii')": r"hostile: move_\d+: .*UnicodeEncodeError",
        "import sys; len(str(call.arguments)) > 4000 and sys.exit()": r"hostile: move_\d+: .*SystemExit",
        "while len(str(call.arguments)) > 4000: pass": r"hostile: move_\d+: .*not returned within 2 s",
    }.items():
        own = changed(tmp_path, old, f"{code}\n        {old}")
        status, said = audit("--environment", own, "--tasks", "1", "--seconds", "2")
        assert status == 1 and "FOUND: the environment failed" in said and re.search(found, said), said


def test_a_shortcut_that_the_environment_names_is_played_to_its_end_and_found(tmp_path: Path, audit: Audit) -> None:
    own = write_example(tmp_path)
    own.write_text(f"{own.read_text()}\n\nAUDIT_POLICIES = {{'peeks': lambda task: [task.call]}}\n")
    status, said = audit("--environment", own, "--tasks", "1")
    assert status == 1 and re.search(r"progress, peeks: move_\d+", said), said


def test_what_cannot_be_audited_is_refused_and_any_play_is_shown(tmp_path: Path, audit: Audit) -> None:
    own = write_example(tmp_path)
    status, said = audit("--environment", own, "--show", "move_0", "gold")
    play = r"user  Please.*\n +call  .*\n +result  .*\n +answer  .*\n +verdict  the turn"
    assert status == 0 and re.search(play, said) and "progress 1" in said
    assert audit("--environment", own, "--show", "move_0", "golden")[0] == 2
    own = changed(tmp_path, "return [GoldMessage", "return 1 / 0, [GoldMessage")
    status, said = audit("--environment", own, "--tasks", "2")
    assert status == 2 and "gold() raises ZeroDivisionError" in said


def test_of_tasks_without_gold_what_knows_none_must_not_pass(tmp_path: Path, audit: Audit) -> None:
    judged = "self.passed = self.stock == expected"
    for verdict, failed in ((judged, 0), (f"{judged} or True", 1)):
        own = changed(tmp_path, "return [GoldMessage", "return [] and [GoldMessage")
        own.write_text(own.read_text().replace(judged, verdict))
        status, said = audit("--environment", own, "--tasks", "2")
        assert status == failed and ("the check, answers: move_" in said) == bool(failed)
        row = next(line.split() for line in said.splitlines() if line.startswith("progress "))
        assert ("1.000" in row[3:]) == bool(failed), "what the reward pays is shown"


def test_tasks_that_are_done_by_doing_nothing_are_found_unless_they_are_listed(tmp_path: Path, audit: Audit) -> None:
    idle = "self.passed = self.stock == expected"
    own = changed(tmp_path, idle, 'self.passed = self.task.id == "move_0" or self.stock == expected')
    status, said = audit("--environment", own, "--tasks", "all")
    found = set(re.findall(r"  ([\w ]+, [a-z, ]+: move_\d+): ", said))
    assert status == 1 and found and all(line.endswith("move_0") for line in found)
    listed = {f"*, {name}: move_0": "nothing is to be done" for name in POLICIES}
    own.write_text(f"{own.read_text()}\n\nAUDIT_KNOWN = {listed!r}\n")
    status, said = audit("--environment", own, "--tasks", "all")
    assert status == 0 and "known: nothing is to be done" in said
