"""The configurations whose memory is asked for."""

from collections.abc import Sequence

from omegaconf import DictConfig

from recipe.errors import PreflightError
from recipe.memory.advice import shortfalls
from recipe.memory.architecture import Architecture
from recipe.memory.settings import Settings, read_settings
from recipe.settings import CONFIG_DIR, compose

GROUP = "hardware="


def compose_stage(name: str, overrides: Sequence[str]) -> DictConfig:
    """The configuration of a stage as `recipe.train --config-name NAME` composes it; for GPUs unless said otherwise."""
    profile = [] if any(override.startswith(GROUP) for override in overrides) else [f"{GROUP}gpu8"]
    return compose(name, [*overrides, *profile])


def fitting_profile(name: str, overrides: Sequence[str], model: Architecture, settings: Settings) -> str | None:
    """Another hardware profile with which the stage fits the same cards and trains the same parameters, if one does.

    Args:
        settings: those of the stage with its own profile.
    """
    own = [override for override in overrides if not override.startswith(GROUP)]
    for profile in sorted(path.stem for path in (CONFIG_DIR / "hardware").glob("*.yaml")):
        try:
            config = compose_stage(name, [*own, f"{GROUP}{profile}"])
        except PreflightError:  # an override that this profile has no place for
            continue
        if config.trainer.device != "cuda":
            continue
        tried = read_settings(config, settings.card)
        same = (tried.gpus, tried.nodes, tried.lora_rank) == (settings.gpus, settings.nodes, settings.lora_rank)
        if same and not shortfalls(model, tried):
            return profile
    return None
