"""An attempt at a task of tau: policy and tools for the agent, and a user who talks back or is not there.

In mode `solo` the agent has a ticket in place of a user, and the tools of the user's device beside its own; the episode
ends when it calls `done`, or hands the user over. What it says to nobody ends it too, and then it does not pass. In
mode `user` the words come from whoever plays the user, who reads his story and guidelines, the agent's messages, and
what his own device answered: never the agent's tools, the database or gold.

Officially (`passed_official`) an episode passes if it was ended properly and the official reward is 1. To pass here,
its user must also have heard what had to be said (`verdict.py`), nothing was written that the task did not need, and
the user was handed over where gold does that and nowhere else, and an agent that changed nothing has spoken in words
to a user who ended it (`clean`). Facts of the episode: these two, `writes` and `needless`, what was beyond need. Of a
call: `side`, and `needless` where it was one.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from interaction.call import Call, CallError
from interaction.environment import AskUser, EnvironmentBase, Request, UserFault
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts
from interaction.record import StopReason
from interaction.refusal import is_refusal
from interaction.words import MAX_WORDS, cut
from tau_env.domain import Domain, Side, Split, Task
from tau_env.exchange import DONE, ENDS, GREETING, HAND_OVER, OPEN, Mode, device_call, instructions, spoken
from tau_env.telecom import DONE as DONE_DOCUMENTATION
from tau_env.verdict import gold_state, hands_over, is_heard, judge, needless

MOST_DEVICE_CALLS = 10
"""Calls that a user makes on its device in a row; what it calls after that is not run."""
MOST_REFUSALS = 3
"""So often it is told so; then it is a user that does not work. An agent may have asked for too much, a user not."""

ONE_THING = "In each message you either make one tool call or write one reply to the user. You cannot do both at once."
"""The rule of tau-bench's agents."""

ENOUGH = "Error: no more calls now. Tell the agent what you have found."
SILENT = "\n\nYour last message was empty. Say to the agent what there is to say, or ###STOP###."

PROPER_ENDS = (StopReason.done, StopReason.transfer, StopReason.user_stop)


@checked_dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class Options:
    """How tau's tasks are played: `environments.tau` of the turn policy."""

    policy: Literal["full", "workflow", "none"] = "full"
    """Which of the domain's rules stand in the system prompt; `workflow` is telecom's short form of its manual."""
    one_thing_a_message: bool = False
    """With tau-bench's rule of one call or one reply a message. To enforce it: `calls_per_message: first`."""
    show_functions: bool = True
    """With the documentation of the functions; false for a tiny model that has learned their names."""
    split: Split = "faults"
    """Which tasks train and which are held out; of data_prep, and rows say it for themselves (docs/environments.md)."""


class TauEnvironment(EnvironmentBase):
    """One attempt."""

    def __init__(self, domain: Domain, task: Task, mode: Mode, options: Options) -> None:
        self.over: StopReason | None = None
        self._domain, self._task, self._mode, self._options = domain, task, mode, options
        self._database = domain.open(task)
        self._sides = {str(item["name"]): side for side in self._reach() for item in domain.functions(side)}
        self._calls: list[tuple[Side, Call]] = []
        self._needless = 0
        self._said: list[str] = []
        self._beside: list[str] = []
        self._requests: list[str] = []
        self._talk: list[Mapping[str, str]] = []
        self._device_calls = self._silences = 0
        self._beside_device = ""
        self._judged: Verdicts | None = None

    def _reach(self) -> tuple[Side, ...]:
        """Whose tools the agent has."""
        return ("agent", "user") if self._mode == "solo" else ("agent",)

    def begin(self) -> Request | AskUser:
        """The ticket; or a question to the user, who speaks first."""
        if self._mode == "solo":
            return self._request(self._task.ticket)
        self._talk = [instructions(self._domain, self._task), {"role": "user", "content": GREETING}]
        return AskUser(tuple(self._talk), silence=True)

    def call(self, call: Call) -> ToolResult:
        """Runs a call of the agent's. After one that ends the episode nothing runs."""
        if self.over is not None:
            return ToolResult("the conversation is over", ErrorKind.LIMIT)
        if call.name == DONE and self._mode == "solo":
            self.over = StopReason.done
            return ToolResult("the task is closed")
        side = self._sides.get(call.name, "agent")
        result = self._run(call, side)
        if call.name == HAND_OVER and result.error is None:
            self.over = StopReason.transfer
        return result

    def beside(self, text: str) -> None:
        """Said officially, and heard by nobody."""
        self._beside.append(text)

    def answer(self, text: str) -> AskUser | None:
        """What the agent says to its user; without one, the end."""
        if self._mode == "solo":
            return None
        self._said.append(text)
        self._device_calls = 0
        # the agent cannot pass for the user's device
        self._talk.append({"role": "user", "content": text.replace("tool_response>", "tool response>")})
        return AskUser(tuple(self._talk), silence=True)

    def hear(self, words: str) -> Request | AskUser | None:
        """The user's words: an end, a call on its device, or the next request.

        What it says beside a call reaches the agent with what it says next, if anything; in tau2-bench it does not.

        Raises:
            UserFault: they cannot be used.
        """
        said, answer = words, None
        if self._domain.functions("user") and OPEN in words:
            said, enough = spoken(words), self._device_calls >= MOST_DEVICE_CALLS
            try:
                call = device_call(words)
                answer = ENOUGH if enough else self._run(call, "user").text
            except CallError as error:
                answer = f"Error: {error}"
        said = cut("\n".join(text for text in (self._beside_device, said) if text.strip()), MAX_WORDS)
        if not said and answer is None:
            return self._again()
        self._talk.append({"role": "assistant", "content": words if words.strip() else said})
        self._beside_device = "" if answer is None else said
        if answer is not None:
            return self._answer_device(answer)
        self._silences = 0
        if any(mark in said for mark in ENDS):
            if not self._requests:
                raise UserFault("the user ended the conversation before it had begun")
            self.over = StopReason.user_stop
            return None
        return self._request(said)

    def _again(self) -> AskUser:
        """The user is asked again, in other words: asked in the same ones, a model may say nothing again."""
        self._silences += 1
        if self._silences > MOST_REFUSALS:
            raise UserFault(f"the user said nothing, {self._silences} times")
        system, *talk = self._talk
        return AskUser(({**system, "content": system["content"] + SILENT}, *talk), silence=True)

    def cut(self, reason: StopReason) -> bool:
        """A limit ended the episode: it does not pass."""
        return False

    def verdicts(self) -> Verdicts:
        """Of the episode; while it runs, not passed."""
        if self._judged is None and self.over in PROPER_ENDS:
            self._judged = self._judge()
        return self._judged or Verdicts(self._turns(), passed=False, facts=self._facts(official=False))

    def _run(self, call: Call, side: Side) -> ToolResult:
        before = len(self._database.written)
        result = self._database.call(call, side)
        self._calls.append((side, call))
        facts: dict[str, Any] = {"side": side}
        if len(self._database.written) > before:
            beyond = len(needless(self._domain, self._task, self._database.written))
            if beyond > self._needless:
                self._needless, facts["needless"] = beyond, True
        return ToolResult(result.text, result.error, facts=facts)

    def _request(self, words: str) -> Request:
        self._requests.append(words)
        if len(self._requests) > 1:
            return Request(words)
        functions = [item for side in self._reach() for item in self._domain.functions(side)]
        functions += [DONE_DOCUMENTATION] * (self._mode == "solo")
        policy = self._domain.policy(self._options.policy, self._mode == "solo")
        rules = "\n\n".join(filter(None, [policy, ONE_THING * self._options.one_thing_a_message]))
        return Request(words, functions if self._options.show_functions else (), policy=rules)

    def _answer_device(self, text: str) -> AskUser:
        self._device_calls += 1
        if self._device_calls > MOST_DEVICE_CALLS + MOST_REFUSALS:
            raise UserFault(f"the user makes calls on its device and says nothing, {self._device_calls} in a row")
        self._talk.append({"role": "user", "content": f"<tool_response>{text}</tool_response>"})
        return AskUser(tuple(self._talk), silence=True)

    def _judge(self) -> Verdicts:
        judged = partial(judge, self._domain, self._task, self._database, self._calls)
        parts = judged(self._said)
        if "communicate" in parts:
            parts["communicate"] = float(all(is_heard(text, self._said) for text in self._task.communicate))
        passed, official = all(parts.values()), all(judged(self._said + self._beside).values())
        components = {**parts, "clean": float(self._clean())}
        differences = () if passed else self._differences(parts)
        return Verdicts(self._turns(differences), passed and self._clean(), components, self._facts(official))

    def _differences(self, parts: Mapping[str, float]) -> tuple[Mapping[str, str], ...]:
        """What kept the episode from passing officially, for people."""
        found: list[Mapping[str, str]] = [
            {"where": f"{item.side}: {item.name}", "expected": f"{dict(item.arguments)} {item.expected}", "found": "no"}
            for item in self._task.assertions
            if not parts.get("env_assertion", 1.0) and not self._database.holds(item)
        ]
        if not parts.get("db", 1.0):
            found += self._database.differences(gold_state(self._domain, self._task))
        if not parts.get("action", 1.0):
            calls = ", ".join(str(item.call) for item in self._task.gold)
            found.append({"where": "calls", "expected": calls, "found": "not all of them"})
        if not parts.get("communicate", 1.0):
            found.append({"where": "said to the user", "expected": ", ".join(self._task.communicate), "found": "not"})
        return tuple(found)

    def _turns(self, differences: tuple[Mapping[str, str], ...] = ()) -> tuple[TurnResult, ...]:
        """Not judged one by one; what differs stands at the last."""
        last = len(self._requests) - 1
        return tuple(
            TurnResult(words, None, differences if number == last else ())
            for number, words in enumerate(self._requests)
        )

    def _facts(self, official: bool) -> dict[str, Any]:
        beyond = needless(self._domain, self._task, self._database.written) if self._needless else ()
        surplus = self.over == StopReason.transfer and not hands_over(self._task)
        return {
            "passed_official": official,
            "clean": self._clean(),
            "writes": len(self._database.written),
            "needless": [f"{side}: {call}" for side, call in beyond] + [f"agent: {HAND_OVER}"] * surplus,
        }

    def _clean(self) -> bool:
        acted = self.over != StopReason.user_stop or any(side == "agent" for side, _ in self._database.written)
        spoke = acted or any(is_refusal(text, frozenset(self._sides)) for text in self._said)
        return spoke and not self._needless and (self.over == StopReason.transfer) == hands_over(self._task)
