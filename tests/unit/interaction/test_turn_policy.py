"""The settings of the turn policy, each in the words of BFCL's evaluation where it is `official`."""

from dataclasses import asdict

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from bfcl_env import Call, Options, load_scenarios
from interaction import Conversation, StopReason, TurnPolicy, get_protocol
from recipe.settings import CONFIG_DIR
from rewards.metrics import episode_metrics

think_xml = get_protocol("think_xml")
ANSWER = think_xml.render_answer("t", "done")
LS = think_xml.render_calls("t", [Call("ls", {})])
MKDIR = think_xml.render_calls("t", [Call("mkdir", {"dir_name": "unasked"})])


@pytest.fixture
def scenario():
    return load_scenarios("multi_turn_base")[0]


def gold(scenario, turn):
    return think_xml.render_calls("t", scenario.turns[turn].gold)


def play(conversation, messages):
    """Returns the last reply; every message is taken."""
    conversation.start()
    for number, text in enumerate(messages, start=1):
        reply = conversation.reply(text)
        assert not reply.done or number == len(messages)
    return reply


def test_official_step_limit_runs_21_steps_and_does_not_judge_an_earlier_turn(scenario):
    with Conversation(
        scenario, think_xml, max_steps_per_turn=21, environments={"bfcl": {"at_step_limit": "official"}}
    ) as conversation:
        reply = play(conversation, [gold(scenario, 0)] + [LS] * 20)
        assert (reply.done, reply.stop_reason) == (True, StopReason.max_steps)
        first = conversation.record().turns[0]
    assert (len(first.steps), first.ended, first.passed, first.facts["passed_official"]) == (21, "cut", False, False)


@pytest.mark.parametrize(("empty_gold", "passed"), [("state", False), ("official", True)])
def test_a_turn_without_gold_that_changed_something_passes_only_by_bfcl(empty_gold, passed):
    scenario = next(
        item
        for item in load_scenarios("multi_turn_miss_param")
        if not item.turns[0].gold and "mkdir" in item.visible(0)
    )
    with Conversation(scenario, think_xml, environments={"bfcl": {"empty_gold": empty_gold}}) as conversation:
        play(conversation, [MKDIR, ANSWER])
        first = conversation.record().turns[0]
    assert (first.passed, first.facts["passed_official"]) == (passed, True)


@pytest.mark.parametrize(("withheld", "error"), [("refused", "withheld_function"), ("official", None)])
def test_a_function_of_a_later_turn_runs_early_only_by_bfcl(withheld, error):
    scenario = load_scenarios("multi_turn_miss_func")[0]
    assert "sort" in scenario.withheld(0)
    sort = think_xml.render_calls(
        "t", [Call("cd", {"folder": "document"}), Call("sort", {"file_name": "final_report.pdf"})]
    )
    with Conversation(scenario, think_xml, environments={"bfcl": {"withheld": withheld}}) as conversation:
        play(conversation, [sort])
        moved, sorted_ = conversation.record().turns[0].steps[0].calls
    assert (moved.error, sorted_.error) == (None, error)


@pytest.mark.parametrize("split", ["train", "val"])
def test_the_base_configuration_names_every_setting_and_changes_no_default(split):
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        config = compose("base")
    settings = OmegaConf.to_container(config.interaction[split])
    assert settings.pop("environments") == {"bfcl": asdict(Options())}
    assert settings | {"environments": {}} == asdict(TurnPolicy())


def test_the_share_of_results_that_were_cut_is_a_metric_and_a_hint_is_no_cut(scenario, monkeypatch):
    error = think_xml.render_calls("t", [Call("cd", {"folder": "nowhere"})])
    pwd = think_xml.render_calls("t", [Call("pwd", {})])
    with Conversation(
        scenario, think_xml, max_result_chars=100, environments={"bfcl": {"augment": True}}
    ) as conversation:
        play(conversation, [error, pwd])
        record = conversation.record().to_dict()
        (hinted,), (plain,) = (step["calls"] for step in record["turns"][0]["steps"])
    assert hinted["hint"] and hinted["shown"] and plain["shown"] is None
    assert episode_metrics(record)["results_cut"] == 0
    with Conversation(scenario, think_xml, max_result_chars=10) as conversation:
        play(conversation, [error, LS, MKDIR])
        record = conversation.record().to_dict()
    calls = [call for step in record["turns"][0]["steps"] for call in step["calls"]]
    assert [len(call["result"]) > 10 for call in calls] == [True, True, False]
    assert episode_metrics(record)["results_cut"] == 2 / 3
