"""Environments by name: what is found, and what a file may leave out."""

import pickle
from hashlib import sha256

import pytest
from support.entries import write
from support.own_environment import GOLD, example
from support.phone import write_phone

from interaction import environment
from interaction.environment import is_file, load_tasks, named, register, task_of
from interaction.masked import MASK, masked, masked_text
from interaction.policy import TurnPolicy
from interaction.users import KINDS, make_user


def test_tasks_are_found_by_the_name_of_their_environment() -> None:
    assert len(load_tasks("bfcl")) == 800 and load_tasks().keys() == load_tasks("bfcl").keys()
    with pytest.raises(ValueError, match=r"unknown environment 'nowhere'; known: bfcl") as error:
        load_tasks("nowhere")
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value), "as other processes hear of it"
    with pytest.raises(ValueError, match="environment bfcl has no task 'nothing'"):
        task_of({"environment": "", "task_id": "nothing"})


def test_a_file_is_known_by_its_stem_and_may_leave_out_all_but_its_tasks(tmp_path) -> None:
    path = tmp_path / "inventory.py"
    gold = f"{GOLD} if int(self.cluster) < 20 else [] if int(self.cluster) < 40 else 1 / 0"
    path.write_text(example().replace(GOLD, gold))
    name = named(str(path))
    tasks = [*load_tasks(name).values()]
    sets = {file: (found.kind, len(found.tasks)) for file, found in environment.data_sets(name).items()}
    assert sets == {f"inventory_{kind}.parquet": (kind, 30) for kind in ("train", "val")} | {
        "inventory_sft.parquet": ("sft", 20)  # also those whose gold raises
    }
    assert environment.read_options(name, {}) == environment.turn_policy(name, {}) == {}
    assert environment.known_failures(name) == environment.audit_policies(name) == {}
    assert environment.judge_of(name) is environment.averages_of(name) is None
    assert environment.tasks_under(name, {}) == tasks and name in environment.known()
    assert environment.source_of(name) == {"environment_sha256": sha256(path.read_bytes()).hexdigest()}
    assert [environment.is_own_code(one) for one in (name, "bfcl")] == [True, False]
    assert [is_file(one) for one in ("a.py", "a.json", "a.txt", "bfcl")] == [True, True, False, False]
    row = {"environment": name, "task_id": "move_3"}
    assert environment.task_name(*environment.task_key_of(row)) == "inventory/move_3"
    assert environment.task_name(*environment.task_key_of({"task_id": "move_3"})) == "move_3"
    assert [environment.part_of({**row, "part": part}) for part in ("dev", "", None)] == ["dev", "test", "test"]
    register({name: str(path)})
    twice = example().replace("_{number}", "_{number % 59}").replace('"inventory"', '"two"')
    for wrong, said in (
        (lambda: register({name: "other.py"}), "choose another name"),
        (lambda: register({"bfcl": str(path)}), "environment bfcl is bfcl_env already"),
        (lambda: register({"my tasks": str(path)}), "letters, digits, _ and - only"),
        (lambda: environment.data_sets(name, tiny=True), "has no small data set"),
        (lambda: environment.read_options(name, {"a": 1}), "inventory has no settings, and a was given"),
        (lambda: environment.read_options("bfcl", {"a": 1}), "its settings are .*empty_gold"),
        (lambda: environment.read_options("tau", {"a": 1}), "its settings are policy"),
        (lambda: TurnPolicy(from_gold={"share": 1.0, "steps": 9, "a": 1}), "from_gold.a"),
        *((lambda kind=kind: make_user({"kind": kind, "a": 1}), rf"kind={kind}: .*\ba: ") for kind in KINDS),
        (lambda: environment.read_options(named(str(write_phone(tmp_path))), {"a": 1}), "its settings are greeting"),
        (lambda: named(str(tmp_path / "nowhere.py")), "there is no file"),
        (lambda: named(str(write(tmp_path, "A = 1", "empty.py"))), r"has no function load_tasks\(\)"),
        (lambda: named(str(write(tmp_path, twice, "two.py"))), "1 tasks have the id of another one"),
    ):
        with pytest.raises(ValueError, match=said):
            wrong()


SECRETS = {
    "api_key": (("a", MASK), ("", ""), (None, None), (True, True), (False, False), (["a", ""], [MASK, ""])),
    "a_token": (("${oc.env:A}", "${oc.env:A}"), (7, MASK)),
    "headers": (({"Authorization": "a", "n": 1}, {"Authorization": MASK, "n": 1}), ("TOKEN=a", f"TOKEN={MASK}")),
    "password": (({"a": ["b"], "c": {"d": 7}}, {"a": [MASK], "c": {"d": MASK}}),),
    "url": (("http://me:a@h/v1", f"http://{MASK}@h/v1"), ("http://h:8/a@b", "http://h:8/a@b"), (("x", 0), ["x", 0])),
    "prompt_key": (("a", "a"), (0, 0)),
}


def test_secrets_are_masked_by_name_and_in_addresses_and_nothing_else() -> None:
    for name, pairs in SECRETS.items():
        for value, shown in pairs:
            assert masked({name: value}) == {name: shown}, name
    assert masked_text("a key: a, KEY=b; my_key: c") == f"a key: a, KEY=b; my_key: {MASK}"
    text = '{"token": "a b", "n": 1} token=${oc.env:A}'
    assert masked_text(text) == text.replace('"a b"', MASK)
