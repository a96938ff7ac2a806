"""Generated tasks in a language model's words: only what is still verified is kept. The server is scripted."""

import json
import sys

import pytest
from support.entries import write
from support.evaluation import serving

from bfcl_env import load_scenarios
from bfcl_env.synthesis import Shape, generate, rephrase
from interaction import get_protocol

PROTOCOL = get_protocol("python_calls", docs="signature")
NICE = "If you have a minute: "
FORMS = ("multi_turn_base", "multi_turn_miss_param")
ENTRIES = [*generate("train", 8, 5, Shape(classes=("GorillaFileSystem", "TicketAPI"), turns=(1, 2), forms=FORMS))]
HELD_OUT = load_scenarios("multi_turn_base", split="val")[0].turns[0].user
SPOILED = {
    "no JSON list": lambda texts: "No.",
    "another number of messages": lambda texts: json.dumps([*texts, "And more."]),
    "a message is no text, or too long": lambda texts: json.dumps(["x" * 2000 for _ in texts]),
    "8 words of the held-out half": lambda texts: json.dumps([f"{text} {HELD_OUT}" for text in texts]),
    "values are not those of the task": lambda texts: json.dumps(["Do as I said before." for _ in texts]),
}


def writer(spoil=(), solves=True):
    """Says the old words with a few before them, and plays gold; `spoil` does something to the first tasks' words."""
    spoils = {entry["question"][0][0]["content"]: made for entry, made in zip(ENTRIES, spoil, strict=False)}

    def say(messages):
        first = messages[0]["content"]
        if first.startswith("A user wrote"):
            old = json.loads(first[first.rindex("\n\n") + 2 :])
            return spoils.get(old[0], json.dumps)([NICE + text for text in old])
        users = [one["content"] for one in messages if one["role"] == "user"]
        said = [text for text in users if not text.startswith("Results:")]
        entry = next(one for one in ENTRIES if said[0] == NICE + one["question"][0][0]["content"])
        calls = entry["ground_truth"][len(said) - 1]
        answers = users[-1].startswith("Results:") or not calls or not solves
        return PROTOCOL.render_answer("done", "done") if answers else f"[{', '.join(calls)}]"

    return say


@pytest.fixture
def run(monkeypatch, tmp_path):
    def run(say, *more):
        given, out = write(tmp_path, ENTRIES, "in.json"), tmp_path / "out.json"
        with serving(say) as server:
            monkeypatch.setattr(sys, "argv", ["rephrase", str(given), str(out), "--url", server.url, *more])
            rephrase.main()
        return [json.loads(line) for line in out.read_text().splitlines()], len(server.requests)

    return run


def test_new_words_are_kept_where_a_solver_passes_and_a_second_run_asks_nothing(run, tmp_path):
    made, asked = run(writer())
    assert [(one["id"], one["ground_truth"]) for one in made] == [(one["id"], one["ground_truth"]) for one in ENTRIES]
    assert all(turn[0]["content"].startswith(NICE) for entry in made for turn in entry["question"] if turn)
    assert asked > 2 * len(ENTRIES)
    (tmp_path / "out.json.cache").open("a").write('{"cut off')
    assert run(writer()) == (made, 0)
    assert all(run(writer(), *more)[1] for more in (["--story"], ["--model", "other"]))


def test_what_a_model_writes_is_data_and_a_task_that_it_spoils_or_cannot_solve_is_thrown_away(run, capsys):
    made, _ = run(writer(SPOILED.values()), "--no-solver")
    assert [entry["id"] for entry in made] == [entry["id"] for entry in ENTRIES[len(SPOILED) :]]
    said = capsys.readouterr().out
    assert all(f"1 thrown away: {reason}" in said for reason in SPOILED)
    assert run(writer(solves=False))[0] == []
