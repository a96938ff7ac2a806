"""A scenario as a conversation plays it: what `interaction.environment` asks for, on top of `Episode`.

Facts for rewards. Of a turn: `has_gold` (whether gold makes calls in it; without gold the right thing is to call
nothing and answer), `gold_calls` (how many), `gold_functions` (their names), `gold_arguments` (of each the accepted
values by argument, here one), `closeness` (before the first call: the share of what gold changes in the turn that is as
gold leaves it; None where gold changes nothing, and where nothing was called) and `passed_official` (by BFCL's rule).
Of a step: `closeness` after its calls. Of a call: `gold`, which of the turn's gold calls it is (same function,
arguments and result), from 0, each given once; None if none.
"""

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from bfcl_env.episode import Episode, TurnVerdict
from bfcl_env.scenarios import Scenario
from interaction.call import Call
from interaction.environment import EnvironmentBase, Request
from interaction.outcome import Facts, ToolResult, TurnResult, Verdicts
from interaction.record import StopReason
from interaction.refusal import is_refusal


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Options:
    """How BFCL's tasks are played: `environments.bfcl` of the turn policy."""

    augment: bool = False
    """Hints beside results that are errors."""
    at_step_limit: Literal["judge", "official"] = "judge"
    """When a turn has had all its messages, "judge" judges it as it stands; "official" does so only for the last one,
    as BFCL, which lets the model write one message more before: `max_steps_per_turn` is 21 then."""
    empty_gold: Literal["state", "official"] = "state"
    """A turn without gold calls passes if it was refused, changed nothing and called no function that is not there
    ("state"), or whatever happened in it, as in BFCL ("official"). `passed_official` stays as it is."""
    withheld: Literal["refused", "official"] = "refused"
    """A call of a function that is revealed in a later turn is answered as one of an unknown function ("refused"), or
    executed, as BFCL does ("official")."""


@dataclass(slots=True)
class _Turn:
    verdict: TurnVerdict | None = None
    called: bool = False
    closeness: float | None = None


class BFCLEnvironment(EnvironmentBase):
    """One attempt at a scenario. The state is made when it is first needed: to read the opening costs nothing."""

    def __init__(self, scenario: Scenario, options: Options) -> None:
        self._scenario = scenario
        self._options = options
        self._episode: Episode | None = None
        self._closed = False
        self._turns = [_Turn() for _ in scenario.turns]
        self._position = 0

    def begin(self) -> Request:
        """The first turn's request, with all functions that are not revealed later."""
        return Request(self._scenario.turns[0].user, self._scenario.functions(0))

    def call(self, call: Call) -> ToolResult:
        """Executes one call in the current turn."""
        episode, turn = self._opened(), self._turns[self._position]
        if not turn.called:
            turn.called, turn.closeness = True, episode.closeness()
        result = episode.execute(call)
        return replace(result, facts={"gold": episode.match_gold(call, result)})

    def facts(self) -> Facts:
        """How close the state is to gold's."""
        return {"closeness": self._opened().closeness()}

    def answer(self, text: str) -> Request | None:
        """Judges the turn and goes on to the next."""
        gold = self._scenario.turns[self._position].gold
        self._judge(answered=bool(gold) or is_refusal(text, self._scenario.visible(len(self._turns) - 1)))
        self._position += 1
        if self._position == len(self._turns):
            return None
        turn = self._scenario.turns[self._position]
        shown = self._scenario.functions(self._position) if turn.revealed else []
        return Request(turn.user, [function for function in shown if function["name"] in turn.revealed])

    def cut(self, reason: StopReason) -> bool:
        """Judges the turn as it stands, unless BFCL would not."""
        last = self._position + 1 == len(self._turns)
        if reason == StopReason.max_steps and self._options.at_step_limit == "official" and not last:
            return False
        self._judge(answered=False)
        return True

    def verdicts(self) -> Verdicts:
        """Of all turns, reached or not."""
        turns = tuple(self._result(number) for number in range(len(self._turns)))
        return Verdicts(turns, passed=all(turn.passed for turn in turns))

    def close(self) -> None:
        """Lets go of the state. May be called twice."""
        self._closed = True
        if self._episode is not None:
            self._episode.close()

    def _opened(self) -> Episode:
        if self._episode is None:
            if self._closed:
                raise RuntimeError(f"this attempt at {self._scenario.id} is closed; make a new one")
            self._episode = Episode(self._scenario, augment=self._options.augment, withheld=self._options.withheld)
        return self._episode

    def _judge(self, answered: bool) -> None:
        self._turns[self._position].verdict = self._opened().end_turn(answered=answered)

    def _result(self, number: int) -> TurnResult:
        turn, played = self._scenario.turns[number], self._turns[number]
        verdict = played.verdict
        official = verdict is not None and verdict.passed_official
        passed = verdict is not None and verdict.passed
        if self._options.empty_gold == "official" and not turn.gold:
            passed = official
        facts = {
            "has_gold": bool(turn.gold),
            "gold_calls": len(turn.gold),
            "gold_functions": [call.name for call in turn.gold],
            "gold_arguments": [{name: [value] for name, value in call.arguments.items()} for call in turn.gold],
            "closeness": played.closeness,
            "passed_official": official,
        }
        return TurnResult(turn.user, passed, () if verdict is None else verdict.difference, facts)
