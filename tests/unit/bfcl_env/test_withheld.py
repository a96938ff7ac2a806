"""The allow-list of each turn, and the switch that lets withheld functions run as in BFCL's own evaluation."""

import pytest

from bfcl_env import Call, Episode, ErrorKind, load_scenarios, parse_call
from bfcl_env.execution import unknown_function_text
from bfcl_env.mutants import mutants
from bfcl_env.official import OfficialEpisode
from bfcl_env.state import matches, snapshot

SCENARIOS = load_scenarios("multi_turn_miss_func")
TAIL = SCENARIOS[49]


def later_gold(scenario, name):
    """Gold's own call of a function, or one without arguments if it has none."""
    return next((call for turn in scenario.turns for call in turn.gold if call.name == name), Call(name, {}))


def test_every_withheld_function_is_refused_until_its_turn_and_changes_nothing():
    refused = 0
    for scenario in SCENARIOS:
        with Episode(scenario) as episode:
            for number, turn in enumerate(scenario.turns):
                before = snapshot(episode._instances)
                for name in scenario.withheld(number):
                    result = episode.execute(later_gold(scenario, name))
                    assert result.error is ErrorKind.WITHHELD_FUNCTION
                    assert result.text == f"Error during execution: name '{name}' is not defined"
                    refused += 1
                assert matches(before, episode._instances)
                for call in turn.gold:
                    assert episode.execute(call).error is None
                episode.end_turn()
    assert refused > 200


def test_the_error_reads_like_that_of_a_function_that_does_not_exist():
    name = SCENARIOS[0].withheld(0)[0]
    with Episode(SCENARIOS[0]) as episode:
        withheld, unknown = episode.execute(Call(name, {})), episode.execute(Call("nothing", {}))
    assert withheld.text.replace(name, "nothing") == unknown.text
    assert unknown_function_text(name) == withheld.text
    assert (withheld.error, unknown.error) == (ErrorKind.WITHHELD_FUNCTION, ErrorKind.UNKNOWN_FUNCTION)


def test_the_official_switch_runs_withheld_functions_with_bfcls_texts_and_verdicts():
    ran = 0
    for scenario in SCENARIOS:
        names = scenario.withheld(0)
        with Episode(scenario, withheld="official") as episode, OfficialEpisode(scenario) as official:
            for number, turn in enumerate(scenario.turns):
                early = tuple(later_gold(scenario, name) for name in names) if number == 0 else ()
                results = [episode.execute(call) for call in (*turn.gold, *early)]
                assert [result.text for result in results] == official.execute(*turn.gold, *early)
                assert ErrorKind.WITHHELD_FUNCTION not in [result.error for result in results]
                ran += len(early)
                assert episode.end_turn().passed_official == official.end_turn().passed
    assert ran > 200


def test_gold_of_miss_func_49_passes_either_way_and_tail_is_refused_only_before_gold_calls_it():
    tail = later_gold(TAIL, "tail")
    assert [turn.revealed for turn in TAIL.turns] == [(), ("tail",), (), ("wc", "cat"), ()]
    for withheld in ("refused", "official"):
        with Episode(TAIL, withheld=withheld) as episode:
            for turn in TAIL.turns:
                assert all([episode.execute(call).error is None for call in turn.gold])
                verdict = episode.end_turn()
                assert verdict.passed and verdict.passed_official
    with Episode(TAIL) as episode:
        assert episode.execute(tail).error is ErrorKind.WITHHELD_FUNCTION
        episode.end_turn()
        assert episode.execute(tail).error is not ErrorKind.WITHHELD_FUNCTION
        assert episode.execute(parse_call("cat('x')", TAIL)).error is ErrorKind.WITHHELD_FUNCTION
    with Episode(TAIL, withheld="official") as episode, OfficialEpisode(TAIL) as official:
        assert [episode.execute(call).text for call in (tail, parse_call("cat('x')", TAIL))] == official.execute(
            tail, parse_call("cat('x')", TAIL)
        )


def test_a_turn_without_gold_that_calls_a_withheld_function_passes_only_with_the_official_switch():
    scenario = next(item for item in SCENARIOS if not item.turns[0].gold and item.withheld(0) == ("ls",))
    for withheld, passed in (("refused", False), ("official", True)):
        with Episode(scenario, withheld=withheld) as episode:
            episode.execute(Call("ls", {}))
            verdict = episode.end_turn()
            assert (verdict.passed, verdict.passed_official) == (passed, True)


def test_the_switch_makes_no_difference_where_nothing_is_withheld():
    for mutant in mutants(21, 550):
        if mutant.scenario.category == "multi_turn_miss_func":
            continue
        played = []
        for withheld in ("refused", "official"):
            with Episode(mutant.scenario, withheld=withheld) as episode:
                played.append(
                    [([episode.execute(call) for call in calls], episode.end_turn()) for calls in mutant.turns]
                )
        assert played[0] == played[1]


def test_another_value_of_the_switch_is_refused():
    with pytest.raises(ValueError, match="'refused' or 'official', not 'yes'"):
        Episode(TAIL, withheld="yes")
