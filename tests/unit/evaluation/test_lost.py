"""An evaluation of which nothing was played says so, with the most frequent cause and what to do."""

import sys
from pathlib import Path

import pytest

from recipe import evaluate
from recipe.evaluation.lost import all_lost, causes
from recipe.report import __main__ as report
from recipe.tools import judge
from tests.support.evaluation import run, serving

DEAD = (503, {"error": {"message": "overloaded"}})
PROMPTS = iter(range(900, 10_000))


def too_long(_: object) -> tuple[int, dict[str, dict[str, str]]]:
    """Says another number each time, as vLLM does of each prompt."""
    words = f"This model's maximum context length is 64 tokens, your prompt has {next(PROMPTS)}."
    return 400, {"error": {"message": words}}


CASES = {
    "no prompt fits": (too_long, "12 of them to one cause: the server's context does not hold", "--max-model-len"),
    "the server is gone": (lambda _: DEAD, "10 of them to one cause: ", "server.log"),
}


@pytest.fixture(params=CASES)
def lost(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str, str]:
    """An evaluation's folder; what is said of the cause; what of the remedy."""
    play, cause, remedy = CASES[request.param]
    with serving(play) as server:
        assert run(server.url, tmp_path / "out", "--concurrency", "1", limit=12)[0] == evaluate.LOST_STATUS
    return tmp_path / "out", cause, remedy


def test_every_reader_of_a_lost_evaluation_says_how_many_why_and_what_to_do(lost, monkeypatch, capsys):
    folder, cause, remedy = lost
    printed = (folder / "results.txt").read_text()
    assert "LOST: all 12 episodes, so there is no number:" in printed and remedy in printed
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--compare", str(folder), "--out", str(folder / "page")])
    with pytest.raises(SystemExit):
        report.main()
    said = [capsys.readouterr().err]
    assert evaluate.main(["--records", str(folder)]) == 1
    said.append(capsys.readouterr().err)
    assert judge.main([str(folder), "--endpoint", "http://127.0.0.1:9/v1", "--out", str(folder / "votes")]) == 1
    said.append(capsys.readouterr().err)
    for text in said:
        assert f"{folder} holds no episode: all 12 were lost" in text and cause in text and remedy in text


def test_reasons_that_differ_in_numbers_only_are_one_cause_and_what_was_not_tried_is_none_of_its_own():
    reasons = ["not tried: 10 episodes in a row were lost"] * 9 + [f"no reply in {n} s" for n in range(3)] + ["other"]
    assert causes(reasons) == [
        (3, "no reply in 0 s"),
        (1, "other"),
        (9, "not tried: 10 episodes in a row were lost"),
    ]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"lost": [], "overall": null}', '{"lost": [3]}'])
def test_results_that_say_nothing_of_lost_episodes_are_not_believed(content, tmp_path):
    if content is not None:
        (tmp_path / "results.json").write_text(content)
    assert all_lost(tmp_path) is None
