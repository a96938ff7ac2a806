"""Pass rates by hand, and methods on the same queries."""

import csv
import json
import sys

import numpy as np
import pytest
from support.phone import write_phone
from support.runs import a_run, validated

from interaction.environment import load_tasks, named
from interaction.episode_file import append
from recipe.evaluation.intervals import CHANGE, SHARE, interval, of_difference
from recipe.report import __main__ as command
from recipe.report import sources
from recipe.report.pass_rate import AVERAGE, Figure, Method, Query, compare, figures
from recipe.reward import sample_record
from recipe.stage import state
from rewards.votes import SOLVED


def write(path, **queries):
    """A file of votes; `a="SUN"` are three votes on query a."""
    path.parent.mkdir(parents=True, exist_ok=True)
    words = {"S": "AnswerStatus.Solved", "U": "Unsure", "N": "unsolved"}
    votes = {name: {str(number): words[word] for number, word in enumerate(said)} for name, said in queries.items()}
    path.write_text(json.dumps({name: {"query": "q", "is_solved": given} for name, given in votes.items()}))


@pytest.fixture
def example(tmp_path):
    write(tmp_path / "votes/sft_cot/G1_instruction.json", a="SSN", b="NNN", c="UNS", d="NSN")
    write(tmp_path / "votes/sft_cot/G1_tool.json", e="SSS", f="NUN")
    write(tmp_path / "votes/step_cot/G1_instruction.json", a="SSS", b="NUS", c="SSS", d="NSN")
    write(tmp_path / "votes/step_cot/G1_tool.json", e="SSS", f="SUU")
    return tmp_path / "votes"


@pytest.fixture
def report(monkeypatch, capsys, tmp_path):
    """Runs the command: exit status and what it printed."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["recipe.report", "--out", *map(str, (tmp_path / "new" / "out", *arguments))])
        try:
            command.main()
        except SystemExit as ends:
            return ends.code, capsys.readouterr().err
        return 0, capsys.readouterr().out

    return run


def test_the_example_comes_out_to_the_digit(example, tmp_path, report):
    status, said = report("--baseline", "ppo", "--compare", example)
    assert status == 2 and "there are sft_cot, step_cot" in said and not (tmp_path / "new" / "out").exists()
    lines = report("--compare", example)[1].splitlines()
    assert lines[1].split() == "sft_cot 6 37.5 +- 10.2 58.3 +- 11.8 44.4 +- 10.7 47.9 +- 11.0 -".split()
    by_hand = {
        "I1 Ins.": (3 / 8, (2 * 0.125**2 / 3) ** 0.5),  # rounds 1.5/4, 2/4, 1/4
        "I1 Tool": (7 / 12, (2 * (1 / 12) ** 2 / 3 + (1 / 6) ** 2 / 3) ** 0.5),  # rounds 1/2, 3/4, 1/2
    }
    means, deviations = zip(*by_hand.values(), strict=True)
    by_hand["I1"] = ((4 * means[0] + 2 * means[1]) / 6, (4 * deviations[0] + 2 * deviations[1]) / 6)
    by_hand["Average"] = (sum(means) / 2, sum(deviations) / 2)
    rows = list(csv.DictReader((tmp_path / "new" / "out" / "pass_rate.csv").open()))
    found = {row["subset"]: (float(row["pass_rate"]), float(row["standard_deviation"])) for row in rows[:4]}
    assert found == {subset: pytest.approx(both) for subset, both in by_hand.items()} and len(rows) == 8
    pairs = list(csv.DictReader((tmp_path / "new" / "out" / "differences.csv").open()))
    assert [pair["subset"] for pair in pairs] == ["G1_instruction", "G1_tool", "all"]
    low, high, before_low, before_high = (
        100 * float(pairs[2][f"{of}{end}"]) for of in ("", "before_") for end in ("low", "high")
    )
    assert f"[{low:+.1f}, {high:+.1f}]" in "\n".join(lines) and f"[{before_low:.1f}, {before_high:.1f}]" in "\n".join(
        lines
    )
    difference = float(pairs[2]["after"]) - float(pairs[2]["before"])
    assert difference == pytest.approx((1 / 3 + 1 / 2 + 1 / 2 + 0 + 0 + 1 / 2) / 6)
    assert "37.5 ± 10.2" in (tmp_path / "new" / "out" / "pass_rate.html").read_text()
    (example / "sft_cot").rename(example / "=1+1")
    (example / "=1+1" / "G1_tool.json").unlink()
    said = report("--compare", example, "--baseline", "step_cot")[1]
    assert said.splitlines()[1].split() == "=1+1 4 37.5 +- 10.2 - - - -".split()
    assert said.count(" has no I1 Tool, ") == 1
    with (tmp_path / "new" / "out" / "differences.csv").open() as file:
        assert {(row["method"], row["baseline"]) for row in csv.DictReader(file)} == {("'=1+1", "step_cot")}


def test_subsets_stand_in_the_order_of_steptools_tables_and_one_round_has_no_deviation(tmp_path):
    for name in ("own", "G3_instruction", "G2_category", "G1_instruction"):
        write(tmp_path / "m" / f"{name}.json", a="S", b="U")
    (method,) = sources.methods([tmp_path / "m"])
    assert [*figures(method)] == ["G1_instruction", "G2_category", "G3_instruction", "own", AVERAGE]
    assert figures(method)["own"] == Figure(0.75, None, 2)


def method(name, subset="s", clusters=False, **votes):
    queries = {query: Query((vote,), query[0] if clusters else query) for query, vote in votes.items()}
    return Method(name, {subset: queries})


def test_two_methods_are_compared_on_the_queries_that_both_have_by_clusters():
    before, after = method("old", a=0, b=0.5, c=1), method("new", b=1, c=1, d=0)
    assert compare(after, before)[0][3:6] == (2, 0.75, 1.0)
    assert compare(after, method("old", subset="another", b=1)) == []
    values = {"a1": 1.0, "a2": 1.0, "b1": 0.0, "b2": 0.0, "c1": 1.0, "c2": 0.0}
    new, old = method("new", clusters=True, **values), method("old", clusters=True, **dict.fromkeys(values, 0.0))
    assert compare(new, old)[0].interval == pytest.approx(interval([1, 1, 0, 0, 1, 0], "aabbcc", bounds=CHANGE))


def test_a_file_of_votes_is_read_whole_or_not_at_all(tmp_path, report):
    good, bad = tmp_path / "m" / "good.json", tmp_path / "m" / "bad.json"
    good.parent.mkdir()
    votes = {"10": "Unsure", "2": "AnswerStatus.Solved", "0": "UNSOLVED"}
    good.write_text(json.dumps({"q": {"length": None, "cluster": "c", "is_solved": votes}}))
    assert sources.read_votes(good) == {"q": Query((SOLVED["Unsolved"], SOLVED["Solved"], SOLVED["Unsure"]), "c")}
    for content in (
        *("[]", '{"q": {"query": "x"}}', '{"q": {"is_solved": {"first": "Solved"}}}', '{"q": {"is_solved": {}}}'),
        *('{"q": {"is_solved": {"0": "Solvable"}}}', '{"q": {"is_solved": {"0": 1}}}'),
        '{"q": {"is_solved": {"0": "Solved", "1": "Solved"}}, "r": {"is_solved": {"0": "Solved"}}}',
    ):
        bad.write_text(content)
        status, error = report("--compare", good, bad)
        assert status == 1 and f"{bad}" in error and not (tmp_path / "new" / "out").exists(), error


def evaluation(folder, solved, environment="bfcl", **settings):
    for task, samples in solved.items():
        for sample, passed in enumerate(samples):
            episode = sample_record() | {"environment": environment, "task_id": task}
            episode |= {"category": task.rpartition("_")[0], "outcome": {"passed": passed, "components": {}}}
            episode["turns"] = [turn if passed else turn | {"steps": []} for turn in episode["turns"]]  # without a call
            append(folder / "episodes.jsonl", {"task_id": task, "sample": sample, "episode": episode})
    (folder / "settings.json").write_text(json.dumps({"docs": "json", "options": {}, **settings}))
    return folder


def test_evaluations_stand_beside_votes_and_settings_that_differ_are_named(example, tmp_path, report):
    solved = {"multi_turn_base_0": [True, False], "multi_turn_base_1": [True] * 2}
    solved |= {"multi_turn_miss_func_0": [False] * 2}
    mine = evaluation(tmp_path / "mine", solved)
    other = evaluation(tmp_path / "other", {**solved, "multi_turn_base_0": [True]}, docs="signature")
    said = " ".join(report(mine, "--compare", example, other)[1].split())
    assert "75.0 +- 25.0 0.0 +- 0.0 - 37.5 +- 12.5 50.0" in said and "mine and sft_cot have no query in common" in said
    assert 'Settings that differ, other | mine: docs: "signature" | "json".' in said
    assert "other: 1 of 3 tasks lack a sample and are left out" in said
    (own,) = sources.methods([mine])
    assert own.subsets["multi_turn_base"]["multi_turn_base_0"] == Query((1.0, 0.0), ("bfcl", "0"))
    name = named(str(write_phone(tmp_path)))
    for environment, cluster in (("phone_x", "phone_3"), (name, load_tasks(name)["phone_3"].cluster)):
        folder = evaluation(tmp_path / environment, {"phone_3": [True]}, environment=environment)
        query = sources.methods([folder])[0].subsets[f"{environment}/phone"][f"{environment}/phone_3"]
        assert query.cluster == (environment, cluster), "of an environment whose file is known, or is not"


def test_two_recipes_are_compared_over_seeds_and_tasks_that_all_have_by_both_verdicts(tmp_path, report):
    seeds = {"a1": "10000", "a2": "11110", "b1": "11110", "b2": "0111", "b3": "11011"}  # which tasks each solved
    for name, solved in seeds.items():
        for stage in ("stage1_format", "stage2_base"):
            run = a_run(tmp_path / name, [ord(name[0]) + 0.1 * int(name[1])] * 2, stage)
        validated(run, 2, {"multi_turn_base_0": [0.0]}, stage="stage1_format")
        tasks = {f"multi_turn_base_{index}": [float(passed)] for index, passed in enumerate(solved)}
        other = {"cluster": "0"} if name == "b3" else {}  # the clusters of a recipe's first seed count
        for step, played in ((1, {}), (2, tasks), (3, {"multi_turn_base_0": [0.0]})):  # step 3 has not been logged
            validated(run, step, played, stage="stage2_base", reward={"calls": 0.0}, **other)
        validated(run, 2, {"multi_turn_base_9": [1.0]}, part="guard", stage="stage2_base")
        warm = "x" if name in ("a1", "a2") else name
        state.update(run / "stage1_format", began=state.Start(model=f"/{warm}", weights=warm, made="y"))
    a, b = ([tmp_path / name for name in seeds if name[0] == recipe] for recipe in "ab")
    assert report("--compare", *a, "--with", *b)[0] == 0
    found = json.loads((tmp_path / "new" / "out" / "pass_rate.json").read_text())
    official, own = found["differences"]
    shares = [np.array([[*map(float, seeds[path.name][:4])] for path in paths]) for paths in (a, b)]
    assert (own["queries"], own["before"], own["after"]) == (4, 0.625, pytest.approx(10 / 12))
    assert (own["low"], own["high"]) == pytest.approx(of_difference(*shares, "0123"))
    for of, its in zip(("before", "after"), shares, strict=True):
        alone = interval([*its.flat], "0123" * len(its), [seed for seed in range(len(its)) for _ in "0123"], SHARE)
        assert (own[f"{of}_low"], own[f"{of}_high"]) == pytest.approx(alone)
    assert (official["method"], official["baseline"], official["after"]) == ("B, official", "A, official", 1)
    notes = "\n".join(found["notes"])
    assert f"\n{tmp_path}/a1, {tmp_path}/a2 share a warm start" in notes and notes.count("share a warm start") == 1
    assert "1 tasks that not all seeds have are left out" in notes
    _, row, guard = sources.methods([a[0]])
    assert (row.name, guard.name) == ("a1/stage2_base", "a1/stage2_base, guard")
    assert row.subsets["multi_turn_base"]["multi_turn_base_1"] == Query((0.0,), ("bfcl", "1"))
    assert [{item.called for item in one.played} for one in (row, guard)] == [{False}, {None}]
    assert row.notes == ("the validation of stage2_base after step 2",)
    assert [*guard.subsets["multi_turn_base"]] == ["multi_turn_base_9"]
    write(votes := a[0] / "votes.json", q="S")
    assert len(sources.methods([a[0], votes])) == 3, "a file of votes beside the stages takes none of their rows"
    solved, model = {"multi_turn_base_0": [True]}, {"endpoint": None, "model": "/hf 1f"}
    twice = [evaluation(tmp_path / name, solved, **model) for name in "xy"]
    models = [{"endpoint": None, "model": f"{run}/stage2_base/hf {run.name}"} for run in a]
    each = [evaluation(tmp_path / f"of_{at}", solved, **model) for at, model in enumerate(models)]
    assert report("--compare", *each, "--with", b[0])[0] == 0
    assert f"{each[0]}, {each[1]} share a warm start" in (tmp_path / "new" / "out" / "pass_rate.json").read_text()
    for others, word in (([b[0], a[0]], "no second seed"), (twice, "no second"), ([tmp_path / "votes"], "votes has 0")):
        status, said = report("--compare", *a, "--with", *others)
        assert status == 1 and word in said
    assert "no second seed" in report(a[0], a[0])[1]


def test_a_task_of_another_seeds_file_is_another_one_though_its_id_is_the_same(tmp_path):
    paths = [evaluation(tmp_path / name, {"base_0": [True, False], "base_1": [True] * 2}, "made") for name in "abc"]
    lines = [json.loads(line) for line in (paths[2] / "episodes.jsonl").read_text().splitlines()]
    for line in lines[:2]:
        line["episode"]["turns"][0]["user"] += " Now."
    (paths[2] / "episodes.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for others, queries in ((paths[1:2], [(0.5,), (1.0,)]), (paths[1:], [(1.0, 1.0)])):
        *_, b = found = sources.recipes(paths[:1], others)
        assert [query.votes for query in b.subsets["made/base"].values()] == queries, "samples of a seed are one vote"
        assert {*sum((query.votes for query in found[1].subsets["made/base"].values()), ())} == {1.0}, "official"
    (paths[1] / "episodes.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines[1:]))
    for one in sources.recipes(paths[:1], paths[1:2]):
        assert [name.split()[0] for name in one.subsets["made/base"]] == ["made/base_1"], "one lost a sample of base_0"
