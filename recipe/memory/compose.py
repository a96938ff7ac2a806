"""The configuration whose memory is asked for."""

from omegaconf import DictConfig

from recipe.launch.compose import compose


def compose_stage(name: str, overrides: list[str]) -> DictConfig:
    """The configuration of a stage as `recipe.train --config-name NAME` composes it; for GPUs unless said otherwise."""
    profile = [] if any(override.startswith("hardware=") for override in overrides) else ["hardware=gpu8"]
    return compose(name, [*overrides, *profile])
