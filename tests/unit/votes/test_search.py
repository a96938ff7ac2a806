"""The search over branches: where it goes back to, what it leaves behind, what it may know, and what it costs."""

import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, completion, gold_player, played

from interaction import get_protocol
from interaction.call import Call
from interaction.plain_text import generic

Messages = list[dict[str, str]]

GOLD = gold_player("base")
DFSDT = ("--strategy", "dfsdt")
BACK = "\n\nYou have been here before."
ANSWER = PROTOCOL.render_answer("t", "done")
FULL = (400, {"error": {"message": "This model's maximum context length is 64 tokens, your prompt has 900."}})
CLOCKS = ("generate_seconds", "environment_seconds", "heard_seconds")


def calling(*names: str, **arguments: Any) -> str:
    return PROTOCOL.render_calls("t", [Call(name, arguments) for name in names])


LOOK, JUMP, CLIMB = calling("look"), calling("jump"), calling("climb")


def told(messages: Messages) -> bool:
    """Whether the model is told what it has tried."""
    return BACK in messages[-1]["content"]


def said(messages: Messages) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "assistant"]


def timeless(value: Any) -> Any:
    """Stored lines without what a clock says, and without what only a search keeps."""
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name not in (*CLOCKS, "search")}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def texts(line: dict[str, Any]) -> list[list[str]]:
    """The model's messages in the episode that is kept, turn by turn."""
    return [[step["text"] for step in turn["steps"]] for turn in line["episode"]["turns"]]


MAZE = """
from dataclasses import dataclass
from itertools import count
from interaction.environment import EnvironmentBase, Request
from interaction.outcome import ErrorKind, ToolResult, TurnResult, Verdicts

LOOK = {{"name": "look", "description": "Looks.", "parameters": {{"type": "dict", "properties": {{}}, "required": []}}}}
ATTEMPTS = count()

@dataclass(frozen=True)
class Options:
    passes: bool = True
    fickle: bool = False

@dataclass(frozen=True)
class Task:
    id: str
    cluster: str
    environment: str = "{name}"
    category: str = "maze"
    part: str = "test"
    def open(self, **options):
        return Attempt(self.id, Options(**options))
    def gold(self):
        raise AssertionError("gold was read")

class Attempt(EnvironmentBase):
    def __init__(self, task, options):
        self.task, self.passes, self.turn, self.looks = task, options.passes, 0, 0
        self.wall = next(ATTEMPTS) if options.fickle else "grey"
    def begin(self):
        return Request(f"Request 0 of {{self.task}}.", [LOOK])
    def call(self, call):
        facts = {{"gold": 0 if self.passes else None, "needless": not self.passes}}
        if call.name == "look":
            self.looks += 1
            return ToolResult(f"wall {{self.looks}} is {{self.wall}}", facts=facts)
        return ToolResult(f"{{call.name}} is not there", ErrorKind.EXECUTION, facts=facts)
    def facts(self):
        return {{"closeness": float(self.passes)}}
    def answer(self, text):
        self.turn += 1
        return Request(f"Request {{self.turn}} of {{self.task}}.") if self.turn < 3 else None
    def cut(self, reason):
        return self.passes
    def verdicts(self):
        turns = tuple(TurnResult("", self.passes) for turn in range(3))
        return Verdicts(turns, self.passes, {{"maze": float(self.passes)}})

def load_tasks():
    return [Task(f"maze_{{number}}", str(number)) for number in range(8)]
"""
"""Three requests: `look` works, other calls are errors. `passes` is its verdict; `fickle`: each attempt differs."""


def write_maze(folder: Path) -> str:
    path = folder / f"maze_{folder.name}.py"
    path.write_text(MAZE.format(name=path.stem))
    return str(path)


def in_maze(folder: Path, play: Callable[[Messages], Any], *more: str, name: str = "out") -> tuple[Any, list[Messages]]:
    """The stored line of the first task of the maze, and the conversations that the server was sent."""
    given = ["--environment", write_maze(folder), "--split", "test", *DFSDT, *more]
    done = played(play, folder / name, *given, category=None, limit=1)
    assert done.status == 0
    return done.lines[0], [request["messages"] for request in done.requests]


def test_where_nothing_fails_the_episodes_are_those_without_a_search(tmp_path: Path) -> None:
    one = ("--concurrency", "1")
    plain, found = (played(GOLD, tmp_path / str(len(more)), *more, *one, limit=2) for more in ((), DFSDT))
    assert plain.requests == found.requests and timeless(plain.lines) == timeless(found.lines)
    assert all((line["search"]["branches"], line["search"]["dropped"]) == (1, 0) for line in found.lines)


def test_a_failed_message_leaves_no_trace_where_the_second_one_is_right(tmp_path: Path) -> None:
    plain = {line["task_id"]: timeless(line["episode"]) for line in played(GOLD, tmp_path / "gold").lines}
    failures: dict[str, Callable[[Call], Any]] = {
        "malformed": lambda call: "I would rather not.",
        "cut by its budget": lambda call: (200, completion(ANSWER, "length")),
        "error of a function": lambda call: calling(call.name, nonsense=1),
        "an error after a success": lambda call: PROTOCOL.render_calls("t", [call, Call("no_such_function", {})]),
    }
    for failure, wrong in failures.items():

        def play(messages: Messages, wrong: Callable[[Call], Any] = wrong) -> Any:
            right = GOLD([*messages[:-1], {**messages[-1], "content": messages[-1]["content"].split(BACK)[0]}])
            calls = PROTOCOL.parse(right).calls
            return wrong(calls[0]) if calls and not told(messages) else right

        done = played(play, tmp_path / failure, *DFSDT)
        assert (done.status, done.found["overall"]["acc_bfcl"]["mean"]) == (0, 1.0), failure
        assert {line["task_id"]: timeless(line["episode"]) for line in done.lines} == plain, failure
        for line in done.lines:
            turns = sum(bool(turn["steps"][0]["calls"]) for turn in line["episode"]["turns"])
            steps = sum(map(len, texts(line)))
            assert line["search"] == {"nodes": steps + turns, "branches": 1 + turns, "dropped": 0}, failure


def test_the_model_is_told_what_was_tried_and_the_episode_does_not_say_so(tmp_path: Path) -> None:
    def play(messages: Messages) -> str:
        if said(messages) == [LOOK]:
            return JUMP if told(messages) else "no idea"
        return ANSWER if told(messages) or len(messages) > 2 else LOOK

    line, sent = in_maze(tmp_path, play)
    assert [messages[-1]["content"].count("\n- ") for messages in sent] == [0, 0, 1, 1, 0, 0]
    again, back = sent[2][-1]["content"], sent[3][-1]["content"]
    assert again.startswith('Results: ["wall 1 is grey"]\n\nYou have') and "- no idea -> Format error" in again
    assert back.startswith("Request 0 of maze_0.\n\nYou have") and '- look() -> Results: ["wall 1 is grey"]' in back
    following = {"role": "user", "content": "Request 1 of maze_0."}
    assert sent[4] == [*sent[0], {"role": "assistant", "content": ANSWER}, following]
    assert texts(line) == [[ANSWER], [ANSWER], [ANSWER]] and "been here" not in json.dumps(line)
    assert all(0 <= turn["steps"][0]["generate_seconds"] < 600 for turn in line["episode"]["turns"])
    assert (line["search"], line["completion_tokens"]) == ({"nodes": 6, "branches": 3, "dropped": 0}, 6 * 3)


def test_a_closed_turn_is_not_gone_back_into_and_a_model_can_mend_its_errors(tmp_path: Path) -> None:
    def stuck(messages: Messages) -> str:
        return calling(f"jump_{len(messages)}_{told(messages)}") if len(messages) > 2 else ANSWER

    line, sent = in_maze(tmp_path, stuck, "--max-nodes", "12")
    assert line["search"]["nodes"] == len(sent) == 12
    assert sum(len(messages) == 2 for messages in sent) == 1, "the first turn is asked for once"
    mends = in_maze(tmp_path, lambda messages: ANSWER if said(messages) else [JUMP, CLIMB][told(messages)], name="b")[0]
    assert texts(mends) == [[JUMP, ANSWER], [ANSWER], [ANSWER]], "two fail at one place; then the first one stands"


def test_a_limit_of_a_turn_and_a_full_context_send_the_search_back(tmp_path: Path) -> None:
    line, _ = in_maze(tmp_path, lambda messages: ANSWER if told(messages) else LOOK, "--max-nodes", "100")
    assert [len(turn) for turn in texts(line)] == [20, 20, 20]
    assert (line["episode"]["stop_reason"], line["search"]["branches"]) == ("completed", 4)
    for mends in (True, False):

        def play(messages: Messages, mends: bool = mends) -> Any:
            if sum("look" in text for text in said(messages)) > 2:
                return FULL
            return ANSWER if told(messages) and mends else calling("look", at=len(json.dumps(messages)))

        line, sent = in_maze(tmp_path, play, name=str(mends))
        assert line["episode"]["stop_reason"] == ("completed" if mends else "max_tokens")
        assert line["search"]["nodes"] < len(sent) < 60
    lost = played(lambda _: FULL, tmp_path / "full", *DFSDT, limit=1)  # from the first message on: it cannot be played
    assert not lost.lines and lost.status


def test_a_give_up_takes_back_the_step_before_it_too(tmp_path: Path) -> None:
    toolbench = get_protocol("toolbench")
    look, answer = toolbench.render_calls("t", [Call("look", {})]), toolbench.render_answer("t", "done")

    def play(messages: Messages) -> str:
        if said(messages) == [look]:
            return 'Thought: t\nAction: Finish\nAction Input: {"return_type": "give_up_and_restart"}'
        return look if len(messages) == 2 and not told(messages) else answer

    line, sent = in_maze(tmp_path, play, "--protocol", "toolbench")
    assert texts(line) == [[answer], [answer], [answer]]
    assert line["search"] == {"nodes": 5, "branches": 2, "dropped": 0}
    assert "- look() ->" in sent[2][-1]["content"] and "Request 1" not in json.dumps(sent[2])


def test_the_budget_holds_and_what_was_tried_is_told_in_bounded_and_plain_words(tmp_path: Path) -> None:
    asked: list[None] = []

    def play(messages: Messages) -> str:
        asked.append(None)
        return calling("look" if len(asked) % 3 else "jump", at=len(asked))

    line, sent = in_maze(tmp_path, play, "--max-nodes", "19")
    assert len(sent) == line["search"]["nodes"] == 19 and line["prompt_tokens"] == 7 * 19
    assert (line["episode"]["stop_reason"], line["episode"]["outcome"]["passed"]) == ("max_steps", False)
    forged = f"{ECHO} {'x' * 100_000}"
    line, sent = in_maze(tmp_path, lambda messages: ANSWER if told(messages) else forged, name="forged")
    assert line["episode"]["stop_reason"] == "completed"
    last = [messages[-1]["content"] for messages in sent]
    assert all(len(text) < 2_000 and generic(text) == text for text in last)
    assert sum("Forget it" in text for text in last) == 3


def test_a_branch_that_does_not_come_out_as_before_is_dropped_and_counted(tmp_path: Path) -> None:
    def play(messages: Messages) -> str:
        return LOOK if len(messages) == 2 else JUMP if len(messages) == 4 else ANSWER

    line, sent = in_maze(tmp_path, play, "--option", "fickle=true")
    assert texts(line)[0][0] == LOOK and line["episode"]["stop_reason"] == "completed"
    assert line["search"]["dropped"] > 0
    seen = [re.findall(r"wall 1 is (\d+)", json.dumps(messages)) for messages in sent]
    assert all(len({*walls}) <= 1 for walls in seen), "no request mixes two attempts"


def test_the_search_does_not_depend_on_verdict_or_gold(tmp_path: Path) -> None:
    """The same model in two mazes that differ in what they think of it, and whose gold nobody may read."""
    choices = [LOOK, calling("look", at=1), JUMP, CLIMB, "nonsense", ANSWER]

    def play(messages: Messages) -> str:
        return choices[sha256(json.dumps(messages).encode()).digest()[0] % len(choices)]

    found = []
    for passes in ("true", "false"):
        given = ["--environment", write_maze(tmp_path), "--split", "test", "--max-nodes", "25"]
        given += ["--concurrency", "1", "--option", f"passes={passes}", *DFSDT]
        done = played(play, tmp_path / passes, *given, category=None, limit=4)
        found.append((done.requests, [line["search"] for line in done.lines], [*map(texts, done.lines)]))
        assert any(line["search"]["branches"] > 1 for line in done.lines)
        assert {line["episode"]["outcome"]["components"]["maze"] for line in done.lines} == {float(passes == "true")}
    assert found[0] == found[1]
