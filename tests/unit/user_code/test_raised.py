"""What the user's code raised is told with the line of their file, and with the keys that there are."""

import importlib.util
import inspect
import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.user_code.raised import MOST_KEYS, file_of, told

RECORD = {"turns": [{"passed": True, "facts": {"gold": None}}], "task_id": "a", "stop_reason": "completed"}


def said(tmp_path: Path, body: str, record: Any = RECORD, head: str = "") -> str:
    """What is told of a function of a file of the user's, whose second line the body begins in."""
    path = tmp_path / f"mine_{next(COUNT)}.py"
    path.write_text(f"{head}def score(record):\n" + "".join(f"    {line}\n" for line in body.splitlines()), "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(BaseException) as error:  # noqa: PT011
        module.score(record)
    line = told(error.value, str(path))
    assert "\n" not in line
    return line.replace(path.name, "mine.py")


COUNT = itertools.count()

KEYS = {
    "return record['turn']": "KeyError: 'turn' at mine.py:2; record has turns, ",
    "x = 1\nreturn record['turn']": "at mine.py:3; record has turns, ",
    "return [turn['pased'] for turn in record['turns']]": "at mine.py:2; turn has passed, facts",
    "return sum(t['pased'] for t in record['turns'])": "at mine.py:2; t has passed, facts",
    "return record['turns'][0]['facts']['golden']": "; record['turns'][0]['facts'] has gold",
    "name = 'gold_calls'\nreturn record['turns'][0]['facts'][name]": "'gold_calls' at mine.py:3; record['turns'][0]",
    "turn = record['turns'][0]\nreturn turn[\n    'pased'\n]": "; turn has passed, facts",
    "return {}['a']": "KeyError: 'a' at mine.py:2",
    "empty = {}\nreturn empty['a']": "KeyError: 'a' at mine.py:3; empty is empty",
    "return 'ä' + 'ü' * 3 + record['turn']": "; record has turns, ",
    "return (lambda one: one['turn'])(record)": "; one has turns, ",
    "return record.turns": "at mine.py:2; it is a dict: write ['turns']",
    "return record['turns'][0].pased": "; that dict has passed, facts",
    "del record['turn']": "; record has turns, ",
    "return record['turns'][-1]['pased']": "at mine.py:2; record['turns'][-1] has passed, facts",
}


@pytest.mark.parametrize("body", KEYS)
def test_a_key_that_there_is_not_is_told_with_its_line_and_the_keys_nearest_first(body: str, tmp_path: Path) -> None:
    assert KEYS[body] in said(tmp_path, body)


ELSEWHERE = {
    "return 1 / 0": "ZeroDivisionError: division by zero at mine.py:2",
    "raise KeyError('of my own')": "KeyError: 'of my own' at mine.py:2",
    "raise KeyError": "KeyError at mine.py:2",
    "return record.pop('turn')": "KeyError: 'turn' at mine.py:2",
    "raise SystemExit(3)": "SystemExit: 3 at mine.py:2",
    "return int('x')": "at mine.py:2",
    "import json\nreturn json.loads('{')": "at mine.py:3",
    "return score(record)": "at mine.py:2",
    "return (3).turns": "AttributeError: 'int' object has no attribute 'turns' at mine.py:2",
    "return {**record, 'a': make()['turn']}": "KeyError: 'turn' at mine.py:2",
    "return make()['turn']": "KeyError: 'turn' at mine.py:2",
    "return record[{}.get(0, 'turns')][0]['pased']": "KeyError: 'pased' at mine.py:2",
    "i = 1\nreturn record['turns'][i - 1]['pased']": "KeyError: 'pased' at mine.py:3",
    "return record['turns'][:1][0]['pased']": "KeyError: 'pased' at mine.py:2",
    "of = {None: {'wrong': 1}, 'a': {'right': 2}}\nreturn of[str('a')]['c']": "KeyError: 'c' at mine.py:3",
    "of = {None: {'wrong': 1}, -1: {'right': 2}}\nreturn of[~0]['c']": "KeyError: 'c' at mine.py:3",
    "of = {(1,): {'right': 2}}\nkey = (1,)\nreturn of[key]['c']": "KeyError: 'c' at mine.py:4",
}
HEAD = "def make(): return {'turns': 1}\n"


@pytest.mark.parametrize("body", ELSEWHERE)
def test_any_other_exception_is_told_with_its_line_alone(body: str, tmp_path: Path) -> None:
    line = said(tmp_path, body.replace("make()", "(lambda: {'turns': 1})()"))
    assert line.endswith(ELSEWHERE[body])


def test_a_mapping_of_the_users_is_not_called_again(tmp_path: Path) -> None:
    class Loud(dict):
        asked = 0

        def __getitem__(self, key: Any) -> Any:
            Loud.asked += 1
            return super().__getitem__(key)

    loud = Loud(a={"b": 1})
    assert said(tmp_path, "return record['a']['c']", loud).endswith("KeyError: 'c' at mine.py:2")
    assert Loud.asked == 1


class Armed:
    """Nothing of it is to be run once it is armed."""

    armed = False

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)

    def __hash__(self) -> int:
        assert not Armed.armed
        return hash("a")

    def _refused(self, *_: Any) -> Any:
        assert not Armed.armed
        return False

    __eq__ = __str__ = __repr__ = __len__ = __bool__ = _refused  # type: ignore[assignment]


class Endless(Mapping[str, Any]):
    """A mapping that says a key is missing, and lists keys without end."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (str(number) for number in itertools.count())

    def __len__(self) -> int:
        return 3

    def __contains__(self, key: object) -> bool:
        raise AssertionError(key)


class Text(str):
    """A text whose comparison is the user's."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        assert not Armed.armed
        return super().__eq__(other)

    def __str__(self) -> str:
        raise AssertionError

    __repr__ = __str__


THEIRS = {
    "an endless mapping": ("return record['a']", Endless(), "KeyError: 'a' at mine.py:4"),
    "its attribute": ("return record.a", Endless(), "has no attribute 'a' at mine.py:4"),
    "a view of a mapping": ("return record['a']", MappingProxyType(Endless()), "KeyError: 'a' at mine.py:4"),
    "a key": ("return record[armed() or 'b']", {Armed(): 1, "turns": 2}, "; record has turns and 1 more"),
    "only such keys": ("return record[armed() or 'b']", {Armed(): 1}, "; record has 1 key"),
    "a key on the way": ("return record['a'][armed() or 'c']", {Armed(): 1, "a": {}}, "KeyError: 'c' at mine.py:4"),
    "a text on the way": ("return record['a'][armed() or 'c']", {Text("a"): {}}, "KeyError: 'c' at mine.py:4"),
    "a text of theirs": ("return record[armed() or 'b']", {Text("c"): 1, "a": 2}, "; record has a and 1 more"),
}


@pytest.mark.parametrize("kind", THEIRS)
def test_nothing_of_the_users_is_run_to_find_the_keys(kind: str, tmp_path: Path) -> None:
    body, record, words = THEIRS[kind]
    head = f"from {__name__} import Armed\ndef armed(): Armed.armed = True\n"
    try:
        line = said(tmp_path, body, record, head)
    finally:
        Armed.armed = False
    assert line.endswith(words)


LARGE = {
    "many": ("return record['b']", dict.fromkeys(map(str, range(100_000))), "; record has 100000 keys"),
    "many of tasks": ("return record['7']['b']", {str(one): {"a": 1} for one in range(100_000)}, "; record['7'] has a"),
    "no texts": ("return record['b']", dict.fromkeys(range(100_000)), "; record has 100000 keys"),
    "an attribute": ("return record.b", dict.fromkeys(map(str, range(100_000))), "; that dict has 100000 keys"),
    "long keys": ("return record['b' * 10**6]", {f"{one}{'a' * 10**6}": one for one in range(100)}, " more"),
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_dict_is_not_searched(kind: str, tmp_path: Path) -> None:
    body, record, words = LARGE[kind]
    said(tmp_path, "return record['x']", {"a": 1})  # what is loaded only once is loaded
    start = time.process_time()
    line = said(tmp_path, body, record)
    assert time.process_time() - start < 0.5  # it is a few milliseconds, and was seconds
    assert line.endswith(words)


def test_of_many_keys_the_nearest_are_named(tmp_path: Path) -> None:
    line = said(tmp_path, "return record['key_7']", {f"key_{index:03}": 1 for index in range(100)})
    assert line.endswith(f"and {100 - MOST_KEYS} more") and "record has key_0" in line and len(line) < 400


@given(st.dictionaries(st.text() | st.integers() | st.tuples(st.text()) | st.none(), st.none()), st.text())
def test_whatever_the_keys_are_it_is_one_line(tmp_path_factory: pytest.TempPathFactory, found: dict, key: str) -> None:
    if key not in found:
        assert " at mine.py:2" in said(tmp_path_factory.getbasetemp(), f"return record[{key!r}]", found)


def test_a_file_that_was_edited_meanwhile_gives_no_keys_of_another_line(tmp_path: Path) -> None:
    body = "import pathlib\npathlib.Path(__file__).write_text('(\\n' * 9)\nreturn record['turn']"
    assert said(tmp_path, body).endswith("KeyError: 'turn' at mine.py:4")


def test_an_exception_of_another_file_has_no_line_of_the_users() -> None:
    try:
        {}["a"]  # noqa: B018
    except KeyError as error:
        assert told(error, "/nowhere.py") == "KeyError: 'a'"
        assert told(error, None) == "KeyError: 'a'"
        assert told(error, file_of(said)).startswith("KeyError: 'a' at test_raised.py:")
    assert file_of(inspect.unwrap) is not None and file_of(len) is None
