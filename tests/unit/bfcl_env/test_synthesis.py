"""Generated tasks: what each of them must be, and what is thrown away."""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from bfcl_env.entries import environment
from bfcl_env.proof.validate import POLICIES
from bfcl_env.scenarios import load_scenarios, scenario_of
from bfcl_env.source import function_docs
from bfcl_env.synthesis import Shape, generate
from bfcl_env.synthesis.propose import FORMS, Turn, entry_of, propose
from bfcl_env.synthesis.verify import overlap, problem
from interaction.call import Call

COUNT = 250


@pytest.fixture(scope="module")
def entries():
    return [*generate("train", COUNT, 1), *generate("test", 40, 1)]


def scenario(entry, category=None):
    return scenario_of(category or entry["id"].rpartition("_")[0], entry, entry["ground_truth"], 0)


def test_the_same_arguments_give_the_same_tasks_and_another_seed_others(entries):
    assert [*generate("train", 20, 1)] == entries[:20]
    assert [entry["question"] for entry in generate("train", 20, 2)] != [entry["question"] for entry in entries[:20]]


def test_parts_share_no_program_and_no_composed_name(entries):
    train, test = entries[:COUNT], entries[COUNT:]
    assert not {entry["program"] for entry in train} & {entry["program"] for entry in test}

    def people(those):
        return {name for entry in those for name in entry["initial_config"].get("MessageAPI", {}).get("user_map", ())}

    assert people(train) and people(test) and not people(train) & people(test)


def test_all_forms_and_nearly_all_functions_occur_and_gold_passes_where_trivial_policies_do_not(entries):
    assert {entry["id"].rpartition("_")[0] for entry in entries} == {*FORMS}
    called = {call.partition("(")[0] for entry in entries for turn in entry["ground_truth"] for call in turn}
    known = {name for docs in function_docs().values() for name in docs}
    assert called <= known and len(called) > 110
    for entry in entries[:60]:
        played = scenario(entry)
        assert all(POLICIES["gold"](played))
        assert not all(POLICIES["always answer"](played))


def test_a_missing_function_is_withheld_until_it_is_called_and_a_missing_value_is_said_nowhere_before(entries):
    withheld = [entry for entry in entries if "missed_function" in entry]
    assert withheld
    for entry in withheld:
        ((turn, (name,)),) = entry["missed_function"].items()
        at = int(turn)
        assert (entry["question"][at], entry["ground_truth"][at - 1]) == ([], [])
        assert any(call.startswith(f"{name}(") for call in entry["ground_truth"][at])
        assert name not in scenario(entry).visible(at - 1)
    asked = [entry for entry in entries if "miss_param" in entry["id"]]
    assert asked
    for entry in asked:
        at = next(number for number, calls in enumerate(entry["ground_truth"]) if not calls)
        assert " to follow]" in entry["question"][at][0]["content"]


def proposals(count, **shape):
    made = (propose(Random(seed), "train", Shape(**shape)) for seed in range(1000))
    return [proposal for proposal in made if proposal][:count]


def verdict(proposal):
    return problem(proposal, scenario(entry_of(proposal, f"{proposal.category}_1000", "train")))


def test_what_is_not_well_made_is_thrown_away():
    found = Counter()
    for proposal in proposals(40, forms=("multi_turn_base",), classes=("GorillaFileSystem",)):
        first, *rest = proposal.turns
        if verdict(proposal) is not None:
            continue
        pwd = Call("pwd", {})
        failing = replace(
            proposal, turns=(Turn(first.user, (Call("rm", {"file_name": "none"}),), (frozenset(),)), *rest)
        )
        unsaid = replace(proposal, turns=(replace(first, user="Do what has to be done."), *rest))
        known = Turn(first.user, (*first.gold, pwd), (*first.implied, frozenset()))
        again = replace(proposal, turns=(known, *rest, Turn("Where?", (pwd, Call("du", {})), (frozenset(),) * 2)))
        for changed in (failing, unsaid, again):
            found[verdict(changed)] += 1
    assert found["gold does not pass"] > 10
    assert found["an argument is grounded nowhere"] > 10
    assert found["a call does not matter"] > 10


def test_what_the_held_out_half_has_is_thrown_away():
    held_out, training = load_scenarios(split="val"), load_scenarios(split="train")
    assert all(overlap(item) for item in held_out)
    assert sum(overlap(item) is None for item in training) > 0
    words = held_out[0].turns[0].user
    (proposal,) = proposals(1, forms=("multi_turn_base",))
    changed = replace(proposal, turns=(replace(proposal.turns[0], user=words), *proposal.turns[1:]))
    assert verdict(changed) == "8 words of the held-out half"


def test_unseen_wordings_are_not_those_of_training():
    from bfcl_env.synthesis.operation import operations

    seen = {text for group in operations().values() for item in group.values() for text in item.wordings[:-1]}
    kept = {text for group in operations().values() for item in group.values() for text in item.wordings[-1:]}
    assert len(kept) > 150 and not seen & kept
    for entry in generate("test", 20, 1, Shape(unseen=True)):
        assert not any(turn[0]["content"].startswith(("Please", "Could you")) for turn in entry["question"] if turn)


def test_a_shape_that_has_no_more_tasks_is_said_and_does_not_run_for_ever():
    shape = Shape(classes=("TicketAPI",), turns=(1, 1), operations=1, forms=("multi_turn_base",))
    with pytest.raises(ValueError, match="tasks of this shape are found for dev: allow more turns or operations"):
        list(generate("dev", 5000, 1, shape))


def test_the_command_writes_the_same_environment_in_every_process(tmp_path):
    written = []
    for seed in ("0", "2"):  # of Python's hashes, by which sets are ordered
        file = tmp_path / "tasks.json"
        words = [sys.executable, "-m", "bfcl_env.synthesis", str(file), "--train", "90", "--dev", "2", "--test", "3"]
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environ)
        assert "95 tasks" in done.stdout
        written.append(file.read_bytes())
    assert written[0] == written[1]
    tasks = environment("tasks", file).load_tasks()
    assert Counter(task.part for task in tasks) == {"train": 90, "dev": 2, "test": 3}
    assert len({json.loads(line)["id"] for line in file.read_text().splitlines()}) == 95


def test_gold_calls_what_takes_a_result_in_a_later_message_than_what_returned_it(tmp_path):
    def calls(*texts):
        entry = {
            "id": "multi_turn_base_1000",
            "question": [[{"role": "user", "content": "Tell Ann Lee 'hi', USR200 'ho' and list all users."}]],
            "initial_config": {
                "MessageAPI": {
                    "user_map": {"Bo Ray": "USR100", "Ann Lee": "USR107", "Cy": "USR200"},
                    "current_user": "USR100",
                }
            },
            "involved_classes": ["MessageAPI"],
            "ground_truth": [[*texts]],
        }
        file = tmp_path / f"{len(texts)}.json"
        file.write_text(json.dumps(entry))
        (task,) = environment("tasks", file).load_tasks()
        return [[str(call) for call in message.calls] for message in task.gold() if message.calls]

    ask, use = "get_user_id(user='Ann Lee')", "send_message(receiver_id='USR107', message='hi')"
    known = "send_message(receiver_id='USR200', message='ho')"
    assert calls(ask, use, known) == [[ask], [use, known]]
    assert calls(known, "list_users()") == [[known, "list_users()"]]
