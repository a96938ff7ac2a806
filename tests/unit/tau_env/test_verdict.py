"""The official reward's parts, one by one, on a domain of three lines."""

from types import SimpleNamespace

from interaction.call import Call
from tau_env.domain import Action, Assertion, Story, Task
from tau_env.verdict import judge


class Sum:
    """A database that is a number."""

    def __init__(self):
        self.total = 0

    def call(self, call, side):
        self.total += call.arguments.get("n", 0)

    def holds(self, assertion):
        return (self.total > 0) == assertion.expected

    def digest(self):
        return str(self.total)


class Opened(SimpleNamespace):
    """Counts how often a state is opened."""

    count = 0

    def open(self, task):
        self.count += 1
        return Sum()


GOLD = (("agent", Call("add", {"n": 2})),)


def make(number="1", gold=GOLD, basis=("DB", "COMMUNICATE"), **fields):
    actions = tuple(action if isinstance(action, Action) else Action(*action) for action in gold)
    values = {"setup": (), "assertions": (), "communicate": (), **fields}
    return Task("sums", number, "x", Story(""), gold=actions, basis=basis, **values)


def at(total):
    database = Sum()
    database.total = total
    return database


def test_only_parts_of_the_basis_are_judged():
    task = make(assertions=(Assertion("user", "positive", {}, True),))
    assert judge(Opened(), task, at(2), (), ()) == {"db": 1.0, "communicate": 1.0}
    assert judge(Opened(), make(basis=()), at(7), (), ()) == {}


def test_the_database_is_compared_with_gold_however_it_was_reached_and_gold_is_played_once():
    domain, task = Opened(), make(number="2")
    assert [judge(domain, task, at(total), (), ())["db"] for total in (0, 1, 2, 3)] == [0, 0, 1, 0]
    assert domain.count == 1


def test_what_had_to_be_said_is_looked_for_in_single_messages():
    for wanted, said, found in (
        (("1200",), ("You owe 1,200 dollars",), 1.0),
        (("1,200",), ("You owe 1,200 dollars",), 0.0),
        (("Gate B",), ("it is GATE b",), 1.0),
        (("one", "two"), ("two", "one"), 1.0),
        (("one", "two"), ("one",), 0.0),
        (("one two",), ("one ", "two"), 0.0),
        (("x",), (), 0.0),
        ((), (), 1.0),
    ):
        assert judge(Opened(), make(communicate=wanted), at(2), (), said)["communicate"] == found, (wanted, said)


def test_all_assertions_must_hold():
    both = tuple(Assertion("user", "positive", {}, expected) for expected in (True, False))
    assert judge(Opened(), make(basis=("ENV_ASSERTION",), assertions=both), at(1), (), ()) == {"env_assertion": 0.0}
    assert judge(Opened(), make(basis=("ENV_ASSERTION",), assertions=both[:1]), at(1), (), ()) == {"env_assertion": 1.0}


def test_an_action_is_found_by_the_arguments_that_count():
    for compare, arguments, matches in (
        (None, {"n": 2, "why": "a"}, True),
        (None, {"n": 2}, False),
        (("n",), {"n": 2, "why": "b"}, True),
        (("n",), {"n": 3, "why": "a"}, False),
        (("n",), {}, False),
        ((), {"n": 9}, True),
    ):
        task = make(gold=(Action("agent", Call("add", {"n": 2, "why": "a"}), compare),), basis=("ACTION",))
        calls = [("agent", Call("other", {"n": 2, "why": "a"})), ("agent", Call("add", arguments))]
        assert judge(Opened(), task, at(0), calls, ()) == {"action": float(matches)}, (compare, arguments)
        assert judge(Opened(), task, at(0), calls[:1], ()) == {"action": 0.0}
