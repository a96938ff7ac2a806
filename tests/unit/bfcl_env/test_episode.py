"""The environment against BFCL: data, split, gold replay, verdicts, isolation."""

import json
import os
import subprocess
import sys

import pytest

from bfcl_env import CATEGORIES, Call, Episode, ErrorKind, load_scenarios, make_call, parse_call, source, train_indices
from bfcl_env.validate import always_answer, replay_gold

OFFICIAL_REPLAY = """
import importlib.util, json, sys
from pathlib import Path
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
data = Path(importlib.util.find_spec("bfcl_eval").submodule_search_locations[0]) / "data"
texts = {}
for category in sys.argv[1:]:
    answers = {}
    for line in (data / f"possible_answer/BFCL_v4_{category}.json").read_text().splitlines():
        row = json.loads(line)
        answers[row["id"]] = row["ground_truth"]
    for line in (data / f"BFCL_v4_{category}.json").read_text().splitlines():
        row = json.loads(line)
        texts[row["id"]] = [
            execute_multi_turn_func_call(
                calls, row["initial_config"], row["involved_classes"], "m", row["id"], "long_context" in category
            )[0]
            for calls in answers[row["id"]]
        ]
print(json.dumps(texts))
"""


def find(scenario_id):
    category = scenario_id.rsplit("_", 1)[0]
    return load_scenarios(category)[int(scenario_id.rsplit("_", 1)[1])]


def with_class(class_name, category="multi_turn_base"):
    return next(item for item in load_scenarios(category) if class_name in item.classes)


def run(scenario, *texts):
    with Episode(scenario) as episode:
        return [episode.execute(parse_call(text, scenario)) for text in texts]


def test_each_category_has_200_scenarios_in_the_order_of_their_index():
    for category in CATEGORIES:
        assert [item.index for item in load_scenarios(category)] == list(range(200))


@pytest.mark.parametrize("category", CATEGORIES)
def test_gold_passes_every_turn_of_every_scenario(category):
    failed = [item.id for item in load_scenarios(category) if not all(replay_gold(item))]
    assert failed == []


@pytest.mark.parametrize("category", CATEGORIES)
def test_a_policy_that_only_answers_passes_no_scenario(category):
    assert not any(all(always_answer(item)) for item in load_scenarios(category))


def test_gold_result_texts_are_those_of_bfcls_own_executor(tmp_path):
    # In a process of its own: BFCL's executor changes module-level data that our episodes are made from.
    done = subprocess.run(
        [sys.executable, "-c", OFFICIAL_REPLAY, *CATEGORIES],
        env={**os.environ, "BFCL_PROJECT_ROOT": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    official = json.loads(done.stdout)
    assert len(official) == 800
    for scenario in load_scenarios():
        with Episode(scenario) as episode:
            for turn, texts in zip(scenario.turns, official[scenario.id], strict=True):
                assert [episode.execute(call).text for call in turn.gold] == texts
                episode.end_turn()


def test_all_categories_share_one_split_and_its_halves_are_disjoint():
    for category in CATEGORIES:
        train = {item.index for item in load_scenarios(category, split="train")}
        val = {item.index for item in load_scenarios(category, split="val")}
        assert train == set(train_indices())
        assert len(train) == len(val) == 100
        assert train.isdisjoint(val)


def test_the_split_is_drawn_by_the_stated_rule():
    import random

    indices = list(range(200))
    random.Random(0).shuffle(indices)
    assert train_indices() == tuple(indices[:100])


def test_an_unknown_category_or_split_is_refused_with_the_known_ones_listed():
    with pytest.raises(ValueError, match="multi_turn_miss_func"):
        load_scenarios("base")
    with pytest.raises(ValueError, match="'train', 'val'"):
        load_scenarios(split="test")


def test_other_data_than_the_pinned_are_refused_with_the_command_that_installs_them(monkeypatch):
    source.read_data.cache_clear()
    monkeypatch.setattr(source, "DATA_SHA256", "0" * 64)
    try:
        with pytest.raises(source.SourceError, match=r"bfcl-eval==2026\.3\.23"):
            source.read_data()
    finally:
        monkeypatch.undo()
        source.read_data()


def test_gold_calls_have_keywords_only_and_fit_the_documented_parameters():
    for scenario in load_scenarios():
        for number, turn in enumerate(scenario.turns):
            docs = {doc["name"]: doc["parameters"] for doc in scenario.functions(number)}
            for call in turn.gold:
                assert not call.positional
                assert set(docs[call.name]["required"]) <= set(call.arguments) <= set(docs[call.name]["properties"])


def test_the_reveal_turn_of_miss_func_has_no_user_text_and_publishes_what_was_withheld():
    for scenario in load_scenarios("multi_turn_miss_func"):
        (number,) = [n for n, turn in enumerate(scenario.turns) if not turn.user]
        revealed = scenario.turns[number].revealed
        assert revealed and set(revealed) <= set(scenario.withheld(number - 1))
        assert scenario.withheld(number) == ()
        names = [doc["name"] for doc in scenario.functions(number)]
        assert tuple(names[-len(revealed) :]) == revealed
        assert set(revealed).isdisjoint(doc["name"] for doc in scenario.functions(0))


def test_tail_in_miss_func_49_is_the_only_withheld_function_published_early():
    scenario = find("multi_turn_miss_func_49")
    assert [turn.revealed for turn in scenario.turns] == [(), ("tail",), (), ("wc", "cat"), ()]
    early = [
        item.id
        for item in load_scenarios("multi_turn_miss_func")
        if any(turn.user and turn.revealed for turn in item.turns)
    ]
    assert early == [scenario.id]


def test_function_docs_are_the_callers_own_copy():
    scenario = find("multi_turn_base_0")
    scenario.functions(0)[0]["name"] = "changed"
    assert scenario.functions(0)[0]["name"] != "changed"
    assert set(scenario.functions(0)[0]) == {"name", "description", "parameters"}


def test_a_withheld_function_cannot_be_called_before_its_turn():
    scenario = find("multi_turn_miss_func_0")
    call = parse_call("sort('final_report.pdf')", scenario)
    with Episode(scenario) as episode:
        results = []
        for turn in scenario.turns:
            if turn.revealed:
                assert turn.revealed == ("sort",)
                break
            result = episode.execute(call)
            results.append((result.text, result.error))
            for gold in turn.gold:
                episode.execute(gold)
            verdict = episode.end_turn()
            assert verdict.passed == bool(turn.gold)
        error = ("Error during execution: name 'sort' is not defined", ErrorKind.WITHHELD_FUNCTION)
        assert set(results) == {error}
        assert episode.execute(call).error is None


def test_a_turn_without_gold_passes_only_for_an_answer_that_leaves_the_state_alone():
    scenario = find("multi_turn_miss_func_0")
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

    assert verdict().passed
    assert verdict("ls()").passed
    assert not verdict(answered=False).passed
    assert not verdict("no_such_function()").passed
    assert not verdict("sort('final_report.pdf')").passed
    changed = verdict("touch('new.txt')")
    assert not changed.passed and not changed.state_matches and changed.passed_official
    assert changed.difference[0]["class"] == "GorillaFileSystem"
    assert changed.difference[0]["attribute"].endswith("/new.txt")


def test_a_turn_with_gold_needs_a_call_the_state_and_the_responses():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        verdict = episode.end_turn()
    assert not verdict.passed and not verdict.passed_official
    assert not verdict.state_matches and not verdict.responses_match
    assert {item["attribute"] for item in verdict.difference} == {"root/document/temp", "results"}


def test_gold_advances_when_the_model_does_not():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        episode.end_turn()
        for call in scenario.turns[1].gold:
            episode.execute(call)
        assert not episode.end_turn().passed


def test_results_of_earlier_turns_count_for_later_ones_but_not_twice():
    scenario = next(
        item
        for item in load_scenarios("multi_turn_base")
        if len(item.turns) > 1 and "GorillaFileSystem" in item.classes and len(item.turns[0].gold) == 1
    )
    with Episode(scenario) as episode:
        for call in scenario.turns[0].gold + scenario.turns[1].gold:
            episode.execute(call)
        episode.end_turn()
        episode.execute(parse_call("pwd()", scenario))
        assert episode.end_turn().responses_match


def test_extra_calls_that_only_read_do_no_harm():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        for turn in scenario.turns:
            for call in turn.gold:
                episode.execute(call)
            episode.execute(parse_call("ls(a=True)", scenario))
            assert episode.end_turn().passed


def test_an_episode_can_be_closed_twice_and_refuses_work_afterwards():
    scenario = find("multi_turn_base_0")
    episode = Episode(scenario)
    episode.close()
    episode.close()
    with pytest.raises(RuntimeError, match="closed"):
        episode.execute(Call("ls", {}))


def test_ending_more_turns_than_there_are_is_refused():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as episode:
        for number in range(len(scenario.turns)):
            assert episode.turn == number
            episode.end_turn()
        assert episode.done
        with pytest.raises(RuntimeError, match="have ended"):
            episode.end_turn()


def test_an_episode_that_buys_with_a_shared_card_changes_no_other_episode():
    # This scenario spends from a card that lives in a module-level table of the package.
    scenario = find("multi_turn_long_context_91")
    for _ in range(3):
        assert all(replay_gold(scenario))


def test_long_context_cards_and_bookings_are_not_shared_between_episodes():
    from bfcl_env.execution import new_instances

    scenario = with_class("TravelAPI", "multi_turn_long_context")
    first, second = new_instances(scenario)["TravelAPI"], new_instances(scenario)["TravelAPI"]
    for card in first.credit_card_list.values():
        card["balance"] = -1.0
    for booking in first.booking_record.values():
        booking["travel_cost"] = -1.0
    assert all(card["balance"] != -1.0 for card in second.credit_card_list.values())
    assert all(booking["travel_cost"] != -1.0 for booking in second.booking_record.values())


def test_two_open_episodes_of_one_scenario_do_not_see_each_other():
    scenario = find("multi_turn_base_0")
    with Episode(scenario) as one, Episode(scenario) as two:
        one.execute(Call("mkdir", {"dir_name": "mine"}))
        assert "mine" in one.execute(Call("ls", {})).text
        assert "mine" not in two.execute(Call("ls", {})).text


def test_an_episode_cannot_change_the_gold_calls_or_the_callers_arguments():
    scenario = with_class("TwitterAPI")
    tags = ["#one"]
    call = make_call("post_tweet", {"content": "hello", "tags": tags})
    with Episode(scenario) as episode:
        account = scenario.initial_config["TwitterAPI"]
        login = {"username": account["username"], "password": account["password"]}
        episode.execute(make_call("authenticate_twitter", login))
        posted = episode.execute(call)
        assert posted.error is None
        tags.append("#two")
        call.arguments["tags"].append("#three")
        tweet_id = json.loads(posted.text)["id"]
        assert json.loads(episode.execute(make_call("get_tweet", {"tweet_id": tweet_id})).text)["tags"] == ["#one"]


def test_precision_of_the_process_is_what_it_was_after_a_logarithm():
    import decimal

    import mpmath

    before = mpmath.mp.dps, decimal.getcontext().prec
    results = run(with_class("MathAPI"), "logarithm(10, 2, 40)", "square_root(2, 50)")
    assert len(results[0].text) > 50 and len(results[1].text) > 50
    assert (mpmath.mp.dps, decimal.getcontext().prec) == before


@pytest.mark.parametrize(
    ("text", "expected", "error"),
    [
        ("no_such(a=1)", "name 'no_such' is not defined", ErrorKind.UNKNOWN_FUNCTION),
        ("GorillaFileSystem.ls()", "name 'GorillaFileSystem' is not defined", ErrorKind.UNKNOWN_FUNCTION),
        ("exit()", "Function call exit is not allowed.", ErrorKind.UNKNOWN_FUNCTION),
        ("_load_scenario(scenario={})", "name '_load_scenario' is not defined", ErrorKind.UNKNOWN_FUNCTION),
        (
            "cd()",
            "GorillaFileSystem.cd() missing 1 required positional argument: 'folder'",
            ErrorKind.BAD_ARGUMENTS,
        ),
        (
            "cd(path='x')",
            "GorillaFileSystem.cd() got an unexpected keyword argument 'path'",
            ErrorKind.BAD_ARGUMENTS,
        ),
        (
            "cd('a', 'b')",
            "GorillaFileSystem.cd() takes 2 positional arguments but 3 were given",
            ErrorKind.BAD_ARGUMENTS,
        ),
        (
            "cd('a', folder='b')",
            "GorillaFileSystem.cd() got multiple values for argument 'folder'",
            ErrorKind.BAD_ARGUMENTS,
        ),
        ("cd(folder=5)", "'int' object has no attribute 'rstrip'", ErrorKind.BAD_ARGUMENTS),
    ],
)
def test_error_texts_are_pythons_own_words_as_bfcl_returns_them(text, expected, error):
    (result,) = run(find("multi_turn_base_0"), text)
    assert (result.text, result.error) == (f"Error during execution: {expected}", error)


def test_an_error_that_bfcl_returns_as_a_result_is_typed_and_keeps_its_text():
    (result,) = run(find("multi_turn_base_0"), "cd('nowhere')")
    assert result.error is ErrorKind.RESULT
    assert result.text == '{"error": "cd: \'nowhere\': No such file or directory"}'


def test_a_function_that_fails_with_fitting_arguments_is_an_execution_error():
    (result,) = run(with_class("VehicleControlAPI"), "lockDoors(True, ['no such door'])")
    assert (result.text, result.error) == ("Error during execution: 'no such door'", ErrorKind.EXECUTION)


def test_text_that_looks_like_a_call_is_stored_as_it_is():
    scenario = find("multi_turn_base_0")
    results = run(scenario, "touch('n')", "echo('run cd (now)', 'n')", "cat('n')")
    assert json.loads(results[-1].text) == {"file_content": "run cd (now)"}


def test_the_environment_imports_no_training_framework_and_no_heavy_module_of_bfcl():
    code = (
        "import sys; from bfcl_env import *; from bfcl_env.validate import replay_gold\n"
        "for item in load_scenarios()[::20]: replay_gold(item)\n"
        "print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint({"torch", "verl", "numpy", "ray", "bfcl_eval.utils", "bfcl_eval.constants.eval_config"})
    assert not any("multi_turn_utils" in name or "model_handler" in name for name in loaded)
