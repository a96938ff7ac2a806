"""From a file of entries to rows and played gold: what the entries say is what is asked, called and judged."""

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
from bfcl_env.entries.tasks import OwnTask
from data_prep.__main__ import main as prepare_data
from interaction import get_protocol
from interaction.gold import play_gold

PROTOCOL = get_protocol("think_xml", docs="signature")

DOCUMENT: list[dict[str, Any]] = [
    {
        "id": "multi-turn_0",
        "question": [says("Open a ticket about the broken lamp."), says("Close it, it was the fuse.")],
        "function": [],
        "initial_config": {
            "TicketAPI": {"ticket_queue": [], "ticket_counter": 1, "current_user": "Ann"},
        },
        "invoked_classes": ["TicketAPI"],
        "ground_truth": [["create_ticket(title='Lamp', description='broken')"], ["close_ticket(ticket_id=1)"]],
    },
    {
        "id": "parallel_java_0",
        "question": [says("Which fields does the form have, and is it valid?")],
        "function": [
            {
                "name": name,
                "description": "About a form.",
                "parameters": {
                    "type": "dict",
                    "properties": {
                        "form": {"type": "String", "description": "Its name."},
                        "strict": {"type": "boolean", "description": "Without mercy."},
                    },
                    "required": ["form"],
                },
                "response": {"name": "found", "type": "ArrayList", "description": "", "items": {"type": "String"}},
            }
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
"""In the form that the document of the seed describes, with its spellings."""


def tasks_of(path: Path) -> dict[str, OwnTask]:
    return dict(environments.load_tasks(environments.named(str(path))))  # type: ignore[arg-type]


def prepared(folder: Path, entries: Any, *arguments: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of each file that the command writes."""
    path = write(folder, entries)
    assert prepare_data(["--json", str(path), "--out", str(folder / "out"), "--docs", "signature", *arguments]) == 0
    return {file.stem: parquet.read_table(file).to_pylist() for file in (folder / "out").glob("*.parquet")}


def test_the_documents_form_becomes_rows_and_its_gold_passes_when_it_is_played(tmp_path: Path) -> None:
    files = prepared(tmp_path, DOCUMENT)
    rows = {row["extra_info"]["task_id"]: row for row in [*files["plant_train"], *files["plant_val"]]}
    assert {row["extra_info"]["environment"] for row in rows.values()} == {"plant"}
    assert {row["data_source"] for row in rows.values()} == {"plant/base", "plant/parallel_java"}
    assert json.loads(rows["multi-turn_0"]["reward_model"]["ground_truth"]) == [
        [{"name": "create_ticket", "arguments": {"title": "Lamp", "description": "broken"}}],
        [{"name": "close_ticket", "arguments": {"ticket_id": 1}}],
    ]
    assert json.loads(rows["parallel_java_0"]["reward_model"]["ground_truth"]) == [
        [
            {"name": "Form.fields", "arguments": {"form": "order"}},
            {"name": "Form.isValid", "arguments": {"form": "order"}},
        ]
    ]
    for row in rows.values():
        task = environments.task_of(row["extra_info"])
        messages, record = play_gold(task, PROTOCOL)
        assert messages[: len(row["prompt"])] == row["prompt"]
        assert record.outcome is not None and record.outcome.passed and all(turn.passed for turn in record.turns)
        entry = next(item for item in DOCUMENT if item["id"] == task.id)
        assert [turn.user for turn in record.turns] == [turn[0]["content"] for turn in entry["question"]]


def test_what_is_not_gold_does_not_pass(tmp_path: Path) -> None:
    from interaction import Conversation
    from interaction.call import Call

    task = tasks_of(write(tmp_path, DOCUMENT))["parallel_java_0"]
    with Conversation(task, PROTOCOL) as conversation:  # type: ignore[arg-type]
        conversation.begin()
        calls = [Call("Form.fields", {"form": "order", "strict": "true"}), Call("Form.isValid", {"form": "order"})]
        conversation.reply(PROTOCOL.render_calls("t", calls))
        record = conversation.record()
    assert record.outcome is not None and not record.outcome.passed and record.turns[0].difference


def test_further_keys_stand_where_a_reward_finds_them(tmp_path: Path) -> None:
    tasks = tasks_of(write(tmp_path, [*DOCUMENT, multi_turn(1, level=3, path=["GorillaFileSystem.mkdir"])]))
    facts = {name: play_gold(task, PROTOCOL)[1].to_dict()["facts"] for name, task in tasks.items()}
    assert facts["parallel_java_0"]["entry"] == {"difficulty": {"level": 2}}
    assert facts["multi_turn_base_1"]["entry"] == {"level": 3}
    assert "entry" not in facts["multi-turn_0"]


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
    question = [says("Count the lines of a.txt."), []]
    entry = multi_turn(
        id="multi_turn_miss_func_0",
        question=question,
        initial_config={"GorillaFileSystem": {"root": {"home": {"type": "directory", "contents": {}}}}},
        missed_function={"1": ["touch"]},
        ground_truth=[[], ["touch(file_name='a.txt')"]],
    )
    task: Any = tasks_of(write(tmp_path, [entry]))["multi_turn_miss_func_0"]
    assert "touch" not in {doc["name"] for doc in task.played.functions(0)}
    with Episode(task.played) as episode:
        episode.end_turn()
        assert episode.execute(task.played.turns[1].gold[0]).error is None


def test_what_does_nothing_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = multi_turn(
        initial_config={"TwitterAPI": {"colour": "red"}, "MathAPI": {}},
        involved_classes=["TwitterAPI"],
        ground_truth=[["get_user_stats(username='ann')"], []],
    )
    tasks_of(write(tmp_path, [entry]))
    said = capsys.readouterr().out
    assert "initial_config.TwitterAPI.colour does nothing: the class does not read it; so do 1 more" in said


def sides(tasks: dict[str, OwnTask]) -> dict[str, set[str]]:
    found = defaultdict(set)
    for task in tasks.values():
        found[task.cluster].add(task.part)
    return found


def own_gauge(number: int) -> dict[str, Any]:
    return {**GAUGE, "name": f"read_gauge_{number}"}


def apart(number: int, group: int, **changes: Any) -> dict[str, Any]:
    """A single-turn entry with a function that only its group has."""
    accepted = [{f"read_gauge_{group}": {"gauge": ["a"]}}]
    return single_turn(number, function=[own_gauge(group)], ground_truth=accepted, **changes)


def test_entries_with_one_function_state_or_question_stand_on_one_side(tmp_path: Path) -> None:
    entries = [apart(number, number // 3) for number in range(60)]
    entries += [multi_turn(number, initial_config=multi_turn(number // 2)["initial_config"]) for number in range(20)]
    entries += [single_turn(100 + number, question=[says(f"Gauge {number // 2}!")]) for number in range(20)]
    for number, entry in enumerate(entries[-20:]):
        entry |= {"function": [own_gauge(1000 + number)]}
        entry |= {"ground_truth": [{f"read_gauge_{1000 + number}": {"gauge": ["a"]}}]}
    tasks = tasks_of(write(tmp_path, entries))
    by_cluster = sides(tasks)
    assert len(by_cluster) == 20 + 10 + 10 and all(len(parts) == 1 for parts in by_cluster.values())
    counts = [sum(task.part == part for task in tasks.values()) for part in ("train", "choose", "report")]
    assert abs(counts[0] - 50) <= 3 and abs(counts[1] - 12) <= 3 and abs(counts[2] - 38) <= 3


def test_with_one_set_of_tools_only_the_question_counts_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [single_turn(number) for number in range(20)]
    entries += [single_turn(number, question=entries[0]["question"]) for number in (20, 21)]
    tasks = tasks_of(write(tmp_path, entries))
    assert "22 of 22 entries share functions or initial states" in capsys.readouterr().out
    assert tasks["simple_python_0"].cluster == tasks["simple_python_21"].cluster
    assert len(sides(tasks)) == 20 and {task.part for task in tasks.values()} == {"train", "choose", "report"}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7])
def test_a_small_file_holds_something_out_or_says_that_it_does_not(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = prepared(tmp_path, [single_turn(place) for place in range(number)])
    said = capsys.readouterr().out
    parts = {row["extra_info"]["part"] for row in files["plant_val"]}
    assert files["plant_train"] and len(files["plant_train"]) + len(files["plant_val"]) == number
    for part, words in (("choose", "held out for choosing"), ("report", "held out for reporting")):
        assert (part in parts) != (words in said)
    assert number < 4 or parts == {"choose", "report"}
    assert ("plant_val.parquet is empty" in said) == (not files["plant_val"])


def test_the_order_of_a_file_does_not_move_the_split_and_its_rows_are_the_same_each_time(tmp_path: Path) -> None:
    entries = [single_turn(number) for number in range(40)]
    first = {name: task.part for name, task in tasks_of(write(tmp_path, entries)).items()}
    random.Random(0).shuffle(entries)
    again = {name: task.part for name, task in tasks_of(write(tmp_path, entries, "other.json")).items()}
    assert first == again


def test_a_file_is_named_in_the_manifest_and_in_a_mixture(tmp_path: Path) -> None:
    prepared(tmp_path, [single_turn(number) for number in range(8)])
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert f"--environment {tmp_path}/plant.json" in manifest["command"]
    assert len(manifest["environment_sha256"]) == 64 and manifest["seed"] == 20261122
    mixed = [f"{tmp_path}/plant.json=1", "bfcl/base=1"]
    arguments = ["--out", str(tmp_path / "mixed"), "--docs", "signature", "--rows", "4", "--val-rows", "4"]
    assert prepare_data([*arguments, "--mixture", *mixed]) == 0
    rows = parquet.read_table(tmp_path / "mixed" / "mixture_train.parquet").to_pylist()
    assert sorted(row["extra_info"]["environment"] for row in rows) == ["bfcl", "bfcl", "plant", "plant"]
