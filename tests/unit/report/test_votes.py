"""Files of votes: what is accepted, and that everything wrong is said at once while nothing is written."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.report import __main__ as command
from recipe.report.votes import MOST_VOTES, read_votes
from rewards.votes import SOLVED


def test_every_spelling_is_worth_the_same(tmp_path: Path) -> None:
    changes: list[Callable[[str], str]] = [str, str.lower, str.upper, "AnswerStatus.{}".format]
    for change in changes:
        path = tmp_path / "s.json"
        path.write_text(json.dumps({"q": {"is_solved": {str(n): change(word) for n, word in enumerate(SOLVED)}}}))
        found, wrong = read_votes(path)
        assert (found["q"].votes, wrong) == ((1.0, 0.5, 0.0), [])


def test_votes_stand_in_the_order_of_their_numbers_and_other_fields_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    votes = {"10": "Unsure", "2": "Solved", "0": "Unsolved"}
    path.write_text(json.dumps({"q": {"length": None, "cluster": "c", "is_solved": votes}}))
    (query,) = read_votes(path)[0].values()
    assert (query.votes, query.cluster) == ((0.0, 1.0, 0.5), "c")


DAMAGED = {
    "empty": (b"", "cannot be read"),
    "cut off": (b'{"q": {"is_solved": {"0": "Sol', "cannot be read"),
    "no UTF-8": (b'{"\xff": 1}', "cannot be read"),
    "nested too deeply": (b"[" * 200_000, "nested too deeply"),
    "a number of thousands of digits": (b'{"q": ' + b"9" * 5000 + b"}", "cannot be read"),
    "a list": (b"[]", "holds []; expected an object with an entry for each query"),
    "no query": (b"{}", "holds {}"),
    "CSV": (b"query\tis_solved\n1\t2\n", "cannot be read"),
    "a query that is none": (b'{"q": 3}', "query q: is 3; expected an object with is_solved"),
    "no is_solved": (b'{"q": {"query": "x"}}', "query q, is_solved: is None"),
    "is_solved as text": (b'{"q": {"is_solved": "Solved"}}', "query q, is_solved: is 'Solved'"),
    "no vote": (b'{"q": {"is_solved": {}}}', "query q, is_solved: is {}"),
    "another word": (
        b'{"q": {"is_solved": {"0": "Solvable"}}}',
        "query q, is_solved.0: is 'Solvable'; expected Solved, ",
    ),
    "a number": (b'{"q": {"is_solved": {"0": 1}}}', "query q, is_solved.0: is 1"),
    "a truth": (b'{"q": {"is_solved": {"0": true}}}', "query q, is_solved.0: is True"),
    "nothing said": (b'{"q": {"is_solved": {"0": null}}}', "query q, is_solved.0: is None"),
    "a list of votes": (b'{"q": {"is_solved": {"0": ["Solved"]}}}', "query q, is_solved.0: is ['Solved']"),
    "code": (b'{"q": {"is_solved": {"0": "__import__(\'os\')"}}}', "query q, is_solved.0: is "),
    "another number": (b'{"q": {"is_solved": {"first": "Solved"}}}', "is_solved.first: is no number of a vote"),
    "below 0": (b'{"q": {"is_solved": {"-1": "Solved"}}}', "is_solved.-1: is no number of a vote"),
    "two spellings of a number": (b'{"q": {"is_solved": {"01": "Solved"}}}', "is_solved.01: is no number of a vote"),
    "another script's digits": ('{"q": {"is_solved": {"١": "Solved"}}}'.encode(), "is no number of a vote"),
    "a number too long": (b'{"q": {"is_solved": {"' + b"1" * 9000 + b'": "Solved"}}}', "is no number of a vote"),
    "too many votes": (
        json.dumps({"q": {"is_solved": dict.fromkeys(map(str, range(MOST_VOTES + 1)), "Solved")}}).encode(),
        f"has {MOST_VOTES + 1} votes; expected at most {MOST_VOTES}",
    ),
    "a vote that others have": (
        b'{"q": {"is_solved": {"0": "Solved", "1": "Solved"}}, "r": {"is_solved": {"0": "Solved"}}}',
        "query r, is_solved: lacks vote 1, which others have",
    ),
    "a query twice": (
        b'{"q": {"is_solved": {"0": "Solved"}}, "q": {"is_solved": {"0": "Unsolved"}}}',
        "query q: stands",
    ),
    "a field twice": (b'{"q": {"is_solved": {"0": "Solved"}, "is_solved": {"0": "Unsolved"}}}', "q, is_solved: stands"),
    "a vote twice": (b'{"q": {"is_solved": {"0": "Solved", "0": "Unsolved"}}}', "is_solved.0: stands there twice"),
    "a cluster that is none": (b'{"q": {"cluster": [1], "is_solved": {"0": "Solved"}}}', "q, cluster: is [1]"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_refused_by_file_query_and_field_and_nothing_is_written(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content, said = DAMAGED[damage]
    good = tmp_path / "m" / "good.json"
    good.parent.mkdir()
    good.write_text('{"q": {"is_solved": {"0": "Solved"}}}')
    (tmp_path / "m" / "bad.json").write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--votes", str(tmp_path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ends:
        command.main()
    error = capsys.readouterr().err
    assert ends.value.code == 1 and not (tmp_path / "out").exists()
    assert len(error.splitlines()) == 1 and len(error) < 600, error
    assert f"{tmp_path}/m/bad.json" in error and said in error


def test_all_mistakes_are_said_at_once_and_no_more_than_a_screenful(tmp_path: Path, capsys, monkeypatch) -> None:
    for name in ("one", "two"):
        votes = {f"q{n}": {"is_solved": {"0": "Solvd", "1": 3}} for n in range(20)} | {
            "good": {"is_solved": {"0": "Solved"}}
        }
        (tmp_path / f"{name}.json").write_text(json.dumps(votes))
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--votes", str(tmp_path), str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit):
        command.main()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 51 and lines[-1] == "and 31 more"
    assert "nowhere does not exist" in lines[0] and "one.json, query q0, is_solved.0" in lines[1]
    assert any("two.json" in line for line in lines)


PATHS = {
    "nothing there": ("nowhere", "does not exist"),
    "an empty folder": ("empty", "holds nothing to report: expected <subset>.json"),
    "an empty evaluation": ("evaluation", "holds no episode that can be read"),
}


@pytest.mark.parametrize("path", PATHS)
def test_a_path_with_nothing_in_it_is_said(path: str, tmp_path: Path, capsys, monkeypatch) -> None:
    name, said = PATHS[path]
    (tmp_path / "empty").mkdir()
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "episodes.jsonl").write_text("{}\n")
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--votes", str(tmp_path / name), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ends:
        command.main()
    error = capsys.readouterr().err
    assert ends.value.code == 1 and f"{tmp_path / name} {said}" in error and not (tmp_path / "out").exists()


def test_an_out_that_cannot_be_written_is_one_line(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "votes.json").write_text('{"q": {"is_solved": {"0": "Solved"}}}')
    out = tmp_path / "votes.json" / "out"
    monkeypatch.setattr(sys, "argv", ["recipe.report", "--votes", str(tmp_path / "votes.json"), "--out", str(out)])
    with pytest.raises(SystemExit):
        command.main()
    assert "the table cannot be written" in capsys.readouterr().err


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from([*SOLVED]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "1", "q", "is_solved"]), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(anything)
def test_any_json_is_votes_or_mistakes_and_never_both(tmp_path_factory, content) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(content))
    found, wrong = read_votes(path)
    assert bool(found) != bool(wrong)
    assert all(0 <= vote <= 1 for query in found.values() for vote in query.votes)
    assert all(str(path) in line and line.isprintable() for line in wrong)
