"""A file of entries gives tasks that ask, call and judge as the entries do, or a list of all its problems."""

import json
import random
import shutil
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from support.entries import GAUGE, multi_turn, says, single_turn, write

import interaction.environment as environments
from bfcl_env import Episode, load_scenarios
from bfcl_env.entries.tasks import OwnTask, category_of
from bfcl_env.single_turn.tasks import kind_of
from data_prep.__main__ import main as prepare_data
from interaction import get_protocol
from interaction.gold import play_gold

PROTOCOL = get_protocol("think_xml", docs="signature")

FORM_PARAMETERS = {
    "type": "dict",
    "properties": {
        "form": {"type": "String", "description": "Its name."},
        "strict": {"type": "boolean", "description": "Without mercy."},
    },
    "required": ["form"],
}
DOCUMENT: list[dict[str, Any]] = [
    {
        "id": "multi-turn_0",
        "question": [says("Open a ticket about the broken lamp."), says("Close it, it was the fuse.")],
        "function": [],
        "initial_config": {"TicketAPI": {"ticket_queue": [], "ticket_counter": 1, "current_user": "Ann"}},
        "invoked_classes": ["TicketAPI"],
        "ground_truth": [["create_ticket(title='Lamp', description='broken')"], ["close_ticket(ticket_id=1)"]],
    },
    {
        "id": "parallel_java_0",
        "question": [says("Which fields does the form have, and is it valid?")],
        "function": [
            {"name": name, "description": "About a form.", "parameters": FORM_PARAMETERS}
            for name in ("Form.fields", "Form.isValid")
        ],
        "initial_config": {},
        "invoked_classes": [],
        "ground_truth": [
            {"Form.fields": {"form": ["order"], "strict": [""]}},
            {"Form.isValid": {"form": ["order"], "strict": ["", True]}},
        ],
        "difficulty": {"level": 2},
    },
]
"""With the keys `invoked_classes` and ids with `-`, which users' files have."""


def tasks_of(path: Path) -> dict[str, OwnTask]:
    return dict(environments.load_tasks(environments.named(str(path))))  # type: ignore[arg-type]


def prepared(folder: Path, entries: Any, name: str = "plant") -> dict[str, list[dict[str, Any]]]:
    """The rows of each file that the command writes."""
    path = write(folder, entries, f"{name}.json")
    assert prepare_data(["--json", str(path), "--out", str(folder / "out"), "--docs", "signature"]) == 0
    return {file.stem: parquet.read_table(file).to_pylist() for file in (folder / "out").glob("*.parquet")}


def test_ids_name_categories_in_all_spellings() -> None:
    spelled = {
        "multi-turn_0": "multi_turn_base",
        "multi_turn_miss_func_a": "multi_turn_miss_func",
        "simple_0": "simple_python",
        "java_7": "simple_java",
        "multiple_python_1": "multiple",
        "parallel_javascript_2": "parallel_javascript",
        "live_simple_3-1-0": "live_simple",
        "relevance_0": "relevance",
        **dict.fromkeys(("gauge_1", "simple_python_", "simple", "exec_simple_0", "multi_turn_bsae_1")),
    }
    assert {name: category_of(name) for name in spelled} == spelled
    kind = kind_of("parallel_multiple_java")
    assert (kind.language, kind.parallel, kind.wanted) == ("java", True, "accepted")
    assert kind_of("relevance").wanted == "any call" and kind_of("simple_javascript").language == "javascript"


def test_a_file_becomes_rows_and_its_gold_passes_when_it_is_played(tmp_path: Path) -> None:
    files = prepared(tmp_path, DOCUMENT)
    rows = {row["extra_info"]["task_id"]: row for row in [*files["plant_train"], *files["plant_val"]]}
    assert {row["extra_info"]["environment"] for row in rows.values()} == {"plant"}
    assert {row["data_source"] for row in rows.values()} == {"plant/base", "plant/parallel_java"}
    assert json.loads(rows["multi-turn_0"]["reward_model"]["ground_truth"]) == [
        [{"name": "create_ticket", "arguments": {"title": "Lamp", "description": "broken"}}],
        [{"name": "close_ticket", "arguments": {"ticket_id": 1}}],
    ]
    for row in rows.values():
        task = environments.task_of(row["extra_info"])
        messages, record = play_gold(task, PROTOCOL)
        assert messages[: len(row["prompt"])] == row["prompt"]
        assert record.outcome is not None and record.outcome.passed and all(turn.passed for turn in record.turns)
        entry = next(item for item in DOCUMENT if item["id"] == task.id)
        assert [turn.user for turn in record.turns] == [turn[0]["content"] for turn in entry["question"]]
        further = {"entry": {"difficulty": {"level": 2}}} if task.id == "parallel_java_0" else {}
        assert record.to_dict()["facts"].items() >= further.items() and bool(further) == ("entry" in record.facts)


BFCL = Path(next(iter(find_spec("bfcl_eval").submodule_search_locations))) / "data"  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("category", ["multi_turn_base", "multi_turn_miss_func"])
def test_bfcls_own_files_give_its_own_scenarios(category: str, tmp_path: Path) -> None:
    (tmp_path / "possible_answer").mkdir()
    for name in (f"BFCL_v4_{category}.json", f"possible_answer/BFCL_v4_{category}.json"):
        shutil.copy(BFCL / name, tmp_path / name)
    environments.register({f"BFCL_v4_{category}": str(tmp_path / f"BFCL_v4_{category}.json")})
    tasks = environments.load_tasks(f"BFCL_v4_{category}")
    ours = load_scenarios(category)
    assert list(tasks) == [scenario.id for scenario in ours]
    for scenario in ours:
        played: Any = tasks[scenario.id].played  # type: ignore[attr-defined]
        assert played.turns == scenario.turns and played.initial_config == scenario.initial_config
        assert played.classes == scenario.classes and played.functions(0) == scenario.functions(0)


def test_a_withheld_function_is_revealed_in_its_turn(tmp_path: Path) -> None:
    entry = multi_turn(
        id="multi_turn_miss_func_0",
        question=[says("Count the lines of a.txt."), []],
        missed_function={"1": ["touch"]},
        ground_truth=[[], ["touch(file_name='a.txt')"]],
    )
    task: Any = tasks_of(write(tmp_path, [entry]))["multi_turn_miss_func_0"]
    assert "touch" not in {doc["name"] for doc in task.played.functions(0)}
    with Episode(task.played) as episode:
        episode.end_turn()
        assert episode.execute(task.played.turns[1].gold[0]).error is None


def sides(tasks: dict[str, OwnTask]) -> dict[str, set[str]]:
    found = defaultdict(set)
    for task in tasks.values():
        found[task.cluster].add(task.part)
    return found


def apart(number: int, group: int, **changes: Any) -> dict[str, Any]:
    """A single-turn entry with a function that only its group has."""
    gauge = {**GAUGE, "name": f"read_gauge_{group}"}
    return single_turn(number, function=[gauge], ground_truth=[{f"read_gauge_{group}": {"gauge": ["a"]}}], **changes)


def test_entries_with_one_function_state_or_question_stand_on_one_side(tmp_path: Path) -> None:
    entries = [apart(number, number // 3) for number in range(60)]
    entries += [multi_turn(number, initial_config=multi_turn(number // 2)["initial_config"]) for number in range(20)]
    entries += [apart(100 + number, 1000 + number, question=[says(f"Gauge {number // 2}!")]) for number in range(20)]
    tasks = tasks_of(write(tmp_path, entries))
    by_cluster = sides(tasks)
    assert len(by_cluster) == 20 + 10 + 10 and all(len(parts) == 1 for parts in by_cluster.values())
    counts = [sum(task.part == part for task in tasks.values()) for part in ("train", "dev", "test")]
    assert abs(counts[0] - 50) <= 3 and abs(counts[1] - 12) <= 3 and abs(counts[2] - 38) <= 3


def test_with_one_set_of_tools_only_the_question_counts_and_that_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [single_turn(number) for number in range(20)]
    entries += [single_turn(number, question=entries[0]["question"]) for number in (20, 21)]
    tasks = tasks_of(write(tmp_path, entries))
    assert "22 of 22 entries share functions or initial states" in capsys.readouterr().out
    assert tasks["simple_python_0"].cluster == tasks["simple_python_21"].cluster
    assert len(sides(tasks)) == 20 and {task.part for task in tasks.values()} == {"train", "dev", "test"}


def test_the_order_of_a_file_does_not_move_the_split(tmp_path: Path) -> None:
    entries = [single_turn(number) for number in range(40)]
    first = {name: task.part for name, task in tasks_of(write(tmp_path, entries)).items()}
    random.Random(0).shuffle(entries)
    assert first == {name: task.part for name, task in tasks_of(write(tmp_path, entries, "other.json")).items()}


def test_a_small_file_holds_something_out_or_prints_that_it_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 3, 7):
        name = f"plant{number}"
        files = prepared(tmp_path / name, [single_turn(place) for place in range(number)], name)
        said = capsys.readouterr().out
        parts = {row["extra_info"]["part"] for row in files[f"{name}_val"]}
        assert files[f"{name}_train"] and len(files[f"{name}_train"]) + len(files[f"{name}_val"]) == number
        for part, words in (("dev", "held out for choosing"), ("test", "held out for reporting")):
            assert (part in parts) != (words in said), number
        assert number < 4 or parts == {"dev", "test"}


# Problems.


def gauge(**changes: Any) -> list[dict[str, Any]]:
    return [{**GAUGE, "parameters": {**GAUGE["parameters"], **changes}}]  # type: ignore[dict-item]


def tree(node: Any) -> dict[str, Any]:
    home = {"type": "directory", "contents": {"note.txt": node}}
    return multi_turn(initial_config={"GorillaFileSystem": {"root": {"home": home}}})


TEXT = json.dumps([single_turn()])
FILES: dict[str, Any] = {
    "no entry": "[]",
    "must be one JSON array of objects": "5",
    "line 1, column 3": str([single_turn()]),
    "line 2, column 1": '[\n# mine\n{"id": "a"}]',
    "line 1, column 5": "[{} {}]",
    "utf-8": '["Jos\xe9"]'.encode("latin-1"),
    "duplicate key 'id'": TEXT.replace('"id":', '"id": "x", "id":', 1),
    "Out of range float": TEXT.replace("2]", "NaN]", 1),
    "surrogates not allowed": TEXT.replace("What", "\\ud800", 1),
    "recursion": "[" * 100_000,
    "None names no category": json.dumps({"data": [single_turn()]}),
}
ENTRIES: list[tuple[str, dict[str, Any]]] = [
    ("id", single_turn(id=7)),
    ("id", single_turn(id="simple_\n1")),
    ("id", single_turn(id="gauge_1")),
    ("question", multi_turn(question=None)),
    ("question.0", multi_turn(question=says("Read it."))),
    ("question.0.0.content", single_turn(question=[says(" ")])),
    ("question.0.0.role", multi_turn(question=[[{"role": "tool", "content": "a"}]], ground_truth=[[]])),
    ("question.0.0.name", single_turn(question=[[{"role": "user", "content": "a", "name": "b"}]])),
    ("question.1", multi_turn(question=[says("a"), []])),
    ("question", single_turn(question=[says("a"), says("b")])),
    ("question.0", single_turn(question=[[{"role": "system", "content": "Be short."}]])),
    ("involved_classes", single_turn(involved_classes=["MathAPI"])),
    ("involved_classes.0", multi_turn(involved_classes=["Plant"])),
    ("function", single_turn(function=[])),
    ("function", single_turn(function=[GAUGE, GAUGE])),
    ("function.0.parameters", single_turn(function=[{"name": "read_gauge", "description": ""}])),
    ("function.read_gauge.required", single_turn(function=gauge(required=["x"]))),
    ("function.read_gauge.gauge", single_turn(function=gauge(properties={"gauge": {"type": "text"}}))),
    (
        "function.read_gauge.gauge",
        single_turn(function=gauge(properties={"gauge": {"type": "array", "items": {"type": "text"}}})),
    ),
    ("function", multi_turn(function=[GAUGE])),
    ("function", multi_turn(function=[{"name": "ls"}])),
    ("initial_config.Plant.[key]", multi_turn(initial_config={"Plant": {}})),
    (
        "tweets",
        multi_turn(initial_config={"TwitterAPI": {"tweets": []}}, involved_classes=["TwitterAPI"]),
    ),
    (
        "initial_config.TwitterAPI.authentcated",
        multi_turn(
            initial_config={"TwitterAPI": {"authentcated": True}},
            involved_classes=["TwitterAPI"],
            ground_truth=[["get_user_stats(username='ann')"], []],
        ),
    ),
    ("inital_config", multi_turn(inital_config={})),
    ("root", multi_turn(initial_config={"GorillaFileSystem": {"root": {}}})),
    ("root.home.contents.note.txt", tree("words")),
    ("root.home.contents.note.txt.file.content", tree({"type": "file", "contnt": ""})),
    ("missed_function.7", multi_turn(missed_function={"7": ["ls"]})),
    ("missed_function.1", multi_turn(missed_function={"1": ["fly"]})),
    ("ground_truth", single_turn(ground_truth=None)),
    ("ground_truth", single_turn(ground_truth=single_turn()["ground_truth"] * 2)),
    ("ground_truth", single_turn(id="irrelevance_0")),
    ("ground_truth.0", single_turn(ground_truth=["read_gauge(gauge='0')"])),
    ("ground_truth.0.read_gage", single_turn(ground_truth=[{"read_gage": {"gauge": ["0"]}}])),
    ("ground_truth.0.read_gauge", single_turn(ground_truth=[{"read_gauge": {"gauge": ["0"], "unit": ["bar"]}}])),
    ("ground_truth.0.read_gauge", single_turn(ground_truth=[{"read_gauge": {"digits": [1]}}])),
    ("ground_truth.0.read_gauge.gauge", single_turn(ground_truth=[{"read_gauge": {"gauge": "0"}}])),
    ("ground_truth", multi_turn(ground_truth=[["ls()"]])),
    ("ground_truth", multi_turn(ground_truth=[[], []])),
    ("ground_truth.0.0", multi_turn(ground_truth=[["cd(folder=open('a'))"], []])),
    ("ground_truth.0.0", multi_turn(ground_truth=[["fly(to='x')"], []])),
    ("ground_truth.0.0", multi_turn(ground_truth=[["pwd('a', 'b')"], []])),
    ("ground_truth.0.0", multi_turn(missed_function={"1": ["mkdir"]})),
]
PLAYED: list[tuple[str, dict[str, Any]]] = [
    (
        "ValueError: invalid literal",
        multi_turn(
            initial_config={"TwitterAPI": {"tweets": {"a": {}}}},
            involved_classes=["TwitterAPI"],
            ground_truth=[["get_user_tweets(username='a')"], []],
        ),
    ),
    ("gold call cd(folder='nowhere') failed", multi_turn(ground_truth=[["cd(folder='nowhere')"], []])),
    ("'dir_name' must be string, not int", multi_turn(ground_truth=[["mkdir(dir_name=7)"], []])),
    ("mkdir(name='a') failed", multi_turn(ground_truth=[["mkdir(name='a')"], []])),
    (
        "do not pass BFCL's checker",
        single_turn(
            function=gauge(properties={"gauge": {"type": "tuple"}}),
            ground_truth=[{"read_gauge": {"gauge": [[1, 2]]}}],
        ),
    ),
]


def refused(folder: Path, content: Any, capsys: pytest.CaptureFixture[str], name: str = "plant") -> str:
    path = write(folder, content, f"{name}.json")
    assert prepare_data(["--json", str(path), "--out", str(folder / "out")]) == 1
    assert not (folder / "out").exists()
    said = capsys.readouterr().err
    assert str(path) in said and "Traceback" not in said
    return said


def test_a_file_that_is_none_of_entries_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = {words: refused(tmp_path, FILES[words], capsys, f"f{number}") for number, words in enumerate(FILES)}
    assert {words: text for words, text in said.items() if words not in text} == {}


def numbered(entries: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [
        {**entry, "id": entry["id"].replace("_0", f"_{number}")} if isinstance(entry["id"], str) else entry
        for number, (_, entry) in enumerate(entries)
    ]


def test_each_problem_of_an_entry_is_reported_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = refused(tmp_path, [*numbered(ENTRIES), single_turn(900), single_turn(900)], capsys).splitlines()
    missing = []
    for number, (place, entry) in enumerate(ENTRIES):
        found = [line for line in lines if f"(entry {number + 1}): " in line]
        if not any(f"{place}: " in line for line in found):
            missing.append((place, entry, found))
    assert not missing
    assert any("simple_python_900 (entry" in line and "of another entry" in line for line in lines)


def test_gold_that_does_not_pass_is_reported_of_all_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = numbered(PLAYED)
    lines = refused(tmp_path, [*entries, multi_turn(7), single_turn(8)], capsys).splitlines()
    assert f"has {len(PLAYED)} problems" in lines[0]
    for (words, _), entry, line in zip(PLAYED, entries, lines[1:], strict=True):
        assert line.strip().startswith(f"{entry['id']}: ") and words in line
