"""Lines for the log when a step's episodes look as if something other than learning goes on."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

START = 3
"""Steps whose mean is what turns per episode are compared with."""
CORRELATION, LEAST = "training/rollout_actor_probs_pearson_corr", 0.9
"""verl's, of the probabilities of engine and trainer, and a value far below what rounding explains."""
SCORES = ("critic/score/min", "critic/score/max")
"""verl's names for the lowest and the highest score of a step."""


def not_finite(metrics: Mapping[str, Any]) -> list[str]:
    """An alarm where numbers of the update itself are NaN or infinite."""
    updated = [(name, value) for name, value in metrics.items() if name.startswith(("actor/", "critic/"))]
    names = sorted(name for name, value in updated if isinstance(value, Real) and not math.isfinite(value))[:5]
    return [f"ALARM not finite: {', '.join(names)}; verl skips an update whose gradient is not"] if names else []


class Alarms:
    """Watches the metrics of one launch of a stage.

    Args:
        thresholds: shares above which there is an alarm, by name; `turns`: share of the first
            steps' turns per episode below which there is one.
        rewarded: scores are learned from; a teacher's pupil may earn nothing.
    """

    def __init__(self, thresholds: Mapping[str, float], rewarded: bool = True) -> None:
        self.thresholds, self._rewarded = thresholds, rewarded
        self._turns: list[float] = []

    def __call__(self, metrics: Mapping[str, float]) -> list[str]:
        """The alarms of one step, given its logged metrics; most often none."""
        nothing = self._rewarded and [metrics.get(name) for name in SCORES] == [0, 0]
        alike = metrics.get("train/groups_alike", 0.0) if self._rewarded else 0.0
        well_formed = metrics.get("train/format_rate", 1.0)
        cut, lost = metrics.get("train/stop/max_tokens", 0.0), metrics.get("train/lost_samples", 0.0)
        shares = {
            "malformed": (1 - well_formed, "messages are malformed", "interaction.protocol"),
            "truncated": (cut, "episodes ran out of tokens", "data.max_response_length"),
            "lost": (lost, "samples were lost", "train/failed_rewards, the log"),
            "alike": (alike * (not nothing), "groups have one score for all their rollouts", "rollout.temperature, n"),
        }
        also = ", and nothing was earned" * nothing
        lines = [
            f"{share:.0%} of the {what} (stage.alarms.{name}={self.thresholds[name]}){also}; see {where}"
            for name, (share, what, where) in shares.items()
            if not share <= self.thresholds[name]  # NaN is an alarm, here and below
        ]
        if nothing and not lines:
            protocol = "interaction.protocol; " * (well_formed < 0.9)
            lines.append(
                f"nothing was earned: every sample scored 0. Unless 0 is the best score, see {protocol}a warm start "
                "(bash run_sft.sh), easier tasks, or a reward that pays for progress (pkg://rewards.progress)"
            )
        if not (correlation := metrics.get(CORRELATION, 1.0)) >= LEAST:
            lines.append(
                f"engine and trainer disagree on what was sampled: the correlation of their probabilities is "
                f"{correlation:.3f}, not {LEAST} or more ({CORRELATION}); does the engine get the trainer's weights?"
            )
        if (turns := metrics.get("train/turns")) is not None:
            if len(self._turns) < START:
                self._turns.append(turns)
            elif not turns >= self.thresholds["turns"] * sum(self._turns) / START:
                lines.append(
                    f"{turns:.1f} user turns an episode, {sum(self._turns) / START:.1f} in the first steps "
                    f"(stage.alarms.turns={self.thresholds['turns']}); see train/stop/* for what ends them"
                )
        return [*not_finite(metrics), *(f"ALARM {line}" for line in lines)]
