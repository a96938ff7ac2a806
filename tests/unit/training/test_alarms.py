"""An alarm is raised for what it says, and for nothing else."""

from math import inf, nan

from recipe.training.alarms import Alarms

THRESHOLDS = {"malformed": 0.6, "truncated": 0.25, "lost": 0.05, "alike": 0.95, "turns": 0.5}
GOOD = {"train/format_rate": 0.9, "train/stop/max_tokens": 0.1, "train/lost_samples": 0.0, "train/turns": 4.0}
NOTHING = {"critic/score/min": 0.0, "critic/score/max": 0.0}
RAISED = [
    ({"train/format_rate": 0.3}, ["70% of the messages are malformed (stage.alarms.malformed=0.6)"]),
    ({"train/stop/max_tokens": 0.5}, ["50% of the episodes ran out of tokens (stage.alarms.truncated=0.25)"]),
    ({"train/lost_samples": 0.1}, ["10% of the samples were lost"]),
    ({"training/rollout_actor_probs_pearson_corr": 0.6}, ["engine and trainer disagree"]),
    ({"train/groups_alike": 1.0}, ["100% of the groups have one score"]),
    (NOTHING, ["nothing was earned"]),
    ({**NOTHING, "train/format_rate": 0.1}, ["90% of the messages are malformed"]),
    ({"training/rollout_actor_probs_pearson_corr": nan}, ["engine and trainer disagree"]),
    ({"train/format_rate": nan}, ["nan% of the messages are malformed"]),
    ({"train/lost_samples": nan, "train/stop/max_tokens": nan}, ["nan% of the episodes ran", "nan% of the samples"]),
    ({"train/groups_alike": nan}, ["nan% of the groups"]),
    (
        {"actor/grad_norm": nan, "actor/pg_loss": inf, "rollout_corr/kl": inf},
        ["not finite: actor/grad_norm, actor/pg_loss"],
    ),
    ({"critic/score/min": -0.1, "critic/score/max": 0.0}, []),
    ({}, []),
]


def test_a_step_raises_the_alarms_that_its_metrics_ask_for() -> None:
    for changes, expected in RAISED:
        found = Alarms(THRESHOLDS)({**GOOD, **changes})
        assert len(found) == len(expected), changes
        assert all(line.startswith(f"ALARM {words}") for line, words in zip(found, expected, strict=True)), found
    # A collapse of turns is measured against the first steps.
    alarms = Alarms(THRESHOLDS)
    assert [alarms({**GOOD, "train/turns": turns}) for turns in (4.0, 3.0, 5.0, 2.1, 4.0)] == [[]] * 5
    (line,) = alarms({**GOOD, "train/turns": 1.9})
    assert line.startswith("ALARM 1.9 user turns an episode, 4.0 in the first steps")
    assert len(alarms({**GOOD, "train/turns": nan})) == 1
