"""The wheel of the environments: whole by itself, small, of this version, and what TRL's trainer finds and calls."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import elsewhere
from transformers.utils import get_json_schema

from bfcl_env.source import function_docs
from interaction.environment import load_tasks
from interaction.protocol.docs import openai_tool
from recipe.tools.policies import HOSTILE, WRONG_TYPES

ROOT = Path(__file__).parents[3]
OURS = ("interaction", "rewards", "bfcl_env", "tau_env", "adapters", "recipe", "data_prep")
HEAVY = ("torch", "verl", "vllm", "ray", "transformers", "omegaconf")

REFUSES = f"""
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {(*OURS, *HEAVY)!r}:
            raise ImportError(f"{{name}} is not part of the wheel")
sys.meta_path.insert(0, Refused())
"""
"""In place of an environment without these packages."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder, as setuptools gets it."""
    folder = tmp_path_factory.mktemp("project")
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'elsewhere')!r}); import backend, pathlib"
    code += f"; backend.lay_out(pathlib.Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    return folder


def run(project: Path, code: str, *arguments: str) -> str:
    """What Python code prints that finds nothing of this checkout."""
    command = [sys.executable, "-P", "-c", f"{REFUSES}\n{code}", *arguments]
    done = subprocess.run(command, cwd=project, env={"PYTHONPATH": str(project)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_no_module_names_one_outside_and_each_is_imported_without_what_trains(project: Path) -> None:
    old, names = rf"(?:{'|'.join((*OURS, 'torch', 'verl'))})", []
    for path in project.rglob("*.py"):
        named = re.findall(rf"^\s*(?:from|import) {old}\b.*|-m {old}\b.*", path.read_text("utf-8"), re.MULTILINE)
        assert not named, path
        name = ".".join(path.relative_to(project).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__") and ".adapters." not in name:
            names.append(name)
    code = "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(len(sys.argv) - 1)"
    assert run(project, code, *names).split() == [str(len(names))] and len(names) > 50


@pytest.mark.parametrize("environment", ["bfcl", "bfcl_single", "tau"])
def test_what_is_played_there_has_the_record_it_has_here(project: Path, tmp_path: Path, environment: str) -> None:
    plays = [*elsewhere.mutant_plays(60)] if environment == "bfcl" else []
    plays += [*elsewhere.gold_plays(environment)][::40]
    elsewhere.write(plays, tmp_path / "plays.jsonl")
    code = f"import runpy; play = runpy.run_path({str(elsewhere.PLAYER)!r})['main']; play(*sys.argv[1:])"
    run(project, code, "conversation", elsewhere.PACKAGE, f"{tmp_path}/plays.jsonl", f"{tmp_path}/there.jsonl")
    there = [json.loads(line) for line in (tmp_path / "there.jsonl").read_text("utf-8").splitlines()]
    assert there == elsewhere.records(tmp_path / "plays.jsonl") and len(there) == len(plays) > 50
    assert {record["outcome"]["passed"] for record in there} == ({True, False} if environment == "bfcl" else {True})


def test_the_wheel_has_the_recipes_version_and_licence() -> None:
    files = ROOT / "pyproject.toml", ROOT / "elsewhere" / "pyproject.toml"
    ours, theirs = (tomllib.loads(file.read_text())["project"] for file in files)
    for key in ("version", "license", "license-files"):
        assert ours[key] == theirs[key]


TASK = "multi_turn_miss_func_0"


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "elsewhere"))
    return importlib.import_module("adapters.trl")


def begun(adapter: ModuleType, task_id: str = TASK) -> Any:
    """An episode of a task, after its first request."""
    factories, (row,) = adapter.environments("bfcl", tasks=[task_id])
    environment = factories[row["environment"]]()
    environment.reset(**{key: row[key] for key in ("prompt", "task_id")})
    return environment


def test_a_method_is_documented_as_its_function(adapter: ModuleType) -> None:
    for document in (document for documents in function_docs().values() for document in documents.values()):
        found, wanted = get_json_schema(adapter.method(document)), openai_tool(document)
        made, asked = found["function"], wanted["function"]
        assert made["name"] == asked["name"] and made["description"] == " ".join(asked["description"].split())
        assert {*made["parameters"].get("required", [])} == {*asked["parameters"]["required"]}
        assert made["parameters"]["properties"].keys() == asked["parameters"]["properties"].keys()
        for key, schema in asked["parameters"]["properties"].items():
            there = made["parameters"]["properties"][key]
            assert there["type"] == schema["type"] and " ".join(schema["description"].split()) in there["description"]


def test_what_trl_cannot_call_is_refused_by_name(adapter: ModuleType) -> None:
    schema = {"type": "dict", "properties": {}, "required": []}
    for name in ("_hidden", "reset", "answer_user"):
        with pytest.raises(ValueError, match=f"function {name}: TRL has no tools of this name"):
            adapter.method({"name": name, "parameters": schema})
    for key in ("for", "two words"):
        schema["properties"] = {key: {"type": "string"}}
        with pytest.raises(ValueError, match=f"function f: TRL has no tools with the argument '{key}'"):
            adapter.method({"name": "f", "parameters": schema})
    task = next(iter(load_tasks("bfcl_single")))
    with pytest.raises(ValueError, match=f"{task} ends with the first message"):
        adapter.environments("bfcl_single", tasks=[task])


def test_a_withheld_function_is_no_tool_and_is_called_once_it_is_announced(adapter: ModuleType) -> None:
    scenario: Any = load_tasks("bfcl")[TASK]
    environment = begun(adapter)
    turn = next(number for number, item in enumerate(scenario.turns) if item.revealed)
    late = scenario.turns[turn].revealed[0]
    assert not hasattr(environment, late) and "is not defined" in environment.call_function(late, {})
    said = [environment.answer_user("done") for _ in range(turn)]
    assert f'"{late}"' in said[-1] and "is not defined" not in environment.call_function(late, {})


def test_what_was_earned_is_what_training_pays_wherever_it_is_asked_for(adapter: ModuleType) -> None:
    environment = begun(adapter, "multi_turn_base_0")
    scenario: Any = load_tasks("bfcl")["multi_turn_base_0"]
    for number, turn in enumerate(scenario.turns, start=1):
        for call in turn.gold:
            getattr(environment, call.name)(**call.arguments)
        said = environment.answer_user("done")
        assert adapter.earned([environment]) == [pytest.approx(number / len(scenario.turns))]
    assert said == adapter.OVER
    with pytest.raises(ValueError, match=adapter.OVER):
        environment.answer_user("more")
    environment.reset(task_id=TASK)
    assert adapter.earned([environment]) == [0.0]


def test_whatever_a_model_passes_is_answered_or_raised_for_trl_to_answer(adapter: ModuleType) -> None:
    environment = begun(adapter, "multi_turn_base_0")
    for value in (*HOSTILE, *WRONG_TYPES):
        environment.reset(task_id="multi_turn_base_0")
        for call in (
            lambda value=value: environment.ls(a=value),
            lambda value=value: environment.cd(folder=value, self=value),
            lambda value=value: environment.call_function(value, {"a": value}),
            lambda value=value: environment.call_function("ls", value),
        ):
            try:
                assert isinstance(call(), str)
            except ValueError as error:  # TRL gives the model its words
                assert str(error)
