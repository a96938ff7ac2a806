"""An ordinary class as an environment: its tools as schemas, hostile arguments, and how its state is judged."""

import subprocess
import sys
import time
from array import array
from collections import UserDict
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, Field, PrivateAttr

from data_prep.__main__ import main as prepare
from interaction import Conversation, boundary, get_protocol, gold
from interaction.call import Call
from interaction.contract import ContractError
from interaction.environment import named
from interaction.gold import check_attempts, given_turns, play_gold
from interaction.outcome import ErrorKind
from interaction.policy import FromGold
from interaction.tool_environment import ToolTask, ToolUnavailable, tools_of
from recipe.preflight.tokens import Budget, over_budget
from recipe.tools.audit import main as audit
from rewards.metrics import episode_metrics

ROOT, N = Path(__file__).parents[3], np.int64(1)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Board(UserDict):
    Unit = Literal["m"]
    points: list[Point] = field(default_factory=list)

    def put(self, at: Point, color: Color, size: Literal["s", "m"] = "s", note: str | None = None, schema: int = 1):
        """Put a point on the board.

        Args:
            at: where it goes
        """
        if at.x < 0:
            raise KeyError("off the board")
        self.points.append(at)
        return f"{len(self.points)} {color.value}"

    def points_of(self, tags: dict[str, list[int]]) -> list[Point]:
        return self.points

    @staticmethod
    def near(to: Annotated[str, Field(description="where", min_length=2)], by: Annotated[int, "how"] = N) -> "X": ...  # noqa: F821

    def _hidden(self): ...


def test_types_defaults_and_docstrings_become_json_schema():
    tools = tools_of(Board)
    assert [*tools] == ["put", "points_of", "near"]
    schema = tools["put"].schema
    assert schema["description"] == "Put a point on the board." and schema["parameters"]["required"] == ["at", "color"]
    point = {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}}
    assert schema["parameters"]["properties"] == {
        "at": {"type": "object", "properties": point, "required": ["x"], "description": "where it goes"},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "string", "enum": ["s", "m"], "default": "s"},
        "note": {"type": "string", "nullable": True, "default": None},
        "schema": {"type": "integer", "default": 1},
    }
    tags = {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}
    assert tools["points_of"].schema["parameters"]["properties"] == {"tags": tags}
    assert tools["near"].schema["parameters"]["properties"] == {
        "to": {"type": "string", "description": "where", "minLength": 2},
        "by": {"type": "integer", "description": "how", "default": 1},
    }


POINT = {"x": 1, "y": 2}
PUT, UP, READ = Call("put", {"at": POINT, "color": "red"}), Call("up", {}), Call("read", {})


def task(*turns: list[Call], tools=Board, **more) -> ToolTask:
    return ToolTask("board", "t", tools, [(f"Go {at}.", calls) for at, calls in enumerate(turns)], policy="Go.", **more)


def test_a_wrong_call_is_an_error_and_changes_nothing():
    bad = ErrorKind.BAD_ARGUMENTS
    for call, kind, said in (
        (Call("put", {"at": {"x": True}, "color": "red"}), bad, "at.x: "),
        (Call("put", {"at": POINT, "color": "RED"}), bad, "color: "),
        (Call("put", {"at": POINT, "color": "red", "self": 1}), bad, "self: "),
        (Call("put", {"at": POINT, "color": "\ud800"}), bad, "JSON"),
        (Call("put", {"at": {"x": 10**1200}, "color": "red", "size": []}), bad, "size"),
        (Call("put", {}, (POINT, "red")), bad, "put takes"),
        (Call("near", {"to": "a"}), bad, "to: "),
        (Call("put", {"at": {"x": -1}, "color": "red"}), ErrorKind.EXECUTION, "off the board"),
        (Call("__init__", {"points": []}), ErrorKind.UNKNOWN_FUNCTION, "__init__"),
    ):
        attempt = task([PUT]).open()
        result = attempt.call(call)
        assert result.error is kind and said in result.text and attempt.object == Board(), call
        assert attempt.call(PUT).text == "1 red" and attempt.answer("") is None and attempt.verdicts().passed, call
    given = task([PUT], start={"points": []})
    attempt = given.open()
    attempt.call(Call("put", {"at": {"x": 3}, "color": "red"}))
    assert attempt.answer("") is None and not attempt.verdicts().passed and given.start == {"points": []}


class Shelf:
    """Compared by `state()`; begins as `reset` says, with whatever else stands in a row."""

    def reset(self, books: list[str], **_):
        self.books, self.lock = list(books), object()

    def state(self):
        return sorted(self.books)

    def add(self, title: str):
        self.books.append(title)


class Counter:
    """Compared by its attributes; begins with the arguments of the constructor."""

    def __init__(self, at: int = 0):
        self.at = at

    def up(self):
        self.at += 1

    def read(self) -> int:
        return self.at


class Kept(BaseModel, extra="allow"):
    _at: float = PrivateAttr(0.0)


@dataclass
class Purse:
    held: tuple = (Point(0),)

    def put(self, amount: float):
        total = self.held[0].y + amount
        self.held = (Point(0, total), {total: total}, {total}, np.full(2, total), Kept(to=total), Counter(total))
        self.held[4]._at, self.held[5].up = total, array("d", [total])

    def total(self) -> float:
        return self.held[0].y


def test_turns_are_judged_by_state_and_reading_ones_by_what_was_seen():
    books = [Call("add", {"title": title}) for title in "BC"]
    shelf, counts = {"tools": Shelf, "start": {"books": "A", "n": 1}}, {"tools": Counter, "start": {"at": 3}}
    total = Call("total", {})
    one, two, three, million = (Call("put", {"amount": amount}) for amount in (0.1, 0.2, 0.3, 1e6))
    for made, calls, verdicts in (
        (task([PUT], [PUT]), [[PUT], [PUT]], [True, True]),
        (task([PUT], [PUT]), [[PUT, PUT], []], [False, True]),
        (task([PUT], [], []), [[PUT], "I cannot do that.", []], [True, True, False]),
        (task(books, **shelf), [books[::-1]], [True]),
        (task(books, **shelf | {"tools": partial(Shelf)}), [books[::-1]], [True]),
        (task([UP], **counts), [[UP, READ]], [True]),
        (task([READ], [READ], **counts), [[READ], []], [True, False]),
        (task([READ, UP], tools=Counter), [[UP]], [True]),
        (task([one, two], [total], tools=Purse), [[three], [total]], [True, True]),
        (task([one, two], tools=Purse), [[two]], [False]),
        (task([million], tools=Purse), [[Call("put", {"amount": 1e6 + 0.5})]], [False]),
    ):
        attempt = made.open()
        assert (request := attempt.begin()).policy == "Go."
        for number, turn in enumerate(calls):
            assert request.user == f"Go {number}."
            for call in turn if isinstance(turn, list) else ():
                attempt.call(call)
            request = attempt.answer("" if isinstance(turn, list) else turn)
        assert [turn.passed for turn in attempt.verdicts().turns] == verdicts, (made, calls)
        assert attempt.verdicts().passed == all(verdicts)


def test_facts_tell_which_call_of_golds_a_call_was():
    attempt = task([PUT, Call("put", {"at": POINT, "color": "blue", "size": "s"})]).open()
    blue = Call("put", {"at": {"x": 1, "y": 2.0}, "color": "blue", "note": None})
    assert [attempt.call(call).facts["gold"] for call in (blue, blue, PUT)] == [1, None, 0]
    assert attempt.verdicts().turns[0].facts["gold_arguments"][0] == {"at": [POINT], "color": ["red"]}
    attempt = task([UP], tools=Counter).open()
    found = [attempt.call(call).facts["gold"] for call in (Call("up", {"x": 1}), UP)]
    assert found == [None, 0], "what fails is not gold's"


def returning(value):
    return type("Returning", (), {"read": lambda self: value})


def test_results_of_any_type_are_written_as_json():
    for value, text in (
        (np.int64(123456), "123456"),
        ({"a": np.arange(3), np.int8(1): np.bool_(True)}, '{"a":[0,1,2],"1":true}'),
        ([{"b", "a"}, (Point({"d", "c"}), date(2026, 1, 2))], '[["a","b"],[{"x":["c","d"],"y":0.0},"2026-01-02"]]'),
        ([Color.RED, {1: 2}.keys(), "x" * 5000], f'["red",[1],"{"x" * 5000}"]'),
    ):
        assert task([], tools=returning(value)).open().call(Call("read", {})).text == text


class Random(Shelf):
    state = object.__hash__


class Untyped(Shelf):
    def set(self, at):
        self.books = at


def test_what_could_not_be_judged_is_refused():
    books = {"start": {"books": []}}
    frame = {"reset": lambda self: setattr(self, "at", pd.DataFrame({"a": [1]}))}
    for made, said in (
        (task([UP], tools=Untyped, **books), "Untyped.set: parameter at needs a type hint"),
        (task([Call("put", {})]), "gold's call put.. gives an error: at: Field required"),
        (task([], tools=dict), "dict has no public method"),
        (task([UP], tools=Random, **books), "two fresh objects of Random differ"),
        (task([UP], tools=type("Frame", (Counter,), frame)), "two of DataFrame .* method __eq__ or state"),
        (task([UP], tools=type("Tool", (), {"up": partial(print)})), r"Tool\.up: parameter args needs"),
        (task([READ], tools=returning({"a": object()})), r"Returning\.read returns object, for which JSON"),
        (task([READ], tools=returning([float("nan")])), r"gold's call read\(\) gives an error: Out of range float"),
    ):
        with pytest.raises(ContractError, match=said):
            made.open()


def test_the_example_passes_its_audit_and_the_copy_its_test(tmp_path: Path):
    example = ROOT / "interaction" / "new" / "library.py"
    assert example.read_text() in (ROOT / "docs" / "your_tools.md").read_text(), "the page shows it"
    make = [sys.executable, "-m", "interaction.new", "toy_shop"]
    codes = [subprocess.run(make, cwd=tmp_path, capture_output=True).returncode for _ in range(2)]
    assert codes == [0, 2], "the second time nothing is overwritten"
    tested = [sys.executable, "-m", "pytest", "-q", "test_toy_shop.py", "-p", "no:cacheprovider"]
    assert subprocess.run(tested, cwd=tmp_path, capture_output=True).returncode == 0
    assert audit(["--environment", str(tmp_path / "toy_shop.py"), "--tasks", "all"]) == 0


SERVICE = """
import asyncio
from collections import Counter
from interaction.tool_environment import Call, ToolTask
LOG = Counter()
class Service:
    ONCE, UNAVAILABLE = ("pay",), (ConnectionError,)
    def __init__(self, fails="", error=ConnectionError):
        self.fails, self.error, self.at, LOG["init"] = fails, error, [], LOG["init"] + 1
    async def _note(self, name):
        LOG[name] += 1
        if (name, LOG[name]) == (self.fails, 1): raise self.error("down")
    async def setup(self): await asyncio.sleep(0.01); await self._note("setup")
    async def teardown(self): await self._note("teardown")
    async def state(self): return self.at
    async def pay(self): await self._note("pay")
    async def add(self): await self._note("add"); self.at.append(0)
async def right(made, turn, calls, words):
    await made._note("check")
    return len(made.at) == len(calls)
def load_tasks(): return [ToolTask("board", "t", Service, ["Go on."], check=right)]
"""
ADD, PAY, THINK = Call("add", {}), Call("pay", {}), get_protocol("think_xml", docs="signature")
SAID = {call: THINK.render_calls("t", [Call(call, {})]) for call in ("add", "pay")} | {"": THINK.render_answer("t", "")}


@pytest.fixture
def service(tmp_path, monkeypatch):
    """The module, made known as the environment of `task`."""
    monkeypatch.setattr(boundary, "PAUSES", (0, 0))
    (tmp_path / "board.py").write_text(SERVICE)
    return sys.modules[f"user_file_{named(str(tmp_path / 'board.py'))}"]


def test_an_attempt_is_set_up_and_ended_once_and_nothing_of_a_service_is_scored(service):
    for fails, error, said, reason, counts in (
        ("", OSError, ["add", ""], "completed", {"add": 1, "check": 1}),
        ("add", ConnectionError, ["add", "add"], "max_steps", {"add": 3, "check": 1}),
        ("", OSError, ["add"], "infrastructure", {"add": 1}),
        ("pay", ConnectionError, ["pay"], None, {"pay": 1}),
        ("check", OSError, ["add", ""], "environment_error", {"add": 1, "check": 1}),
        ("setup", OSError, ["add"], None, {}),
        ("teardown", ConnectionError, ["add", ""], "completed", {"add": 1, "check": 1, "teardown": 2}),
    ):
        service.LOG.clear()
        made = task([], tools=service.Service, check=service.right, start={"fails": fails, "error": error})
        conversation = Conversation(made, THINK, max_steps_per_turn=2)
        with conversation, nullcontext() if reason else pytest.raises(ToolUnavailable):
            conversation.begin()
            for text in said:
                conversation.reply(SAID[text])
        assert service.LOG == {"init": 1, "setup": 1, "teardown": 1} | counts, (fails, error, said)
        assert not reason or conversation.stop_reason == reason


def test_an_attempt_that_is_closed_while_it_is_set_up_is_ended_after_it(service):
    conversation = Conversation(task([ADD], tools=service.Service), THINK, call_timeout=7)
    conversation.begin()
    assert conversation._environment._seconds == 7
    (replying := Thread(target=conversation.reply, args=[SAID["add"]])).start()
    while not service.LOG:
        time.sleep(0.001)
    conversation.close()
    replying.join()
    assert [*service.LOG][:2] == ["init", "setup"] and service.LOG["teardown"] == 1


def test_golds_calls_are_made_once_and_their_failure_is_not_the_models(service):
    for kind, add, look in ((service.Service, ADD, PAY), (type("Slow", (Counter,), {"WAITS": True}), UP, READ)):
        made = task([add], [add], [look], tools=kind)
        for number, attempt in enumerate([made.open() for _ in range(8)]):
            for calls in ([add], [add], [look] * (number % 2)):
                assert [attempt.call(call).error for call in calls] == [None] * len(calls)
                attempt.answer("")
            assert [turn.passed for turn in attempt.verdicts().turns] == [True, True, number % 2 == 1]
            attempt.close()
    assert service.LOG == {"init": 9, "setup": 9, "add": 18, "pay": 5, "teardown": 9}
    service.LOG.clear()  # a service fails the first time
    with pytest.raises(ToolUnavailable, match="gold of t"):
        task([PAY], tools=service.Service, start={"fails": "pay", "error": OSError}).open().answer("")


def test_gold_says_what_a_check_of_words_wants_to_hear():
    def values(calls):
        return [made.value for made in calls]

    turns = [("Count!", [UP, READ], "How far?"), ("Once.", [UP, READ])]
    checks = {"check": lambda made, turn, calls, words: values(calls) == [None, turn + 1] and words == words_of[turn]}
    checks["check_episode"] = lambda made, calls, words: values(calls) == [None, 1, None, 2] and words == "Done."
    asked, words_of = ToolTask("tools", "t", Counter, turns, **checks), ("How far?", "Done.")
    assert [message.answer for message in asked.gold()] == ["", "", "How far?", "", "", "Done."]
    for words, passed in (("How far?", True), ("Done.", False)):
        attempt = asked.open()
        for said in (words, "Done."):
            attempt.call(UP)
            attempt.call(READ)
            attempt.answer(said)
        assert attempt.verdicts().passed is passed


def test_a_check_gives_a_share_or_is_refused():
    for value in (np.bool_(True), np.float32(0.5), 0):
        for name in ("check", "check_episode"):
            (attempt := task([], tools=Counter, **{name: lambda *_, value=value: value}).open()).answer("")
            found = attempt.verdicts()
            assert found.components.get("episode", found.turns[0].facts.get("share")) == float(value)
            assert found.passed is (float(value) == 1) and found.turns[0].facts["has_gold"], "words alone are not work"
    for turns, known in ((["Go."], False), ([("Go.", [])], True)):
        (turn,) = replace(task(check=lambda *_: 1), turns=turns).open().verdicts().turns
        assert ("gold_calls" in turn.facts) is known, "where gold is not given no call is one too many"
    for value in (None, 2, -0.1, float("nan"), "yes"):
        with pytest.raises(ContractError, match=r"check\(\) gives"):
            task([], tools=Counter, check=lambda *_, value=value: value).open().answer("")


def test_a_service_that_is_down_is_no_fault_of_gold_and_budgets_call_no_tool(service, tmp_path, capsys, monkeypatch):
    made = task([ADD], [ADD], tools=service.Service, start={"fails": "add", "error": OSError})
    paying = replace(made, start={"fails": "pay"}, turns=[("a", [PAY])])
    assert play_gold(paying, THINK)[1].outcome.passed, "gold that fails once begins anew"
    service.LOG.clear()
    monkeypatch.setattr(gold, "ATTEMPTS", 1)
    with pytest.raises(ToolUnavailable, match="down"):
        check_attempts(paying)
    service.LOG.clear()
    assert not over_budget([made], THINK, {}, None, Budget(1, 1, 1)) and not service.LOG
    source = (tmp_path / "board.py").read_text().replace('"board"', '"later"')
    (tmp_path / "later.py").write_text(source.replace('["Go on."]', '[("Go on.", [Call("add", {})])]'))
    given = ["--environment", str(tmp_path / "later.py"), "--out", str(tmp_path / "data"), "--docs", "signature"]
    assert prepare([*given, "--unplayed"]) == 0 and not sys.modules["user_file_later"].LOG
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " rows " in line]
    assert rows == ["1", "0", "0"], "to train on, held out, and gold conversations"
    assert prepare(given) == 0 and sys.modules["user_file_later"].LOG["add"] and "wait" in capsys.readouterr().out


def test_shares_of_a_check_count_in_progress_and_only_whole_ones_in_acc(service):
    for given, progress, acc in (
        ({"check": lambda *_: 0.5}, 0.5, 0),
        ({"check_episode": lambda *_: 0.25}, 0.25, 0),
        ({"check": lambda *_: True, "check_episode": lambda *_: 1}, 1, 1),
        ({"check": lambda *_: True, "check_episode": lambda *_: 0.5}, 1, 0),
    ):
        with Conversation(task([UP], [UP], tools=Counter, **given), THINK) as conversation:
            conversation.begin()
            assert given_turns(conversation, FromGold(share=1.0, steps=1), 1) == ("check" in given), "else it is paid"
            [conversation.reply(SAID[""]) for _ in range(2)]
        found = episode_metrics(conversation.record().to_dict())
        assert (found["progress"], found["acc"]) == (progress, acc), given
    made = task([UP], [UP], tools=Counter, check_episode=lambda *_: 0.25)
    with Conversation(made, THINK, max_steps=1) as conversation:
        [conversation.begin(), conversation.reply(SAID[""])]
    assert episode_metrics(conversation.record().to_dict())["progress"] == 0.25, "an answer was the last step"
    with pytest.raises(ContractError, match="tools must be Slow itself"):
        task([], tools=lambda: type("Slow", (Counter,), {"WAITS": True})()).open()
