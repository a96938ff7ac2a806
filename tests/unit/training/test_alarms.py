"""An alarm is raised for what it says, and for nothing else."""

import pytest

from recipe.training.alarms import Alarms

THRESHOLDS = {"malformed": 0.6, "truncated": 0.25, "lost": 0.05, "turns": 0.5}
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


def test_a_step_without_these_metrics_raises_none():
    assert Alarms(THRESHOLDS)({"critic/score/mean": 1.0}) == []
