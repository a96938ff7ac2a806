"""Environments of bfcl-grpo, installable by themselves. As a plug-in of verifiers this is also its taskset."""

from typing import Any

__all__ = ["ConversationEnv", "ConversationTaskset"]  # noqa: F822 (__getattr__ has them)
"""What verifiers looks for in the package that `--env.taskset.id` names; nobody else needs it."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from adapters import verifiers  # here, because nothing else wants the library

    return getattr(verifiers, name)
