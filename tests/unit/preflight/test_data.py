"""Data that cannot be played, and agent loops that cannot be read, are one line that names file, finding and remedy."""

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf
from support.own_environment import example, write_example
from support.phone import SAYS, write_phone

import interaction.environment as environments
from data_prep.__main__ import main as prepare_data
from recipe.conversations import read_conversations
from recipe.errors import PreflightError
from recipe.launch.compose import compose
from recipe.preflight.agent_loops import read_loops
from recipe.preflight.data import check_data
from recipe.settings.data_files import data_command, environment_of, naming
from recipe.settings.reading import check_values

LOOPS = Path(__file__).parents[3] / "recipe" / "config" / "agent_loops.yaml"
Row = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    assert prepare_data(["--out", str(folder), "--tiny"]) == 0
    return folder


def configured(train: Any, val: Any, **agent: Any) -> DictConfig:
    """The settings that are read."""
    return OmegaConf.create(
        {
            "trainer": {"device": "cpu"},
            "paths": {"data": "data/tiny", "tiny_policy": "none"},
            "interaction": {"protocol": "think_xml", "docs": "signature", "user": None, "train": {}, "val": {}},
            "data": {"train_files": train, "val_files": val, "train_batch_size": 2},
            "actor_rollout_ref": {
                "rollout": {"agent": {"agent_loop_config_path": str(LOOPS), "default_agent_loop": "bfcl", **agent}}
            },
        }
    )


def refusal(config: DictConfig) -> str:
    """The line that refuses the data."""
    with pytest.raises(PreflightError) as error:
        check_data(config)
    line = str(error.value)
    assert "\n" not in line and len(line) < 800, line
    return line


def val_of(made: Path) -> str:
    return str(made / "tiny_val.parquet")


def test_what_data_prep_made_is_played(made: Path) -> None:
    check_data(configured(str(made / "tiny_full.parquet"), [val_of(made), val_of(made)]))


def test_without_validation_there_need_be_no_file_for_it(made: Path) -> None:
    config = configured(str(made / "tiny_full.parquet"), [])
    config.trainer.update({"test_freq": -1, "val_before_train": False})
    check_values(compose("stage1", ["data.val_files=[]", "hardware=tiny"]))
    check_data(config)
    assert config.data.val_files == []
    for on in ({"test_freq": 5}, {"val_before_train": True}):
        config.trainer.update({"test_freq": -1, "val_before_train": False, **on})
        assert "data.val_files= has no rows" in refusal(config)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("guard")
    mixture = ["--mixture", "bfcl_single/multiple=1", "bfcl_single/irrelevance=1", "--rows", "2", "--val-rows", "4"]
    assert prepare_data(["--out", str(folder), "--docs", "signature", *mixture]) == 0
    return str(folder / "mixture_val.parquet")


def guarded(made: Path, val: Any, guard: Any) -> DictConfig:
    """The settings with a guard."""
    return OmegaConf.merge(configured(str(made / "tiny_full.parquet"), val), {"environment": {"guard": guard}})  # type: ignore[return-value]


@pytest.mark.parametrize("several", [False, True])
def test_a_guard_is_validated_on_beside_the_other_rows_and_known_by_its_sources(
    made: Path, guard: str, several: bool
) -> None:
    config = guarded(made, val_of(made), [guard, guard] if several else guard)
    check_data(config)
    assert config.data.val_files == [val_of(made), *[guard] * (1 + several)]
    assert config.environment.guarded == ["bfcl_single/irrelevance", "bfcl_single/multiple"]
    import datasets  # as verl reads them

    parts = [datasets.load_dataset("parquet", data_files=name)["train"] for name in config.data.val_files]
    assert len(datasets.concatenate_datasets(parts)) == 8 + 4 * (1 + several)


def test_a_guard_that_cannot_be_told_apart_or_played_is_refused(made: Path, guard: str) -> None:
    said = refusal(guarded(made, [val_of(made), guard], guard))
    assert "both have rows of bfcl_single/irrelevance, bfcl_single/multiple, and a guard" in said
    missing = str(made / "bfcl_single_val.parquet")
    said = refusal(guarded(made, val_of(made), missing))
    assert said.startswith(f"environment.guard={missing} does not exist. Make one with `")
    assert "--mixture bfcl_single=1" in said and said.endswith("--docs signature`, or set environment.guard.")
    said = refusal(guarded(made, val_of(made), guard.replace("_val", "_train")))
    assert "2 of the 2 rows of environment.guard=" in said and "training rows" in said
    assert refusal(guarded(made, val_of(made), str(made / "manifest.json"))).startswith("environment.guard: ")


def rewritten(made: Path, path: Path, change: Callable[[list[Row]], Any], **options: Any) -> str:
    """The path of the tiny training rows after a change."""
    rows = parquet.read_table(made / "tiny_full.parquet").to_pylist()
    parquet.write_table(pa.Table.from_pylist(change(rows) or rows), path, **options)
    return str(path)


def put(number: int, *keys: str, value: Any) -> Callable[[list[Row]], None]:
    """A change of one value in one row."""

    def change(rows: list[Row]) -> None:
        place: Any = rows[number]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def without(*keys: str) -> Callable[[list[Row]], None]:
    """A change that takes a column out."""

    def change(rows: list[Row]) -> None:
        for place in rows:
            for key in keys[:-1]:
                place = place[key]
            del place[keys[-1]]

    return change


def every(key: str, value: Any) -> Callable[[list[Row]], list[Row]]:
    return lambda rows: [{**row, key: value} for row in rows]


WRONG: dict[str, tuple[Callable[[list[Row]], Any], list[str]]] = {
    "unknown task in the last row": (put(3, "extra_info", "task_id", value="nope_7"), ["row 3", "'nope_7'"]),
    "task of another type": (
        lambda rows: [{**row, "extra_info": {**row["extra_info"], "task_id": 7}} for row in rows],
        ["extra_info.task_id is int64", "expected text"],
    ),
    "no task": (put(2, "extra_info", "task_id", value=None), ["row 2", "task_id is None"]),
    "no extra_info in a row": (put(1, "extra_info", value=None), ["row 1", "task_id is None"]),
    "unknown split": (put(0, "extra_info", "split", value="test"), ["row 0", "split is 'test'", "train, val"]),
    "no split": (put(1, "extra_info", "split", value=None), ["row 1", "split is None"]),
    "column prompt missing": (without("prompt"), ["no column prompt", "extra_info"]),
    "column extra_info missing": (without("extra_info"), ["no column extra_info.task_id"]),
    "column split missing": (without("extra_info", "split"), ["no column extra_info.split", "task_id"]),
    "column data_source missing": (without("data_source"), ["no column data_source"]),
    "column ground_truth missing": (without("reward_model", "ground_truth"), ["no column reward_model.ground_truth"]),
    "no ground_truth": (put(1, "reward_model", "ground_truth", value=None), ["row 1", "is empty"]),
    "no data_source": (put(1, "data_source", value=None), ["row 1", "is empty"]),
    "prompt is text": (every("prompt", "Do it."), ["the column prompt is string", "list of messages"]),
    "prompt of numbers": (every("prompt", [1, 2]), ["no column prompt.role", "int64"]),
    "extra_info is text": (every("extra_info", "multi_turn_base_1"), ["no column extra_info.task_id", "string"]),
    "prompt of another task": (
        lambda rows: [*rows[:3], {**rows[3], "prompt": rows[0]["prompt"]}],
        ["row 3", "another prompt", "interaction.docs=signature"],
    ),
    "empty prompt": (put(2, "prompt", value=[]), ["row 2", "another prompt"]),
    "no prompt": (put(2, "prompt", value=None), ["row 2", "another prompt"]),
    "prompt without content": (put(2, "prompt", value=[{"role": "user", "content": None}]), ["row 2"]),
    "unknown loop": (put(3, "agent_name", value="other"), ["row 3", "agent loop 'other'", "(bfcl)"]),
    "no loop": (put(3, "agent_name", value=None), ["row 3", "agent loop None"]),
    "value of a megabyte": (put(3, "extra_info", "task_id", value="x" * 2**20), ["row 3", "'xxx"]),
    "value with a line break": (put(3, "agent_name", value="a\nb"), ["row 3", "'a\\nb'"]),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_row_or_column_is_named(made: Path, tmp_path: Path, case: str) -> None:
    change, words = WRONG[case]
    name = rewritten(made, tmp_path / "own.parquet", change)
    line = refusal(configured(name, val_of(made)))
    for word in [f"data.train_files: {name}", *words, "python -m data_prep", "set data.train_files"]:
        assert word in line


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """The folder with the data of a user's environment, whose file lies beside it."""
    path = write_example(tmp_path)
    assert prepare_data(["--out", str(tmp_path / "data"), "--environment", str(path), "--docs", "signature"]) == 0
    return tmp_path / "data"


def test_of_a_users_environment_the_command_is_named_that_makes_its_data(inventory: Path, tmp_path: Path) -> None:
    train, val = (str(inventory / f"inventory_{name}.parquet") for name in ("train", "val"))
    command = f"python -m data_prep --environment {tmp_path}/inventory.py --out data/tiny --protocol"

    def config_of(train: str, val: str) -> DictConfig:
        config = configured(train, val)
        config.interaction.environments = {"inventory": f"{tmp_path}/inventory.py"}
        return config

    check_data(config_of(train, val))
    assert command in refusal(config_of(str(tmp_path / "inventory_train.parquet"), val)), "it is missing"
    rows = parquet.read_table(train).to_pylist()
    rows[3]["agent_name"] = "other"
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "mine.parquet")
    assert command in refusal(config_of(str(tmp_path / "mine.parquet"), val)), "its rows say whose they are"
    assert command in refusal(config_of(val, val)), "held-out rows"
    environments._files.clear()
    environments._module.cache_clear()
    environments.load_tasks.cache_clear()
    line = refusal(configured(train, val))
    assert "unknown environment 'inventory'" in line and "Name the file" in line and "data_prep" not in line
    assert "+interaction.environments.inventory=FILE" in line
    config = configured(train, val)
    config.interaction.environments = {"lib": f"{tmp_path}/inventory.py"}
    assert "inventory.py in place of interaction.environments.lib" in refusal(config), "under another name"
    for path in ("/tmp/a(1)/inventory.py", "/x=y/inventory.py", "~/inventory.py", "/it's {here}/inventory.py"):
        said = naming(OmegaConf.create({"interaction": {"environments": {"lib": path}}}), "inventory") or ""
        (word,) = [word for word in shlex.split(said.partition("set ")[2].partition(" in place")[0])]
        override = OverridesParser.create().parse_override(word)
        assert override.value() == path, "as a shell and Hydra read it"
    assert naming(OmegaConf.create({"interaction": {}}), "i" * 10_000) is None


def test_an_environment_that_was_changed_after_its_data_were_made_is_noted(inventory, tmp_path, capsys) -> None:
    file = tmp_path / "inventory.py"
    config = configured(*(str(inventory / f"inventory_{name}.parquet") for name in ("train", "val")))
    config.interaction.environments = {"inventory": str(file)}
    check_data(config)
    assert "NOTE" not in capsys.readouterr().out
    file.write_text(file.read_text() + "\n# changed\n")
    check_data(config)
    said = capsys.readouterr().out
    assert said.count("NOTE") == 1 and f"{file} was changed after {inventory} was made from it" in said


def test_where_no_task_is_held_out_that_is_said_and_not_only_how_data_are_made(tmp_path: Path, capsys) -> None:
    path = tmp_path / "inventory.py"
    path.write_text(re.sub(r'\("train", "train", "choose", "report"\)', '("train",) * 4', example()))
    assert prepare_data(["--out", str(tmp_path), "--environment", str(path), "--docs", "signature"]) == 0
    assert "inventory_val.parquet is empty: no task belongs there (no task has the part" in capsys.readouterr().out
    config = configured(*(str(tmp_path / f"inventory_{name}.parquet") for name in ("train", "val")))
    config.interaction.environments = {"inventory": str(path)}
    line = refusal(config)
    assert "has no rows. No task of environment inventory has the part choose or report: give some of its" in line
    assert f"make the data again with `.venv/bin/python -m data_prep --environment {path}" in line


@pytest.mark.parametrize(
    ("name", "tiny", "command"),
    [
        ("inventory_sft.parquet", "none", "data_prep --environment FILE --out data/cpu`"),
        ("sft_train.parquet", "none", "data_prep --out data/cpu --tiny`"),
        ("tiny_sft.parquet", "none", "data_prep --out data/cpu --tiny`"),
        ("stage0_sft.parquet", None, "data_prep --out data/cpu --laptop`"),
        ("sft_train.parquet", None, "data_prep --out data/cpu --laptop`"),
    ],
)
def test_a_warm_start_without_its_data_names_the_command_of_their_environment(
    name: str, tiny: str | None, command: str
) -> None:
    config = OmegaConf.create({"trainer": {"device": "cpu"}, "paths": {"data": "data/cpu", "tiny_policy": tiny}})
    with pytest.raises(PreflightError) as error:
        read_conversations([name], data_command(config, environment_of(config, name)))
    assert command in str(error.value)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("bfcl_single_train.parquet", "data_prep --environment bfcl_single --out data/tiny "),
        ("tau_train.parquet", "data_prep --environment tau --out data/tiny --tiny "),
        ("mixture_train.parquet", "data_prep --mixture NAME=WEIGHT ... --out data/tiny "),
    ],
)
def test_data_that_are_not_there_name_the_command_of_their_environment(name: str, command: str, made: Path) -> None:
    assert command in refusal(configured(str(made / name), val_of(made)))


def test_data_of_the_cpu_profile_for_another_prompt_name_its_command(tmp_path: Path) -> None:
    assert prepare_data(["--out", str(tmp_path), "--laptop"]) == 0
    config = configured(*(str(tmp_path / name) for name in ("stage1_format.parquet", "val.parquet")))
    config.paths = {"data": "data/cpu", "tiny_policy": None}
    assert "data_prep --out data/cpu --laptop --protocol think_xml --docs signature`" in refusal(config)
    config.interaction.protocol = "python_calls"
    check_data(config)


def test_rows_of_several_environments_are_played_from_one_file_and_from_several(made: Path, tmp_path: Path) -> None:
    mixed = ["--mixture", "bfcl=1", "bfcl_single=2", "--rows", "12", "--val-rows", "12", "--docs", "signature"]
    assert prepare_data(["--out", str(tmp_path), *mixed]) == 0
    names = [str(tmp_path / f"mixture_{part}.parquet") for part in ("train", "val")]
    check_data(configured(*names))
    check_data(configured(str(made / "tiny_full.parquet"), [val_of(made), names[1]]))
    rows = parquet.read_table(names[0]).to_pylist()
    rows[-1]["extra_info"]["task_id"] = "simple_python_0x"
    parquet.write_table(pa.Table.from_pylist(rows), other := str(tmp_path / "mixture_own.parquet"))
    assert "row 11: extra_info.task_id is 'simple_python_0x'" in refusal(configured(other, names[1]))


def test_rows_that_the_protocol_cannot_write_are_refused_with_those_that_can(tmp_path: Path) -> None:
    java = ["--environment", "bfcl_single", "--categories", "simple_java", "--docs", "signature"]
    assert prepare_data(["--out", str(tmp_path), *java]) == 0
    names = [str(tmp_path / f"bfcl_single_{part}.parquet") for part in ("train", "val")]
    config = configured(*names)
    check_data(config)
    table = parquet.read_table(names[1])
    ids = [row["extra_info"]["task_id"] for name in names for row in parquet.read_table(name).to_pylist()]
    assert "simple_java_62" in ids
    whole = [row for name in names for row in parquet.read_table(name).to_pylist()]
    own = [row for row in whole if row["extra_info"]["task_id"] == "simple_java_62"]
    parquet.write_table(pa.Table.from_pylist(own, schema=table.schema), other := str(tmp_path / "own.parquet"))
    config = configured(other, other)
    config.interaction.protocol = "python_calls"
    line = refusal(config)
    assert "interaction.protocol=python_calls cannot write" in line and "think_xml, hermes, llama3_json" in line


def test_a_wrong_row_is_found_wherever_it_is(made: Path, tmp_path: Path) -> None:
    for place in (0, 255, 256, 999):
        change = put(place, "extra_info", "task_id", value="nope")
        name = rewritten(
            made,
            tmp_path / "own.parquet",
            lambda rows, change=change: [*(many := json.loads(json.dumps(rows * 250))), change(many)][:-1],
        )
        assert f"row {place}: extra_info.task_id is 'nope'" in refusal(configured(name, val_of(made)))


def test_rows_of_ones_own_may_have_other_columns_types_and_no_loop(made: Path, tmp_path: Path) -> None:
    table = parquet.read_table(made / "tiny_full.parquet").drop_columns(["agent_name", "ability"])
    place = table.column_names.index("data_source")
    table = table.set_column(place, "data_source", table["data_source"].cast(pa.large_string()).dictionary_encode())
    table = table.append_column("mine", pa.array([{"x": 1}] * table.num_rows))
    parquet.write_table(table, tmp_path / "own.parquet", row_group_size=1)
    name = str(tmp_path / "own.parquet")
    check_data(configured(name, val_of(made)))
    line = refusal(configured(name, val_of(made), default_agent_loop="tool_agent"))
    assert "row 0: names the agent loop 'tool_agent' of actor_rollout_ref.rollout.agent.default_agent_loop" in line


def test_training_rows_may_be_validated_on_and_what_that_means_is_said(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, val = str(made / "tiny_full.parquet"), val_of(made)
    check_data(configured(train, val))
    assert not capsys.readouterr().out
    check_data(configured(train, [val, train]))
    (line,) = capsys.readouterr().out.splitlines()
    rows, added = (parquet.read_table(name).num_rows for name in (val, train))
    assert line.startswith(
        f"NOTE       {added} of the {rows + added} rows of data.val_files={val},{train} are training"
    )


def test_rows_that_are_held_out_are_not_trained_on(made: Path, tmp_path: Path) -> None:
    own = rewritten(made, tmp_path / "own.parquet", put(3, "extra_info", "split", value="val"))
    for name, rows in ((val_of(made), "8 of the 8 rows"), (own, "1 of the 4 rows")):
        line = refusal(configured(name, val_of(made)))
        assert f"{rows} of data.train_files={name} are held out" in line
        assert "Set data.train_files to training rows" in line and "Make it again" not in line


def test_files_without_rows_are_refused_and_small_ones_count_together(made: Path, tmp_path: Path) -> None:
    rows = parquet.read_table(made / "tiny_full.parquet")
    for number, part in enumerate((rows.slice(0, 0), rows.slice(0, 1), rows.slice(1, 1))):
        parquet.write_table(part, tmp_path / f"{number}.parquet")
    names = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    assert "has no rows" in refusal(configured(names[0], val_of(made)))
    assert "has no rows" in refusal(configured([], val_of(made)))
    assert "has no rows" in refusal(configured(str(made / "tiny_full.parquet"), []))
    assert "more than the 1 rows" in refusal(configured(names[1], val_of(made)))
    check_data(configured(names, val_of(made)))


def test_a_few_kilobytes_that_state_a_billion_rows_are_refused_at_once(made: Path, tmp_path: Path) -> None:
    rows = parquet.read_table(made / "tiny_full.parquet").slice(0, 1)
    many = pa.concat_tables([rows] * 1_001).combine_chunks()
    with parquet.ParquetWriter(tmp_path / "many.parquet", many.schema) as file:
        for _ in range(1_000):
            file.write_table(many)
    assert "states 1001000 rows" in refusal(configured(str(tmp_path / "many.parquet"), val_of(made)))


def test_names_that_the_reader_of_the_files_takes_for_something_else_are_refused(made: Path, tmp_path: Path) -> None:
    content = (made / "tiny_full.parquet").read_bytes()
    for name, words in {
        "a[1].parquet": "has [ in its name",
        "a*.parquet": "has * in its name",
        "a?.parquet": "has ? in its name",
        "a.pq": "the ending '.pq'",
        "a": "the ending ''",
    }.items():
        (tmp_path / name).write_bytes(content)
        assert words in refusal(configured(str(tmp_path / name), val_of(made)))


def test_the_home_folder_is_written_out(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(made))
    config = configured("~/tiny_full.parquet", ["~/tiny_val.parquet"])
    check_data(config)
    assert config.data.train_files == str(made / "tiny_full.parquet") and config.data.val_files == [val_of(made)]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), listed=st.booleans())
def test_one_changed_byte_is_found_wherever_it_is(
    made: Path, tmp_path: Path, place: float, flip: int, listed: bool
) -> None:
    """By the manifest; without it by a page's checksum or in a row, or tasks and prompts are what they were."""
    content = bytearray((made / "tiny_full.parquet").read_bytes())
    content[int(place * len(content))] ^= flip
    path = tmp_path / "tiny_full.parquet"
    path.write_bytes(content)
    (tmp_path / "manifest.json").write_text((made / "manifest.json").read_text() if listed else "{}")
    try:
        check_data(configured(str(path), val_of(made)))
    except PreflightError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:
        assert not listed
        found, whole = (parquet.read_table(one).to_pylist() for one in (path, made / "tiny_full.parquet"))
        for row, other in zip(found, whole, strict=True):
            assert row["prompt"] == other["prompt"]
            assert all(row["extra_info"][key] == other["extra_info"][key] for key in ("task_id", "split"))


def test_a_file_changed_on_purpose_is_taken_out_of_the_manifest(made: Path, tmp_path: Path) -> None:
    name = rewritten(made, tmp_path / "tiny_full.parquet", lambda rows: rows[::-1])
    manifest = json.loads((made / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    line = refusal(configured(name, val_of(made)))
    assert "is not the file that" in line and "take it out of that manifest" in line
    del manifest["files"]["tiny_full.parquet"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    check_data(configured(name, val_of(made)))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b'{"files": ["tiny_full.parquet"]}',
        b'{"files": {"tiny_full.parquet": {"sha256": "0"}}}',
        b'{"files": {"tiny_full.parquet": "0"}, "command": "dvc add"}',
        b'{"files": {"tiny_full.parquet": 4}, "command": "python -m data_prep --out x"}',
        b'{"files": null, "command": "python -m data_prep --out x"}',
        b"name: tiny_full.parquet",
        b"\xff\xfe",
        b"[" * 200_000,
    ],
    ids=lambda value: repr(value[:60]),
)
def test_a_manifest_of_another_tool_says_nothing_about_the_data(made: Path, tmp_path: Path, content: bytes) -> None:
    name = rewritten(made, tmp_path / "tiny_full.parquet", lambda rows: rows[::-1])
    (tmp_path / "manifest.json").write_bytes(content)
    check_data(configured(name, val_of(made)))


def test_a_manifest_of_data_prep_that_was_cut_off_is_refused(made: Path, tmp_path: Path) -> None:
    name = rewritten(made, tmp_path / "tiny_full.parquet", lambda rows: rows)
    (tmp_path / "manifest.json").write_text((made / "manifest.json").read_text()[:-5])
    assert f"{tmp_path / 'manifest.json'} cannot be read" in refusal(configured(name, val_of(made)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "expected a list"),
        (b"[]", "expected a list"),
        (b"null", "expected a list"),
        (b"name: bfcl", "expected a list"),
        (b"3", ""),
        (b"- bfcl", "expected name and _target_"),
        (b"- {name: bfcl}", "expected name and _target_"),
        (b"- {name: 3, _target_: interaction.agent_loop.BFCLAgentLoop}", "expected name and _target_"),
        (b"- {name: bfcl, _target_: interaction.agent_lop.BFCLAgentLoop}", "no module 'interaction.agent_lop'"),
        (b"- {name: bfcl, _target_: interaction.agent_loop.BFCLAgentLoo}", "there is no BFCLAgentLoo in /"),
        (b"- {name: bfcl, _target_: nowhere.at_all.Loop}", "no module 'nowhere.at_all'"),
        (b"- {name: bfcl, _target_: Loop}", "no module ''"),
        (b"- {name: bfcl, name: x, _target_: interaction.agent_loop.BFCLAgentLoop}", "not YAML"),
        (b"- [", "not YAML"),
        (b"\0\0", "not YAML"),
        (b"[" * 60_000, "not YAML"),
        (b"\xff\xfe-\0", "cannot be read"),
        (b"- {name: caf\xe9}", "cannot be read"),
        (b"x" * (2**16 + 1), "expected at most"),
        (b"- {name: '${oc.env:NOTHING_OF_THE_KIND}', _target_: x.y}", ""),
    ],
    ids=lambda value: repr(value[:30]),
)
def test_a_file_of_agent_loops_that_cannot_be_read_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "loops.yaml"
    path.write_bytes(content)
    with pytest.raises(PreflightError) as error:
        read_loops(path)
    line = str(error.value)
    assert words in line and str(path) in line and "\n" not in line and len(line) < 700
    assert "agent_loop_config_path" in line


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("from loops_inside import *\n", True),
        ("def __getattr__(name): ...\n", True),
        ("globals().update({'L' + 'oop': 3})\n", True),
        ("from loops_inside import Loop\n", True),
        ("class Loops: ...\n", False),
        ("import os\nx = 3 * 4\n", False),
    ],
)
def test_a_package_may_have_an_agent_loop_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, known: bool
) -> None:
    package = f"loops_of_{tmp_path.name.strip('_')}"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(text)
    (tmp_path / "loops.yaml").write_text(f"- {{name: mine, _target_: {package}.Loop}}\n")
    if known:
        assert read_loops(tmp_path / "loops.yaml") == ["mine"]
        return
    with pytest.raises(PreflightError, match="there is no Loop in"):
        read_loops(tmp_path / "loops.yaml")


def test_missing_agent_loops_and_pipes_are_one_line(made: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, words in (("none", "does not exist"), ("pipe", "pipe or device"), (".", "it is a folder")):
        config = configured(str(made / "tiny_full.parquet"), val_of(made), agent_loop_config_path=str(tmp_path / name))
        assert words in refusal(config)


def test_where_a_user_is_asked_somebody_has_to_play_it(tmp_path: Path) -> None:
    phone = write_phone(tmp_path)
    asked = ["--environment", str(phone), "--out", str(tmp_path), "--docs", "signature"]
    assert prepare_data([*asked, "--option", "greeting=Be short."]) == 0
    files = [str(tmp_path / f"{phone.stem}_{split}.parquet") for split in ("train", "val")]
    config = configured(*files)
    assert "set interaction.user" in refusal(config)
    config.interaction.user = {"kind": "scripted", "lines": list(SAYS)}
    assert "made for another prompt" in refusal(config)  # the environment's own setting decides it
    for split in ("train", "val"):
        config.interaction[split] = {"environments": {phone.stem: {"greeting": "Be short."}}}
    check_data(config)
    row = parquet.read_table(files[0]).to_pylist()[0]
    assert row["prompt"][0]["content"].startswith("Be short.") and row["prompt"][1]["content"] == SAYS[0]
    assert json.loads((tmp_path / "manifest.json").read_text())["options"] == {"greeting": "Be short."}
