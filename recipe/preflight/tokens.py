"""Which tasks gold itself cannot finish within the tokens that an episode has: no model can pass those.

Gold is played with short thoughts under the turn policy that is given, and its messages and results are counted with
the model's tokenizer. A text is tokenized only where its bytes do not settle the matter: it never has more tokens than
bytes, and nearly all tasks have fewer bytes than the budget has tokens. Evaluation uses this too.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from interaction import Conversation, StopReason
from interaction.environment import Task, load_tasks, task_key_of, task_name, waits
from interaction.gold import may_be_given, most_given, play_gold
from interaction.plain_text import PlainText
from interaction.protocol import Message, Protocol
from recipe.settings import as_list
from recipe.stage.starts import check_same_rows

UNFINISHED = (StopReason.max_steps, StopReason.max_tokens, StopReason.format_errors, StopReason.infrastructure)
LONGEST = 8
"""Prompts of a file that are tokenized, those with the most characters."""
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
        self._around = (self._templated(turn * 2) - self._templated(turn) + 1) // 2 - self.of("x")

    def _templated(self, messages: list[Message]) -> int:
        return len(self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    def prompt(self, messages: list[Message]) -> int:
        """Tokens of the messages that an episode begins with."""
        return self._templated(self._plain.messages(messages))

    def of(self, text: str) -> int:
        """Tokens of a text alone."""
        return len(self._tokenizer.encode(self._plain(text), add_special_tokens=False))

    def most(self, texts: list[str]) -> int:
        """The largest number of tokens that these messages can have. Nothing is tokenized."""
        return self._around * len(texts) + sum(len(self._plain(text).encode()) for text in texts)

    def fit(self, texts: list[str], limit: int) -> bool:
        """Whether all later messages, with what stands around them, have at most so many tokens."""
        return self.most(texts) <= limit or self._around * len(texts) + sum(map(self.of, texts)) <= limit


def over_budget(
    tasks: Iterable[Task], protocol: Protocol, policy: Mapping[str, Any], lengths: Lengths, budget: Budget
) -> list[str]:
    """Ids of the tasks that gold cannot finish within `budget` and the turn policy, in their order.

    Of a task without gold nothing is known, nor of one whose tools wait, which are not called for it.
    """
    return [task.id for task in tasks if not _fits(task, protocol, policy, lengths, budget)]


def _fits(task: Task, protocol: Protocol, policy: Mapping[str, Any], lengths: Lengths, budget: Budget) -> bool:
    if waits(task):
        return True
    try:
        messages, record = play_gold(task, protocol, **policy)
    except RuntimeError:  # the turn policy has ended it before its end
        return False
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not replies:
        return True
    texts, opening = [message["content"] for message in messages], messages[: replies[0]]
    later = texts[replies[0] :]
    if record.stop_reason in UNFINISHED:
        return False
    if budget.reply is not None and not all(lengths.fit([texts[place]], budget.reply) for place in replies):
        return False
    if budget.response is not None and not lengths.fit(later, budget.response):
        return False
    if budget.context is None or lengths.most(texts) <= budget.context - TEMPLATE:
        return True
    return lengths.fit(later, budget.context - lengths.prompt(opening))


def check_budget(
    config: DictConfig, tokenizer: Any, protocol: Protocol, read: Mapping[str, list[dict[str, Any]]], notes: list[str]
) -> Iterator[str]:
    """The longest prompts fit; and a note for each file with tasks that gold cannot finish.

    verl would cut a prompt on the left, and with it the function documentation. The first turns of an unfinishable task
    still teach, so by default it stays; `stage.over_budget=leave_out` does not train on it. Rows of the validation are
    never left out: an accuracy over fewer tasks is another number. verl gets the tasks in `data.leave_out`, as
    environment/id or BFCL's id alone.

    Args:
        read: file -> its rows, as `recipe.preflight.data.rows` has read them.
    """
    data, interaction, context = config.data, config.interaction, config.actor_rollout_ref.rollout.max_model_len
    lengths = Lengths(tokenizer)
    budget = Budget(context, data.max_response_length, interaction.max_tokens_per_reply)

    @cache
    def fits(environment: str, task_id: str, split: str) -> bool:
        policy: Any = OmegaConf.to_container(interaction[split], resolve=True)
        return _fits(load_tasks(environment)[task_id], protocol, policy, lengths, budget)

    @cache
    def begun(environment: str, task_id: str) -> bool:
        policy: Any = OmegaConf.to_container(interaction.train, resolve=True)
        task = load_tasks(environment)[task_id]
        most = most_given(task)
        if not most or waits(task):  # one that waits is not begun here, and may be judged as a whole
            return most > 0
        with Conversation(task, protocol=protocol, **policy) as conversation:
            conversation.begin()
            return may_be_given(conversation) > 0

    stay, spare, left_out, leaves = list[str](), list[str](), set[str](), config.stage.over_budget == "leave_out"
    longest, limit, first, given_rows = (0, ""), data.max_prompt_length, interaction.train.from_gold, 0
    given = {"train": data.train_files, "val": data.val_files, "pool": config.stage.resample.pool}
    for key, files in given.items():
        for file in as_list(files):
            rows = read[file]
            prompts = sorted((row["prompt"] for row in rows), key=lambda said: sum(len(one["content"]) for one in said))
            longest = max([longest, *((lengths.prompt(messages), file) for messages in prompts[-LONGEST:])])
            infos = [row["extra_info"] for row in rows]
            if key == "val" and first and any(info["split"] == "train" for info in infos):
                yield f"{file} has rows of training, which gold begins (from_gold). Leave it out of data.val_files."
            over = [info for info in infos if not fits(*task_key_of(info), info["split"])]
            if key != "val":
                left_out |= {task_name(*task_key_of(info)) for info in over if leaves}
                keys = [each for each in map(task_key_of, infos) if task_name(*each) not in left_out]
                (stay if key == "train" else spare).extend(task_name(*each) for each in keys)
                given_rows += sum(begun(*each) for each in keys) if first and key == "train" else 0
            if not over:
                continue
            if key != "val" and not leaves and first:
                yield f"gold of rows of {file} is too long to play (from_gold). Set stage.over_budget=leave_out."
            where = Counter(load_tasks(name)[task].category for name, task in map(task_key_of, over))
            listed = ", ".join(f"{number} {name.removeprefix('multi_turn_')}" for name, number in where.items())
            end = "nobody can finish them; stage.over_budget=leave_out leaves them out of training"
            if key == "val":
                end = f"accuracy can reach {1 - len(over) / len(infos):.3f} at most"
            elif leaves:
                end = f"left out of training, {len(infos) - len(over)} rows stay"
            notes.append(
                f"over budget: gold of {len(over)} of {len(infos)} rows of {file} ({listed}) does not fit max_model_len"
                f"={context}, max_response_length={budget.response}, max_tokens_per_reply={budget.reply}: {end}"
            )
    if first and not given_rows:
        why = "each has calls in its first turn alone, a user model, or a verdict on the whole"
        yield f"from_gold: gold can begin none of the {len(stay)} rows: {why}. Set from_gold=null."
    elif first:
        planned = len(stay) // data.train_batch_size * config.trainer.total_epochs
        planned = min(planned, config.trainer.total_training_steps or planned)
        late = f"; it still does at the end: {planned} steps are planned, from_gold.steps={first.steps}"
        notes.append(f"from_gold: gold may begin {given_rows} of {len(stay)} rows" + late * (planned <= first.steps))
    notes.append(f"longest prompt {longest[0]} tokens ({longest[1]})")
    if longest[0] > limit and not data.filter_overlong_prompts:
        yield f"a prompt of {longest[1]} has {longest[0]} tokens. Set data.max_prompt_length={longest[0]}."
    elif longest[0] > limit:
        notes[-1] += f", more than data.max_prompt_length={limit}: such rows are left out"
    if left_out and len(stay) < data.train_batch_size:
        yield f"stage.over_budget=leave_out leaves {len(stay)} rows, fewer than data.train_batch_size. Lower that."
    if left_out and data.custom_cls.path is not None:
        yield f"stage.over_budget=leave_out does not work with data.custom_cls.path={data.custom_cls.path}. Set keep."
    digest = hashlib.sha256("\n".join([*stay, *spare]).encode()).hexdigest()
    check_same_rows(config, len(stay), digest)
    with open_dict(config):
        data.tasks = {"rows": len(stay), "digest": digest}
        if left_out:
            data.leave_out = sorted(left_out)
            data.custom_cls = {"path": "pkg://recipe.training.left_out", "name": "FittingRows"}
