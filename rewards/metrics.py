"""Numbers that are logged for every episode, whatever it is rewarded for.

Read from the record alone, with the standard library alone: a reward worker imports neither the environment
nor a model. The keys are the same for every record, because verl builds a batch's columns from one sample's keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

STOP_REASONS = (
    *("completed", "max_steps", "max_tokens", "format_errors", "environment_error"),
    *("user_stop", "transfer", "done", "infrastructure"),
)
"""The values of `interaction.StopReason`, repeated here so that rewards depend on no other room; a test compares."""


def episode_of(extra_info: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The episode's record in `extra_info`. Raises ValueError, saying what to set, when there is none."""
    episode = (extra_info or {}).get("episode")
    if not isinstance(episode, Mapping):
        raise ValueError(
            'extra_info["episode"] holds no episode record, which only the agent loop "conversation" writes: set '
            "actor_rollout_ref.rollout.agent.default_agent_loop=conversation, and no other agent_name in the data"
        )
    return episode


def episode_metrics(record: Mapping[str, Any]) -> dict[str, float]:
    """The metrics of one episode, under the same keys for every one.

    progress      turns passed / all user turns, but 0 if turns ask for calls and none of those passed: answering always
                  would otherwise earn the share of turns in which nothing is to be done. A turn of which a check says
                  that a share of it is done counts as that share. Where the environment judges the episode only, 1 if
                  it passed, or such a share
    progress_raw  the same without the condition
    acc           1 if the episode passed; acc_official the same by the rule of the environment's source, where the two
                  differ
    format_rate   well-formed steps / steps, 0 without steps; a step is one message of the model
    call_success_rate  calls without error / calls, 0 without calls
    turns, steps, calls  user turns reached, steps, calls made
    surplus       calls beyond the number that gold makes in the same turn; 0 where the environment does not say it
    results_cut   results that the model did not see to their end (`max_result_chars`) / calls, 0 without calls
    stop/<reason>  1 for the reason the episode ended, else 0
    """
    turns = record["turns"]
    steps = [step for turn in turns for step in turn["steps"]]
    calls = [call for turn in turns for call in calls_of(turn)]
    judged = [turn for turn in turns if turn["passed"] is not None]
    solved = bool(record["outcome"] and record["outcome"]["passed"])
    whole = (record["outcome"] or {}).get("components", {}).get("episode", solved)  # what a check says of it
    share = _share(sum(map(share_of, judged)), len(judged)) if judged else float(whole)
    values = {
        "progress": share if did_work(record) else 0.0,
        "progress_raw": share,
        "acc": float(solved),
        "acc_official": float(passed_official(record)),
        "format_rate": _share(sum(bool(step["well_formed"]) for step in steps), len(steps)),
        "call_success_rate": _share(sum(map(succeeded, calls)), len(calls)),
        "turns": float(sum(bool(turn["reached"]) for turn in turns)),
        "calls": float(len(calls)),
        "surplus": float(sum(map(surplus, turns))),
        "steps": float(len(steps)),
        "results_cut": _share(sum(map(was_cut, calls)), len(calls)),
    }
    return values | {f"stop/{reason}": float(record["stop_reason"] == reason) for reason in STOP_REASONS}


def did_work(record: Mapping[str, Any]) -> bool:
    """Whether a turn that asks for calls passed. True for a task in which no turn asks for calls.

    Otherwise an answer to each turn would be paid for the turns in which nothing has to be done.
    """
    working = [turn for turn in record["turns"] if asks_for_calls(turn)]
    return not working or any(turn["passed"] is None or share_of(turn) for turn in working)


def share_of(turn: Mapping[str, Any]) -> float:
    """How much of a turn is done: all or nothing, or what a check says of it."""
    return float(turn["facts"].get("share", bool(turn["passed"])))


def passed(turn: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a turn passed; where the environment judges the episode only, whether that did."""
    if turn["passed"] is not None:
        return bool(turn["passed"])
    return bool(record["outcome"] and record["outcome"]["passed"])


def asks_for_calls(turn: Mapping[str, Any]) -> bool:
    """Whether gold makes calls in a turn; yes where the environment does not say."""
    return bool(turn["facts"].get("has_gold", True))


def passed_official(record: Mapping[str, Any]) -> bool:
    """Whether the episode passed by the rule of the environment's source; by its own where there is no other."""
    if "passed_official" in record["facts"]:
        return bool(record["facts"]["passed_official"])
    turns = [turn["facts"]["passed_official"] for turn in record["turns"] if "passed_official" in turn["facts"]]
    return all(turns) if turns else bool(record["outcome"] and record["outcome"]["passed"])


def calls_of(turn: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The calls executed in a turn, in order."""
    for step in turn["steps"]:
        yield from step["calls"]


def succeeded(call: Mapping[str, Any]) -> bool:
    """Whether a call worked. Results of a function that report an error are recorded as errors too."""
    return call["error"] is None


def pair_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """Name and arguments of a call, the same for arguments in another order. Keys are texts, as in a stored record."""
    return call["name"], json.dumps(json.loads(json.dumps(call["arguments"])), sort_keys=True)


def counts(call: Mapping[str, Any], worked: Set[tuple[str, str]]) -> bool:
    """Whether a call counts as work, given the pairs that worked before: an error, something new, or a call of gold's.

    A call that worked is a safe call, so repeating it must not pay.
    """
    return not succeeded(call) or pair_of(call) not in worked or call["facts"].get("gold") is not None


def worked_before(record: Mapping[str, Any]) -> set[tuple[str, str]]:
    """The pairs that worked in turns which gold played for the model, who has read them: to repeat one is no work."""
    return {pair_of(call) for turn in record.get("given", ()) for call in calls_of(turn) if succeeded(call)}


def surplus(turn: Mapping[str, Any]) -> int:
    """Calls of a turn beyond the number that gold makes in it; 0 where the environment does not say it."""
    made = sum(1 for _ in calls_of(turn))
    return max(0, made - turn["facts"].get("gold_calls", made))


def was_cut(call: Mapping[str, Any]) -> bool:
    """Whether the model read only the beginning of the result. A hint stands behind a whole result."""
    return call["shown"] is not None and not call["shown"].startswith(call["result"])


def _share(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
