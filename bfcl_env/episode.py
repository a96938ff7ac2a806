"""One attempt at one scenario: execute calls, end turns, read verdicts.

Single-use: made from a frozen scenario, stepped, closed. There is no reset and nothing is shared between
episodes, so any number of rollouts of one scenario can run side by side.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from bfcl_env import augmentation
from bfcl_env.execution import new_instances, run_call, unknown_function_text
from bfcl_env.gold import GoldTurn, gold_for
from bfcl_env.limits import MAX_CALLS
from bfcl_env.scenarios import Scenario
from bfcl_env.source import function_owners
from bfcl_env.state import State, differences, matches, show, snapshot
from interaction.call import Call, CallError, copy_call
from interaction.outcome import ErrorKind, ToolResult


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """The judgement of one user turn."""

    passed: bool
    """Our rule: BFCL's for turns with gold calls; a turn without gold passes if it ended with a refusal, left the
    state as it was and called no unknown or withheld function."""
    passed_official: bool
    """BFCL's rule, which does not judge turns without gold calls (True for them)."""
    state_matches: bool
    """Public attributes equal gold's at the end of the turn; without gold calls: equal those at its start."""
    responses_match: bool
    """Gold's result texts of this turn are a multiset subset of all result texts so far."""
    difference: tuple[dict[str, str], ...] = ()
    """What did not match: class, attribute, expected, actual; all short texts. Empty when everything matched."""


class Episode:
    """Executes calls turn by turn and judges each turn against gold.

    Gold always advances: a turn is judged against gold that was executed whatever the model did before.

    Args:
        scenario: the task.
        augment: also give a hint with results that are errors. Never changes texts, states or verdicts.
        withheld: what becomes of a call of a function that is published in a later turn. "refused" answers as for an
            unknown function; "official" executes it, as BFCL's own evaluation does.
    """

    def __init__(
        self, scenario: Scenario, augment: bool = False, withheld: Literal["refused", "official"] = "refused"
    ) -> None:
        if withheld not in ("refused", "official"):
            raise ValueError(f"withheld must be 'refused' or 'official', not {withheld!r}")
        self.scenario = scenario
        self.augment = augment
        self.withheld = withheld
        self._gold = gold_for(scenario)
        self._instances = new_instances(scenario)
        self._turn = 0
        self._callable: frozenset[str]
        self._calls = 0
        self._results: Counter[str] = Counter()
        self._closed = False
        self._expected: GoldTurn
        self._made: int
        self._strayed: bool
        self._touched: bool
        self._start: State | None
        self._begin_turn()

    def __enter__(self) -> "Episode":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def done(self) -> bool:
        """True when every turn has ended."""
        return self._turn == len(self.scenario.turns)

    def close(self) -> None:
        """Lets go of the state. May be called twice."""
        self._closed = True
        self._instances = {}

    def execute(self, call: Call) -> ToolResult:
        """Executes one call in the current turn. Any fault of the call is in the result, never raised.

        Raises:
            RuntimeError: the episode is closed or all its turns have ended.
        """
        self._require_open("execute a call")
        self._calls += 1
        self._made += 1
        if self._calls > MAX_CALLS:
            return ToolResult(
                f"Error during execution: at most {MAX_CALLS} calls are allowed in an episode", ErrorKind.LIMIT
            )
        try:
            call = copy_call(call)
        except CallError as fault:
            return ToolResult(f"Error during execution: {fault}", ErrorKind.LIMIT)
        if call.name not in self._callable:
            self._strayed = True
            withheld = function_owners().get(call.name) in self._instances
            kind = ErrorKind.WITHHELD_FUNCTION if withheld else ErrorKind.UNKNOWN_FUNCTION
            return self._result(call, unknown_function_text(call.name), kind)
        if self._expected.state is None and not self._touched:
            self._start = snapshot(self._instances)
            self._touched = True
        text, error = run_call(call, self._instances)
        if text in self._gold.texts:
            self._results[text] += 1
        return self._result(call, text, error)

    def match_gold(self, call: Call, result: ToolResult) -> int | None:
        """The index of the gold call of this turn that `call` with its `result` is, or None; each is given once a turn.

        For rewards of single steps; counts in no verdict.
        """
        number = self._expected.matching(call, result, self._credited)
        if number is not None:
            self._credited.add(number)
        return number

    def closeness(self) -> float | None:
        """The share of what gold changes in this turn that is now as gold leaves it; None if gold changes nothing.

        For rewards of single steps; counts in no verdict.

        Raises:
            RuntimeError: the episode is closed or all its turns have ended.
        """
        self._require_open("measure closeness")
        return self._expected.closeness(self._instances)

    def end_turn(self, answered: bool = True) -> TurnVerdict:
        """Judges the current turn and goes on to the next.

        Args:
            answered: whether the model ended the turn with a refusal (`interaction.refusal`), rather than being cut
                off or silent. Counts only for turns without gold calls, where refusing is the task.

        Raises:
            RuntimeError: the episode is closed or all its turns have ended.
        """
        self._require_open("end a turn")
        state = self._expected.state
        verdict = self._judge_no_gold(answered) if state is None else self._judge_gold(state)
        self._turn += 1
        if not self.done:
            self._begin_turn()
        return verdict

    def _begin_turn(self) -> None:
        self._expected = self._gold.turns[self._turn]
        last = len(self.scenario.turns) - 1
        self._callable = self.scenario.visible(last if self.withheld == "official" else self._turn)
        self._credited: set[int] = set()  # Gold calls of this turn that the model has made too.
        self._made = 0  # Calls of this turn, whatever became of them.
        self._strayed = False  # Whether one of them was unknown or withheld.
        self._touched = False  # In a turn without gold: whether anything was executed, so that a snapshot was tried.
        self._start = None  # That snapshot; None also if the state was too large to copy.

    def _require_open(self, action: str) -> None:
        if self._closed:
            raise RuntimeError(f"cannot {action}: this episode of {self.scenario.id} is closed; make a new one")
        if self.done:
            raise RuntimeError(f"cannot {action}: all {self._turn} turns of {self.scenario.id} have ended")

    def _result(self, call: Call, text: str, error: ErrorKind | None) -> ToolResult:
        if not self.augment:
            return ToolResult(text, error)
        situation = augmentation.Situation(self.scenario, self._turn, call, text, error, self._instances)
        return ToolResult(text, error, augmentation.hint(situation))

    def _judge_gold(self, state: State) -> TurnVerdict:
        same = matches(state, self._instances)
        missing = [text for text, count in self._expected.needed.items() if self._results[text] < count]
        passed = self._made > 0 and same and not missing
        found = () if same else differences(state, self._instances)
        found += tuple(
            {"class": "", "attribute": "results", "expected": show(text), "actual": "absent"} for text in missing
        )
        return TurnVerdict(passed, passed, same, not missing, found)

    def _judge_no_gold(self, answered: bool) -> TurnVerdict:
        found: tuple[dict[str, str], ...] = ()
        same = True
        if self._touched:
            same = self._start is not None and matches(self._start, self._instances)
            found = () if same or self._start is None else differences(self._start, self._instances)
        return TurnVerdict(answered and same and not self._strayed, True, same, True, found)
