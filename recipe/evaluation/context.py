"""Which of an evaluation's tasks the model's context cannot hold, said before a server is started."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from recipe.evaluation.server import context_length
from recipe.evaluation.store import Settings


def over_budget_line(model: Path, vllm_flags: Sequence[str], settings: Settings) -> str | None:
    """What accuracy the model's context allows at most; None where all tasks fit, or where it cannot be known."""
    from jinja2 import TemplateError

    from recipe.errors import PreflightError
    from recipe.preflight.gold_tokens import Budget, Lengths, over_budget
    from recipe.preflight.model import load_tokenizer

    if (context := context_length(model, vllm_flags)) is None:
        return None
    tasks = list({task.id: task for task, _ in settings.tasks()}.values())
    budget = Budget(context=context, reply=settings.max_tokens)
    try:
        lengths = Lengths(load_tokenizer(str(model)))
        over = over_budget(tasks, settings.conversation, lengths, budget)
    except (PreflightError, TemplateError) as error:  # the server may be told of another tokenizer or template
        return f"over budget: not counted, {error}"
    if not over:
        return None
    where = Counter(task.category.removeprefix("multi_turn_") for task in tasks if task.id in over)
    return (
        f"over budget: gold of {len(over)} of {len(tasks)} tasks "
        f"({', '.join(f'{number} of {name}' for name, number in where.items())}) does not fit the context of {context} "
        f"tokens: accuracy can reach {1 - len(over) / len(tasks):.3f} at most. A longer one, where the model has "
        "it: -- --max-model-len N"
    )
