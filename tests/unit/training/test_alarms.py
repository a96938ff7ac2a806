"""An alarm is raised for what it says, and for nothing else."""

import pytest

from recipe.training.alarms import Alarms, none

THRESHOLDS = {"malformed": 0.6, "truncated": 0.25, "lost": 0.05, "alike": 0.95, "turns": 0.5}
GOOD = {"train/format_rate": 0.9, "train/stop/max_tokens": 0.1, "train/lost_samples": 0.0, "train/turns": 4.0}


def test_ordinary_steps_raise_none():
    alarms = Alarms(THRESHOLDS)
    assert [alarms({**GOOD, "train/turns": turns}) for turns in (4.0, 3.0, 5.0, 2.1, 4.0)] == [[]] * 5


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("train/format_rate", 0.3, "ALARM 70% of the messages are malformed (stage.alarms.malformed=0.6)"),
        ("train/stop/max_tokens", 0.5, "ALARM 50% of the episodes ran out of tokens (stage.alarms.truncated=0.25)"),
        ("train/lost_samples", 0.1, "ALARM 10% of the samples were lost"),
        ("training/rollout_actor_probs_pearson_corr", 0.6, "ALARM engine and trainer disagree"),
        ("train/groups_alike", 1.0, "ALARM 100% of the groups have one score"),
    ],
)
def test_a_share_above_its_threshold_is_named_with_the_setting(name, value, said):
    (line,) = Alarms(THRESHOLDS)({**GOOD, name: value})
    assert line.startswith(said)


def test_a_collapse_of_turns_is_measured_against_the_first_steps():
    alarms = Alarms(THRESHOLDS)
    for _ in range(3):
        assert alarms(GOOD) == []
    (line,) = alarms({**GOOD, "train/turns": 1.9})
    assert line.startswith("ALARM 1.9 user turns an episode, 4.0 in the first steps")


NOTHING = {"critic/score/min": 0.0, "critic/score/max": 0.0}


@pytest.mark.parametrize("well_formed", [1.0, 0.95, 0.9])
def test_where_messages_are_well_formed_and_nothing_is_earned_the_protocol_is_not_blamed(well_formed):
    (line,) = Alarms(THRESHOLDS)({**GOOD, **NOTHING, "train/format_rate": well_formed})
    assert line.startswith(f"ALARM nothing was earned: every sample scored 0, with {well_formed:.0%} of the messages")
    assert "interaction.protocol" not in line
    assert all(way in line for way in ("warm start", "easier tasks", "pays for progress"))


def test_where_many_messages_are_malformed_below_the_threshold_the_protocol_is_named_too():
    (line,) = Alarms(THRESHOLDS)({**GOOD, **NOTHING, "train/format_rate": 0.41})
    assert "with 41% of the messages well-formed" in line and "see interaction.protocol; a warm start" in line


def test_where_another_alarm_says_why_nothing_was_earned_there_is_no_second_one():
    (line,) = Alarms(THRESHOLDS)({**GOOD, **NOTHING, "train/stop/max_tokens": 1.0})
    assert "episodes ran out of tokens (stage.alarms.truncated=0.25), and nothing was earned; see data.max_resp" in line


def test_where_messages_are_malformed_and_nothing_is_earned_it_is_the_protocol():
    (line,) = Alarms(THRESHOLDS)({**GOOD, **NOTHING, "train/format_rate": 0.1})
    assert line.startswith(
        "ALARM 90% of the messages are malformed (stage.alarms.malformed=0.6), and nothing was earned"
    )
    assert line.endswith("see interaction.protocol")


def test_a_reward_without_metrics_of_its_own_is_told_that_nothing_was_earned():
    (line,) = Alarms(THRESHOLDS)(NOTHING)
    assert line.startswith("ALARM nothing was earned: every sample scored 0. Unless 0 is the best score, see a warm")


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.1), (-0.1, 0.0), (1.0, 1.0), (-0.5, -0.5)])
def test_samples_that_differ_or_are_not_zero_have_earned_something_or_lost_it(low, high):
    assert Alarms(THRESHOLDS)({**GOOD, "critic/score/min": low, "critic/score/max": high}) == []


def test_what_was_played_long_ago_raises_none():
    assert none({**NOTHING, "train/format_rate": 0.0}) == []


def test_a_step_without_these_metrics_raises_none():
    assert Alarms(THRESHOLDS)({"critic/score/mean": 1.0}) == []
