"""Pass rates by hand, StepTool's published ones, and two methods on the same queries."""

import csv
import json
import re
import sys
from pathlib import Path

import pytest
from support.phone import write_phone

from interaction.environment import load_tasks, named
from recipe.evaluation.intervals import t_interval
from recipe.report import __main__ as command
from recipe.report import pass_rate_page, sources
from recipe.report.pass_rate import AVERAGE, Figure, Method, Query, compare, figure, figures, together

WORDS = {"S": "AnswerStatus.Solved", "U": "AnswerStatus.Unsure", "N": "AnswerStatus.Unsolved"}


def write(path: Path, **queries: str) -> Path:
    """A file of votes; `a="SUN"` are three votes on query a."""
    path.parent.mkdir(parents=True, exist_ok=True)
    votes = {name: {str(number): WORDS[word] for number, word in enumerate(said)} for name, said in queries.items()}
    path.write_text(json.dumps({name: {"query": "q", "is_solved": given} for name, given in votes.items()}))
    return path


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The example of docs/evaluation.md."""
    write(tmp_path / "votes/sft_cot/G1_instruction.json", a="SSN", b="NNN", c="UNS", d="NSN")
    write(tmp_path / "votes/sft_cot/G1_tool.json", e="SSS", f="NUN")
    write(tmp_path / "votes/step_cot/G1_instruction.json", a="SSS", b="NUS", c="SSS", d="NSN")
    write(tmp_path / "votes/step_cot/G1_tool.json", e="SSS", f="SUU")
    return tmp_path / "votes"


def report(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["recipe.report", *map(str, arguments)])
    command.main()


def test_the_example_comes_out_to_the_digit(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, "--compare", example, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    lines = said.splitlines()
    document = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text()
    for line in [*lines[:3], *lines[8:12]]:
        assert line in document
    assert lines[1].split("  ")[-4:] == ["37.5 +- 10.2", "58.3 +- 11.8", "44.4 +- 10.7", "47.9 +- 11.0"]
    rows = list(csv.DictReader((tmp_path / "out" / "pass_rate.csv").open()))
    by_hand = {
        "I1 Ins.": (100 * 3 / 8, 100 * (2 * 0.125**2 / 3) ** 0.5),  # rounds 1.5/4, 2/4, 1/4
        "I1 Tool": (100 * 7 / 12, 100 * (2 * (1 / 12) ** 2 / 3 + (1 / 6) ** 2 / 3) ** 0.5),  # rounds 1/2, 3/4, 1/2
    }
    for row in rows[:2]:
        assert (float(row["pass_rate"]), float(row["standard_deviation"])) == pytest.approx(by_hand[row["subset"]])
    means, deviations = zip(*by_hand.values(), strict=True)
    assert float(rows[2]["pass_rate"]) == pytest.approx((4 * means[0] + 2 * means[1]) / 6)
    assert float(rows[2]["standard_deviation"]) == pytest.approx((4 * deviations[0] + 2 * deviations[1]) / 6)
    assert float(rows[3]["pass_rate"]) == pytest.approx(sum(means) / 2)
    pairs = list(csv.DictReader((tmp_path / "out" / "differences.csv").open()))
    assert [pair["subset"] for pair in pairs] == ["I1 Ins.", "I1 Tool", "all"]
    assert float(pairs[2]["difference"]) == pytest.approx(100 * (1 / 3 + 1 / 2 + 1 / 2 + 0 + 0 + 1 / 2) / 6)
    page = (tmp_path / "out" / "pass_rate.html").read_text()
    assert "37.5 ± 10.2" in page and "70.8" in page and "I1 Ins." in page and page.count("<script") == 1


PUBLISHED = {
    "ToolLlama COT": ([54.2, 50.3, 56.5, 52.0, 45.4, 37.2], [0.5, 0.8, 1.5, 0.6, 0.6, 1.0], 49.3, 0.8),
    "ToolLlama COT StepTool": ([58.7, 57.8, 57.2, 52.7, 52.7, 42.1], [1.8, 1.7, 0.7, 0.8, 1.0, 1.5], 53.5, 1.3),
    "ToolLlama DFSDT StepTool": ([59.7, 55.9, 58.4, 52.8, 51.3, 66.7], [0.5, 0.0, 1.2, 1.2, 0.2, 0.4], 57.5, 0.6),
    "Qwen2 DFSDT StepTool": ([65.6, 60.8, 68.4, 60.9, 51.1, 65.3], [1.8, 0.3, 1.6, 0.9, 1.8, 1.7], 62.0, 1.4),
}
"""Of StepTool's README: six subsets, their deviations, and the Average with its own."""


@pytest.mark.parametrize("row", PUBLISHED)
def test_average_is_what_steptool_publishes(row: str) -> None:
    means, deviations, mean, deviation = PUBLISHED[row]
    parts = [Figure(one, its, 1) for one, its in zip(means, deviations, strict=True)]
    found = together(parts)
    assert found.deviation is not None
    assert (found.mean, found.deviation) == pytest.approx((mean, deviation), abs=0.06)  # of rounded numbers


@pytest.mark.parametrize(
    ("parts", "published"),
    [
        ([(56.4, 1.8, 163), (49.0, 1.2, 153), (46.3, 1.8, 158)], (50.6, 1.6)),
        ([(48.4, 0.0, 124), (45.6, 1.7, 106)], (47.1, 0.8)),
        ([(53.6, 2.0, 124), (54.4, 1.1, 106)], (54.0, 1.6)),
        ([(54.4, 3.0, 124), (54.6, 1.0, 106)], (54.5, 2.1)),
    ],
)
def test_i1_and_i2_are_what_steptool_publishes(
    parts: list[tuple[float, float, int]], published: tuple[float, float]
) -> None:
    found = together([Figure(*part) for part in parts], [queries for *_, queries in parts])
    assert found.deviation is not None
    assert (found.mean, found.deviation) == pytest.approx(published, abs=0.06)


def test_subsets_stand_in_the_order_of_steptools_tables_and_others_after_them(tmp_path: Path) -> None:
    for name in ("own", "G3_instruction", "G2_instruction", "G1_tool", "G2_category", "G1_instruction"):
        write(tmp_path / "m" / f"{name}.json", a="S")
    (method,) = sources.methods([tmp_path / "m"])
    order = ["G1_instruction", "G1_tool", "G2_category", "G2_instruction", "G3_instruction", "own", "I1", "I2", AVERAGE]
    assert [*figures(method)] == order


def test_one_round_of_votes_has_no_deviation() -> None:
    assert figure([Query((1.0,), 0), Query((0.5,), 1)]) == Figure(0.75, None, 2, 1)


def method(name: str, subset: str = "s", clusters: bool = False, **votes: float) -> Method:
    return Method(
        name, {subset: {query: Query((vote,), query[0] if clusters else query) for query, vote in votes.items()}}
    )


def test_two_methods_are_compared_on_the_queries_that_both_have() -> None:
    before, after = method("old", a=0, b=0.5, c=1), method("new", b=1, c=1, d=0)
    (pair,) = compare(after, before)
    assert (pair.queries, pair.before, pair.after) == (2, 0.75, 1.0)
    assert pair.interval == pytest.approx(t_interval([0.5, 0.0]))
    assert compare(after, method("old", subset="another", b=1)) == []
    (lone,) = compare(method("new", a=1), before)
    assert lone.interval is None


def test_queries_of_one_cluster_are_not_taken_for_independent() -> None:
    values = {"a1": 1.0, "a2": 1.0, "b1": 0.0, "b2": 0.0, "c1": 1.0, "c2": 0.0}
    before = method("old", clusters=True, **dict.fromkeys(values, 0.0))
    (pair,) = compare(method("new", clusters=True, **values), before)
    (loose,) = compare(method("new", **values), before)
    assert pair.interval == pytest.approx(t_interval([1.0, 0.0, 0.5])) and loose.interval is not None
    assert pair.interval[0] < loose.interval[0] and pair.after == loose.after


def test_files_of_one_folder_are_a_method_and_methods_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = [write(tmp_path / "x" / "m" / f"{name}.json", a="S") for name in ("one", "two")]
    write(tmp_path / "y" / "m" / "one.json", a="N")
    (own,) = sources.methods(files)
    assert (own.name, [*own.subsets]) == ("m", ["one", "two"])
    names = [item.name for item in sources.methods([*files, tmp_path / "y"])]
    assert names == ["x/m", "y/m"]
    for folder in ("x/z", "y/z"):
        write(tmp_path / folder / "m" / "one.json", a="S")
    names = [item.name for item in sources.methods([tmp_path / "x" / "z", tmp_path / "y" / "z"])]
    assert names == ["x/z/m", "y/z/m"]


def test_a_baseline_is_named(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report(monkeypatch, "--compare", example, "--out", tmp_path / "out", "--baseline", "step_cot")
    assert "sft_cot  step_cot  all      6        75.0 -> 44.4" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        report(monkeypatch, "--compare", example, "--out", tmp_path / "none", "--baseline", "ppo")
    assert "there are sft_cot, step_cot" in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_a_row_that_lacks_a_subset_is_named(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(example / "step_cot" / "G3_instruction.json", g="S")
    report(monkeypatch, "--compare", example, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert "sft_cot has no I3 Ins., so its Average is over other subsets" in said and "step_cot has no" not in said


def test_names_of_folders_become_no_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "<b onclick=x>" / "<i>.json", a="S")
    report(monkeypatch, "--compare", tmp_path / "<b onclick=x>", "--out", tmp_path / "out")
    page = (tmp_path / "out" / "pass_rate.html").read_text()
    assert "<b onclick" not in page and "<i>" not in page and "&lt;i&gt;" in page


def evaluation(folder: Path, solved: dict[str, list[bool]], environment: str = "bfcl") -> Path:
    """An evaluation's folder; a task's list has its samples."""
    from recipe.reward import sample_record

    record = sample_record()
    lines = []
    for task, samples in solved.items():
        for sample, passed in enumerate(samples):
            category = task.rpartition("_")[0]
            episode = {**record, "task_id": task, "category": category, "environment": environment}
            episode["outcome"] = {"passed": passed, "components": {}}
            lines.append(json.dumps({"task_id": task, "sample": sample, "episode": episode}))
    folder.mkdir(parents=True)
    (folder / "episodes.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_an_evaluation_stands_beside_votes(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    solved = {
        "multi_turn_base_0": [True, False],
        "multi_turn_base_1": [True, True],
        "multi_turn_miss_func_0": [False] * 2,
    }
    mine = evaluation(tmp_path / "mine", solved)
    report(monkeypatch, mine, "--compare", example, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert (
        said.startswith("method ")
        and "Solved 1, Unsure 0.5" in said
        and "verdict on a sample" in " ".join(said.split())
    )
    assert "75.0 +- 25.0" in said and "mine and sft_cot have no query in common" in said
    (own,) = sources.methods([mine])
    assert own.subsets["multi_turn_base"]["multi_turn_base_0"] == Query((1.0, 0.0), ("bfcl", "0"))


SOLVED = {f"multi_turn_{kind}_{index}": [True, False] for kind in ("base", "miss_func") for index in range(2)}
WORDS_OF_VOTES = ("Solved", "Unsure", "judge", "vote", "query", "queries", "StepTool", "I1", "round", "method")


@pytest.mark.parametrize("option", ["--compare", "--votes"])
def test_two_evaluations_are_compared_in_words_of_tasks_and_their_verdict(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = evaluation(tmp_path / "before", SOLVED)
    after = evaluation(tmp_path / "after", SOLVED | {"multi_turn_base_0": [True, True]})
    report(monkeypatch, option, before, after, "--out", tmp_path / "out")
    said = capsys.readouterr().out
    page = (tmp_path / "out" / "pass_rate.html").read_text()
    shown = page[page.index("<main") :]
    for text in (said, shown):
        assert not [word for word in WORDS_OF_VOTES if re.search(rf"\b{word}", text.replace("Solved tasks", ""))], text
        assert "acc, not acc_official" in " ".join(text.replace("&#39;", "'").split())
    lines = [re.split("  +", line) for line in said.splitlines()]
    assert ["evaluation", "against", "category", "tasks", "solved", "difference [95 %]"] in lines
    assert ["after", "before", "multi_turn_miss_func", "2", "50.0 -> 50.0", "none: the same on all 2 tasks"] in lines
    assert any(line[2:5] == ["multi_turn_base", "2", "50.0 -> 75.0"] and "[-" in line[5] for line in lines)
    assert "over the samples of each task" in " ".join(said.split())


def test_one_sample_of_one_category_has_neither_deviation_nor_average_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [evaluation(tmp_path / name, {"multi_turn_base_0": [True]}) for name in ("a", "b")]
    report(monkeypatch, "--compare", folders[0], "--compare", folders[1], "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert "+-" not in said and "Average" not in said and "none: the same on the one task" in said


NO_SPREAD = {
    "no query differs": (dict(a=0.5, b=1.0), dict(a=0.5, b=1.0), False, "none: the same on all 2 queries"),
    "no query differs, but for rounding": (
        dict(a=0.3, b=0.0),
        dict(a=0.1 + 0.2, b=0.0),
        False,
        "none: the same on all 2",
    ),
    "all differ by the same": (dict(a=0, b=0), dict(a=1, b=1), False, "+100.0 (the same on every query or cluster"),
    "by the same in each cluster": (
        dict(a1=0, a2=1, b1=0, b2=1),
        dict(a1=1, a2=0, b1=1, b2=0),
        True,
        "+0.0 (the same on every query or cluster",
    ),
    "one query": (dict(a=0), dict(a=1), False, "+100.0 (one query or cluster: no interval)"),
    "one query, no difference": (dict(a=0), dict(a=0), False, "none: the same on the one query"),
}


@pytest.mark.parametrize("case", NO_SPREAD)
def test_an_interval_without_width_is_never_printed(case: str, tmp_path: Path) -> None:
    before, after, clusters, said = NO_SPREAD[case]
    methods = [method("old", clusters=clusters, **before), method("=1+1", clusters=clusters, **after)]
    (pair,) = compare(methods[1], methods[0])
    assert pair.interval is None and said in pass_rate_page.text(methods, methods[0])
    pass_rate_page.write(methods, methods[0], tmp_path)
    (line,) = csv.DictReader((tmp_path / "differences.csv").open())
    assert (line["low"], line["high"], line["method"]) == ("", "", "'=1+1"), "no formula for a spreadsheet"


def test_tasks_without_all_samples_are_left_out_and_counted(tmp_path: Path) -> None:
    (own,) = sources.methods(
        [evaluation(tmp_path / "e", {"multi_turn_base_0": [True] * 2, "multi_turn_base_1": [True]})]
    )
    assert [*own.subsets["multi_turn_base"]] == ["multi_turn_base_0"]
    assert own.notes == ("1 of 2 tasks lack a sample and are left out",)


def test_an_environment_of_ones_own_has_clusters_where_its_file_is_known(tmp_path: Path) -> None:
    folder = evaluation(tmp_path / "e", {"phone_3": [True]}, environment="phone_x")
    assert sources.methods([folder])[0].subsets["phone"]["phone_x/phone_3"].cluster == ("phone_x", "phone_3")
    phone = tmp_path / "f"
    phone.mkdir()
    name = named(str(write_phone(phone)))
    folder = evaluation(tmp_path / "g", {"phone_3": [True]}, environment=name)
    cluster = load_tasks(name)["phone_3"].cluster
    assert sources.methods([folder])[0].subsets["phone"][f"{name}/phone_3"].cluster == (name, cluster)


def test_a_run_has_a_row_for_the_last_validation_of_each_stage(tmp_path: Path) -> None:
    from support.runs import write_metrics

    run = tmp_path / "run"
    write_metrics(run, "stage2_base", "1.jsonl", [(step, {"critic/score/mean": 0.5}) for step in (1, 2)])
    for step, passed in ((1, 0.0), (2, 1.0)):
        path = run / "stage2_base" / "rollouts" / "val" / f"{step:06d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        tasks = [f"multi_turn_base_{index}" for index in range(3)]
        lines = [
            {"step": step, "session_id": 0, "uid": "u", "task_id": task, "score": 1.0, "reward": {"acc": passed}}
            for task in tasks
        ]
        path.write_text("".join(json.dumps({**line, "episode": {}}) + "\n" for line in lines))
    (row,) = sources.methods([run])
    assert row.name == "run/stage2_base" and row.notes == ("the validation of stage2_base after step 2",)
    assert row.subsets["multi_turn_base"]["multi_turn_base_1"] == Query((1.0,), ("bfcl", "1"))
    path.write_text(
        path.read_text().replace('"task_id": "multi_turn_base_2"', '"part": "guard", "task_id": "multi_turn_base_2"')
    )
    row, guard = sources.methods([run])
    assert (row.name, guard.name) == ("run/stage2_base", "run/stage2_base, guard")
    assert [*guard.subsets["multi_turn_base"]] == ["multi_turn_base_2"]
