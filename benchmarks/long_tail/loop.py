"""The recipe's agent loop with users of a long tail: before it begins, an episode waits for a log-normal time.

The median of an episode's waiting is LONG_TAIL_MEDIAN seconds (3), its 99th percentile ten times that. It depends on
the task, the rollout and the step at which the prompt was handed out, and on LONG_TAIL_SEED.
"""

import asyncio
import os
import random
from typing import Any

from interaction.agent_loop import BFCLAgentLoop
from interaction.clock import Clock
from interaction.episode_output import EpisodeOutput

SIGMA = 0.98979
"""ln 10 over the 99th percentile of the standard normal distribution, 2.32635."""


def waiting(row: dict[str, Any]) -> float:
    """Seconds for which an episode waits for its user."""
    seed = os.environ.get("LONG_TAIL_SEED", "0")
    draw = random.Random(f"{seed}-{row['global_steps']}-{row['session_id']}-{row['extra_info']['index']}")
    return float(os.environ.get("LONG_TAIL_MEDIAN", "3")) * draw.lognormvariate(0.0, SIGMA)


class LongTailLoop(BFCLAgentLoop):
    """Named in `agent_loops.yaml` of this folder."""

    async def _play(self, sampling_params: dict[str, Any], row: dict[str, Any], clock: Clock) -> EpisodeOutput:
        if row["extra_info"]["split"] == "train":
            with clock.waiting("user"):
                await asyncio.sleep(waiting(row))
        return await super()._play(sampling_params, row, clock)
