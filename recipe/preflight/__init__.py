"""Checks before any worker starts. Each function of this room yields problems: what is wrong, and what to set.

Here they are joined, and raised together as one PreflightError. transformers is imported once the rest has passed.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction import get_protocol
from recipe.cpu import precision
from recipe.files import PreflightError
from recipe.machine import loopback
from recipe.memory import known_model, teacher_cards
from recipe.settings import is_offline, on_policy, unread
from recipe.stage import end, starts


def require(*checks: Iterable[str]) -> None:
    """Run checks, and raise a PreflightError that names all problems, if there are any."""
    if found := problems(*checks):
        raise PreflightError(found[0] if len(found) == 1 else "".join(f"\n- {text}" for text in found))


def problems(*checks: Iterable[str]) -> list[str]:
    """What checks yield, or raise."""
    found = list[str]()
    for check in checks:
        try:
            found += check
        except PreflightError as error:
            found.append(str(error))
    return found


def check_settings(config: DictConfig) -> None:
    """What needs neither data nor model nor machine; fills in what follows from other settings."""
    from recipe.preflight import data, settings

    require(settings.problems(config), data.environments(config), end.problems(config))
    for line in settings.fill_in(config):
        print(f"NOTE       {line}", flush=True)


def check(config: DictConfig, alone: bool) -> list[str]:
    """Data, start model, reward, user, machine; that weights, tokenizer, template, protocol and lengths fit each other.

    After `check_settings`. Fills in the start model and the number format.

    Args:
        alone: no cluster is joined, so this machine is the one that has to do.

    Returns what this machine lacks (GPUs, memory, disk, a server that plays the user): with `preflight_only` that does
    not stop the other checks.
    """
    from recipe.offline.checks import check_trajectories
    from recipe.preflight import data, machine, model, settings, teacher, tokens

    notes, lines, plays, read = list[str](), list[str](), not is_offline(config), dict[str, list[dict[str, Any]]]()
    require(data.rows(config, notes, read) if plays else (), model.start(config, notes), teacher.start(config))
    known = known_model(config)
    settings.fit_bucket(config, known)
    lacks = problems(data.user(config) if plays else (), machine.lacks(config, known, lines, alone))
    tried = data.own_code(config), data.reward(config, notes, read) if plays else ()
    unfit = problems(*tried, machine.gpu_memory(config, known, lines))
    require(unfit, () if config.preflight_only else lacks)
    starts.check_same_start(config)
    print(*(f"NOTE       {line}" for line in notes), *lines, sep="\n", flush=True)

    with starts.writing(config):
        precision.settle(config, Path(config.paths.run), write=not config.preflight_only)
    require(settings.precision(config))  # of what was measured
    path, fits = str(config.actor_rollout_ref.model.path), list[str]()
    shape, tokenizer = model.load_settings(path), model.load_tokenizer(path)
    require(model.context(config, shape), model.weights(path), model.vocabulary(tokenizer, shape))
    if plays:
        protocol = get_protocol(config.interaction.protocol, docs=config.interaction.docs)
        kwargs = config.data.get("apply_chat_template_kwargs") or {}
        given = bool(config.interaction.train.get("from_gold"))
        require(model.protocol(tokenizer, protocol), model.template(tokenizer, protocol, kwargs, fits, given))
        require(tokens.check_budget(config, tokenizer, protocol, read, fits))
        require(teacher.fits(config, tokenizer, shape, kwargs, fits))
    else:
        require(check_trajectories(config, tokenizer, shape, fits))
    machine.check_attention(config, shape, fits, alone)
    print(*fits, sep="\n", flush=True)
    return lacks


def summary(config: DictConfig, overrides: list[str]) -> str:
    """What will be used, a few lines for the log, and what may be worth a look."""
    from recipe.preflight import teacher
    from recipe.preflight.settings import notes, playing_devices

    actor, rollout, algorithm = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout, config.algorithm
    data, trainer, offline = config.data, config.trainer, is_offline(config)
    model, left_out, steps = config.actor_rollout_ref.model, data.get("leave_out"), trainer.total_training_steps
    clip = f"clip {actor.clip_ratio_low} to {actor.clip_ratio_high}"
    clip += " (inert with one update a step: see MINI_BATCH_SIZE)" * on_policy(config)
    measured = config.launcher.get("measured")
    rows = f"{data.train_batch_size} rows x {rollout.n} rollouts a step"
    rows += f", {len(left_out or ())} tasks left out" * bool(left_out)
    filtering = f", dynamic sampling by {algorithm.filter_groups.metric}" * bool(algorithm.filter_groups.enable)
    end = f"{trainer.total_epochs} epochs" + f", at most {steps} steps" * (steps is not None)
    distilled = config.distillation.enabled and (
        f"from {OmegaConf.select(config, teacher.PATH)}, {config.distillation.distillation_loss.loss_mode}"
        + (", beside the reward" if config.distillation.distillation_loss.use_task_rewards else ", without the reward")
    )
    lines = {
        "stage": config.stage.name,
        "model": f"{model.path}{f' with the adapter {model.lora_adapter_path}' * bool(model.lora_adapter_path)}",
        "data": f"{config.offline.files if offline else data.train_files}, {rows}",
        "reward": "as stored" if offline else config.reward.custom_reward_function.path,
        "algorithm": f"{algorithm.adv_estimator}{filtering}, loss {actor.policy_loss.loss_mode} {actor.loss_agg_mode}, "
        + clip,
        **({"distilled": distilled} if distilled else {}),
        "learning": f"lr {actor.optim.lr}, temperature {rollout.temperature}, {end}",
        "hardware": f"{trainer.nnodes} x {trainer.n_gpus_per_node} x {trainer.device}"
        + f", {playing_devices(config)} more to play" * bool(playing_devices(config))
        + f", {teacher_cards(config)} more for the teacher" * bool(teacher_cards(config))
        + f", {rollout.dtype} ({measured})" * bool(measured),
        "output": config.paths.stage,
        "watch": f"tensorboard --logdir {config.paths.run}",
    }
    notable = *notes(config), *loopback.notes(trainer.nnodes), *unread(config, overrides)
    found = [("NOTE", note) for note in notable]
    return "\n".join(f"{name:<11}{text}" for name, text in (*lines.items(), *found))
