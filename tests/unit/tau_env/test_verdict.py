"""What had to be said, and which action was asked for: parts of the official reward that gold alone does not show."""

from typing import Any, cast

from interaction.call import Call
from tau_env.domain import Action, Story, Task
from tau_env.verdict import is_heard, judge

WANTED = {"n": 2, "why": "a"}


def judged(part: str, calls: Any = (), said: Any = (), compare: Any = None, communicate: Any = ()) -> float:
    gold, nothing = (Action("agent", Call("add", WANTED), compare),), cast(Any, None)
    task = Task("sums", "1", "x", Story(""), (), gold, (), communicate, (part,))
    (score,) = judge(nothing, task, nothing, calls, said).values()
    return score


def test_what_had_to_be_said_is_looked_for_in_single_messages() -> None:
    for wanted, said, found in (
        (("1200",), ("You owe 1,200 dollars",), 1.0),
        (("1,200",), ("You owe 1,200 dollars",), 0.0),
        (("Gate B",), ("it is GATE b",), 1.0),
        (("one", "two"), ("one",), 0.0),
        (("one two",), ("one ", "two"), 0.0),
        ((), (), 1.0),
    ):
        assert judged("COMMUNICATE", said=said, communicate=wanted) == found, (wanted, said)


HEARD = {
    "10": "There are 10.|**10** options|(10)|$10/night|10, 5|total:10.00|+10|_10_|#10|10-|10..|USD10|10USD|10$|$+10",
    **{"0.5": ".5|0.50|+.5|$0.500 USD", "1000": "1,000|1000.0|1,000.00", "-5": "\u20135|--5", "a,b": "ab|A,B"},
    **{"1234.5": "$1,234.50|USD 1234.5|1,234.50\u20ac", "$1,200": "1200 dollars", "-10": "-$10.00|\u221210"},
    **{"IL": "Chicago, IL 60621", "20 hours": "Up to 20 hours."},
}
NOT_HEARD = {
    "10": "#W4104000|10.5|1,010|-10|$-10|10%|10th|T10|2024-05-10|10:30|5-10|v2.10|010|ten|-+10|10/2|1/10|10,000",
    **{"0.5": "5|-.5|1.05|0.5.1|00.5", "1000": "1,000,0", "-5": "5|+5"},
    **{"1234.5": "1234.55|11,234.50|1234", "IL": "You will pay|ILx|_IL", "20 hours": "120 hours"},
}


def test_a_user_has_heard_a_number_or_words_that_stand_for_themselves() -> None:
    for table, heard in ((HEARD, True), (NOT_HEARD, False)):
        found = [(text, said) for text, all_said in table.items() for said in all_said.split("|")]
        assert [(text, said) for text, said in found if is_heard(text, [said]) is not heard] == []


def test_an_action_is_found_by_the_arguments_that_count() -> None:
    for compare, arguments, matches in (
        (None, WANTED, True),
        (None, {"n": 2}, False),
        (("n",), {"n": 2, "why": "b"}, True),
        (("n",), {"n": 3, "why": "a"}, False),
        ((), {"n": 9}, True),
    ):
        calls = [("agent", Call("other", WANTED)), ("agent", Call("add", arguments))]
        assert judged("ACTION", calls, compare=compare) == matches, (compare, arguments)
        assert judged("ACTION", calls[:1], compare=compare) == 0.0
