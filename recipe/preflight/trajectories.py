"""Checks of stored trajectories before a start, and what follows from them: which are trained on, and how."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from recipe.errors import PreflightError
from recipe.preflight.algorithm import GROUPED
from recipe.preflight.offline import N
from recipe.stage.notes import TrainedOn
from recipe.stage.same_rows import check_same_trajectories
from recipe.trajectories import MOST_SHOWN, Limits, Survey, Vocabulary, survey


def check_trajectories(config: DictConfig, tokenizer: Any, settings: Any) -> list[str]:
    """Every stored trajectory can be trained on, or is counted among those that are left out.

    Args:
        settings: the model's, as `preflight.model.load_settings` returns them.

    Returns:
        Lines for the log: how many there are, what was left out, and in what such a training differs.

    Raises:
        PreflightError: some are wrong, or too few are left.
    """
    limits = Limits.of(config)
    model = str(config.actor_rollout_ref.model.path)
    files = [Path(name) for name in config.data.train_files]
    known = min(settings.vocab_size, len(tokenizer))  # recipe/vocabulary.py: no other id has a log-probability
    result = survey(files, limits, Vocabulary(tokenizer, known, model))
    if result.mistakes:
        listed = "".join(f"\n- {text}" for text in result.mistakes[:MOST_SHOWN])
        more = f", the first {MOST_SHOWN} here" if len(result.mistakes) > MOST_SHOWN else ""
        raise PreflightError(
            f"offline.files: {len(result.mistakes)} mistakes, {result.counts['read']} trajectories read{more}:{listed}"
        )
    grouped = config.algorithm.adv_estimator in GROUPED
    _check_groups(config, result, grouped)
    rows = len(result.items(grouped))
    if rows < config.data.train_batch_size:
        raise PreflightError(
            f"data.train_batch_size={config.data.train_batch_size} is more than the {rows} "
            f"{'groups' if grouped else 'trajectories'} of offline.files that can be trained on{_left_out(result)}: no "
            "step would be made. Set TRAIN_BATCH_SIZE to that or less, or name more files."
        )
    log_probs = result.counts["log_probs"] == result.counts["trained"]
    notes = _notes(config, result, log_probs)
    config.actor_rollout_ref.rollout.calculate_log_probs = log_probs
    digest = result.digest(grouped)
    check_same_trajectories(config, TrainedOn(rows, digest))
    with open_dict(config):
        config.data.stored = {
            "rows": rows,
            "digest": digest,
            "limits": asdict(limits),
            "vocabulary": known,
            "model": model,
            "grouped": grouped,
            "log_probs": log_probs,
        }
    return [_line(config, result, rows, grouped), *(f"NOTE       {note}" for note in notes)]


def _check_groups(config: DictConfig, result: Survey, grouped: bool) -> None:
    n, name, largest = config.actor_rollout_ref.rollout.n, config.algorithm.adv_estimator, result.largest_group
    if not grouped or not result.groups:
        return
    if largest < 2:
        raise PreflightError(
            f"algorithm.adv_estimator={name} compares the trajectories of a group, and in offline.files none has a "
            f"second one. Take algorithm=step_grained (or tppo, appo) with {N}=1, or files with several rollouts of "
            "each task."
        )
    if n != largest:
        raise PreflightError(
            f"{N}={n}, and the largest group of offline.files has {largest} trajectories: mini-batches are counted in "
            f"groups of that many. Set {N}={largest}."
        )


def _left_out(result: Survey) -> str:
    """How many of the trajectories are not trained on, and why; empty if all are."""
    why = {
        "too_long": "too long for data.max_prompt_length, data.max_response_length, rollout.max_model_len or "
        "interaction.max_tokens_per_reply",
        "earlier": "played again after a resume",
        "silent": "without a token of the model",
    }
    parts = [f"{result.counts[name]} {text}" for name, text in why.items() if result.counts[name]]
    return f"; left out: {', '.join(parts)}" if parts else ""


def _line(config: DictConfig, result: Survey, rows: int, grouped: bool) -> str:
    counts = result.counts
    text = f"offline: {counts['trained']} of {counts['read']} trajectories in {len(config.data.train_files)} files"
    if grouped:
        text += f", {rows} groups of up to {result.largest_group}"
        text += f" ({result.lone} that are alone in their group are left out)" if result.lone else ""
    text += f", the longest {result.longest} tokens"
    if counts["shortened"]:
        text += f"; {counts['shortened']} of them without their last steps, {counts['steps_dropped']} in all"
    return text + _left_out(result)


def _notes(config: DictConfig, result: Survey, log_probs: bool) -> list[str]:
    """In what such a training differs from one that plays. Switches off what needs log-probabilities not stored."""
    correction = config.algorithm.rollout_correction
    model = config.actor_rollout_ref.model.path
    old = {
        "start": f"{model}, in every step: the clip bounds how far the policy goes from it",
        "step": "the policy at the beginning of each step: the clip bounds how far a step goes, and not how far the "
        "policy is from the data",
    }
    notes = [
        "offline: the trajectories are another policy's, or an earlier one's. Old log-probabilities are those of "
        f"{old[config.offline.old_log_probs]}; the KL, where there is one, is that to {model}",
        "offline: nothing is validated by playing; recipe.evaluate plays with the exported model. Rewards are stored "
        "ones, so critic/score/mean is that of the data and does not rise",
    ]
    missing = result.counts["trained"] - result.counts["log_probs"]
    if log_probs:
        used = "weight each token by its ratio" if correction.rollout_is else "are compared with the trainer's only"
        return [*notes, f"offline: the log-probabilities of the policy that sampled were stored, and {used}"]
    if correction.bypass_mode or correction.rollout_rs:
        raise PreflightError(
            f"algorithm.rollout_correction.bypass_mode={correction.bypass_mode}, rollout_rs={correction.rollout_rs} "
            f"need the log-probabilities of the policy that sampled, and {missing} of {result.counts['trained']} "
            "trajectories have none. Set bypass_mode=false and rollout_rs=null."
        )
    if correction.rollout_is:
        notes.append(
            f"offline: algorithm.rollout_correction.rollout_is={correction.rollout_is} is switched off: {missing} of "
            f"{result.counts['trained']} trajectories have no log-probabilities of the policy that sampled"
        )
        correction.rollout_is = None
    return notes
