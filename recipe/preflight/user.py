"""Whoever plays the user is there before anything starts, and where a run may ask it."""

import os
from typing import Any

from omegaconf import DictConfig, OmegaConf

from interaction.users import EndpointUser, Replay, UserFault, make_user, require_answer
from recipe import loopback
from recipe.errors import PreflightError


def check_user(config: DictConfig) -> list[str]:
    """The server of a user model says a word; a file gets its whole path, for workers in other folders.

    Returns what is missing here, which is empty unless `preflight_only` is set.

    Raises:
        PreflightError: the server is on another machine and that was not asked for, or it says nothing.
    """
    settings: Any = OmegaConf.to_container(config.interaction.user, resolve=True) if config.interaction.user else None
    user = make_user(settings)
    if isinstance(user, Replay):
        config.interaction.user.file = os.path.abspath(os.path.expanduser(user.file))
    if not isinstance(user, EndpointUser):
        return []
    if not user.local and not user.remote and loopback.environment(config.trainer.nnodes):
        raise PreflightError(
            f"interaction.user.url={user.url} is not on the loopback interface, which a run on one machine does not "
            "leave: conversations would go to that address. Set interaction.user.remote=true if they may, or use a "
            "server at http://127.0.0.1:PORT/v1."
        )
    try:
        require_answer(settings)
    except UserFault as error:
        line = f"interaction.user: {error}"
        if not config.preflight_only:
            raise PreflightError(line) from error
        return [line]
    return []
