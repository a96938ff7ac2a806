"""verl's agent loop for BFCL conversations: the only place of this room that touches verl. Tokens in, tokens out.

`Conversation` decides what is said; this file turns messages into token ids, asks the engine for more, and keeps
ids, mask and log-probabilities aligned. Token ids of the engine are appended as they came and never decoded and
encoded again; they carry mask 1, everything the environment says carries mask 0.

A rollout never raises. Whatever the model or the environment does wrong ends the episode with a `StopReason` and a
score. Only when the engine itself fails is the episode played again from its start, and when that fails too, no
trajectory is returned at all: verl then trains on the siblings, and a dead engine is never mistaken for a reward of 0.

All episodes of a worker share one event loop, and none can ask the engine while another holds it. Scenarios are loaded
before there are episodes; decoding, parsing, calls and gold run in another thread. One thread serves all episodes: more
would not be faster, and the event loop would wait for each in turn. `benchmarks/bench_agent_loop.py --blocking`
measures what is left.
"""

import asyncio
import gc
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.workers.rollout.replica import TokenOutput

from interaction.chat_template import closing_ids, missing_ids
from interaction.conversation import Conversation, Reply
from interaction.environment import DEFAULT, load_tasks
from interaction.episode_output import EpisodeOutput
from interaction.overlong import overlong_penalty
from interaction.plain_text import PlainText, fits
from interaction.protocol import Message, get_protocol
from interaction.record import StopReason
from interaction.token_rewards import Span

logger = logging.getLogger(__name__)

MIN_REPLY_TOKENS = 16
"""An episode with less room than this ends: no reply of any protocol fits."""

ENGINE_ATTEMPTS = 3
"""How often an episode is played when the engine fails under it."""

load_tasks(DEFAULT)
gc.freeze()  # a worker keeps all that it has imported; looking for garbage in it would stop all episodes for 0.3 s

_ENVIRONMENT = ThreadPoolExecutor(1, "environment")
_T = TypeVar("_T")


async def _aside(function: Callable[..., _T], *args: Any) -> _T:
    return await asyncio.get_running_loop().run_in_executor(_ENVIRONMENT, function, *args)


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    last_id: int
    closing: list[int]
    """What the chat template writes after an assistant message."""
    plain: PlainText
    """Through which everything that the environment says goes before it becomes tokens."""


@cache
def _vocabulary(tokenizer: Any) -> _Vocabulary:
    def render(messages: list[Message]) -> list[int]:
        return tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)

    return _Vocabulary(max(tokenizer.get_vocab().values()), closing_ids(render), PlainText.of(tokenizer))


class EngineFault(RuntimeError):
    """The inference engine failed or returned what no model can have said; not the model's doing."""


class BFCLAgentLoop(AgentLoopBase):
    """Plays one scenario with the model; registered as `bfcl` in `recipe/config/agent_loops.yaml`."""

    live: ClassVar[int] = 0
    """Episodes being played in this process. Changed by the event loop's thread alone."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput | list[AgentLoopOutput]:
        """One episode.

        Args:
            sampling_params: verl's sampling parameters for this batch.
            kwargs: the row of the dataset; `extra_info` names scenario and split, `uid`, `session_id` and
                `global_steps` come from verl.

        Returns:
            One trajectory, or an empty list when the engine failed `ENGINE_ATTEMPTS` times.
        """
        fault: Exception | None = None
        for faults in range(ENGINE_ATTEMPTS):
            try:
                output = await self._play(sampling_params, kwargs)
                output.extra_fields["engine_faults"] = output.record_header["engine_faults"] = faults
                return output
            except EngineFault as error:
                fault = error
                logger.warning("engine fault in %s: %s", kwargs["extra_info"].get("scenario_id"), error)
            except Exception as error:
                fault = error
                logger.exception("episode of %s failed outside model and environment", kwargs.get("extra_info"))
                break
        logger.error("episode of %s dropped (%s): %r", kwargs.get("extra_info"), StopReason.infrastructure, fault)
        return []

    async def _play(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> EpisodeOutput:
        BFCLAgentLoop.live += 1
        try:
            conversation, vocabulary = await _aside(self._prepare, row["extra_info"])
            with conversation:
                return await self._converse(conversation, vocabulary, sampling_params, row)
        finally:
            BFCLAgentLoop.live -= 1

    def _prepare(self, extra_info: dict[str, Any]) -> tuple[Conversation, _Vocabulary]:
        settings = self.config.interaction
        scenario = load_tasks(extra_info.get("environment") or DEFAULT)[extra_info["scenario_id"]]
        turn_policy: Any = OmegaConf.to_container(settings[extra_info["split"]], resolve=True)
        protocol = get_protocol(settings.protocol, docs=settings.docs)
        return Conversation(scenario, protocol=protocol, **turn_policy), _vocabulary(self.tokenizer)

    async def _converse(
        self, conversation: Conversation, vocabulary: _Vocabulary, sampling_params: dict[str, Any], row: dict[str, Any]
    ) -> EpisodeOutput:
        settings = self.config.interaction
        request_id = uuid4().hex  # one for the whole episode: sticky routing, so the prefix cache works
        messages = vocabulary.plain.messages(await _aside(conversation.start))
        ids = await self.ct_build_initial_tokens(messages)
        prompt_length = len(ids)
        mask: list[int] = []
        log_probs: list[float] | None = None  # stays None when the engine is not asked for any
        spans: list[Span] = []
        engine_fields: dict[str, Any] = {}
        seconds = {"generate": 0.0, "environment": 0.0}

        while True:
            room = self._room(prompt_length, len(mask))
            max_tokens = min(room, settings.max_tokens_per_reply or room)
            began = perf_counter()
            out = await self._generate(request_id, ids, {**sampling_params, "max_tokens": max_tokens})
            generated = perf_counter()
            seconds["generate"] += generated - began
            _require_sound(out, vocabulary.last_id, max_tokens)
            if not mask and out.log_probs is not None:
                log_probs = []
            span = len(mask), len(mask) + len(out.token_ids)
            spans.append(Span(conversation.turn, *span))
            engine_fields = {**out.extra_fields, **{k: v for k, v in engine_fields.items() if k == "min_global_steps"}}
            merged, mask, log_probs = await self.ct_merge_assistant_token(
                ids, out.token_ids, mask, log_probs, assistant_logprobs=out.log_probs
            )
            ids = merged.token_ids
            ends = {self.tokenizer.eos_token_id, *vocabulary.closing[:1]}
            cut = len(out.token_ids) >= max_tokens and out.token_ids[-1] not in ends
            text, reply = await _aside(self._hear, conversation, out.token_ids, cut, span, round(generated - began, 4))
            seconds["environment"] += perf_counter() - generated
            if reply.done:
                break
            said = await _aside(vocabulary.plain.messages, reply.messages)
            if not await _aside(fits, self.tokenizer, said, self._room(prompt_length, len(mask))):
                conversation.stop(StopReason.max_tokens)
                break
            before = [*messages, {"role": "assistant", "content": text}]
            messages = [*before, *said]
            closing = missing_ids(out.token_ids, vocabulary.closing)
            zeros = [0] * len(closing)
            merged, new_mask, new_log_probs = await self.ct_merge_context_msg(
                before, messages, ids + closing, mask + zeros, None if log_probs is None else [*log_probs, *zeros]
            )
            if self._room(prompt_length, len(new_mask)) < MIN_REPLY_TOKENS:
                conversation.stop(StopReason.max_tokens)
                break
            ids, mask, log_probs = merged.token_ids, new_mask, new_log_probs

        limit = self.rollout_config.response_length
        record = conversation.record().to_dict()
        truncated = record["stop_reason"] == StopReason.max_tokens
        split = row["extra_info"]["split"]
        step = int(row.get("global_steps", -1))
        header = {
            "step": step,
            "split": split,
            "launch": os.environ.get("BFCL_LAUNCH"),  # a resumed step is played again; readers take the later launch
            "uid": str(row.get("uid")),
            "session_id": int(row.get("session_id", 0)),
            "scenario_id": row["extra_info"]["scenario_id"],
            "prompt_tokens": prompt_length,
            "response_tokens": len(mask),
            "engine_tokens": sum(mask),
            "seconds": {name: round(value, 4) for name, value in seconds.items()},
        }
        record_dir, overlong, penalty = settings.record_dir, settings.get("overlong"), None
        if overlong and overlong.penalty and split == "train":
            budget = self._room(prompt_length, 0)
            penalty = overlong_penalty(len(mask), budget, truncated, window=overlong.window, penalty=overlong.penalty)
        return EpisodeOutput(
            prompt_ids=ids[:prompt_length],
            response_ids=ids[prompt_length:][:limit],
            response_mask=mask[:limit],
            response_logprobs=log_probs[:limit] if log_probs else None,
            num_turns=len(messages),
            metrics=AgentLoopMetrics(generate_sequences=seconds["generate"], tool_calls=seconds["environment"]),
            extra_fields={**engine_fields, "episode": record, "truncated": truncated},
            record_file=str(Path(record_dir) / split / f"{step:06d}.jsonl") if record_dir else None,
            record_header=header,
            spans=spans,
            overlong_penalty=penalty,
        )

    def _hear(
        self, conversation: Conversation, ids: list[int], cut: bool, span: tuple[int, int], seconds: float
    ) -> tuple[str, Reply]:
        """The message as text, and what the environment says to it. Runs in a thread."""
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return text, conversation.reply(text, truncated=cut, tokens=span, generate_seconds=seconds)

    def _room(self, prompt_length: int, response_length: int) -> int:
        """Tokens that still fit into the response budget and into the model's context."""
        room = self.rollout_config.response_length - response_length
        if self.rollout_config.max_model_len:
            room = min(room, self.rollout_config.max_model_len - prompt_length - response_length)
        return room

    async def _generate(self, request_id: str, ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        limit = self.config.interaction.engine_timeout
        try:
            async with asyncio.timeout(limit):
                return await self.server_manager.generate(
                    request_id=request_id, prompt_ids=ids, sampling_params=sampling_params
                )
        except TimeoutError as error:
            raise EngineFault(f"no reply within interaction.engine_timeout={limit} s") from error
        except Exception as error:  # whatever the engine or its transport raises, it is no fault of the model
            raise EngineFault(repr(error)) from error


def _require_sound(out: TokenOutput, last_id: int, max_tokens: int) -> None:
    """Raises EngineFault for a reply that no working engine gives: trained on, it would break the update.

    The ids that a padded embedding has beyond the tokenizer's are refused too. No text stands for them, a trained
    model gives them a probability near 0, and the episode is only played again.
    """
    ids, log_probs = out.token_ids, out.log_probs
    if not ids:
        raise EngineFault(f"no tokens returned (stop_reason={out.stop_reason})")
    if out.stop_reason == "aborted":
        raise EngineFault(f"aborted after {len(ids)} tokens")
    if len(ids) > max_tokens:
        raise EngineFault(f"{len(ids)} tokens returned, at most {max_tokens} asked for")
    if min(ids) < 0 or max(ids) > last_id:
        raise EngineFault(f"token ids from {min(ids)} to {max(ids)} returned; the tokenizer has 0 to {last_id}")
    if log_probs is not None and len(log_probs) != len(ids):
        raise EngineFault(f"{len(log_probs)} log-probabilities returned for {len(ids)} tokens")
