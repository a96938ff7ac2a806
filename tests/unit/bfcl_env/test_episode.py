"""Episodes: verdicts of turns without gold, and withheld functions."""

from bfcl_env import Call, Episode, ErrorKind, load_scenarios, parse_call
from bfcl_env.state import matches, snapshot

WITHHELD = load_scenarios("multi_turn_miss_func")


def test_a_turn_without_gold_passes_only_for_an_answer_that_leaves_the_state_alone():
    scenario = WITHHELD[0]
    number = next(n for n, turn in enumerate(scenario.turns) if not turn.gold)

    def verdict(*texts, answered=True):
        with Episode(scenario) as episode:
            for turn in scenario.turns[:number]:
                for call in turn.gold:
                    episode.execute(call)
                episode.end_turn()
            for text in texts:
                episode.execute(parse_call(text, scenario))
            return episode.end_turn(answered=answered)

    assert verdict().passed and verdict("ls()").passed and not verdict(answered=False).passed
    assert not verdict("no_such_function()").passed and not verdict("sort('final_report.pdf')").passed
    changed = verdict("touch('new.txt')")
    assert not changed.passed and not changed.state_matches and changed.passed_official
    assert changed.difference[0]["attribute"].endswith("/new.txt")


def test_every_withheld_function_is_unknown_until_its_turn_and_changes_nothing():
    refused = 0
    for scenario in WITHHELD:
        gold = {call.name: call for turn in scenario.turns for call in turn.gold}
        with Episode(scenario) as episode:
            for number, turn in enumerate(scenario.turns):
                before = snapshot(episode._instances)
                for name in scenario.withheld(number):
                    result = episode.execute(gold.get(name, Call(name, {})))
                    assert result.error is ErrorKind.WITHHELD_FUNCTION
                    assert result.text == f"Error during execution: name '{name}' is not defined"
                    refused += 1
                assert matches(before, episode._instances)
                assert all([episode.execute(call).error is None for call in turn.gold])
                episode.end_turn()
    assert refused > 200
