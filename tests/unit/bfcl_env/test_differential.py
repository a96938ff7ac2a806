"""Our executor and verdicts beside bfcl-eval's own, on trusted input: gold, mutants of gold, and drawn calls."""

import decimal
import inspect
import random
from collections import Counter

import pytest

from bfcl_env import CallError, Episode, ErrorKind, load_scenarios, make_call, parse_call
from bfcl_env.differences import DIFFERENCES
from bfcl_env.mutants import READ_ONLY, Mutant, MutantKind, mutants, random_call
from bfcl_env.official import OfficialEpisode
from bfcl_env.source import function_docs, function_owners, load_class
from bfcl_env.state import matches, snapshot

MUTANTS = 5_500
SEED = 20260323


@pytest.fixture(autouse=True)
def restored_process():
    """What BFCL's executor leaves behind in the process is taken back."""
    import mpmath

    post_tweet = load_class("TwitterAPI").post_tweet
    before = mpmath.mp.dps, decimal.getcontext().prec, post_tweet.__defaults__
    yield
    mpmath.mp.dps, decimal.getcontext().prec, post_tweet.__defaults__ = before


def find(scenario_id):
    category, index = scenario_id.rsplit("_", 1)
    return load_scenarios(category)[int(index)]


def with_class(class_name, category="multi_turn_base"):
    return next(item for item in load_scenarios(category) if class_name in item.classes)


def gold_turns(scenario):
    return tuple(turn.gold for turn in scenario.turns)


def disagreements(scenario, turns):
    """Plays the calls on both sides; returns what differed, how many calls hit a limit, and our verdicts."""
    found, limited, verdicts = [], 0, []
    with Episode(scenario, withheld="official") as ours, OfficialEpisode(scenario) as official:
        for number, calls in enumerate(turns):
            results = [(call, ours.execute(call)) for call in calls]
            played = [(call, result.text) for call, result in results if result.error is not ErrorKind.LIMIT]
            limited += len(results) - len(played)
            expected = official.execute(*[call for call, _ in played])
            for (call, text), wanted in zip(played, expected, strict=True):
                if text != wanted:
                    found.append((scenario.id, number, str(call), text, wanted))
            verdict, wanted = ours.end_turn(), official.end_turn()
            verdicts.append(verdict)
            mine = (verdict.passed_official, verdict.state_matches, verdict.responses_match)
            judged = bool(scenario.turns[number].gold)
            if (
                mine[: 3 if judged else 1]
                != (wanted.passed, wanted.state_matches, wanted.responses_match)[: 3 if judged else 1]
            ):
                found.append((scenario.id, number, verdict, wanted))
    return found, limited, verdicts


def official_check(scenario, turns):
    with OfficialEpisode(scenario) as official:
        return official.check(turns)


@pytest.mark.parametrize("category", ["base", "miss_func", "miss_param", "long_context"])
def test_gold_has_bfcls_result_texts_and_verdicts(category):
    for scenario in load_scenarios(f"multi_turn_{category}"):
        found, limited, verdicts = disagreements(scenario, gold_turns(scenario))
        assert (found, limited) == ([], 0)
        assert all(verdict.passed and verdict.passed_official for verdict in verdicts)
        assert official_check(scenario, gold_turns(scenario))


def test_mutants_have_bfcls_result_texts_and_verdicts():
    kinds, failed, limited = Counter(), Counter(), 0
    for number, mutant in enumerate(mutants(SEED, MUTANTS)):
        found, limits, verdicts = disagreements(mutant.scenario, mutant.turns)
        assert found == []
        limited += limits
        kinds[mutant.kind] += 1
        failed[mutant.kind] += not all(verdict.passed_official for verdict in verdicts)
        # The whole checker on some of them; it shares the lists of tweets, which shows once `mention` is called.
        if (
            number % 5 == 0
            and not limits
            and not any(call.name == "mention" for calls in mutant.turns for call in calls)
        ):
            official = official_check(mutant.scenario, mutant.turns)
            assert official == all(verdict.passed_official for verdict in verdicts)
    assert set(kinds) == set(MutantKind) and min(kinds.values()) >= MUTANTS // len(MutantKind)
    assert limited < 20  # Calls that only we refuse, so that there is nothing to compare.
    for kind in (MutantKind.DROPPED, MutantKind.CHANGED_ARGUMENT, MutantKind.WRONG_TYPE, MutantKind.MISSING_ARGUMENT):
        assert failed[kind] > kinds[kind] / 2  # The mutants are faults, not variants of a right answer.


def test_drawn_calls_between_the_gold_calls_have_bfcls_result_texts_and_verdicts():
    rng = random.Random(SEED)
    names = set()
    for scenario in load_scenarios():
        turns = []
        for calls in gold_turns(scenario):
            mixed = [*calls, *(random_call(scenario, rng) for _ in range(5))]
            rng.shuffle(mixed)
            names.update(call.name for call in mixed)
            turns.append(tuple(mixed))
        assert disagreements(scenario, tuple(turns))[0] == []
    assert names == set(function_owners())


def test_positional_arguments_mean_what_they_mean_to_bfcl():
    rng = random.Random(SEED)
    for name, owner in function_owners().items():
        scenario = with_class(owner)
        order = list(inspect.signature(getattr(load_class(owner), name)).parameters)[1:]
        for _ in range(5):
            arguments = random_call(scenario, rng, frozenset({name})).arguments
            given = [arguments[key] for key in order if key in arguments]
            for values in (given, given[:-1], [*given, "surplus"]):
                text = f"{name}({', '.join(map(repr, values))})"
                call = parse_call(text, scenario)
                if len(values) <= len(order):
                    assert call.arguments == dict(zip(order, values, strict=False)) and not call.positional
                with Episode(scenario) as ours, OfficialEpisode(scenario) as official:
                    result = ours.execute(call)
                    if result.error is not ErrorKind.LIMIT:
                        assert [result.text] == official.execute(text), text


def test_mutants_are_drawn_from_the_seed_alone():
    def texts(items):
        return [(item.scenario.id, item.kind, str(item.turns)) for item in items]

    assert texts(mutants(7, 60))[:33] == texts(mutants(7, 33))
    assert texts(mutants(7, 33)) != texts(mutants(8, 33))


def test_every_mutant_differs_from_gold_by_as_many_calls_as_its_kind_says():
    more = {MutantKind.DOUBLED: 1, MutantKind.EXTRA_READ: 1, MutantKind.EXTRA_CALL: 1, MutantKind.DROPPED: -1}
    for mutant in mutants(3, 1_100):
        assert isinstance(mutant, Mutant)
        gold = gold_turns(mutant.scenario)
        assert str(mutant.turns) != str(gold) and len(mutant.turns) == len(gold)
        assert sum(map(len, mutant.turns)) - sum(map(len, gold)) == more.get(mutant.kind, 0)


def test_functions_listed_as_read_only_change_no_state():
    assert READ_ONLY < set(function_owners())
    rng = random.Random(SEED)
    for name in sorted(READ_ONLY):
        for category in ("multi_turn_base", "multi_turn_long_context"):
            scenario = with_class(function_owners()[name], category)
            with Episode(scenario) as episode:
                before = snapshot(episode._instances)
                for _ in range(20):
                    episode.execute(random_call(scenario, rng, frozenset({name})))
                assert matches(before, episode._instances), name


def test_every_list_that_is_a_default_is_replaced_for_each_call():
    from bfcl_env.execution import _LIST_DEFAULTS

    found = {}
    for class_name, docs in function_docs().items():
        for name in docs:
            parameters = inspect.signature(getattr(load_class(class_name), name)).parameters.values()
            shared = tuple(item.name for item in parameters if isinstance(item.default, list | dict | set))
            if shared:
                found[name] = shared
    assert found == _LIST_DEFAULTS


# One check for each entry of DIFFERENCES: shows what BFCL does and what we do.

FILES = find("multi_turn_base_0")


def texts(scenario, *calls):
    """The result texts of the same calls on both sides."""
    with Episode(scenario) as ours, OfficialEpisode(scenario) as official:
        mine = [ours.execute(call if not isinstance(call, str) else parse_call(call, scenario)).text for call in calls]
        return mine, official.execute(*calls)


def official_text(text, scenario=FILES):
    with OfficialEpisode(scenario) as official:
        return official.execute(text)[0]


def check_call_like_text():
    ours, official = texts(FILES, "echo(content='please cd (now)')")
    assert ours == ['{"terminal_output": "please cd (now)"}']
    assert official != ours and "_instance.cd(now)" in official[0]


def check_duplicate_keyword():
    text = "cd(folder='a', folder='b')"
    assert "keyword argument repeated" in official_text(text)
    with pytest.raises(CallError, match="repeated"):
        parse_call(text, FILES)


def check_expressions():
    for text, official in (
        ("cd(folder='docu' + 'ment')", '{"current_working_directory": "document"}'),
        ("[pwd()]", "[{'current_working_directory': '/workspace'}]"),
        ("1 + 1", "2"),
    ):
        assert official_text(text) == official
        with pytest.raises(CallError):
            parse_call(text, FILES)


def check_foreign_names():
    ours, official = texts(FILES, "len('abc')", "json.dumps('a')")
    assert official == ["3", '"a"']
    assert ours == [f"Error during execution: name '{name}' is not defined" for name in ("len", "json")]


def check_names_that_are_not_names():
    ours, official = texts(FILES, make_call("1 or ls", {}), make_call("cd", {"a b": 1}))
    assert official[0] == "1" and "syntax" in official[1]
    assert ours[0].endswith("is not defined") and "unexpected keyword argument 'a b'" in ours[1]


def check_not_a_number():
    ours, official = texts(with_class("MathAPI"), make_call("add", {"a": float("nan"), "b": 1.0}))
    assert official == ["Error during execution: name 'nan' is not defined"]
    assert ours == ['{"result": NaN}']


def check_lone_surrogates():
    for call in (make_call("cd", {"\ud800": 1}), make_call("\ud800", {})):
        ours, official = texts(FILES, call)
        assert "codec can't encode" in official[0]
        assert "\\ud800" in ours[0] and ours[0].encode()


def check_limits():
    ours, official = texts(with_class("MathAPI"), make_call("square_root", {"number": 4, "precision": 1_001}))
    assert official == ["{'result': Decimal('2')}"]
    assert ours == ["Error during execution: precision must be between 1 and 1000"]


def check_withheld_functions():
    scenario = find("multi_turn_miss_func_0")
    ours, official = texts(scenario, "sort('final_report.pdf')")
    assert ours == ["Error during execution: name 'sort' is not defined"]
    assert official[0] != ours[0]
    with Episode(scenario, withheld="official") as episode:
        assert episode.execute(parse_call("sort('final_report.pdf')", scenario)).text == official[0]


def check_turns_without_gold():
    scenario = find("multi_turn_miss_func_0")
    number = next(number for number, turn in enumerate(scenario.turns) if not turn.gold)
    junk = make_call("no_such_function", {})
    turns = tuple((junk,) if at == number else turn.gold for at, turn in enumerate(scenario.turns))
    assert official_check(scenario, turns)
    found, _, verdicts = disagreements(scenario, turns)
    assert not found and not verdicts[number].passed and verdicts[number].passed_official


def check_shared_cards():
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import CREDIT_CARD_EXTENSION

    scenario = with_class("TravelAPI", "multi_turn_long_context")
    card = next(iter(CREDIT_CARD_EXTENSION))
    with OfficialEpisode(scenario, share=True) as one, OfficialEpisode(scenario, share=True) as other:
        assert one._model["TravelAPI"].credit_card_list[card] is other._gold["TravelAPI"].credit_card_list[card]
    with Episode(scenario) as one, Episode(scenario) as other:
        cards = [episode._instances["TravelAPI"].credit_card_list for episode in (one, other)]
        assert cards[0][card] == cards[1][card] and cards[0][card] is not cards[1][card]


def check_shared_tweet_lists():
    scenario = next(
        item
        for item in load_scenarios("multi_turn_base")
        if "TwitterAPI" in item.classes and item.initial_config["TwitterAPI"].get("authenticated")
    )
    post = make_call("post_tweet", {"content": "a"})
    tweet_id = scenario.initial_config["TwitterAPI"]["tweet_counter"]
    mention = make_call("mention", {"tweet_id": tweet_id, "mentioned_usernames": ["@x"]})
    load_class("TwitterAPI").post_tweet.__defaults__ = ([], [])
    with OfficialEpisode(scenario, share=True) as official:
        official.execute(post, mention)
    with OfficialEpisode(scenario, share=True) as official:
        assert '"mentions": ["@x"]' in official.execute(post)[0]
    with Episode(scenario) as episode:
        assert [episode.execute(call).error for call in (post, mention)] == [None, None]
    with Episode(scenario) as episode:
        assert '"mentions": []' in episode.execute(post).text


def check_process_precision():
    import mpmath

    scenario = with_class("MathAPI")
    calls = (
        make_call("logarithm", {"value": 10, "base": 2, "precision": 77}),
        make_call("square_root", {"number": 2, "precision": 66}),
    )
    before = mpmath.mp.dps, decimal.getcontext().prec
    with Episode(scenario) as ours:
        mine = [ours.execute(call).text for call in calls]
    assert (mpmath.mp.dps, decimal.getcontext().prec) == before
    with OfficialEpisode(scenario) as official:
        assert official.execute(*calls) == mine
    assert (mpmath.mp.dps, decimal.getcontext().prec) == (77, 66)


def check_instances_stay():
    mkdir = make_call("mkdir", {"dir_name": "mine"})
    with OfficialEpisode(FILES) as official:
        assert "exists" not in official.execute(mkdir)[0]
        assert "exists" in official.execute(mkdir)[0]  # Whoever comes with the same names goes on with the instance.
    for _ in range(2):
        with Episode(FILES) as episode:
            assert episode.execute(mkdir).error is None


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda item: item.name)
def test_each_deliberate_difference_is_as_described(difference):
    globals()[f"check_{difference.name}"]()


def test_no_difference_is_checked_that_is_not_listed():
    checks = {name.removeprefix("check_") for name in globals() if name.startswith("check_")}
    assert checks == {difference.name for difference in DIFFERENCES}
