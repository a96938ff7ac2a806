"""An alarm is raised for what it says, and for nothing else."""

from math import inf, nan

from recipe.training.alarms import CORRELATION, LEAST, Alarms

THRESHOLDS = {"malformed": 0.6, "truncated": 0.25, "lost": 0.05, "alike": 0.95, "turns": 0.5}
GOOD = {"train/format_rate": 0.9, "train/stop/max_tokens": 0.1, "train/lost_samples": 0.0, "train/turns": 4.0}
NOTHING = {"critic/score/min": 0.0, "critic/score/max": 0.0}
POOR = "90% of the messages are malformed (stage.alarms.malformed=0.6), and nothing was earned; see"
UPDATE = {"actor/grad_norm": nan, "critic/loss": inf, "rollout_corr/kl": inf, "actor/why": "nan"}
GRADIENTS = {f"actor/{letter}": nan for letter in "fedcba"}
HOPELESS = "nothing was earned: every sample scored 0. Unless 0 is the best score, see"


def test_a_step_raises_the_alarms_that_its_metrics_ask_for() -> None:
    for changes, expected in (
        ({"train/format_rate": 0.3}, ["70% of the messages are malformed (stage.alarms.malformed=0.6); see"]),
        ({"train/stop/max_tokens": 0.5}, ["50% of the episodes ran out of tokens (stage.alarms.truncated=0.25)"]),
        ({"train/lost_samples": 0.1}, ["10% of the samples were lost"]),
        ({CORRELATION: 0.6}, ["engine and trainer disagree"]),
        ({"train/groups_alike": 1.0}, ["100% of the groups have one score"]),
        ({**NOTHING, "train/groups_alike": 1.0}, [f"{HOPELESS} a warm start"]),
        ({**NOTHING, "train/format_rate": 0.8}, [f"{HOPELESS} interaction.protocol; a warm start"]),
        ({**NOTHING, "train/format_rate": 0.1}, [POOR]),
        ({CORRELATION: nan}, ["engine and trainer disagree"]),
        ({"train/format_rate": nan}, ["nan% of the messages are malformed"]),
        ({"train/lost_samples": nan, "train/stop/max_tokens": nan}, ["nan% of the episodes", "nan% of the samples"]),
        ({"train/groups_alike": nan}, ["nan% of the groups"]),
        (UPDATE, ["not finite: actor/grad_norm, critic/loss; verl skips"]),
        (GRADIENTS, ["not finite: actor/a, actor/b, actor/c, actor/d, actor/e; verl skips"]),
        ({"critic/score/min": -0.1, "critic/score/max": 0.0}, []),
        ({"critic/score/min": 0.0, "critic/score/max": 0.1}, []),
        ({CORRELATION: LEAST, "train/stop/max_tokens": 0.25, "train/format_rate": 0.5, "train/groups_alike": 0.95}, []),
    ):
        found = Alarms(THRESHOLDS)({**GOOD, **changes})
        assert len(found) == len(expected), changes
        assert all(line.startswith(f"ALARM {words}") for line, words in zip(found, expected, strict=True)), found
    assert Alarms(THRESHOLDS)({}) == [], "what is not logged is no alarm"
    unpaid = {**GOOD, **NOTHING, "train/groups_alike": 1.0}
    assert Alarms(THRESHOLDS, rewarded=False)(unpaid) == [], "of a teacher alone"
    # A collapse of turns is measured against the first steps.
    alarms = Alarms(THRESHOLDS)
    assert [alarms({**GOOD, "train/turns": turns}) for turns in (4.0, 3.0, 5.0, 2.0, 4.0)] == [[]] * 5
    (line,) = alarms({**GOOD, "train/turns": 1.9})
    assert line.startswith("ALARM 1.9 user turns an episode, 4.0 in the first steps")
    assert len(alarms({**GOOD, "train/turns": nan})) == 1
