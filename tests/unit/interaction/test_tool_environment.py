"""An ordinary class as an environment: its tools as schemas, hostile arguments, and how its state is judged."""

import asyncio
import subprocess
import sys
import time
from array import array
from collections import Counter as Counts
from collections import UserDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel, Field, PrivateAttr

from interaction import Conversation, boundary, get_protocol
from interaction.call import Call
from interaction.contract import ContractError
from interaction.environment import register
from interaction.outcome import ErrorKind
from interaction.tool_environment import ToolTask, ToolUnavailable, tools_of
from recipe.tools.audit import main as audit

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
PUT = Call("put", {"at": POINT, "color": "red"})


def task(*turns: list[Call], tools=Board, **more) -> ToolTask:
    return ToolTask("board", "t", tools, [("Go on.", calls) for calls in turns], **more)


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
    up, read, total = Call("up", {}), Call("read", {}), Call("total", {})
    one, two, three = (Call("put", {"amount": amount}) for amount in (0.1, 0.2, 0.3))
    for made, calls, verdicts in (
        (task([PUT], [PUT]), [[PUT], [PUT]], [True, True]),
        (task([PUT], [PUT]), [[PUT, PUT], []], [False, True]),
        (task([PUT], []), [[PUT], [PUT]], [True, False]),
        (task(books, **shelf), [books[::-1]], [True]),
        (task([up], **counts), [[up, read]], [True]),
        (task([read], **counts), [[read]], [True]),
        (task([read], **counts), [[]], [False]),
        (task([read, up], tools=Counter), [[up]], [True]),
        (task([one, two], [total], tools=Purse), [[three], [total]], [True, True]),
        (task([one, two], tools=Purse), [[two]], [False]),
    ):
        attempt = made.open()
        attempt.begin()
        for turn in calls:
            for call in turn:
                attempt.call(call)
            attempt.answer("")
        assert [turn.passed for turn in attempt.verdicts().turns] == verdicts, (made, calls)
        assert attempt.verdicts().passed == all(verdicts)


def test_facts_tell_which_call_of_golds_a_call_was():
    attempt = task([PUT, Call("put", {"at": POINT, "color": "blue", "size": "s"})]).open()
    blue = Call("put", {"at": {"x": 1, "y": 2.0}, "color": "blue", "note": None})
    assert [attempt.call(call).facts["gold"] for call in (blue, blue, PUT)] == [1, None, 0]


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
    books, up, read = {"start": {"books": []}}, Call("up", {}), Call("read", {})
    frame = {"reset": lambda self: setattr(self, "at", pd.DataFrame({"a": [1]}))}
    for made, said in (
        (task([up], tools=Untyped, **books), "Untyped.set: parameter at needs a type hint"),
        (task([Call("put", {})]), "gold's call put.. gives an error: at: Field required"),
        (task([], tools=dict), "dict has no public method"),
        (task([up], tools=Random, **books), "two fresh objects of Random differ"),
        (task([up], tools=type("Frame", (Counter,), frame)), "two of DataFrame .* method __eq__ or state"),
        (task([up], tools=type("Tool", (), {"up": partial(print)})), r"Tool\.up: parameter args needs"),
        (task([read], tools=returning({"a": object()})), r"Returning\.read returns object, for which JSON"),
        (task([read], tools=returning([float("nan")])), r"gold's call read\(\) gives an error: Out of range float"),
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


LOG = Counts[str]()


class Service:
    """Waits; fails, once, in what `fails` names."""

    ONCE, UNAVAILABLE = ("pay",), (ConnectionError,)

    def __init__(self, fails: str = "", error: type[Exception] = ConnectionError):
        self.at, self.fails, self.error = 0, fails, error
        self.note("init")

    def note(self, name: str):
        """Called by all."""
        LOG[name] += 1
        if name == self.fails and LOG[name] == 1:
            raise self.error("down")

    async def setup(self):
        self.note("setup")

    async def teardown(self):
        self.note("teardown")

    async def state(self):
        return self.at

    async def add(self) -> int:
        self.at += 1
        self.note("add")
        return self.at

    async def pay(self):
        self.note("pay")


def right(made, turn, calls, words):
    made.note("check")
    return made.at == len(calls)


ADD, PAY = Call("add", {}), Call("pay", {})


@pytest.fixture
def played(monkeypatch, tmp_path):
    """How an attempt ends that makes these calls and answers, and how often each method was called."""
    monkeypatch.setattr(boundary, "PAUSES", (0, 0))
    (tmp_path / "board.py").write_text("def load_tasks(): return []")
    register({"board": str(tmp_path / "board.py")})
    protocol = get_protocol("think_xml", docs="signature")

    def played(task, *calls, answer=True):
        LOG.clear()
        try:
            with Conversation(task, protocol, max_steps_per_turn=2) as conversation:
                conversation.begin()
                for call in calls:
                    conversation.reply(protocol.render_calls("t", [call]))
                if answer and not conversation.done:
                    conversation.reply(protocol.render_answer("t", "done"))
                found = conversation.record()
        except ToolUnavailable:
            return "unavailable", dict(LOG)
        return (str(found.stop_reason), found.outcome and found.outcome.passed), dict(LOG)

    return played


def test_an_attempt_is_set_up_and_ended_once_whatever_happens_between(played):
    def checked(**start):
        return task([], tools=Service, check=right, start=start)

    for made, ends, calls, answer in (
        (checked(), ("completed", True), [ADD], True),
        (checked(), ("completed", True), [], True),
        (checked(), ("max_steps", True), [ADD, ADD], True),
        (checked(), ("None", None), [ADD], False),
        (checked(fails="check", error=ValueError), ("environment_error", False), [ADD], True),
        (checked(fails="add", error=SystemExit), ("environment_error", False), [ADD], True),
        (checked(fails="teardown", error=ValueError), ("completed", True), [ADD], True),
        (checked(fails="teardown"), ("completed", True), [ADD], True),
        (checked(fails="pay"), "unavailable", [PAY], True),
        (checked(fails="setup", error=ValueError), "unavailable", [ADD], True),
    ):
        found, counts = played(made, *calls, answer=answer)
        assert found == ends and [counts.get(name) for name in ("init", "setup", "teardown")] == [1, 1, 1], (
            made,
            counts,
        )


def test_an_attempt_that_is_closed_while_it_is_set_up_is_ended_after_it(played):
    class Slow(Service):
        async def setup(self):
            await asyncio.sleep(0.1)
            self.note("setup")

        async def teardown(self):
            assert LOG["setup"] == 1
            self.note("teardown")

    LOG.clear()
    conversation = Conversation(task([ADD], tools=Slow), protocol := get_protocol("think_xml", docs="signature"))
    conversation.begin()
    with ThreadPoolExecutor() as pool:
        pool.submit(conversation.reply, protocol.render_calls("t", [ADD]))
        while not LOG["init"]:
            time.sleep(0.001)
        conversation.close()
    assert LOG["teardown"] == 1


def test_golds_calls_are_made_once_for_all_attempts_and_its_failure_is_no_models(played):
    made = task([ADD], [ADD], tools=Service)
    LOG.clear()
    for _ in range(8):
        attempt = made.open()
        for _ in range(2):
            attempt.call(ADD)
            attempt.answer("")
        assert attempt.verdicts().passed
        attempt.close()
    assert LOG == {"init": 9, "setup": 9, "add": 18, "teardown": 9}
    wrong = task([PAY], tools=Service, start={"fails": "pay", "error": ValueError})
    assert played(wrong, ADD)[0] == "unavailable"


def test_a_failed_call_is_made_again_unless_its_class_says_once(played):
    for error, counts in ((ConnectionError, {"add": 2, "pay": 1}), (ValueError, {"add": 1, "pay": 1})):
        for call in (ADD, PAY):
            found = played(task([], tools=Service, check=right, start={"fails": call.name, "error": error}), call)
            assert found[1][call.name] == counts[call.name], (error, call)


async def test_calls_of_one_message_run_beside_each_other_where_the_class_says_so():
    class Meets:
        PARALLEL = WAITS = True

        def __init__(self):
            self.barrier = Barrier(3)

        def meet(self, n: int) -> int:
            self.barrier.wait(5)
            return 1 // n

    attempt = task([], tools=Meets, check=right).open()
    results = attempt.call_all([Call("meet", {"n": n}) for n in (1, 0, 1)])
    assert [result.text for result in results] == ["1", "integer division or modulo by zero", "1"]


def test_a_check_gives_a_share_or_is_refused():
    for value, share in ((True, 1.0), (np.bool_(True), 1.0), (np.float32(0.5), 0.5), (0, 0.0), (1, 1.0)):
        attempt = task([], tools=Counter, check=lambda *_, value=value: value).open()
        attempt.answer("")
        assert (attempt.verdicts().turns[0].facts["share"], attempt.verdicts().passed) == (share, share == 1)
        attempt = task([], tools=Counter, check_episode=lambda *_, value=value: value).open()
        attempt.answer("")
        assert attempt.verdicts().turns[0].passed is None and attempt.verdicts().passed is (share == 1)
    for value in (None, 2, -0.1, float("nan"), "yes", []):
        with pytest.raises(ContractError, match=r"check\(\) gives"):
            task([], tools=Counter, check=lambda *_, value=value: value).open().answer("")
