"""Faulty conversations have the texts, errors and verdicts that were recorded when they agreed with BFCL's own code.

`mutants_recorded.json` has a hash for each; `test_official.py` compares with BFCL's code itself.
"""

import hashlib
import json
from pathlib import Path

from support.single_turn import CATEGORIES, tasks
from support.single_turn_mutants import mutants as single_turn_mutants

from bfcl_env import Episode
from bfcl_env.proof.mutants import Mutant, mutants
from bfcl_env.single_turn.checker import check_calls

RECORDED = Path(__file__).with_name("mutants_recorded.json")
SEED, COUNT = 20260323, 330


def hashed(found: object) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:8]


def played(mutant: Mutant) -> str:
    found: list[object] = []
    with Episode(mutant.scenario) as episode:
        for number, calls in enumerate(mutant.turns):
            for call in calls:
                result = episode.execute(call)
                match = episode.match_gold(call, result)
                found.append([result.text, result.error, match, episode.closeness()])
            verdict = episode.end_turn(answered=number % 3 != 1)
            sides = verdict.passed, verdict.passed_official, verdict.state_matches, verdict.responses_match
            found.append([*sides, *verdict.difference])
    return hashed(found)


def judged() -> list[str]:
    """Hashes of 20 messages each."""
    everything = [task for category in CATEGORIES for task in tasks(category)]
    found = []
    for _, task, calls in single_turn_mutants(everything, 10 * COUNT, SEED):
        checked = check_calls(calls, task.functions, task.accepted, task.language, parallel=task.parallel)
        kinds = [[item.kind, item.function, item.argument] for item in checked.mismatches]
        found.append([checked.passed, checked.passed_official, kinds])
    return [hashed(found[start : start + 20]) for start in range(0, len(found), 20)]


def test_results_and_verdicts_are_those_that_were_recorded() -> None:
    recorded = json.loads(RECORDED.read_text())
    found = {"multi_turn": [played(mutant) for mutant in mutants(SEED, COUNT)], "single_turn": judged()}
    different = {
        name: [number for number, pair in enumerate(zip(found[name], recorded[name], strict=True)) if len({*pair}) > 1]
        for name in recorded
    }
    assert different == {"multi_turn": [], "single_turn": []}
