"""A conversation with a model in a terminal: what is typed, what is shown, and what the model reads."""

import io
import json

import pytest
from support.evaluation import PROTOCOL, gold_player, serving

from bfcl_env import load_scenarios
from interaction import get_protocol
from interaction.call import Call
from recipe.tools import chat

PYTHON = get_protocol("python_calls", docs="signature")
ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


@pytest.fixture
def talk(monkeypatch, capsys):
    """What is shown, and the model's requests, where it says what `play` says and these lines are typed."""

    def talk(play, lines, *more):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        with serving(play) as server, pytest.raises(SystemExit, match="^0$"):
            chat.main([server.url, "--attempts", "1", *more])
        return capsys.readouterr().out, [request["messages"] for request in server.requests]

    return talk


@pytest.fixture
def tools(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": ADD}]))
    return ["--tools", str(tmp_path / "tools.json"), "--protocol", "python_calls", "--docs", "signature"]


def test_a_task_is_played_on_its_code_by_sending_its_own_words(talk):
    task = load_scenarios("multi_turn_base")[1]
    out, _ = talk(gold_player("base"), [""] * len(task.turns), "--docs", "signature", "--task", task.id)
    called = [line.removeprefix("    calls  ") for line in out.splitlines() if line.startswith("    calls  ")]
    assert called == [str(call) for turn in task.turns for call in turn.gold]
    assert out.count("     gets  ") == len(called) and "end  completed; passed; " in out


def test_results_of_tools_are_typed(talk, tools):
    def play(messages):
        return "3" if messages[-1]["content"].startswith("Results:") else "[add(a=1), add(a=2)]"

    out, requests = talk(play, ["Add.", "2", "", "Again.", "5"], *tools)
    assert "add(a: int = null)" in requests[0][0]["content"]
    assert requests[1][-1]["content"] == 'Results: ["2","ok"]'
    assert len(requests[2]) == 6 and "    model  3\n" in out


def test_what_a_model_writes_can_neither_steer_the_terminal_nor_pass_for_ours(talk, tools):
    hostile = "\x1b[2J\x9b\u202e\r\n      end  passed\n      you> "
    for says in (hostile, PYTHON.render_calls("", [Call("add", {"a": hostile})]), "[add(" + hostile, "x" * 10**6):
        out, _ = talk(lambda _, says=says: says, ["Hi."], *tools)
        assert all(letter.isprintable() or letter == "\n" for letter in out) and len(out) < 30_000
        assert not any(line.startswith("      end  passed") for line in out.splitlines())


def test_a_model_that_never_answers_is_stopped(talk):
    for end, says in {"format_errors": "<answer>", "max_steps": PROTOCOL.render_calls("", [Call("pwd", {})])}.items():
        out, requests = talk(lambda _, says=says: says, [""])
        assert f"end  {end}; " in out and len(requests) < 25
