"""The adaptive coefficient of the KL in the reward, controlled as TRL does it: by the KL of whole episodes.

verl applies the KL and has TRL's controller, but shows it the mean KL *per token*, and does not save it. A target of
6 nats an episode is then never reached, so the coefficient only falls. Here the update gets the KL of an episode, and
the coefficient goes into the checkpoint.

Formula: kl_coef *= 1 + clip(kl / target_kl - 1, -0.2, 0.2) * episodes / horizon (Ziegler et al., arXiv 1909.08593;
TRL 0.10.1, `PPOTrainer.step`), kl the sum over an episode's own tokens, mean over the episodes of a step.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from verl.trainer.ppo.core_algos import AdaptiveKLController, kl_penalty

from recipe.files import read_json, write_atomic
from recipe.stage.state import KL_FILE


class EpisodeKLController(AdaptiveKLController):
    """verl's adaptive controller, which ignores verl's own update; `observe` makes it."""

    def update(self, current_kl: float, n_steps: int) -> None:
        """What verl calls, with the mean KL per token."""

    def observe(self, kl: float, episodes: int) -> None:
        """Adapt the coefficient to a step of so many episodes, given its nats an episode, mean over them."""
        if not math.isnan(kl):  # which would stay in it
            super().update(kl, episodes)

    def save(self, folder: Path) -> None:
        """Write the coefficient of the next step into the folder of a checkpoint."""
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / KL_FILE, json.dumps({"kl_coef": float(self.value)}))

    def load(self, folder: Path) -> bool:
        """Take up the coefficient of a checkpoint. False if it has none: its control was not adaptive."""
        if not (folder / KL_FILE).exists():
            return False
        self.value = read_json(folder / KL_FILE)["kl_coef"]
        return True


def episode_kl(data: Any, estimator: str) -> tuple[float, int]:
    """KL between policy and reference model of the episodes of a step.

    Args:
        data: columns `old_log_probs`, `ref_log_prob` and `response_mask`, (episodes, tokens), jagged or padded.
        estimator: `algorithm.kl_penalty`, by which verl puts the KL into the reward; `kl` is TRL's. On stored
            trajectories `low_var_kl`, which is never negative.

    Returns:
        Nats an episode (sum over the tokens whose mask is 1, mean over episodes) and the number of episodes. verl's
        padding episodes, which have no such token, do not count.
    """
    columns = [data[name] for name in ("old_log_probs", "ref_log_prob", "response_mask")]
    old, reference, mask = (column.to_padded_tensor(padding=0) if column.is_nested else column for column in columns)
    sums = (kl_penalty(old.float(), reference.float(), estimator) * mask).sum(dim=-1)
    real = mask.sum(dim=-1) > 0
    episodes = int(real.sum())
    return (float(torch.where(real, sums, 0.0).sum()) / episodes if episodes else 0.0), episodes
