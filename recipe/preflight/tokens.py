"""Which tasks gold itself cannot finish within the tokens that an episode has: no model can pass those.

Gold is played as briefly as the protocol allows, under the turn policy that is given, and its messages and results are
counted with the model's tokenizer. A text is tokenized only where its bytes do not settle the matter: it never has
more tokens than bytes, and nearly all tasks have fewer bytes than the budget has tokens. Evaluation uses this too.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import Conversation, StopReason
from interaction.call import Call
from interaction.environment import Task, UserWords, load_tasks, task_key_of, task_name
from interaction.gold import hear_gold
from interaction.plain_text import PlainText
from interaction.protocol import Message, Protocol
from recipe.preflight.data import parquet_rows
from recipe.settings import as_list
from recipe.stage.starts import check_same_rows

THOUGHT = "I call what this takes."
"""What gold thinks before each message: a short sentence, as no model leaves it out."""
LIMITS = (StopReason.max_steps, StopReason.max_tokens, StopReason.format_errors)
TEMPLATE = 256
"""No chat template writes more tokens than this around the first two messages."""


@dataclass(frozen=True)
class Budget:
    """The tokens that an episode has; None: no such limit."""

    context: int | None = None
    """Prompt and response together."""
    response: int | None = None
    """All after the prompt: what the model writes and what it reads."""
    reply: int | None = None
    """One message of the model."""


class Lengths:
    """Counts the tokens of messages with one tokenizer; what its template writes around a message is counted once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._plain = tokenizer, PlainText.of(tokenizer)
        turn = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
        self._around = (self._templated(turn * 2) - self._templated(turn) + 1) // 2

    def _templated(self, messages: list[Message], prompt: bool = False) -> int:
        return len(self._tokenizer.apply_chat_template(messages, add_generation_prompt=prompt, return_dict=False))

    def prompt(self, messages: list[Message]) -> int:
        """Tokens of the messages that an episode begins with."""
        return self._templated(self._plain.messages(messages), prompt=True)

    def of(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(self._plain(text), add_special_tokens=False))

    def most(self, texts: list[str]) -> int:
        """What these messages cannot have more tokens than, without tokenizing them."""
        return self._around * len(texts) + sum(len(self._plain(text).encode()) for text in texts)

    def response(self, texts: list[str], limit: int) -> int:
        """Tokens of all later messages with what stands around them; counted until they are more than `limit`."""
        if (most := self.most(texts)) <= limit:
            return most
        found = self._around * len(texts)
        for text in texts:
            if found > limit:
                break
            found += self.of(text)
        return found


def over_budget(
    tasks: Iterable[Task], open_conversation: Callable[[Task], Conversation], lengths: Lengths, budget: Budget
) -> list[str]:
    """Ids of the tasks that gold cannot finish within `budget` and the conversation's own limits, in their order.

    Of a task without gold nothing is known, and it is none of them.

    Args:
        open_conversation: an unstarted conversation, with the turn policy that episodes will have.
    """
    return [task.id for task in tasks if not _fits(task, open_conversation(task), lengths, budget)]


def _fits(task: Task, conversation: Conversation, lengths: Lengths, budget: Budget) -> bool:
    with conversation:
        opening, texts = _play(task, conversation, lengths, budget)
        if texts and conversation.stop_reason in (None, *LIMITS):
            return False
    if budget.response is not None and lengths.response(texts, budget.response) > budget.response:
        return False
    if budget.context is None:
        return True
    if lengths.most([*(message["content"] for message in opening), *texts]) <= budget.context - TEMPLATE:
        return True
    left = budget.context - lengths.prompt(opening)
    return lengths.response(texts, left) <= left


def _play(task: Task, conversation: Conversation, lengths: Lengths, budget: Budget) -> tuple[list[Message], list[str]]:
    """The opening messages, and all texts after them, until the conversation is done."""
    protocol, reply = conversation.protocol, conversation.begin()
    opening, texts = reply.messages, list[str]()
    for item in task.gold():
        if conversation.stop_reason is StopReason.environment_error:
            break
        if isinstance(item, UserWords):
            reply = hear_gold(conversation, item.text)
            texts += [message["content"] for message in reply.messages] if opening else []
            opening = opening or reply.messages
            continue
        calls = _calls(item.calls, protocol, lengths, budget)
        for message in calls or [protocol.render_answer(THOUGHT, item.answer)]:
            reply = conversation.reply(message, truncated=not _short_enough(message, lengths, budget))
            texts += [message, *(said["content"] for said in reply.messages)]
            if reply.done:
                return opening, texts
    return opening, texts


def _calls(calls: tuple[Call, ...], protocol: Protocol, lengths: Lengths, budget: Budget) -> list[str]:
    """The calls in as few messages as the limit of one message allows."""
    messages: list[tuple[Call, ...]] = []
    for call in calls:
        longer = (*messages[-1], call) if messages else (call,)
        if messages and _short_enough(protocol.render_calls(THOUGHT, longer), lengths, budget):
            messages[-1] = longer
        else:
            messages.append((call,))
    return [protocol.render_calls(THOUGHT, part) for part in messages]


def _short_enough(text: str, lengths: Lengths, budget: Budget) -> bool:
    """Whether a message fits `budget.reply` together with the token that ends it."""
    return budget.reply is None or len(text.encode()) < budget.reply or lengths.of(text) < budget.reply


def check_budget(config: DictConfig, tokenizer: Any, protocol: Protocol, notes: list[str]) -> Iterator[str]:
    """A note for each file with tasks that gold cannot finish; `stage.over_budget=leave_out` does not train on them.

    Their first turns still teach, so by default they stay. Rows of the validation are never left out: an accuracy over
    fewer tasks is another number. verl gets the tasks in `data.leave_out`, as environment/id or BFCL's id alone.
    """
    data, interaction, context = config.data, config.interaction, config.actor_rollout_ref.rollout.max_model_len
    lengths = Lengths(tokenizer)
    budget = Budget(context, data.max_response_length, interaction.max_tokens_per_reply)
    limits = f"max_model_len={context}, max_response_length={budget.response}, max_tokens_per_reply={budget.reply}"

    @cache
    def fits(environment: str, task_id: str, split: str) -> bool:
        policy: Any = OmegaConf.to_container(interaction[split], resolve=True)
        task = load_tasks(environment)[task_id]
        return _fits(task, Conversation(task, protocol=protocol, **policy), lengths, budget)

    trained, left_out, leaves = list[str](), set[str](), config.stage.over_budget == "leave_out"
    given = {"train_files": data.train_files, "val_files": data.val_files, "pool": config.stage.resample.pool}
    spare = list[str]()
    for key, files in given.items():
        for file in as_list(files):
            infos = [row["extra_info"] for row in parquet_rows(Path(file).expanduser(), ["extra_info"])]
            over = [info for info in infos if not fits(*task_key_of(info), info["split"])]
            if over:
                where = Counter(load_tasks(name)[task].category for name, task in map(task_key_of, over))
                listed = ", ".join(f"{number} {name.removeprefix('multi_turn_')}" for name, number in where.items())
                end = "nobody can finish them; stage.over_budget=leave_out leaves them out of training"
                if key == "val_files":
                    end = f"accuracy can reach {1 - len(over) / len(infos):.3f} at most"
                elif leaves:
                    end = f"left out of training, {len(infos) - len(over)} rows stay"
                notes.append(
                    f"over budget: gold of {len(over)} of {len(infos)} rows of {file} ({listed}) does not fit "
                    f"{limits}: {end}. Longer limits or interaction.{over[0]['split']}.max_result_chars let more fit"
                )
            if key != "val_files":
                (spare if key == "pool" else trained).extend(task_name(*task_key_of(info)) for info in infos)
                left_out |= {task_name(*task_key_of(info)) for info in over}
    names = sorted(left_out) if leaves else []
    stay = [name for name in trained if name not in names]
    if names and len(stay) < data.train_batch_size:
        yield f"stage.over_budget=leave_out leaves {len(stay)} rows, fewer than data.train_batch_size. Lower that."
    if names and data.custom_cls.path is not None:
        yield f"stage.over_budget=leave_out does not work with data.custom_cls.path={data.custom_cls.path}. Set keep."
    digest = hashlib.sha256("\n".join([*stay, *spare]).encode()).hexdigest()
    check_same_rows(config, len(stay), digest)
    with open_dict(config):
        config.data.tasks = {"rows": len(stay), "digest": digest}
        if names:
            config.data.leave_out = names
            config.data.custom_cls = {"path": "pkg://recipe.training.left_out", "name": "FittingRows"}
