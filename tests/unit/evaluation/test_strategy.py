"""A search as a method of its own: settings, faults, users, what it has cost and where that is shown."""

import json
import sys
from pathlib import Path

import pytest
from support.evaluation import gold_player, run, serving
from support.phone import write_phone
from support.search import ANSWER, DFSDT, FULL, calling, kept, said, texts, told, untold

from recipe import evaluate
from recipe.report import __main__ as report


def test_faults_of_the_server_are_retried_and_cost_the_search_nothing(tmp_path: Path) -> None:
    faults = [429, 500, None, b"{", {"choices": []}] * 3
    with serving(gold_player("base"), [*faults]) as server:
        status, found = run(server.url, tmp_path / "a", *DFSDT, "--attempts", "30", "--backoff", "1e-6", limit=2)
    assert (status, found["lost"], found["overall"]["acc"]["mean"]) == (0, [], 1.0)
    assert found["cost"]["nodes"] * 2 == len(server.requests) - len(faults)


@pytest.mark.parametrize("fault", [(503, {"error": {"message": "busy"}}), FULL], ids=["busy", "prompt too long"])
def test_a_search_that_cannot_be_played_is_lost_and_not_scored(fault: object, tmp_path: Path) -> None:
    with serving(lambda _: fault) as server:
        status, found = run(server.url, tmp_path, *DFSDT, "--attempts", "1", limit=2)
    assert (status, len(found["lost"]), found["overall"], found["cost"]) == (evaluate.LOST_STATUS, 2, None, None)


def test_a_scripted_user_says_the_same_in_each_branch(tmp_path: Path) -> None:
    given = ["--environment", str(write_phone(tmp_path)), "--split", "report", "--limit", "2", *DFSDT]
    given += ["--user", "kind=scripted", "--user", "lines=[My line is dead., Goodbye.]"]
    with serving(lambda messages: ANSWER if told(messages) else "nonsense") as server:
        assert evaluate.main(["--endpoint", server.url, "--out", str(tmp_path / "out"), *given]) == 0
    for line in kept(tmp_path / "out"):
        assert line["search"] == {"nodes": 2, "branches": 2, "dropped": 0} and texts(line) == [[ANSWER]]
        assert line["episode"]["heard"] == ["My line is dead.", "Goodbye."]


PLAYED_BY_A_MODEL = ("--user", "kind=endpoint", "--user", "url=http://x/v1")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--max-nodes", "5"), "give it with --strategy dfsdt"),
        ((*DFSDT, "--max-nodes", "0"), "is not a whole number, 1 or more"),
        ((*DFSDT, *PLAYED_BY_A_MODEL), "expected a user of kind scripted or replay"),
    ],
)
def test_what_a_search_cannot_do_is_said(more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        evaluate.main(["--endpoint", "http://x/v1", *more])
    assert words in capsys.readouterr().err


@pytest.fixture
def evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of two evaluations of one model, `m-val` without a search and `m-val-dfsdt` by one."""
    gold = gold_player("base")

    def play(messages: list[dict[str, str]]) -> str:
        return gold(untold(messages)) if said(messages) or told(messages) else calling("no_such")

    monkeypatch.chdir(tmp_path)
    for player, more in ((gold, ()), (play, DFSDT)):
        with serving(player) as server:
            given = ["--docs", "signature", "--limit", "1", "--category", "base", *more]
            assert evaluate.main(["--endpoint", server.url, "--served-name", "m", *given]) == 0
    return tmp_path / "outputs" / "evaluation"


def test_results_say_what_the_search_has_cost(evaluations: Path) -> None:
    plain, searched = (
        json.loads((evaluations / name / "results.json").read_text())["cost"] for name in ("m-val", "m-val-dfsdt")
    )
    assert (plain["strategy"], plain["branches"], plain["nodes"]) == ("cot", 1, plain["messages"])
    assert (searched["strategy"], searched["branches"], searched["messages"]) == ("dfsdt", 2, plain["messages"])
    assert searched["nodes"] == plain["nodes"] + 1 and searched["completion_tokens"] == 3 * searched["nodes"]
    assert "strategy dfsdt, a search: " in (evaluations / "m-val-dfsdt" / "results.txt").read_text()
    assert json.loads((evaluations / "m-val-dfsdt" / "settings.json").read_text())["max_nodes"] == 60


def test_an_evaluation_is_not_gone_on_with_by_another_strategy_or_budget(
    evaluations: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--endpoint", "http://127.0.0.1:9/v1", "--docs", "signature", "--limit", "1", "--category", "base"]
    for name, more, words in (
        ("m-val", DFSDT, "strategy was 'cot', is 'dfsdt'"),
        ("m-val-dfsdt", (), "strategy was 'dfsdt', is 'cot'"),
        ("m-val-dfsdt", (*DFSDT, "--max-nodes", "9"), "max_nodes was 60, is 9"),
    ):
        assert evaluate.main([*given, "--served-name", "m", "--out", str(evaluations / name), *more]) == 1
        assert words in capsys.readouterr().err


def test_stored_episodes_of_both_strategies_get_no_score_together(
    evaluations: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main(["--records", str(evaluations / "m-val-dfsdt")]) == 0
    assert "strategy dfsdt, a search: " in capsys.readouterr().out
    assert evaluate.main(["--records", str(evaluations)]) == 1
    assert "1 of these episodes were found by a search" in capsys.readouterr().err


def test_a_table_of_pass_rates_names_the_search(
    evaluations: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(evaluations / name) for name in ("m-val", "m-val-dfsdt")]
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--compare", *paths, "--out", "votes"])
    capsys.readouterr()
    report.main()
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:3]] == ["m-val", "m-val-dfsdt"]
    assert "m-val-dfsdt: strategy dfsdt, a search: " in shown and "m-val: " not in shown


def test_bfcls_own_score_is_not_that_of_a_search(tmp_path: Path) -> None:
    with serving(lambda _: ANSWER) as server:
        _, plain = run(server.url, tmp_path / "plain", category="all", limit=1)
        _, searched = run(server.url, tmp_path / "searched", *DFSDT, category="all", limit=1)
    assert plain["multi_turn_official"] == 0.0 and searched["multi_turn_official"] is None
