"""Generated tasks: what each of them must be, and what is thrown away."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import permutations
from random import Random

import pytest

from bfcl_env.entries import environment
from bfcl_env.proof.validate import POLICIES
from bfcl_env.scenarios import load_scenarios, scenario_of
from bfcl_env.source import function_owners
from bfcl_env.synthesis import Shape, generate
from bfcl_env.synthesis.operation import operations
from bfcl_env.synthesis.propose import FORMS, Turn, entry_of, propose
from bfcl_env.synthesis.verify import overlap, problem
from bfcl_env.synthesis.words import JOINTS, REGISTERS
from interaction.call import Call

RECORDED = {
    **{"train": "5547002f", "test": "cda8ec4f", "GorillaFileSystem": "7d29b18e", "MathAPI": "c7f5e56d"},
    **{"MessageAPI": "c5b1c1bd", "TwitterAPI": "e961a028", "TicketAPI": "1c70c781", "TradingBot": "c6a21db0"},
    **{"TravelAPI": "cb0f5a67", "VehicleControlAPI": "a67e6076"},
}
"""The beginnings of SHA-256 sums of what is drawn: of tasks of the parts, and of proposals of one operation."""
TRAIN, TEST = [*generate("train", 250, 1)], [*generate("test", 40, 1)]


def scenario(entry):
    return scenario_of(entry["id"].rpartition("_")[0], entry, entry["ground_truth"], 0)


def test_parts_share_no_name_and_no_program_but_single_operations_and_sets_of_words_no_wording():
    def people(those):
        return {name for entry in those for name in entry["initial_config"].get("MessageAPI", {}).get("user_map", ())}

    def programs(those):
        return {entry["program"] for entry in those if {*";+"} & {*entry["program"]}}

    assert programs(TRAIN) and programs(TEST) and not programs(TRAIN) & programs(TEST)
    single = Shape(classes=("MathAPI",), turns=(1, 1), operations=1, forms=("multi_turn_base",))
    assert len({entry["program"] for entry in generate("test", 60, 1, single)}) > 12, "all operations are held out"
    assert people(TRAIN) and people(TEST) and not people(TRAIN) & people(TEST)
    words = {kind: [] for kind in REGISTERS}
    for item in (item for group in operations().values() for item in group.values()):
        assert len({frozenset(re.findall(r"{\w+}", text)) for those in item.wordings.values() for text in those}) == 1
        for kind, those in words.items():
            assert len(item.wordings[kind]) > 2
            those += [" ".join(["", *re.findall(r"[{}\w]+", text), ""]) for text in item.wordings[kind]]
    begin = {kind: tuple(filter(None, (text.partition("{")[0] for text in REGISTERS[kind]))) for kind in words}
    for kind, other in permutations(words, 2):
        assert not any(text in longer for text in words[kind] for longer in words[other])
        assert not {*REGISTERS[kind], *JOINTS[kind]} & {*REGISTERS[other], *JOINTS[other]}
        for entry in generate("test", 20, 1, Shape(words=kind)):
            assert not any(turn[0]["content"].startswith(begin[other]) for turn in entry["question"] if turn)


def test_nearly_all_functions_occur_and_gold_passes_where_trivial_policies_do_not():
    called = {call.partition("(")[0] for entry in TRAIN for turn in entry["ground_truth"] for call in turn}
    assert called <= function_owners().keys() and len(called) > 110
    for entry in TRAIN[:60]:
        assert all(POLICIES["gold"](scenario(entry))) and not all(POLICIES["always answer"](scenario(entry)))


def test_a_missing_function_is_withheld_until_it_is_called_and_a_missing_value_is_said_nowhere_before():
    kinds = Counter()
    for entry in TRAIN:
        at = next((number for number, calls in enumerate(entry["ground_truth"]) if not calls), None)
        if "missed_function" in entry:
            assert [*entry["missed_function"]] == [str(at + 1)] and entry["question"][at + 1] == []
            (name,) = entry["missed_function"][str(at + 1)]
            assert any(call.startswith(f"{name}(") for call in entry["ground_truth"][at + 1])
            assert name not in scenario(entry).visible(at)
        if "miss_param" in entry["id"]:
            assert " to follow]" in entry["question"][at][0]["content"]
        kinds[entry["id"].rpartition("_")[0]] += 1
    assert min(kinds[form] for form in FORMS) > 20


def verdict(proposal):
    return problem(proposal, scenario(entry_of(proposal, f"{proposal.category}_1000", "train")))


def proposals(form, *classes):
    found = (propose(Random(seed), "train", Shape(forms=(form,), classes=classes)) for seed in range(60))
    return [proposal for proposal in found if proposal is not None and verdict(proposal) is None]


def test_what_is_not_well_made_or_what_the_held_out_half_has_is_thrown_away():
    pwd, held_out = Call("pwd", {}), load_scenarios(split="val")
    words = re.findall(r"\w+", held_out[0].turns[0].user)[-8:]
    those, counts = proposals("multi_turn_base", "GorillaFileSystem"), Counter()
    for proposal in those:
        first, *rest = proposal.turns
        known = Turn(first.user, (*first.gold, pwd), (*first.implied, frozenset()))
        found = {
            "gold does not pass": (Turn(first.user, (Call("rm", {"file_name": "none"}),), (frozenset(),)), *rest),
            "an argument is grounded nowhere": (replace(first, user="Do what has to be done."), *rest),
            "a call does not matter": (known, *rest, Turn("Where?", (pwd, Call("du", {})), (frozenset(),) * 2)),
            "8 words of the held-out half": (replace(first, user=f"{first.user} {' '.join(words)}"), *rest),
            None: (replace(first, user=f"{first.user} {' '.join(words[1:])}"), *rest),
            "passes: always answer": (Turn(first.user),),
            "no argument matters": (Turn("Which are hidden?", (Call("ls", {"a": False}),), (frozenset("a"),)),),
            "passes: repeat last call": tuple(Turn(text, (pwd,), (frozenset(),)) for text in ("Where?", "And now?")),
        }
        counts.update(reason for reason, turns in found.items() if verdict(replace(proposal, turns=turns)) == reason)
    assert [*counts.values()] == [56, 53, 50, 56, 56, 56, 56, 56], "words may imply it, a call may be one more"
    lacking = proposals("multi_turn_miss_param", *Shape().classes)
    for proposal in lacking:
        ((at, value),) = proposal.unsaid.items()
        said = replace(proposal.turns[at], user=f"{proposal.turns[at].user} It is {value}.")
        told = replace(proposal, turns=(*proposal.turns[:at], said, *proposal.turns[at + 1 :]))
        for one in (told, replace(proposal, config={**proposal.config, "note": value})):
            assert verdict(one) == "what is missing is known"
    assert len(lacking) > 20
    own = scenario(entry_of(those[0], "multi_turn_base_1000", "train"))
    for item in held_out:
        turns = [replace(turn, user="") for turn in item.turns if turn.gold]
        several = [turn for turn in turns if len(turn.gold) > 1]
        for kept in (turns, *([turn] for turn in several)):
            assert overlap(replace(own, turns=tuple(kept))) == "gold of the held-out half"
        found = "a state of the held-out half" if any(item.initial_config.values()) else None
        assert overlap(replace(own, turns=(), config_json=item.config_json)) == found


def test_a_world_can_be_drawn_whatever_names_coincide_and_a_seed_draws_what_is_recorded():
    drawn = {"train": TRAIN, "test": TEST}
    for owner in Shape().classes:
        shape = Shape((owner,), turns=(1, 1), operations=1)
        proposals = [propose(Random(seed), "dev", shape) for seed in range(450)]
        drawn[owner] = [proposal and entry_of(proposal, owner, "dev") for proposal in proposals]
    assert {name: sha256(json.dumps(those).encode()).hexdigest()[:8] for name, those in drawn.items()} == RECORDED


def test_the_command_writes_the_same_environment_in_every_process(tmp_path):
    file, written = tmp_path / "tasks.json", []
    sizes = "--train 60 --dev 2 --test 3 --turns 2 4 --forms multi_turn_miss_param".split()
    sizes += "--words other --seed 7 --operations 1".split()
    shape = Shape(turns=(2, 4), operations=1, forms=("multi_turn_miss_param",), words="other")
    for seed in "02":  # of Python's hashes, by which sets are ordered
        words = [sys.executable, "-m", "bfcl_env.synthesis", str(file), *sizes]
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(words, check=True, capture_output=True, text=True, env=environ)
        assert "65 tasks" in done.stdout
        written.append(file.read_bytes())
    assert written[0] == written[1]
    assert json.loads(written[0].splitlines()[0]) == next(generate("train", 1, 7, shape))
    assert Counter(task.part for task in environment("tasks", file).load_tasks()) == {"train": 60, "dev": 2, "test": 3}


def test_a_shape_that_has_no_more_tasks_does_not_run_for_ever(monkeypatch):
    monkeypatch.setattr("bfcl_env.synthesis.PATIENCE", 2)
    shape = Shape(classes=("TicketAPI",), turns=(1, 1), operations=1, forms=("multi_turn_base",))
    with pytest.raises(ValueError, match="tasks of this shape are found"):
        list(generate("dev", 5000, 1, shape))
