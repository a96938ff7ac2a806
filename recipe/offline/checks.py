"""Stored trajectories before a start, and what follows from them: which are trained on, and how."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from recipe.credit import is_grouped
from recipe.offline.trajectories import MOST_SHOWN, Limits, survey
from recipe.stage.starts import check_same_rows

N = "actor_rollout_ref.rollout.n"
WHY = {"too_long": "too long", "earlier": "played again after a resume", "silent": "without a token of the model"}


def check_trajectories(config: DictConfig, tokenizer: Any, settings: Any, notes: list[str]) -> Iterator[str]:
    """Every stored trajectory can be trained on, or is counted as left out. Fills in `data.stored`."""
    rollout, model = config.actor_rollout_ref.rollout, str(config.actor_rollout_ref.model.path)
    limits = Limits.of(config)
    known = min(settings.vocab_size, len(tokenizer))  # recipe/gpu/vocabulary.py: no other id has a log-probability
    result = survey([Path(name) for name in config.data.train_files], limits, tokenizer, known)
    counts, grouped = result.counts, is_grouped(config.algorithm)
    if result.mistakes:
        yield f"offline.files: {len(result.mistakes)} mistakes in {counts['read']} trajectories, of which these:"
        yield from result.mistakes[:MOST_SHOWN]
        return
    rows, what = len(result.items(grouped)), "groups" if grouped else "trajectories"
    left = ", ".join(f"{counts[name]} {text}" for name, text in WHY.items() if counts[name])
    left = left and f"; left out: {left}"
    sizes = [len(places) for places in result.groups.values()] if grouped else []
    if sizes and rollout.n != max(sizes):
        yield f"{N}={rollout.n}, and the largest group of offline.files has {max(sizes)}. Set {N} to that."
    if rows < config.data.train_batch_size:
        batch = f"data.train_batch_size={config.data.train_batch_size}"
        yield f"{batch} is more than the {rows} {what} of offline.files that train{left}. Set TRAIN_BATCH_SIZE lower."
    short = f"{counts['shortened']} without their last steps, {counts['steps_dropped']} in all"
    lone = f"{sizes.count(1)} left out, alone in their group"
    said = (short, counts["shortened"]), (lone, sizes.count(1))
    more = "".join(f"; {text}" for text, number in said if number)
    old = {"start": f"{model} in every step", "step": "the policy at the beginning of each step"}
    notes += [
        f"offline: {counts['trained']} of {counts['read']} trajectories, up to {result.longest} tokens{more}{left}",
        f"offline: they are another policy's; old log-probabilities are those of {old[config.offline.old_log_probs]}",
        "offline: nothing is validated by playing; rewards are stored ones, so critic/score/mean does not rise",
    ]
    log_probs, correction = counts["log_probs"] == counts["trained"], config.algorithm.rollout_correction
    if not log_probs and (correction.bypass_mode or correction.rollout_rs):
        yield "offline.files: not all trajectories have log-probabilities. Set bypass_mode=false and rollout_rs=null."
    if not log_probs and correction.rollout_is:
        notes.append(f"offline: rollout_is={correction.rollout_is} is off: not all trajectories have log-probabilities")
        correction.rollout_is = None
    rollout.calculate_log_probs, digest = log_probs, result.digest(grouped)
    check_same_rows(config, rows, digest)
    with open_dict(config):
        config.data.stored = {
            **{"rows": rows, "digest": digest, "limits": asdict(limits), "vocabulary": known},
            **{"grouped": grouped, "log_probs": log_probs},
        }
