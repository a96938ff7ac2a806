"""What the step reward pays each message, in conversations with the real environment, and what it pays at most."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.policies import ANSWER, CUT, gold, play, say

from bfcl_env import Call
from interaction.environment import load_tasks
from rewards import step as step_reward

GARBAGE = "no tags at all"


def call(name, /, **arguments):
    return Call(name, arguments)


def score(record, **parameters):
    return step_reward.compute_score("bfcl", "", "[]", {"episode": record}, **parameters)


# Gold of the first turn of each scenario, N calls, and the attributes that it changes:
CAR = "multi_turn_base_50"  # N = 2: UNLOCK changes two, LIGHTS one. The only turn
ENGINE = "multi_turn_base_52"  # N = 2: BRAKE changes one, START one, and fails without BRAKE
DOORS = "multi_turn_base_98"  # N = 2: LOOK, which only reads, LOCK changes two
STOCKS = "multi_turn_base_100"  # N = 1: NVIDIA reads. Second and last turn: FUND
LOCKS = "multi_turn_base_51"  # N = 1: LOCK
FILES = "multi_turn_miss_param_0"  # In the fourth turn nothing is to be called

ALL_DOORS = ["driver", "passenger", "rear_left", "rear_right"]
UNLOCK, LOCK = (say(call("lockDoors", unlock=unlock, door=ALL_DOORS)) for unlock in (True, False))
FRONT, REAR = (say(call("lockDoors", unlock=True, door=doors)) for doors in (ALL_DOORS[:2], ALL_DOORS[2:]))
LIGHTS, DARK = (say(call("setHeadlights", mode=mode)) for mode in ("on", "off"))
BRAKE, START = say(call("pressBrakePedal", pedalPosition=1.0)), say(call("startEngine", ignitionMode="START"))
LOOK = say(call("displayCarStatus", option="doors"))
NVIDIA, APPLE = (say(call("get_stock_info", symbol=symbol)) for symbol in ("NVDA", "AAPL"))
FUND = say(call("fund_account", amount=2203.4))

# The shares of UNLOCK and LIGHTS: 2/3 of the state and 1/2 of the state or calls, scaled down to 1 together.
DOORS_GAIN, LIGHTS_GAIN = 4 / 7, 3 / 7


def paid(success, contribution):
    return (success + contribution) / 2


TWO_OF_THREE = [paid(1 / 3, DOORS_GAIN), paid(1 / 3, LIGHTS_GAIN)]
REDO = [DARK, LIGHTS] * 2
FLY = say(call("fly"), call("setHeadlights", mode="on"))
TRAJECTORIES = {
    "gold in two messages": (CAR, [UNLOCK, LIGHTS, ANSWER], [paid(1 / 2, DOORS_GAIN), paid(1 / 2, LIGHTS_GAIN), 2]),
    "a parse error first": (CAR, [GARBAGE, UNLOCK, LIGHTS, ANSWER], [0, *TWO_OF_THREE, 2]),
    "an error that works later": (CAR, [START, BRAKE, START, ANSWER], [0, *[paid(1 / 3, 0)] * 2, 0]),
    "an error beside gold's call": (CAR, [FLY, UNLOCK, ANSWER], [paid(0, LIGHTS_GAIN), paid(1 / 3, DOORS_GAIN), 2]),
    "the right read, repeated, and the next turn": (STOCKS, [NVIDIA, NVIDIA, ANSWER, FUND, ANSWER], [1, 0, 1, 1, 2]),
    "the wrong read, then the right one": (STOCKS, [APPLE, NVIDIA, ANSWER], [paid(1 / 2, 0), paid(1 / 2, 1), 1]),
    "the right state by other calls": (CAR, [FRONT, REAR, LIGHTS, ANSWER], [paid(1 / 3, 0), *TWO_OF_THREE, 2]),
    "undone and done again, twice": (CAR, [UNLOCK, LIGHTS, *REDO, ANSWER], [*TWO_OF_THREE, paid(1 / 3, 0), 0, 0, 0, 2]),
    "the wrong order, which fails": (ENGINE, [START, BRAKE, START, ANSWER], [0, *[paid(1 / 3, 1 / 2)] * 2, 1]),
    "cut in the second message": (CAR, [UNLOCK, CUT], [paid(1 / 2, 2 / 3), 0]),
    "nothing": (STOCKS, [], []),
}
LOGGED = [(1, 1, 0), (2 / 3, 1, 0), (2 / 3, 0, 0), (1 / 2, 1, 0), (1, 1, 0), (1, 1 / 2, 0), (1, 1, 0), (1, 1, 2)]
LOGGED += [(2 / 3, 1 / 4, 0), (1 / 2, 2 / 3, 0), (0, 0, 0)]
"""`step_success`, `contribution` and `regressed` of each of these."""
WAITING = {
    "waiting": ([ANSWER], [2]),
    "a read, then waiting": ([say(call("ls")), ANSWER], [0, 1]),
    "a parse error, then waiting": ([GARBAGE, ANSWER], [0, paid(1 / 2, 1) + 1]),
    "a change, then waiting": ([say(call("touch", file_name="new")), ANSWER], [0, 0]),
}
"""In a turn in which nothing is to be called."""


def test_each_message_is_paid():
    for (case, (scenario_id, messages, expected)), logged in zip(TRAJECTORIES.items(), LOGGED, strict=True):
        result = score(play(load_tasks()[scenario_id], messages))
        found = [result[name] for name in ("step_success", "contribution", "regressed")]
        assert found == pytest.approx(logged), case
        assert result["step_scores"] == pytest.approx(expected), case
        assert result["score"] == pytest.approx(sum(expected)), case
    scenario = load_tasks()[FILES]
    before = [text for turn in range(3) for text in gold(scenario, turn)]
    for case, (messages, expected) in WAITING.items():
        result = score(play(scenario, before + messages))
        assert result["step_scores"][len(before) :] == pytest.approx(expected), case
    idle = play(scenario, lambda scenario, turn: [ANSWER])
    assert idle["turns"][3]["passed"] and score(idle)["step_scores"] == [0.0] * 5, "nothing was done before"
    alone = score(idle | {"turns": idle["turns"][3:4]})
    assert (alone["step_scores"], alone["contribution"]) == ([3], 0), "nothing is to be done in the whole task"
    (turn,) = (begun := play(load_tasks()[CAR], [UNLOCK]))["turns"]
    (step,) = turn["steps"]
    for changed, expected in (
        ({"facts": {**turn["facts"], "closeness": 2 / 3}}, paid(1 / 2, 1 / 2)),  # the door was open
        ({"steps": [{**step, "well_formed": False}]}, paid(0, 2 / 3)),  # one call too many was written
        ({**idle["turns"][3], "ended": "limit"}, 2),
    ):
        assert score(begun | {"turns": [{**turn, **changed}]})["step_scores"] == pytest.approx([expected])


MOVES = [ANSWER, GARBAGE, UNLOCK, LOCK, FRONT, REAR, LIGHTS, DARK, BRAKE, START, LOOK, say(call("fly"))]
MOVES += ["gold", say(call("check_tire_pressure"), call("displayCarStatus", option="fuel"))]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from([CAR, ENGINE, DOORS, LOCKS]),
    st.lists(st.sampled_from(MOVES), max_size=25),
    st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    st.sampled_from([None, 0.25]),
)
def test_no_sequence_of_messages_earns_more_in_a_turn_than_solving_it(scenario_id, moves, alpha, bound):
    said = iter(moves)

    def policy(scenario, turn):
        return [gold(scenario, turn)[0] if move == "gold" else move for move in [next(said, CUT)]]

    record = play(load_tasks()[scenario_id], policy)
    result = score(record, alpha=alpha, bound=bound)
    position = 0
    for turn in record["turns"]:
        mine = result["step_scores"][position : position + len(turn["steps"])]
        position += len(mine)
        calls = sum(mine) - turn["passed"] - (result["acc"] and turn is record["turns"][-1])
        assert -1e-9 <= calls <= (1.0 if bound is None else bound) + 1e-9
        assert all(value >= 0 for value in mine)
    assert position == len(result["step_scores"])
    assert result["step_share"] <= 1 + 1e-9
    assert result["acc"] == 1 or result["step_share"] < 1


def test_parameters_change_what_is_paid():
    scenario = load_tasks()[STOCKS]
    unsolved, solved = play(scenario, [APPLE, ANSWER]), play(scenario, gold)
    assert score(unsolved, alpha=3)["step_scores"] == [3 / 4, 0]
    assert score(unsolved, alpha=0)["step_scores"] == [0, 0]
    for bound in (0, 0.2):
        assert score(unsolved, bound=bound)["step_scores"] == pytest.approx([bound, 0])
    assert score(unsolved, turn_bonus=0.1)["step_scores"] == pytest.approx([0.1, 0])
    assert score(unsolved, turn_bonus=0.1, bound=math.inf)["step_scores"] == [0.5, 0]
    assert score(unsolved | {"given": unsolved["turns"][:1]})["step_scores"] == [0, 0], "gold made this call before"
    for more, earned in (
        ({"turn_bonus": 2, "episode_bonus": 0}, [1, 2, 1, 2]),
        ({"bound": 0.25, "turn_bonus": 0.5, "episode_bonus": 2}, [0.25, 0.5, 0.25, 2.5]),
        ({"bound": 3}, [1, 1, 1, 2]),
    ):
        assert (score(solved, **more)["step_scores"], score(solved, **more)["step_share"]) == (earned, 1.0)
    assert score(solved, turn_bonus=0, bound=0, episode_bonus=0)["step_share"] == 0
    whole = solved | {"turns": [{**turn, "passed": None} for turn in solved["turns"]]}
    assert score(whole)["step_scores"] == score(solved)["step_scores"], "judged as a whole"
    wrongs = ({"alpha": -1}, {"alpha": math.inf}, {"turn_bonus": math.nan}, {"turn_bonus": math.inf}, {"bound": True})
    for wrong in (*wrongs, {"bound": -0.5}, {"episode_bonus": -0.5}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            score(solved, **wrong)
