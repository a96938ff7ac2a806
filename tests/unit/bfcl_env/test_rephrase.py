"""Generated tasks in a language model's words: only what is still verified is kept. The server is scripted."""

import json
import sys
from threading import Thread

import pytest
from support.evaluation import Server

from bfcl_env.synthesis import Shape, generate, rephrase
from interaction import get_protocol

PROTOCOL = get_protocol("python_calls", docs="signature")
NICE = "If you have a minute: "
SHAPE = Shape(
    classes=("GorillaFileSystem", "TicketAPI"), turns=(1, 2), forms=("multi_turn_base", "multi_turn_miss_param")
)


@pytest.fixture
def entries():
    return [*generate("train", 8, 5, SHAPE)]


class Writer:
    """Says the old words with a few before them, and plays gold; `spoil` does something to the first task's words."""

    def __init__(self, entries, spoil=None, solves=True):
        self.entries, self.spoil, self.solves = entries, spoil, solves

    def __call__(self, messages):
        first = messages[0]["content"]
        if first.startswith("A user wrote"):
            texts = [NICE + text for text in json.loads(first[first.rindex("\n\n") + 2 :])]
            mine = self.spoil is not None and texts[0] == NICE + self.entries[0]["question"][0][0]["content"]
            return self.spoil(texts) if mine else "Sure!\n" + json.dumps(texts)
        said = [
            one["content"] for one in messages if one["role"] == "user" and not one["content"].startswith("Results:")
        ]
        entry = next(one for one in self.entries if said[0] == NICE + one["question"][0][0]["content"])
        calls = entry["ground_truth"][len(said) - 1]
        if messages[-1]["content"].startswith("Results:") or not calls or not self.solves:
            return PROTOCOL.render_answer("done", "done")
        return f"[{', '.join(calls)}]"


def run(monkeypatch, folder, entries, writer, *more):
    folder.mkdir(exist_ok=True)
    (folder / "in.json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    server = Server(writer)
    Thread(target=server.serve_forever, daemon=True).start()
    words = ["rephrase", str(folder / "in.json"), str(folder / "out.json"), "--url", server.url, *more]
    monkeypatch.setattr(sys, "argv", words)
    try:
        rephrase.main()
    finally:
        server.shutdown()
        server.server_close()
    return [json.loads(line) for line in (folder / "out.json").read_text().splitlines()], len(server.requests)


def test_new_words_are_kept_where_a_solver_passes_and_a_second_run_asks_nothing(monkeypatch, tmp_path, entries, capsys):
    made, asked = run(monkeypatch, tmp_path, entries, Writer(entries))
    assert [entry["id"] for entry in made] == [entry["id"] for entry in entries]
    assert all(turn[0]["content"].startswith(NICE) for entry in made for turn in entry["question"] if turn)
    assert [entry["ground_truth"] for entry in made] == [entry["ground_truth"] for entry in entries]
    assert asked > 2 * len(entries)
    printed = capsys.readouterr().out
    assert f"8 of 8 tasks\n  {asked * 7} tokens read, {asked * 3} written" in printed
    (tmp_path / "out.json.cache").open("a").write('{"cut off')
    assert run(monkeypatch, tmp_path, entries, Writer(entries)) == (made, 0)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda texts: "No.", "no JSON list"),
        (lambda texts: json.dumps([*texts, "And more."]), "another number of messages"),
        (lambda texts: json.dumps([3 for _ in texts]), "a message is no text, or too long"),
        (lambda texts: json.dumps(["x" * 2000 for _ in texts]), "a message is no text, or too long"),
        (lambda texts: json.dumps(["Do as I said before." for _ in texts]), "values are not those of the task"),
    ],
)
def test_what_a_model_writes_is_data_and_a_task_that_it_spoils_is_thrown_away(
    monkeypatch, tmp_path, entries, capsys, spoil, reason
):
    made, _ = run(monkeypatch, tmp_path, entries, Writer(entries, spoil), "--no-solver")
    assert [entry["id"] for entry in made] == [entry["id"] for entry in entries[1:]]
    assert f"1 thrown away: {reason}" in capsys.readouterr().out


def test_a_task_that_the_solver_cannot_solve_from_the_words_is_thrown_away(monkeypatch, tmp_path, entries, capsys):
    made, _ = run(monkeypatch, tmp_path, entries, Writer(entries, solves=False))
    assert made == [] and "8 thrown away: the solver does not pass" in capsys.readouterr().out
