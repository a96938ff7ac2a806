"""A file of entries gives tasks that ask, call and judge as the entries do, or a list of all its problems."""

import json
import random
from collections import Counter, defaultdict

import pyarrow.parquet as parquet
from support.entries import GAUGE, multi_turn, says, single_turn, write
from support.evaluation import PROTOCOL

import interaction.environment as environments
from bfcl_env import load_scenarios
from bfcl_env.entries import environment
from bfcl_env.entries.tasks import category_of
from bfcl_env.single_turn.tasks import kind_of
from bfcl_env.source import read_data
from data_prep.__main__ import main as prepare_data
from interaction.gold import play_gold


def gauge(kind, **changes):
    """A function whose only parameter is of this type, with the nulls of a table."""
    properties = {"gauge": {"type": kind, "items": None, "enum": None}, "other": None}
    return {**GAUGE, "parameters": {**GAUGE["parameters"], "properties": properties}, **changes}


ENTRY = multi_turn(id="multi-turn_0", involved_classes=None, invoked_classes=["GorillaFileSystem"])
FORM = gauge(["String", "null"], name="Form.isValid", description="About a form.")
ACCEPTED = [{"Form.isValid": {"gauge": ["a"]}}, {"Form.isValid": {"gauge": ["b"], "other": None}, "f": None}]
OTHER = single_turn(id="parallel_java_0", function=[FORM], ground_truth=ACCEPTED, difficulty={"level": 2})
"""With a key and an id as users' files have them, a language, and a key for rewards."""


def tasks_of(folder, entries, name="plant.json"):
    return {task.id: task for task in environment("plant", write(folder, entries, name)).load_tasks()}


def prepared(folder, entries, name="plant"):
    """The rows of each file that the command writes."""
    path = write(folder, entries, f"{name}.json")
    assert prepare_data(["--json", str(path), "--out", str(folder / "out"), "--docs", "signature"]) == 0
    return {file.stem: parquet.read_table(file).to_pylist() for file in (folder / "out").glob("*.parquet")}


def test_ids_name_categories_in_all_spellings():
    spelled = {
        **{"multi-turn_0": "multi_turn_base", "multi_turn_miss_func_a": "multi_turn_miss_func"},
        **{"simple_0": "simple_python", "java_7": "simple_java", "live_simple_3-1-0": "live_simple"},
        **dict.fromkeys(("gauge_1", "simple_python_", "exec_simple_0", "multi_turn_bsae_1")),
    }
    assert {name: category_of(name) for name in spelled} == spelled
    kinds = {"parallel_multiple_java_0": ("java", True, "accepted"), "relevance_0": ("python", False, "any call")}
    for name, kind in kinds.items():
        found = kind_of(category_of(name))
        assert (found.language, found.parallel, found.wanted) == kind


def test_a_file_becomes_rows_and_its_gold_passes_when_it_is_played(tmp_path):
    files = prepared(tmp_path, [ENTRY, OTHER])
    rows = {row["extra_info"]["task_id"]: row for row in [*files["plant_train"], *files["plant_val"]]}
    assert {row["data_source"] for row in rows.values()} == {"plant/base", "plant/parallel_java"}
    gold = json.loads(rows["multi-turn_0"]["reward_model"]["ground_truth"])
    assert gold[0] == [{"name": "mkdir", "arguments": {"dir_name": "box0"}}] and len(gold[1]) == 2
    for entry in (ENTRY, OTHER):
        row = rows[entry["id"]]
        messages, record = play_gold(environments.task_of(row["extra_info"]), PROTOCOL)
        assert messages[: len(row["prompt"])] == row["prompt"]
        assert record.outcome is not None and record.outcome.passed and all(turn.passed for turn in record.turns)
        assert [turn.user for turn in record.turns] == [turn[0]["content"] for turn in entry["question"]]
        assert record.facts.get("entry") == ({"difficulty": {"level": 2}} if entry is OTHER else None)


def test_bfcls_own_files_give_its_own_scenarios(tmp_path):
    category = "multi_turn_miss_func"
    for name, content in read_data().items():
        write(tmp_path, content, name)
    tasks = environment("own", tmp_path / f"BFCL_v4_{category}.json").load_tasks()
    ours = load_scenarios(category)
    assert [task.id for task in tasks] == [scenario.id for scenario in ours]
    for task, scenario in zip(tasks, ours, strict=True):
        for part in ("turns", "initial_config", "classes"):
            assert getattr(task.played, part) == getattr(scenario, part)
        assert task.played.functions(0) == scenario.functions(0)


def test_gold_calls_what_takes_a_result_in_a_later_message_than_what_returned_it(tmp_path):
    people = {"Bo Ray": "USR100", "Ann Lee": "USR107", "Cy": "USR200"}
    shared = {
        "question": [says("Tell Ann Lee 'hi', USR200 'ho' and list all users.")],
        "initial_config": {"MessageAPI": {"user_map": people, "current_user": "USR100"}},
        "involved_classes": ["MessageAPI"],
    }
    ask, use = "get_user_id(user='Ann Lee')", "send_message(receiver_id='USR107', message='hi')"
    known = "send_message(receiver_id='USR200', message='ho')"
    for number, wanted in enumerate(([[ask], [use, known]], [[known, "list_users()"]])):
        entry = multi_turn(number, **shared, ground_truth=[sum(wanted, [])])
        (task,) = tasks_of(tmp_path, [entry], f"{number}.json").values()
        assert [[str(call) for call in message.calls] for message in task.gold() if message.calls] == wanted


def apart(number, group, **changes):
    """A single-turn entry with a function that only its group has."""
    document = {**GAUGE, "name": f"read_gauge_{group}"}
    return single_turn(number, function=[document], ground_truth=[{f"read_gauge_{group}": {"gauge": ["a"]}}], **changes)


def test_entries_with_one_function_state_or_question_stand_on_one_side(tmp_path):
    entries = [apart(number, number // 3) for number in range(60)]
    entries += [multi_turn(number, initial_config=multi_turn(number // 2)["initial_config"]) for number in range(20)]
    entries += [apart(100 + number, 1000 + number, question=[says(f"Gauge {number // 2}!")]) for number in range(20)]
    tasks = tasks_of(tmp_path, entries)
    by_cluster = defaultdict(set)
    for task in tasks.values():
        by_cluster[task.cluster].add(task.part)
    assert len(by_cluster) == 20 + 10 + 10 and all(len(parts) == 1 for parts in by_cluster.values())
    counts = Counter(task.part for task in tasks.values())
    assert abs(counts["train"] - 50) <= 3 and abs(counts["dev"] - 12) <= 3 and abs(counts["test"] - 38) <= 3
    single = [single_turn(number) for number in range(40)]
    first = {name: task.part for name, task in tasks_of(tmp_path, single, "single.json").items()}
    random.Random(0).shuffle(single)  # the order of a file does not move the split
    assert first == {name: task.part for name, task in tasks_of(tmp_path, single, "other.json").items()}
    assert {*first.values()} == {"train", "dev", "test"}  # where all have one set of tools only the question counts


def test_a_small_file_holds_something_out_or_prints_that_it_does_not(tmp_path, capsys):
    for number in (1, 7):
        files = prepared(tmp_path / str(number), [single_turn(place) for place in range(number)], f"plant{number}")
        said, val = capsys.readouterr().out, files[f"plant{number}_val"]
        parts = {row["extra_info"]["part"] for row in val}
        assert files[f"plant{number}_train"] and len(files[f"plant{number}_train"]) + len(val) == number
        for part, words in (("dev", "held out for choosing"), ("test", "held out for reporting")):
            assert (part in parts) != (words in said), number


def calls(*texts, **changes):
    return multi_turn(ground_truth=[[*texts], []], **changes)


def state(owner, **attributes):
    return multi_turn(initial_config={owner: attributes}, involved_classes=[owner], ground_truth=[["ls()"], []])


TEXT = json.dumps([single_turn()])
FILES = {
    "must be one JSON array of objects": "5",
    "utf-8": '["Jos\xe9"]'.encode("latin-1"),
    "duplicate key 'id'": TEXT.replace('"id":', '"id": "x", "id":', 1),
    "Out of range float": TEXT.replace("2]", "NaN]", 1),
    "surrogates not allowed": TEXT.replace("What", "\\ud800", 1),
}
ENTRIES = [
    ("id", single_turn(id="gauge_1")),
    ("question", multi_turn(question=None)),
    ("question.0.0.role", multi_turn(question=[[{"role": "tool", "content": "a"}]], ground_truth=[[]])),
    ("involved_classes.0", multi_turn(involved_classes=["Plant"])),
    ("function", single_turn(function=[GAUGE, GAUGE])),
    ("function.read_gauge.gauge", single_turn(function=[gauge("text")])),
    ("tweets", state("TwitterAPI", tweets=[])),
    ("initial_config.TwitterAPI.authentcated", state("TwitterAPI", authentcated=True)),
    ("inital_config", multi_turn(inital_config={})),
    ("missed_function.1", multi_turn(missed_function={"1": ["fly"]})),
    ("ground_truth", single_turn(ground_truth=None)),
    ("ground_truth.0.read_gage", single_turn(ground_truth=[{"read_gage": {"gauge": ["0"]}}])),
    ("ground_truth.0.read_gauge", single_turn(ground_truth=[{"read_gauge": {"digits": [1]}}])),
    ("ground_truth", multi_turn(ground_truth=[["ls()"]])),
    ("ground_truth.0.0", calls("cd(folder=open('a'))")),
    ("ground_truth.0.0", calls("fly(to='x')")),
    ("ground_truth.0.0", calls("ls()", missed_function={"1": ["ls"]})),
]
PLAYED = [
    ("gold call cd(folder='nowhere') failed", calls("cd(folder='nowhere')")),
    ("'dir_name' must be string, not int", calls("mkdir(dir_name=7)")),
]


def refused(folder, content, capsys, name="plant"):
    path = write(folder, content, f"{name}.json")
    assert prepare_data(["--json", str(path), "--out", str(folder / "out")]) == 1
    said = capsys.readouterr().err
    assert str(path) in said and "Traceback" not in said and not (folder / "out").exists()
    return said


def numbered(entries):
    return [{**one, "id": str(one["id"]).replace("_0", f"_{number}")} for number, (_, one) in enumerate(entries)]


def test_each_problem_of_a_file_and_of_an_entry_is_reported_with_its_place(tmp_path, capsys):
    said = {words: refused(tmp_path, FILES[words], capsys, f"f{number}") for number, words in enumerate(FILES)}
    assert {words: text for words, text in said.items() if words not in text} == {}
    lines = refused(tmp_path, [*numbered(ENTRIES), single_turn(900), single_turn(900)], capsys).splitlines()
    found = [[line for line in lines if f"(entry {number + 1}): " in line] for number in range(len(ENTRIES))]
    missing = [one for one, said in zip(ENTRIES, found, strict=True) if not any(f"{one[0]}: " in line for line in said)]
    assert not missing and any("simple_python_900 (entry" in line and "of another entry" in line for line in lines)
    entries = numbered(PLAYED)
    lines = refused(tmp_path, [*entries, multi_turn(7), single_turn(8)], capsys).splitlines()
    assert f"has {len(PLAYED)} problems" in lines[0]
    for (words, _), entry, line in zip(PLAYED, entries, lines[1:], strict=True):
        assert line.strip().startswith(f"{entry['id']}: ") and words in line
