"""The official reward's parts, one by one, on a domain of three lines."""

from types import SimpleNamespace

from interaction.call import Call
from tau_env.domain import Action, Assertion, Story, Task
from tau_env.verdict import judge


class Sum:
    """A database that is a number."""

    def __init__(self, total=0):
        self.total = total

    def call(self, call, side):
        self.total += call.arguments.get("n", 0)

    def holds(self, assertion):
        return (self.total > 0) == assertion.expected

    def digest(self):
        return str(self.total)


GOLD = Action("agent", Call("add", {"n": 2}))


def judged(total, basis, calls=(), said=(), gold=GOLD, **fields):
    """Parts of the verdict on a state."""
    values = {"setup": (), "assertions": (), "communicate": (), **fields}
    task = Task("sums", "1", "x", Story(""), gold=(gold,), basis=basis, **values)
    return judge(SimpleNamespace(open=lambda task: Sum()), task, Sum(total), calls, said)


def test_only_parts_of_the_basis_are_judged_and_the_database_is_compared_with_gold():
    assert judged(7, ()) == {}
    assert [judged(total, ("DB",)) for total in (1, 2, 3)] == [{"db": 0.0}, {"db": 1.0}, {"db": 0.0}]


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
        assert judged(2, ("COMMUNICATE",), said=said, communicate=wanted) == {"communicate": found}, (wanted, said)


def test_all_assertions_must_hold():
    both = tuple(Assertion("user", "positive", {}, expected) for expected in (True, False))
    for assertions, holds in ((both, 0.0), (both[:1], 1.0)):
        assert judged(1, ("ENV_ASSERTION",), assertions=assertions) == {"env_assertion": holds}


def test_an_action_is_found_by_the_arguments_that_count():
    wanted = {"n": 2, "why": "a"}
    for compare, arguments, matches in (
        (None, wanted, True),
        (None, {"n": 2}, False),
        (("n",), {"n": 2, "why": "b"}, True),
        (("n",), {"n": 3, "why": "a"}, False),
        (("n",), {}, False),
        ((), {"n": 9}, True),
    ):
        gold = Action("agent", Call("add", wanted), compare)
        calls = [("agent", Call("other", wanted)), ("agent", Call("add", arguments))]
        assert judged(0, ("ACTION",), calls, gold=gold) == {"action": float(matches)}, (compare, arguments)
        assert judged(0, ("ACTION",), calls[:1], gold=gold) == {"action": 0.0}
