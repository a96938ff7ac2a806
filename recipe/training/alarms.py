"""Lines for the log when a step's episodes look as if something other than learning goes on."""

from collections.abc import Mapping

START = 3
"""Steps whose mean is what turns per episode are compared with."""


class Alarms:
    """Watches the metrics of one launch of a stage.

    Args:
        thresholds: `malformed`, `truncated`, `lost`: shares above which there is an alarm; `turns`: share of the first
            steps' turns per episode below which there is one.
    """

    def __init__(self, thresholds: Mapping[str, float]) -> None:
        self.thresholds = thresholds
        self._turns: list[float] = []

    def __call__(self, metrics: Mapping[str, float]) -> list[str]:
        """The alarms of one step, given its logged metrics; most often none."""
        shares = {
            "malformed": (1 - metrics.get("train/format_rate", 1.0), "messages are malformed", "interaction.protocol"),
            "truncated": (
                metrics.get("train/stop/max_tokens", 0.0),
                "episodes ran out of tokens",
                "data.max_response_length, interaction.train.max_result_chars",
            ),
            "lost": (metrics.get("train/lost_samples", 0.0), "samples were lost", "train/failed_rewards, the log"),
        }
        lines = [
            f"ALARM {share:.0%} of the {what} (stage.alarms.{name}={self.thresholds[name]}); see {where}"
            for name, (share, what, where) in shares.items()
            if share > self.thresholds[name]
        ]
        turns = metrics.get("train/turns")
        if turns is None:
            return lines
        if len(self._turns) < START:
            self._turns.append(turns)
        elif turns < self.thresholds["turns"] * sum(self._turns) / START:
            lines.append(
                f"ALARM {turns:.1f} user turns an episode, {sum(self._turns) / START:.1f} in the first steps "
                f"(stage.alarms.turns={self.thresholds['turns']}); see train/stop/* for what ends them"
            )
        return lines
