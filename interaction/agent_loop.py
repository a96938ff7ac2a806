"""verl's agent loop for conversations: with `episode_output.py` the only place of this room that touches verl.

`Conversation` decides what is said. This file turns messages into token ids and asks the engine for more; `Trajectory`
keeps ids, mask and log-probabilities aligned. Token ids of the engine are never decoded and encoded again.

A rollout never raises. What the model or the environment does wrong ends the episode with a `StopReason` and a score.
If the engine or whoever plays the user fails, the episode is played again. If that fails too, `run` returns no
trajectory: verl trains on the siblings, and a dead engine is never mistaken for a reward of 0.

All episodes of a worker share one event loop. Loading tasks, decoding, parsing, calls and gold run in one other thread;
more threads would not be faster. `benchmarks/bench_agent_loop.py` measures what is left. What waits for
something outside has threads of its own, `interaction.waiting` a worker.
"""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from math import isfinite
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from omegaconf import DictConfig, OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.workers.rollout.replica import TokenOutput

from interaction.boundary import ToolUnavailable
from interaction.conversation import Conversation, Reply
from interaction.environment import DEFAULT, UserFault, load_tasks, part_of, register, task_of
from interaction.episode_file import path_of
from interaction.episode_output import Clock, EpisodeOutput
from interaction.gold import given_turns, play_first
from interaction.plain_text import PlainText, fits
from interaction.protocol import Message, get_protocol
from interaction.record import StopReason
from interaction.token_rewards import overlong_penalty
from interaction.trajectory import Trajectory, closing_ids, missing_ids, stop_ids
from interaction.users import make_user

logger = logging.getLogger(__name__)

MIN_REPLY_TOKENS = 16
"""An episode with less room than this ends: no reply of any protocol fits."""

ENGINE_ATTEMPTS = 3
"""How often an episode is played when the engine, a service of its tools, or whoever plays the user fails under it."""

_ENVIRONMENT = ThreadPoolExecutor(1, "environment")
_T = TypeVar("_T")


async def _aside(function: Callable[..., _T], *args: Any) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_ENVIRONMENT, function, *args)


@cache
def _waiting(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, "waiting")


@cache
def _load() -> None:
    """Once a process, in the environment's thread, before the first episode begins.

    A worker keeps all that it has imported and loaded; looking for garbage in it would stop all episodes for 0.3 s, and
    while tasks are loaded it would be looked for.
    """
    gc.freeze()
    load_tasks(DEFAULT)
    gc.freeze()


@dataclass(frozen=True, slots=True)
class _Budget:
    """Limits of an episode, read once: OmegaConf is slow, and the event loop would ask it several times a step."""

    response: int
    context: int | None
    """Of prompt and response together; None: no limit."""
    reply: int | None
    seconds: float
    """For one reply."""

    def room(self, prompt: int, response: int) -> int:
        """Tokens that still fit into the response budget and into the model's context."""
        room = self.response - response
        return room if self.context is None else min(room, self.context - prompt - response)


class EngineFault(RuntimeError):
    """The inference engine failed or returned what no model can have said; not the model's doing."""


def require_sound(out: TokenOutput, last_id: int, max_tokens: int) -> None:
    """Raises EngineFault for a reply that no working engine gives: trained on, it would break the update.

    Ids that a padded embedding has beyond `last_id`, the tokenizer's last, are refused too: no text stands for them.
    """
    ids, log_probs = out.token_ids, out.log_probs
    if not ids or out.stop_reason == "aborted":
        raise EngineFault(f"{len(ids)} tokens returned (stop_reason={out.stop_reason})")
    if len(ids) > max_tokens:
        raise EngineFault(f"{len(ids)} tokens returned, at most {max_tokens} asked for")
    if min(ids) < 0 or max(ids) > last_id:
        raise EngineFault(f"token ids from {min(ids)} to {max(ids)} returned; the tokenizer has 0 to {last_id}")
    if log_probs is not None and [*map(isfinite, log_probs)] != [True] * len(ids):
        raise EngineFault(f"{len(log_probs)} log-probabilities returned for {len(ids)} tokens, or not all are finite")


FAULTS: dict[type[Exception], str] = {
    EngineFault: "engine_faults",
    ToolUnavailable: "tool_faults",
    UserFault: "user_faults",
}
"""What is no doing of the model's -> how it is counted."""


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    last_id: int
    closing: list[int]
    """What the chat template writes after an assistant message."""
    stops: list[int]
    """Of it the token at which the engine stops, as it does at the tokenizer's end token."""
    plain: PlainText
    """Through which everything that the environment says goes before it becomes tokens."""


@cache
def _vocabulary(tokenizer: Any) -> _Vocabulary:
    def render(messages: list[Message]) -> list[int]:
        return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)

    closing = closing_ids(render)
    last_id = max(tokenizer.get_vocab().values())
    return _Vocabulary(last_id, closing, stop_ids(tokenizer, closing), PlainText.of(tokenizer))


def _plain(settings: DictConfig | None) -> Any:
    return None if settings is None else OmegaConf.to_container(settings, resolve=True)


def _part() -> str:
    """In a cluster each worker writes records of its own, so that the files of one launch sort behind earlier ones."""
    launched = os.environ.get("BFCL_LAUNCHED")
    return f"{launched}-{socket.gethostname()}-{os.getpid()}" if launched else ""


@dataclass
class _Episode:
    """An episode while it is played."""

    conversation: Conversation
    vocabulary: _Vocabulary
    budget: _Budget
    clock: Clock
    waiting: int
    trajectory: Trajectory = field(default_factory=lambda: Trajectory([]))
    messages: list[Message] = field(default_factory=list)
    request_id: str = field(default_factory=lambda: uuid4().hex)
    """One for the whole episode: sticky routing, so that the prefix cache works."""
    engine_fields: dict[str, Any] = field(default_factory=dict)
    """What the engine says beside tokens: of its last reply, but the first weight version."""

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Where its environment works. The first attempt at a class by hand may show that it waits."""
        return _waiting(self.waiting) if self.conversation.waits else _ENVIRONMENT

    def room(self) -> int:
        return self.budget.room(len(self.trajectory.prompt), len(self.trajectory))

    async def play(self, function: Callable[..., _T], *args: Any) -> _T:
        """What the environment does, in its own thread."""
        with self.clock.waiting("environment"):
            return await asyncio.get_running_loop().run_in_executor(self.pool, function, *args)


class ConversationAgentLoop(AgentLoopBase):
    """Plays one task with the model; registered as `conversation` in `recipe/config/agent_loops.yaml`."""

    live: ClassVar[int] = 0
    """Episodes being played in this process. Changed by the event loop's thread alone."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """One episode.

        Args:
            sampling_params: verl's sampling parameters for this batch.
            kwargs: the row of the dataset; `extra_info` names scenario and split, `uid`, `session_id` and
                `global_steps` come from verl.

        Returns:
            One trajectory, or an empty list when engine, tools or user failed `ENGINE_ATTEMPTS` times.
        """
        fault: Exception | None = None
        faults = dict.fromkeys(FAULTS.values(), 0)
        clock = Clock()
        for _ in range(ENGINE_ATTEMPTS):
            try:
                output = await self._play(sampling_params, kwargs, clock)
                output.extra_fields.update(faults)
                output.record_header.update(faults)
                return output
            except (EngineFault, ToolUnavailable, UserFault) as error:
                fault = error
                faults[next(name for kind, name in FAULTS.items() if isinstance(error, kind))] += 1
                logger.warning("fault in %s: %s", kwargs["extra_info"], error)
            except Exception as error:
                fault = error
                logger.exception("episode of %s failed outside model and environment", kwargs.get("extra_info"))
                break
        logger.error("episode of %s dropped (%s): %r", kwargs.get("extra_info"), StopReason.infrastructure, fault)
        return []

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        if (most := self.rollout_config.prompt_length) < len(prompt_ids):  # verl's cuts away how it begins
            raise RuntimeError(f"a prompt of {len(prompt_ids)} tokens; data.max_prompt_length is {most}")
        return prompt_ids

    async def _play(self, sampling_params: dict[str, Any], row: dict[str, Any], clock: Clock) -> EpisodeOutput:
        ConversationAgentLoop.live += 1
        try:
            with clock.waiting("environment"):
                episode = await _aside(self._prepare, row["extra_info"], clock)
            try:
                step = int(row.get("global_steps", -1))
                if row["extra_info"]["split"] == "val" and not self.config.interaction.get("record_tokens"):
                    sampling_params = {**sampling_params, "logprobs": False}  # nobody reads them
                await self._converse(episode, sampling_params, step)
                return self._output(episode, row, step)
            finally:
                episode.pool.submit(episode.conversation.close)  # behind a call that may still run
        finally:
            ConversationAgentLoop.live -= 1

    def _prepare(self, extra_info: dict[str, Any], clock: Clock) -> _Episode:
        settings, rollout = self.config.interaction, self.rollout_config
        register(_plain(settings.get("environments")) or {})
        _load()
        protocol = get_protocol(settings.protocol, docs=settings.docs)
        budget = _Budget(
            response=rollout.response_length,
            context=rollout.max_model_len or None,
            reply=settings.max_tokens_per_reply,
            seconds=settings.engine_timeout,
        )
        conversation = Conversation(task_of(extra_info), protocol=protocol, **_plain(settings[extra_info["split"]]))
        return _Episode(conversation, _vocabulary(self.tokenizer), budget, clock, settings.waiting)

    async def _converse(self, episode: _Episode, sampling_params: dict[str, Any], step: int) -> None:
        """Model and environment in turns, until the conversation is done or has no more room."""
        conversation = episode.conversation
        reply = await self._ask_user(episode, await episode.play(conversation.begin))
        if reply.done:
            raise RuntimeError(f"{conversation.task.id} could not be begun: {conversation.record().fault}")
        episode.messages = await _aside(episode.vocabulary.plain.messages, reply.messages)
        episode.trajectory = Trajectory(await self.ct_build_initial_tokens(episode.messages))
        if (first := conversation.policy.from_gold) is not None:
            turns = await episode.play(given_turns, conversation, first, step)
            for text, messages in await episode.play(play_first, conversation, turns):
                ids = await _aside(partial(self.tokenizer.encode, text, add_special_tokens=False))
                episode.trajectory.add_context(ids)
                if not await self._tell(episode, text, ids, messages):
                    raise RuntimeError(f"gold of {conversation.task.id} has more tokens than the episode may have")
        while True:
            said, cut, seconds = await self._ask(episode, sampling_params)
            span = episode.trajectory.add_step(conversation.turn, said.token_ids, said.log_probs)
            place = span.start, span.end
            text, reply = await episode.play(self._hear, conversation, said.token_ids, cut, place, round(seconds, 4))
            reply = await self._ask_user(episode, reply)
            if reply.done:
                return
            if not await self._tell(episode, text, episode.trajectory.last_step, reply.messages):
                await episode.play(conversation.stop, StopReason.max_tokens)
                return

    async def _ask_user(self, episode: _Episode, reply: Reply) -> Reply:
        """What the environment says once the user was heard, where it asks for one.

        Raises:
            UserFault: nobody plays the user, or whoever does has failed.
        """
        conversation, clock = episode.conversation, episode.clock
        while reply.ask is not None:
            user = await _aside(make_user, _plain(self.config.interaction.get("user")))
            if user is None:
                raise UserFault(f"{conversation.task.environment} needs a user model: set interaction.user")
            before = clock.user
            with clock.waiting("user"):
                words = await user.say(reply.ask)
            reply = await episode.play(conversation.hear, words, round(clock.user - before, 4))
        return reply

    async def _ask(self, episode: _Episode, sampling_params: dict[str, Any]) -> tuple[TokenOutput, bool, float]:
        """The engine's next reply, whether the budget has cut it, and the seconds that it took."""
        vocabulary, room = episode.vocabulary, episode.room()
        max_tokens = min(room, episode.budget.reply or room)
        sampling = {**sampling_params, "max_tokens": max_tokens, "stop_token_ids": vocabulary.stops}
        if self.rollout_config.get("name") == "vllm":
            sampling["detokenize"] = False  # else it turns each token, and each log-probability's, into text
        before = episode.clock.generate
        with episode.clock.waiting("generate"):
            out = await self._generate(episode, sampling)
        require_sound(out, vocabulary.last_id, max_tokens)
        first = {name: value for name, value in episode.engine_fields.items() if name == "min_global_steps"}
        episode.engine_fields = {**out.extra_fields, **first}
        ends = {self.tokenizer.eos_token_id, *vocabulary.closing[:1], *vocabulary.stops}
        cut = len(out.token_ids) >= max_tokens and out.token_ids[-1] not in ends
        return out, cut, episode.clock.generate - before

    async def _generate(self, episode: _Episode, sampling: dict[str, Any]) -> TokenOutput:
        limit, given = episode.budget.seconds, dict[str, int]()
        if self.rollout_config.get("scheduling_policy") == "priority":
            given["priority"] = -len(episode.messages)  # the least goes first
        try:
            async with asyncio.timeout(limit):
                return await self.server_manager.generate(
                    request_id=episode.request_id, prompt_ids=episode.trajectory.ids, sampling_params=sampling, **given
                )
        except TimeoutError as error:
            raise EngineFault(f"no reply within interaction.engine_timeout={limit} s") from error
        except Exception as error:  # whatever the engine or its transport raises, it is no fault of the model
            raise EngineFault(repr(error)) from error

    def _hear(
        self, conversation: Conversation, ids: list[int], cut: bool, span: tuple[int, int], seconds: float
    ) -> tuple[str, Reply]:
        """The step as text, and what the environment says to it. Runs in the environment's thread."""
        ended = ids[-1] in _vocabulary(self.tokenizer).stops  # by a token that need not be special
        text = self.tokenizer.decode(ids[:-1] if ended else ids, skip_special_tokens=True)
        return text, conversation.reply(text, truncated=cut, tokens=span, generate_seconds=seconds)

    async def _tell(self, episode: _Episode, text: str, ids: list[int], messages: list[Message]) -> bool:
        """Append what the environment says to a message. False where that, or any reply to it, would not fit."""
        trajectory, vocabulary = episode.trajectory, episode.vocabulary
        said = await _aside(vocabulary.plain.messages, messages)
        if not await _aside(fits, self.tokenizer, said, episode.room()):
            return False
        before: list[Message] = [*episode.messages, {"role": "assistant", "content": text}]
        episode.messages = [*before, *said]
        closing = missing_ids(ids, vocabulary.closing, vocabulary.stops)
        merged, _, _ = await self.ct_merge_context_msg(before, episode.messages, trajectory.ids + closing, [])
        prompt = len(trajectory.prompt)
        if episode.budget.room(prompt, len(merged.token_ids) - prompt) < MIN_REPLY_TOKENS:
            return False
        trajectory.go_on(merged.token_ids, removed=max(0, merged.removed_prefix_token_count - len(closing)))
        return True

    def _output(self, episode: _Episode, row: dict[str, Any], step: int) -> EpisodeOutput:
        """The played episode in verl's form, with what is written to its file."""
        settings, trajectory, clock = self.config.interaction, episode.trajectory, episode.clock
        record, task = episode.conversation.record().to_dict(), episode.conversation.task
        truncated = record["stop_reason"] == StopReason.max_tokens
        split = row["extra_info"]["split"]
        guards = OmegaConf.select(self.config, "environment.guarded") or ()
        clock.stop()
        header = {
            "step": step,
            "split": split,
            "launch": os.environ.get("BFCL_LAUNCH"),  # a resumed step is played again; readers take the later launch
            "uid": str(row.get("uid")),
            "session_id": int(row.get("session_id", 0)),
            "environment": task.environment,
            "task_id": task.id,
            "category": task.category,
            "cluster": task.cluster,
            "part": "guard" if split == "val" and row.get("data_source") in guards else part_of(row["extra_info"]),
            "prompt_tokens": len(trajectory.prompt),
            "response_tokens": len(trajectory),
            "engine_tokens": sum(trajectory.mask),
            **({"given_turns": episode.conversation.given} if settings[split].get("from_gold") else {}),
        }
        return EpisodeOutput(
            prompt_ids=trajectory.prompt,
            response_ids=trajectory.response,
            response_mask=trajectory.mask,
            response_logprobs=trajectory.log_probs,
            num_turns=len(episode.messages),
            metrics=AgentLoopMetrics(generate_sequences=clock.generate, tool_calls=clock.environment),
            extra_fields={**episode.engine_fields, "episode": record, "truncated": truncated},
            record_file=path_of(settings.record_dir, split, step, _part()) if settings.record_dir else None,
            record_header=header,
            record_tokens=settings.get("record_tokens", False),
            clock=clock,
            spans=trajectory.spans,
            overlong_penalty=self._price(episode, truncated) if split == "train" else None,
        )

    def _price(self, episode: _Episode, truncated: bool) -> float | None:
        """What the length of a training episode costs; None where that is off."""
        overlong = self.config.interaction.get("overlong")
        if not overlong or not overlong.penalty:
            return None
        used, budget = len(episode.trajectory), episode.budget.room(len(episode.trajectory.prompt), 0)
        return overlong_penalty(used, budget, truncated, window=overlong.window, penalty=overlong.penalty)
