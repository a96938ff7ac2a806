"""Which of an evaluation's tasks the model's context cannot hold, said before a server is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from interaction.environment import Task
from interaction.gold import opening
from interaction.protocol import DOC_STYLES, get_protocol
from interaction.words import line_of
from recipe.evaluation.server import ServerError, context_length, flag_of
from recipe.evaluation.store import Settings

OTHERS = ("--max-m", "--to", "--ch", "--hf", "--conf", "--ro")
"""Beginnings of vLLM's flags, which may be shortened, by which a prompt may have other tokens, or the context another
length, than the model's folder says."""


def check_context(model: Path, vllm_flags: Sequence[str], settings: Settings) -> None:
    """The model's context holds the prompt of one task at least; what cannot be counted is taken to fit.

    Raises:
        ServerError: it holds none. Nothing was written or started.
    """
    context = context_length(model, vllm_flags)
    tasks = _tasks(settings)
    if context is None or not tasks or any(map(_says_otherwise, vllm_flags)):
        return
    try:
        lengths = _lengths(model)
        if any(tokens < context for tokens in _prompts(tasks, settings, lengths)):
            return
        shortest = min(_prompts(tasks, settings, lengths))
        others = {docs: replace(settings, docs=docs) for docs in DOC_STYLES if docs != settings.docs}
        fit = {
            docs: sum(tokens < context for tokens in _prompts(tasks, other, lengths)) for docs, other in others.items()
        }
    except Exception:  # a template may raise anything; what vLLM makes of it, it says itself
        return
    ways = [f"--docs {docs} ({number} of {len(tasks)} fit then)" for docs, number in fit.items() if number]
    given = "--max-model-len" if flag_of(vllm_flags, "--max-model-len") else "max_position_embeddings in config.json"
    ways += ["a longer context (-- --max-model-len N, where the model has it)", "another --category or another model"]
    choices = f"{', '.join(ways[:-1])} or {ways[-1]}"
    raise ServerError(
        f"the context of {context} tokens ({given}) holds the prompt of none of the {len(tasks)} tasks: the shortest "
        f"has {shortest} tokens, with --docs {settings.docs}. Every episode would be lost. Choose {choices}."
    )


def over_budget_line(model: Path, vllm_flags: Sequence[str], settings: Settings) -> str | None:
    """What accuracy the model's context and `--max-tokens` allow at most, a line for each; None where all tasks fit, or
    where it cannot be known.

    A last line says how many have a prompt that does not fit: their episodes will be lost.
    """
    from recipe.errors import PreflightError
    from recipe.preflight.gold_tokens import Budget, over_budget, reply_needed

    if (context := context_length(model, vllm_flags)) is None:
        return None
    tasks, reply = _tasks(settings), settings.max_tokens
    budget = Budget(context=context)
    try:
        lengths = _lengths(model)
        over = over_budget(tasks, settings.conversation, lengths, replace(budget, reply=reply))
        failing = [task for task in tasks if task.id in over]
        without = over if reply is None else over_budget(failing, settings.conversation, lengths, budget)
        by_context = [task for task in failing if task.id in without]
        by_reply = [task for task in failing if task.id not in without]
        needed = reply_needed(by_reply, settings.conversation, lengths, budget)
        long = sum(tokens >= context for tokens in _prompts(tasks, settings, lengths, least=context))
    except Exception as error:  # a template may raise anything; the server may be told of another one
        return f"over budget: not counted, {error if isinstance(error, PreflightError) else line_of(error)}"
    reach = f"accuracy can reach {1 - len(over) / len(tasks):.3f} at most" if tasks else ""
    lines = []
    if by_context:
        lines.append(
            f"over budget: gold of {_share(by_context, tasks)} does not fit the context of {context} tokens: {reach}. "
            "A longer one, where the model has it: -- --max-model-len N"
        )
    if by_reply:
        lines.append(
            f"over budget: gold of {_share(by_reply, tasks)} does not fit messages of {reply} tokens (--max-tokens): "
            f"{reach}. With a short thought in each it fits --max-tokens {needed}"
        )
    if long:
        shorter = ", or shorter descriptions (--docs signature)" * (settings.docs != "signature")
        lines.append(
            f"NOTE the prompt alone of {long} of {len(tasks)} tasks does not fit the context: their episodes will be "
            f"lost, and are in no number. Give a longer one{shorter}"
        )
    return "\n".join(lines) or None


def _says_otherwise(flag: str) -> bool:
    name = flag.partition("=")[0].replace("_", "-")
    return name != "--max-model-len" and name.startswith(OTHERS)


def _share(some: Sequence[Task], tasks: Sequence[Task]) -> str:
    """How many of the tasks these are, and of which categories."""
    where = Counter(task.category.removeprefix("multi_turn_") for task in some)
    return f"{len(some)} of {len(tasks)} tasks ({', '.join(f'{number} of {name}' for name, number in where.items())})"


def _tasks(settings: Settings) -> list[Task]:
    return list({task.id: task for task, _ in settings.tasks()}.values())


def _lengths(model: Path) -> Any:
    from recipe.preflight.gold_tokens import Lengths
    from recipe.preflight.model import load_tokenizer

    return Lengths(load_tokenizer(str(model)))


def _prompts(tasks: Sequence[Task], settings: Settings, lengths: Any, least: int = 0) -> Iterator[int]:
    """The tokens of each task's first request; 0 where the environment has none, and where its bytes are so few that
    they are fewer than `least`."""
    from recipe.preflight.gold_tokens import TEMPLATE

    protocol = get_protocol(settings.protocol, docs=settings.docs)  # type: ignore[arg-type]
    rules = {**settings.turn_policy(), "environments": {settings.environment: settings.rules()}}
    for task in tasks:
        messages = opening(task, protocol, **rules)
        few = lengths.most([message["content"] for message in messages]) + TEMPLATE < least
        yield 0 if few or not messages else lengths.prompt(messages)
