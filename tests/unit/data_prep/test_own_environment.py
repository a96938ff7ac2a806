"""Data of an environment of a user's: what does not fulfil the contract ends with one line, and nothing is written."""

import subprocess
import sys

import pytest
from support.own_environment import GOLD, VERDICTS, example

from data_prep.__main__ import main

TASK = "id='a', cluster='a', environment='inventory', category='c', part='train'"
SPACE = "from types import SimpleNamespace as Space\n"
LOADED = {
    "no Python": ("x = = 1", "SyntaxError"),
    "raises": ("1 / 0", "raises ZeroDivisionError: division by zero at inventory.py:1"),
    "exits": ("raise SystemExit('bye')", "raises SystemExit: bye at inventory.py:1"),
    "no function": ("tasks = []", "has no function load_tasks()"),
    "no function but a list": ("load_tasks = []", "has no function load_tasks()"),
    "another argument": ("def load_tasks(path): pass", "load_tasks() raises TypeError"),
    "tasks raise": (
        "def load_tasks():\n    return 1 / 0",
        "ZeroDivisionError: division by zero at inventory.py:2",
    ),
    "tasks exit": ("def load_tasks(): exit('bye')", "load_tasks() raises SystemExit: bye"),
    "a generator raises": ("def load_tasks():\n    yield 1 / 0", "load_tasks() raises ZeroDivisionError"),
    "nothing": ("def load_tasks(): pass", "load_tasks() gives None; expected a list of tasks"),
    "a number": ("def load_tasks(): return 3", "gives 3; expected a list of tasks"),
    "a text": ("def load_tasks(): return 'abc'", "gives 'abc'; expected a list of tasks"),
    "a dictionary": ("def load_tasks(): return {'a': 1}", "gives the dict {'a': 1}; expected a list of tasks"),
    "a coroutine": ("async def load_tasks(): return []", "gives a coroutine; expected a list of tasks"),
    "no task": ("def load_tasks(): return []", "gives no task"),
    "texts": ("def load_tasks(): return ['a']", "load_tasks()[0] is 'a', which lacks environment, id,"),
    "dictionaries": (f"def load_tasks(): return [dict({TASK})]", "is the dict {'category': 'c', 'cluster': 'a',"),
    "None among them": ("def load_tasks(): return [None]", "load_tasks()[0] is None, which lacks"),
    "a list of lists": ("def load_tasks(): return [[]]", "load_tasks()[0] is the list [], which lacks"),
    "no methods": (f"{SPACE}def load_tasks(): return [Space({TASK})]", "lacks open(), gold(); expected a task, with"),
    "methods that are none": (
        f"{SPACE}def load_tasks(): return [Space({TASK}, open=1, gold=[])]",
        "load_tasks()[0] is a SimpleNamespace, which lacks open(), gold()",
    ),
}
"""Whole files."""

FUNCTIONS = 'Request(f"Please {verb} {pieces} {good}.", FUNCTIONS, policy="You keep a stock.")'
UNKNOWN = 'ToolResult("no such function or good", ErrorKind.BAD_ARGUMENTS)'
CHANGED = {
    # tasks
    "the class": ("return tasks", "return [Task]", "is the class Task; expected a task, such as Task(...)"),
    "no category": ('category: str = "move"', "kind: int = 0", "a Task, which lacks category"),
    "no open": ("def open(self)", "def begin(self)", "a Task, which lacks open()"),
    "an id that is a number": ('f"move_{number}"', "number", "a Task whose id is 0; expected a text"),
    "half of a surrogate pair": ('f"move_{number}"', 'f"move\\ud800{number}"', "has half of a surrogate pair"),
    "an empty id": ('f"move_{number}"', '""', "a Task whose id is empty"),
    "a cluster that is a list": ("str(number)", "[number]", "whose cluster is the list [0]; expected a text"),
    "a part that is None": ("parts[number % 4]", "None", "whose part is None; expected a text"),
    "an unknown part": ('"report")\n', '"test")\n', "task move_3 has part 'test'; expected train, choose or report"),
    "a field that cannot be set": (
        'category: str = "move"',
        'category: property = property(lambda one: "a")',
        "property 'category' of 'Task' object has no setter at inventory.py:77",
    ),
    "one id for all": ('f"move_{number}"', '"move"', "59 tasks have the id of another one"),
    "clusters on both sides": ("str(number)", "str(number // 2)", "has tasks in choose and in report, such as move_2"),
    "another environment": (
        'environment: str = "inventory"',
        'environment: str = "stock"',
        "task move_0 names the environment 'stock'; expected 'inventory'",
    ),
    # open
    "open gives nothing": (
        "return Attempt(self)",
        "Attempt(self)",
        "task move_0: Task.open() gives None, which has no",
    ),
    "open gives the class": ("return Attempt(self)", "return Attempt", "gives the class Attempt; expected an attempt"),
    "open gives a dictionary": ("return Attempt(self)", "return {}", "gives the dict {}, which has no begin, call"),
    "open raises": ("return Attempt(self)", "return Attempt()", "Task.open() raises TypeError"),
    "open exits": (
        "return Attempt(self)",
        "raise SystemExit('bye')",
        "Task.open() raises SystemExit: bye at inventory.py:",
    ),
    "open does not take the settings": (
        "@dataclass(frozen=True)\nclass Task",
        "@dataclass(frozen=True)\nclass Options:\n    size: int = 3\n\n\n@dataclass(frozen=True)\nclass Task",
        "Task.open() got an unexpected keyword argument 'size'",
    ),
    "settings that are no dataclass": ("\nFUNCTIONS", "\nOptions = {'size': 3}\n\nFUNCTIONS", "Options is the dict"),
    "no answer": ("def answer(", "def respond(", "gives an Attempt, which has no answer"),
    "a method that is none": ("def cut(self, reason):", "cut = 3\n\n    def judge(self):", "which has no cut"),
    "no base": ("class Attempt(EnvironmentBase)", "class Attempt", "which has no facts, close"),
    "no over": (
        "class Attempt(EnvironmentBase):",
        "class Attempt:\n    facts = hear = close = lambda self: {}\n",
        "Attempt.over raises AttributeError: 'Attempt' object has no attribute 'over'",
    ),
    "over is a text": (
        "class Attempt(EnvironmentBase):",
        "class Attempt(EnvironmentBase):\n    over = 'no'\n",
        "Attempt.over is 'no'; expected None, or one of StopReason.completed",
    ),
    # begin
    "begin raises": ("verb, good, pieces =", "verb, good =", "Attempt.begin() raises ValueError: too many values"),
    "begin gives nothing": (f"return {FUNCTIONS}", "pass", "begin() gives None; expected Request or AskUser"),
    "begin gives a text": (FUNCTIONS, "'x'", "Attempt.begin() gives 'x'; expected Request or AskUser"),
    "no words": (FUNCTIONS, "Request(None, FUNCTIONS)", "Request.user gives None; expected str"),
    "a policy that is a list": (FUNCTIONS, "Request('x', FUNCTIONS, [])", "Request.policy gives the list []; expected"),
    "functions are None": (FUNCTIONS, "Request('x', None)", "Request.functions gives None; expected a tuple of doc"),
    "functions are a text": (FUNCTIONS, "Request('x', 'add, take')", "Request.functions gives 'add, take'; expected"),
    "functions are a dictionary": (FUNCTIONS, "Request('x', {'add': {}})", "Request.functions gives the dict"),
    "functions are names": (FUNCTIONS, "Request('x', ['add'])", "without name, description and parameters, 'add'"),
    "a function without parameters": ('"parameters": schema', '"schema": schema', "without name, description and"),
    "a function of no name": ('{"name": name,', '{"name": None,', "a function whose name is None; expected"),
    "a description that is a list": (
        '"description": description',
        '"description": []',
        "a function whose description is the list []",
    ),
    "parameters that are a list": ('"parameters": schema', '"parameters": []', "whose parameters are the list []"),
    "types in place of properties": ('{"type": kind}', "kind", "the function count whose parameters are the dict"),
    "required is a text": ("list(parameters)}", "'good'}", "whose required parameters are 'good'; expected a list"),
    "a document without a bottom": (
        '{"type": kind}',
        '{"type": __import__("functools").reduce(lambda deep, _: [deep], range(100_000), [])}',
        "the function count whose document is no JSON: maximum recursion depth",
    ),
    "a class of the same name": (
        "\n\nFUNCTIONS",
        "\n\nclass Request:\n    __init__ = lambda self, *given, **named: None\n\n\nFUNCTIONS",
        "begin() gives a Request of user_file_inventory; expected Request of interaction.environment",
    ),
    "a set in a document": ('{"type": kind}', '{"type": kind, "enum": {1}}', "whose document is no JSON: Object of"),
    "an asked user without messages": (FUNCTIONS, "AskUser('Speak!')", "an AskUser whose messages are 'Speak!'"),
    # calls
    "call raises": (
        'call.arguments.get("good")',
        'call.arguments["good"]',
        "Attempt.call(nothing(x=[1])) raises KeyErr",
    ),
    "arguments as keys": (
        "good, pieces = call",
        "{*call.arguments.values()}\n        good, pieces = call",
        "Attempt.call(nothing(x=[1])) raises TypeError: unhashable type: 'list' at inventory.py:50",
    ),
    "call gives nothing": (f"return {UNKNOWN}", "pass; return", "gives None; expected ToolResult"),
    "call gives a text": (UNKNOWN, '"no"', "gives 'no'; expected ToolResult"),
    "a result of no text": (UNKNOWN, "ToolResult({'ok': 0})", "ToolResult.text gives the dict {'ok': 0}; expected str"),
    "an error in words": (
        UNKNOWN,
        "ToolResult('no', 'no such good')",
        "ToolResult.error is 'no such good'; expected None",
    ),
    "an error that is true": (UNKNOWN, "ToolResult('no', True)", "ToolResult.error is True; expected None, or one of"),
    "an error that is an array": (
        UNKNOWN,
        "ToolResult('no', __import__('numpy').array([1, 2]))",
        "ToolResult.error is a ndarray; expected None, or one of ErrorKind.UNKNOWN_FUNCTION",
    ),
    "an error that cannot be compared": (
        UNKNOWN,
        "ToolResult('no', type('Odd', (), {'__eq__': lambda one, other: 1 / 0})())",
        "ToolResult.error is an Odd; expected None",
    ),
    "a number with too many digits for a text": (UNKNOWN, "ToolResult(10**5000)", "text gives an int; expected str"),
    "a hint that is a list": (UNKNOWN, "ToolResult('no', hint=[])", "ToolResult.hint gives the list []; expected str"),
    "facts of a call": (UNKNOWN, "ToolResult('no', facts=[])", "ToolResult.facts gives the list []; expected a dict"),
    "no facts": (
        "def answer",
        "def facts(self): pass\n\n    def answer",
        "Attempt.facts() gives None; expected a dict",
    ),
    # ends
    "answer gives a text": (
        "self.cut(None)",
        "return 'thanks'",
        "Attempt.answer() gives 'thanks'; expected Request or",
    ),
    "answer raises": ("self.cut(None)", "1 / 0", "Attempt.answer() raises ZeroDivisionError: division by zero at inv"),
    "cut gives nothing": (
        "return True\n",
        "pass\n",
        "Attempt.cut() gives None; expected True where the turn was judged",
    ),
    "no verdicts": (f"return {VERDICTS}", "pass", "Attempt.verdicts() gives None; expected Verdicts"),
    "a verdict that is a truth value": (VERDICTS, "self.passed", "verdicts() gives False; expected Verdicts"),
    "passed is None": (VERDICTS, "Verdicts((), None)", "Verdicts.passed gives None; expected bool"),
    "a verdict that cannot be compared": (
        VERDICTS,
        "Verdicts((), __import__('numpy').array([1, 2]))",
        "task move_0: Attempt.verdicts(): Verdicts.passed gives a ndarray; expected bool",
    ),
    "turns are a number": (VERDICTS, "Verdicts(1, True)", "Verdicts.turns is 1; expected a tuple of TurnResult"),
    "turns are truth values": (VERDICTS, "Verdicts([True], True)", "Verdicts.turns gives True; expected TurnResult"),
    "a turn passed by a share": (
        VERDICTS,
        "Verdicts([TurnResult('', 0.5)], True)",
        "TurnResult.passed gives 0.5; expec",
    ),
    "components are a list": (
        VERDICTS,
        "Verdicts((), True, [1.0])",
        "Verdicts.components gives the list [1.0]; expected",
    ),
    "close raises": (
        "def answer",
        "def close(self): del self.stocks\n\n    def answer",
        "Attempt.close() raises Attrib",
    ),
    # gold
    "gold raises": (f"return {GOLD}", "return 1 / 0", "Task.gold() raises ZeroDivisionError"),
    "gold raises late": (f"return {GOLD}", "yield 1 / 0", "Task.gold() raises ZeroDivisionError"),
    "gold gives nothing": (f"return {GOLD}", "pass", "task move_0: Task.gold() gives None; expected a list of GoldM"),
    "gold is a text": (GOLD, "'add'", "Task.gold() gives 'add'; expected a list"),
    "gold is one message": (GOLD, "GoldMessage((self.call,))", "Task.gold() gives a GoldMessage; expected a list"),
    "gold is a list of texts": (GOLD, '["a"]', "Task.gold() gives 'a'; expected GoldMessage or UserWords"),
    "gold is a list of calls": (GOLD, "[self.call]", "Task.gold() gives a Call; expected GoldMessage or UserWords"),
    "calls are one": (GOLD, "[GoldMessage(self.call)]", "GoldMessage.calls is a Call; expected a tuple of Call"),
    "calls are dictionaries": (
        GOLD,
        "[GoldMessage([{'name': 'add'}])]",
        "gives the dict {'name': 'add'}; expected Call(",
    ),
    "calls are texts": (
        GOLD,
        "[GoldMessage(['add()'])]",
        "GoldMessage.calls gives 'add()'; expected Call(name, argument",
    ),
    "arguments are a list": (
        GOLD,
        "[GoldMessage([Call('add', ['bolts', 3])])]",
        "Call('add', the list ['bolts', 3]): the arguments must be an object, not list",
    ),
    "an argument is no literal": (GOLD, "[GoldMessage([Call('add', {'good': {1}})])]", "not set"),
    "an answer that is None": (GOLD, "[GoldMessage(answer=None)]", "GoldMessage.answer gives None; expected str"),
    "words that are none": (GOLD, "[UserWords(3)]", "UserWords.text gives 3; expected str"),
    "gold goes on after the end": (
        GOLD,
        f"{GOLD} * 2",
        "gold of inventory/move_0: the conversation ended with completed; it takes no further reply",
    ),
    "gold has words that nobody asks for": (GOLD, '[UserWords("Hi")]', "gold of inventory/move_0: nobody was asked"),
    "gold stops early": (GOLD, "[GoldMessage((self.call,))]", "(gold ends after 1 messages, before the episode)"),
    "gold does not pass": ("1 if", "2 if", "ends with completed and does not pass in turns [0]"),
    "gold's call gives a text": (
        "return ToolResult(f'{{",
        "return str(f'{{",
        "gold of inventory/move_0 ends with environment_error (TypeError: call() gave str; expected a ToolResult",
    ),
    "gold's call raises": (
        "return ToolResult(f'{{",
        "return 1 / 0, str(f'{{",
        "gold of inventory/move_0 ends with environment_error (ZeroDivisionError: division by zero at inventory.py:57)",
    ),
    # what a file may have besides
    "files that are a list": (
        "def load_tasks():",
        "def data_sets(tiny, options): return []\n\n\ndef load_tasks():",
        "data_sets() gives the list []; expected a dictionary: name of a file -> DataSet(kind, tasks)",
    ),
    "files that are lists": (
        "def load_tasks():",
        "def data_sets(tiny, options): return {'a.parquet': []}\n\n\ndef load_tasks():",
        "data_sets() gives 'a.parquet' as the list []; expected a dictionary",
    ),
    "files with texts as tasks": (
        "def load_tasks():",
        "def data_sets(tiny, options): return {'a.parquet': DataSet('train', ['a'])}\n\n\ndef load_tasks():",
        "data_sets(): tasks of a.parquet[0] is 'a', which lacks environment, id,",
    ),
    "files with tasks that are in no list": (
        "def load_tasks():",
        "def data_sets(tiny, options):\n    task = replace(load_tasks()[0], id='b', stock=())\n"
        "    return {'a.parquet': DataSet('train', [task])}\n\n\ndef load_tasks():",
        "environment inventory: task b: Attempt.answer() raises KeyError",
    ),
    "files raise": (
        "def load_tasks():",
        "def data_sets(tiny): return {}\n\n\ndef load_tasks():",
        "data_sets() raises TypeError",
    ),
    "a source that is a text": (
        "def load_tasks():",
        "def made_from(): return 'a list'\n\n\ndef load_tasks():",
        "made_from() gives 'a list'; expected a dictionary of JSON values",
    ),
    "a source that is no JSON": (
        "def load_tasks():",
        "def made_from(): return {'from': {1}}\n\n\ndef load_tasks():",
        "made_from() gives what is no JSON: Object of type set",
    ),
    "a check that raises": (
        "def load_tasks():",
        "def check_tasks(): raise KeyError('size')\n\n\ndef load_tasks():",
        "check_tasks() raises KeyError: 'size' at inventory.py:72",
    ),
}
"""One place of the documented environment, what stands there instead, and what is said."""


@pytest.mark.parametrize("case", [*LOADED, *CHANGED])
def test_what_does_not_fulfil_the_contract_is_refused_in_one_line(case, tmp_path, capsys):
    if case in LOADED:
        source, said = LOADED[case]
    else:
        old, new, said = CHANGED[case]
        assert old in example()
        source = example().replace(old, new).replace("import Environ", "import AskUser, DataSet, UserWords, Environ")
        source = source.replace("import dataclass\n", "import dataclass, replace\n")
    path, out = tmp_path / "inventory.py", tmp_path / "data"
    path.write_text(source)
    assert main(["--environment", str(path), "--out", str(out), "--docs", "signature"]) == 1
    refused = capsys.readouterr().err
    assert refused.startswith("data_prep: ") and refused.count("\n") == 1 and said in refused
    assert "inventory" in refused or "gold of inventory/move_" in refused
    assert not out.exists(), "nothing is written"


def test_a_fault_is_told_without_a_traceback(tmp_path):
    path = tmp_path / "inventory.py"
    path.write_text(example().replace("return ToolResult(f'{{", "return 1 / 0, str(f'{{"))
    command = [sys.executable, "-m", "data_prep", "--environment", str(path), "--out", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (
        done.returncode == 1
        and done.stderr.startswith("data_prep: gold of inventory/move_")
        and done.stderr.count("\n") == 1
    )
