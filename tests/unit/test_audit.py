"""The audit passes an honest environment with the rewards here, and finds what would teach a policy to do nothing."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.own_environment import VERDICTS, example, example_of_several_turns, write_example

import interaction.environment as environments
from interaction import get_protocol
from interaction.environment import load_tasks
from recipe.audit.__main__ import main
from recipe.audit.played import OURS
from recipe.audit.policies import CUT, NAMES, UNKNOWN, cuts, hostile, play, plays

PROTOCOL = get_protocol("think_xml", docs="signature")


def test_bfcl_passes_with_every_reward(capfd):
    assert main(["--tasks", "16"]) == 0
    said = capfd.readouterr().out
    assert "187 episodes" in said and "passed" in said and "FOUND" not in said
    for reward in ("format", "progress", "step", "all_or_nothing"):
        (row, *_) = [line.split() for line in said.splitlines() if line.startswith(f"{reward} ")]
        assert float(row[3]) == max(map(float, row[3:]))


DOCUMENTED = Path(__file__).parents[2] / "docs" / "your_tools.md"


OWN_POLICIES = '''
from interaction.call import Call

def nearest(task):
    """Takes what is nearest."""
    return [Call("stock", {})]

AUDIT_POLICIES = {"nearest": nearest, "unsaid": lambda task: nearest(task)}
'''


def test_every_row_and_column_is_explained_in_the_help_below_the_table_and_in_the_docs(tmp_path, capfd):
    with pytest.raises(SystemExit):
        main(["--help"])
    helps = capfd.readouterr().out
    own = write_example(tmp_path)
    own.write_text(f"{own.read_text()}\n\n{OWN_POLICIES}")
    main(["--environment", str(own), "--tasks", "2"])
    below = capfd.readouterr().out.partition("\n\n")[2]
    for name in (*OURS, *NAMES):
        assert re.search(rf"^{name}  +\S", helps, re.MULTILINE), name
        assert f"| `{name}` | " in DOCUMENTED.read_text(), name
        assert bool(re.search(rf"^{name}  +\S", below, re.MULTILINE)) == (name != "step"), "which is left out"
    assert re.search(r"^nearest  +Takes what is nearest$", below, re.MULTILINE)
    assert re.search(r"^unsaid  +a policy of the environment's", below, re.MULTILINE)


def test_the_documented_environment_passes_and_a_reward_it_has_no_facts_for_is_left_out(tmp_path, capfd):
    assert main(["--environment", str(write_example(tmp_path)), "--tasks", "all"]) == 0
    said = capfd.readouterr().out
    assert "NOTE the reward step is left out" in said and "540 episodes" in said


REWARDS = {
    "constant": ("return 1.0", "what knows no gold earns as much"),
    "paid for ending": ("return float(extra_info['episode']['stop_reason'] == 'completed')", "earns as much"),
    "paid for talking": ("return sum(len(turn['steps']) for turn in extra_info['episode']['turns'])", "earn the most"),
    "more than half": (
        "e = extra_info['episode']\n    return 1.0 if e['outcome']['passed'] else .7",
        "what knows no gold earns more than half",
    ),
}


@pytest.mark.parametrize("case", REWARDS)
def test_a_reward_that_pays_for_nothing_fails(case, tmp_path, capfd):
    body, found = REWARDS[case]
    path = tmp_path / "mine.py"
    path.write_text(f"def compute_score(data_source, solution_str, ground_truth, extra_info):\n    {body}\n")
    own = write_example(tmp_path)
    assert main(["--environment", str(own), "--tasks", "5", "--reward", str(path)]) == 1
    said = capfd.readouterr().out
    assert found in said and "the audit has failed" in said


def test_a_reward_that_pays_all_before_the_last_turn_fails(tmp_path, capfd):
    path = tmp_path / "mine.py"
    path.write_text(
        "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
        "    passed = [turn['passed'] for turn in extra_info['episode']['turns']]\n"
        "    return float(all(passed[:-1]))\n"
    )
    assert main(["--tasks", "16", "--reward", str(path)]) == 1
    said = capfd.readouterr().out
    assert "FOUND: what stops before the end earns as much" in said and f"{path}, {CUT}: multi_turn_" in said


def test_gold_is_cut_after_each_turn_but_the_last_and_a_single_turn_before_its_end(tmp_path):
    task = load_tasks()["multi_turn_miss_func_0"]
    turns = len(play(task, PROTOCOL, dict(plays(task))["gold"]).turns)
    ended = [[turn.ended for turn in play(task, PROTOCOL, cut).turns] for cut in cuts(task)]
    assert [turn.count("answer") for turn in ended] == [*range(1, turns)]
    environments.register({"inventory": str(write_example(tmp_path))})
    (single,) = [
        play(load_tasks("inventory")["move_0"], PROTOCOL, cut) for cut in cuts(load_tasks("inventory")["move_0"])
    ]
    assert len(single.turns[0].steps) == 1 and single.stop_reason == "max_tokens"


def changed(tmp_path: Path, old: str, new: str) -> str:
    assert old in example()
    path = tmp_path / "inventory.py"
    path.write_text(example().replace(old, new))
    return str(path)


def test_an_environment_that_a_text_makes_fail_is_found(tmp_path, capfd):
    own = changed(
        tmp_path,
        "good, pieces = call.arguments.get",
        "str(call.arguments).encode('ascii'); good, pieces = call.arguments.get",
    )
    assert main(["--environment", own, "--tasks", "2"]) == 1
    assert re.search(
        r"FOUND: the environment failed .*\n  hostile: move_\d+: UnicodeEncodeError", capfd.readouterr().out
    )


@pytest.mark.parametrize("environment", ["bfcl", "bfcl_single", "tau", "inventory"])
def test_a_function_that_does_not_exist_is_called_and_answered_with_an_error(environment, tmp_path):
    environments.register({"inventory": str(write_example(tmp_path))})
    for task in list(load_tasks(environment).values())[::60]:
        record = play(task, PROTOCOL, hostile, knows=False)
        calls = [call for turn in record.turns for step in turn.steps for call in step.calls if call.name == UNKNOWN]
        assert len(calls) == 1 and calls[0].error is not None and calls[0].result.strip()


@pytest.mark.parametrize(
    ("result", "found"),
    [
        (
            "ToolResult('ok')",
            "is answered by 'ok' and no error; expected ToolResult(words, ErrorKind.UNKNOWN_FUNCTION)",
        ),
        ("ToolResult(' ', ErrorKind.EXECUTION)", "is answered by ' ' and the error execution; expected"),
    ],
)
def test_a_function_that_does_not_exist_but_succeeds_is_found_unless_it_is_listed(result, found, tmp_path, capfd):
    own = changed(tmp_path, 'ToolResult("no such function or good", ErrorKind.BAD_ARGUMENTS)', result)
    assert main(["--environment", own, "--tasks", "2"]) == 1
    said = capfd.readouterr().out
    assert f"{UNKNOWN}() {found}" in said and "a function that does not exist is not refused (2)" in said
    Path(own).write_text(f'{Path(own).read_text()}\n\nAUDIT_KNOWN = {{"hostile: *": "the stock takes anything"}}\n')
    main(["--environment", own, "--tasks", "2"])
    said = capfd.readouterr().out
    assert "is not refused" not in said and "the stock takes anything: hostile: move_" in said


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def load_tasks():", "def load_tasks():\n    return [{}]", "load_tasks()[0] is {}, which lacks"),
        ("return Attempt(self)", "return None", "'NoneType' object has no attribute 'begin'"),
        ("return [GoldMessage", "return 1 / 0, [GoldMessage", "gold() raises ZeroDivisionError"),
        ("def answer(", "def respond(", "'Attempt' object has no attribute 'answer'"),
        ("def load_tasks():", "AUDIT_KNOWN = []\n\n\ndef load_tasks():", "AUDIT_KNOWN gives [] (list); expected"),
        ("def load_tasks():", "AUDIT_POLICIES = []\n\n\ndef load_tasks():", "AUDIT_POLICIES gives [] (list); expec"),
    ],
)
def test_an_environment_that_does_not_fulfil_the_contract_is_refused_in_one_line(old, new, said, tmp_path, capfd):
    own = changed(tmp_path, old, new)
    assert main(["--environment", own, "--tasks", "2"]) == 2
    heard = capfd.readouterr()
    assert said in heard.err and heard.err.count("\n") == 1


HANGS = {
    "a loop": ("while len(str(call.arguments)) > 4000: pass", "an episode hung .*{}: has not ended within 2 s"),
    "no other thread runs": (
        "import re; re.match('(a+)+b', 'a' * 99) if len(str(call.arguments)) > 4000 else 0",
        "an episode hung .*{}: has not ended within 2 s",
    ),
    "an exit": (
        "import os; len(str(call.arguments)) > 4000 and os._exit(0)",
        "the environment ended the audit .*{}: the code ended its process with status 0",
    ),
    "SystemExit": (
        "import sys; len(str(call.arguments)) > 4000 and sys.exit()",
        "the environment failed .*{}: call.'count'.: SystemExit at inventory.py",
    ),
}


@pytest.mark.parametrize("case", HANGS)
def test_an_environment_that_hangs_or_exits_is_named_with_task_policy_and_limit(case, tmp_path, capfd):
    code, found = HANGS[case]
    old = "good, pieces = call.arguments.get"
    own = changed(tmp_path, old, f"{code}\n        {old}")
    began = time.monotonic()
    assert main(["--environment", own, "--tasks", "2", "--seconds", "2"]) == 1
    assert time.monotonic() - began < 30
    said = capfd.readouterr().out
    assert re.search(found.format(r"hostile: move_\d+"), said, re.DOTALL) and "the audit has failed" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_audit_ends_what_plays(number, tmp_path):
    pid = tmp_path / "pid"
    hangs = f"import os, pathlib, time; pathlib.Path({str(pid)!r}).write_text(str(os.getpid())); time.sleep(600)"
    own = changed(tmp_path, "def load_tasks():", f"def load_tasks():\n    {hangs}")
    audit = subprocess.Popen([sys.executable, "-m", "recipe.audit", "--environment", own])
    until(lambda: pid.exists() and pid.read_text())
    audit.send_signal(number)
    assert audit.wait(20) == (-number if number == signal.SIGKILL else 130)
    until(lambda: ended(int(pid.read_text())))


def ended(pid) -> bool:
    """Whether a process is gone, or nobody has asked yet how it ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(done) -> None:
    end = time.monotonic() + 30
    while not done():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_tasks_that_are_done_by_doing_nothing_are_found_unless_they_are_listed(tmp_path, capfd):
    idle = "self.passed = self.stock == expected"
    own = changed(tmp_path, idle, 'self.passed = self.task.id == "move_0" or self.stock == expected')
    assert main(["--environment", own, "--tasks", "all"]) == 1
    found = set(re.findall(r"  ([\w ]+, [a-z, ]+: move_\d+): ", capfd.readouterr().out))
    assert found and all(line.endswith("move_0") for line in found)
    where = [f"*, {name}: move_0" for name in NAMES]
    known = "".join(f'    "{one}": "nothing is to be done",\n' for one in where)
    Path(own).write_text(f"{Path(own).read_text()}\n\nAUDIT_KNOWN = {{\n{known}}}\n")
    environments._module.cache_clear()
    environments.load_tasks.cache_clear()
    assert main(["--environment", own, "--tasks", "all"]) == 0
    assert "known:" in capfd.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_ends_with_a_record_of_what_it_did(name):
    task = load_tasks()["multi_turn_miss_func_0"]
    for record in [play(task, PROTOCOL, policy) for called, policy in plays(task) if called == name]:
        assert record.stop_reason is not None and record.stop_reason != "environment_error"
        assert (record.outcome is not None and record.outcome.passed) == (name == "gold")


@pytest.mark.parametrize("arguments", [["--tasks", "0"], ["--tasks", "some"], ["--seconds", "0"], ["--seconds", "nan"]])
def test_a_wrong_command_line_says_what_is_expected(arguments, capfd):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "give a number" in capfd.readouterr().err
    assert main(["--environment", "elsewhere"]) == 2
    assert "unknown environment 'elsewhere'" in capfd.readouterr().err


@pytest.mark.slow
def test_all_tasks_of_bfcl_pass():
    assert main(["--tasks", "all"]) == 0


def test_tau_passes_with_what_its_official_reward_lets_through_listed(capfd):
    assert main(["--environment", "tau", "--tasks", "60"]) == 0
    said = capfd.readouterr().out
    assert "the official reward asks for no diagnosis" in said
    head, *rows = [line.split("  ") for line in said.splitlines() if "telecom_solo_mms" in line or "reward  " in line]
    paid = {row[0]: row[-1] for row in rows}
    assert (paid["outcome official"], paid["outcome clean"]) == ("1.000", "0.000"), head


def test_the_example_of_several_turns_passes_and_its_turns_are_paid(tmp_path, capfd):
    path = tmp_path / "inventory.py"
    path.write_text(example_of_several_turns())
    assert main(["--environment", str(path), "--tasks", "all"]) == 0
    (row,) = [
        line.split()
        for line in capfd.readouterr().out.splitlines()
        if line.startswith("progress ") and "errands" in line
    ]
    assert row[2:5] == ["60", "1.000", "0.500"], "gold, and gold without its second turn"


IDLE = "NOTE turn 1 of errands_0 (the first is 0) passes without a call, though gold calls something there"
ONE = "[Call(verb, {'good': 'apples', 'pieces': 3}) for verb in ('add', 'take')]"
TWO = "[Call(verb, {'good': 'apples', 'pieces': 3}) for verb in ('add', 'take') * 2]"
NONE = "[Call(verb, {'good': 'apples', 'pieces': 3}) for verb in ('add', 'add')]"


@pytest.mark.parametrize(("calls", "noted"), [(ONE, "4 turns of 4 tasks"), (TWO, "8 turns of 4 tasks"), (NONE, None)])
def test_turns_that_pass_without_a_call_though_gold_makes_some_are_noted(calls, noted, tmp_path, capfd):
    text = re.sub(r"calls = \[Call\(draw.*", f"calls = {calls}", example_of_several_turns())
    assert calls in text and "range(60)" in text
    (path := tmp_path / "inventory.py").write_text(text.replace("range(60)", "range(4)"))
    status = main(["--environment", str(path), "--tasks", "all"])
    said = capfd.readouterr().out
    assert status == ("FOUND" in said) and ("FOUND" in said) == (calls == TWO), "which rewards pay, the table says"
    if noted:
        assert f"{IDLE}: a reward by turn pays for idling ({noted})" in said
    else:
        assert "idling" not in said


PRICED = """
def compute_score(data_source, solution_str, ground_truth, extra_info, *, pay=0.0):
    return extra_info["episode"]["outcome"]["passed"] * (1 + pay)
"""


@pytest.mark.parametrize("first", [True, False], ids=["before the options", "behind them"])
@pytest.mark.parametrize(
    ("given", "status", "said"),
    [
        ([], 0, " 1.000 "),
        (["pay=0.25"], 0, " 1.250 "),
        (["pay=-1", "pay=2"], 0, " 3.000 "),
        (["pya=1"], 2, "takes no argument pya; its parameters are"),
    ],
)
def test_a_reward_of_ones_own_is_audited_with_the_arguments_given(given, status, said, first, tmp_path, capfd):
    (reward := tmp_path / "mine.py").write_text(PRICED)
    options = ["--environment", str(write_example(tmp_path)), "--tasks", "2", "--reward", str(reward)]
    assert main([*given, *options] if first else [*options, *given]) == status
    assert said in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["price=0.1"], "price: an argument is for a reward of your own; name its file with --reward FILE"),
        (["--reward", "mine.py", "price"], "'price' is not NAME=VALUE"),
        (["--reward", "mine.py", "=1"], "'=1' is not NAME=VALUE"),
    ],
)
def test_what_is_no_argument_of_a_reward_is_said(given, said, capfd):
    with pytest.raises(SystemExit):
        main(given)
    assert said in capfd.readouterr().err


def test_the_step_reward_says_where_its_facts_are_listed_and_with_those_it_is_audited(tmp_path, capfd):
    own = write_example(tmp_path)
    assert main(["--environment", str(own), "--tasks", "2"]) == 0
    page, _, heading = capfd.readouterr().out.partition("gives no `gold_calls`")[2].partition("(")[2].partition("#")
    heading = heading.partition(")")[0]
    assert page == "docs/your_tools.md"
    _, found, below = DOCUMENTED.read_text().partition(f"\n## {heading.replace('-', ' ').capitalize()}\n")
    assert found and {"gold_calls", "has_gold", "gold", "closeness"} == set(
        re.findall(r"^\| `(\w+)` \| ", below.partition("\n## ")[0], re.MULTILINE)
    )
    text = own.read_text()
    worked = """return ToolResult(f'{{"{good}": {self.stock[good]}}}')"""
    given = "facts={'gold_calls': 1}"
    assert worked in text and VERDICTS in text
    text = text.replace(worked, worked[:-1] + ", facts={'gold': 0 if call == self.task.call else None})")
    own.write_text(text.replace(VERDICTS, VERDICTS.replace("self.passed),)", f"self.passed, {given}),)")))
    for cached in (environments._module, environments.load_tasks):
        cached.cache_clear()
    assert main(["--environment", str(own), "--tasks", "2"]) == 0
    said = capfd.readouterr().out
    (row,) = [line.split() for line in said.splitlines() if line.startswith("step ") and " move " in line]
    assert float(row[3]) == 3.0 and "left out" not in said, "what gold earns at most, in one turn"
