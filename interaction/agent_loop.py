"""verl's agent loop for BFCL conversations: the only place of this room that touches verl. Tokens in, tokens out.

`Conversation` decides what is said; this file turns messages into token ids, asks the engine for more, and keeps
ids, mask and log-probabilities aligned. Token ids of the engine are appended as they came and never decoded and
encoded again; they carry mask 1, everything the environment says carries mask 0.

A rollout never raises. Whatever the model or the environment does wrong ends the episode with a `StopReason` and a
score. Only when the engine itself fails is the episode played again from its start, and when that fails too, no
trajectory is returned at all: verl then trains on the siblings, and a dead engine is never mistaken for a reward of 0.
"""

import json
import logging
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput
from verl.utils.profiler import simple_timer
from verl.workers.rollout.replica import TokenOutput

from bfcl_env import Scenario, load_scenarios
from interaction.conversation import Conversation
from interaction.protocol import get_protocol
from interaction.record import StopReason

logger = logging.getLogger(__name__)

MIN_REPLY_TOKENS = 16
"""An episode with less room than this ends: no reply of any protocol fits."""

ENGINE_ATTEMPTS = 3
"""How often an episode is played when the engine fails under it."""


@cache
def _scenarios() -> dict[str, Scenario]:
    return {scenario.id: scenario for scenario in load_scenarios()}


class EngineFault(RuntimeError):
    """The inference engine failed or returned nothing; not the model's doing."""


class EpisodeOutput(AgentLoopOutput):
    """One trajectory with its record. The record goes to the reward and to a file, not into TransferQueue."""

    record_file: str | None = None
    """JSONL file to which the scored record is appended; None writes nothing."""
    record_header: dict[str, Any] = {}
    """Fields of the JSONL line beside score and episode: step, split, uid, ..."""

    def as_dict(self) -> dict[str, Any]:
        """verl's form of the trajectory. verl calls this once, after the reward has been computed."""
        fields = super().as_dict()
        fields.pop("record_file", None)
        fields.pop("record_header", None)
        episode = fields["extra_fields"].pop("episode", None)
        if self.record_file and episode is not None:
            reward = {
                k: v for k, v in self.extra_fields.get("reward_extra_info", {}).items() if isinstance(v, int | float)
            }
            line = {**self.record_header, "score": self.reward_score, "reward": reward, "episode": episode}
            path = Path(self.record_file)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:  # one write: appends of several workers do not mix
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        return fields


class BFCLAgentLoop(AgentLoopBase):
    """Plays one scenario with the model; registered as `bfcl` in `recipe/config/agent_loops.yaml`."""

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
        for _ in range(ENGINE_ATTEMPTS):
            try:
                return await self._play(sampling_params, kwargs)
            except EngineFault as error:
                fault = error
                logger.warning("engine fault in %s: %s", kwargs["extra_info"].get("scenario_id"), error)
            except Exception as error:
                fault = error
                logger.exception("episode of %s failed outside model and environment", kwargs.get("extra_info"))
                break
        logger.error("episode dropped (%s): %r", StopReason.infrastructure, fault)
        return []

    async def _play(self, sampling_params: dict[str, Any], row: dict[str, Any]) -> EpisodeOutput:
        settings = self.config.interaction
        extra_info = row["extra_info"]
        split = extra_info["split"]
        turn_policy: Any = OmegaConf.to_container(settings[split], resolve=True)
        protocol = get_protocol(settings.protocol, docs=settings.docs)
        with Conversation(_scenarios()[extra_info["scenario_id"]], protocol=protocol, **turn_policy) as conversation:
            return await self._converse(conversation, sampling_params, row)

    async def _converse(
        self, conversation: Conversation, sampling_params: dict[str, Any], row: dict[str, Any]
    ) -> EpisodeOutput:
        settings = self.config.interaction
        request_id = uuid4().hex  # one for the whole episode: sticky routing, so the prefix cache works
        messages = conversation.start()
        ids = await self.ct_build_initial_tokens(messages)
        prompt_length = len(ids)
        mask: list[int] = []
        log_probs: list[float] = []
        engine_fields: dict[str, Any] = {}
        timing: dict[str, float] = {}

        while True:
            room = self._room(prompt_length, len(mask))
            max_tokens = min(room, settings.max_tokens_per_reply or room)
            with simple_timer("generate", timing):
                out = await self._generate(request_id, ids, {**sampling_params, "max_tokens": max_tokens})
            engine_fields = {**out.extra_fields, **{k: v for k, v in engine_fields.items() if k == "min_global_steps"}}
            merged, mask, log_probs = await self.ct_merge_assistant_token(
                ids, out.token_ids, mask, log_probs, assistant_logprobs=out.log_probs
            )
            ids = merged.token_ids
            cut = len(out.token_ids) >= max_tokens and out.token_ids[-1] != self.tokenizer.eos_token_id
            text = self.tokenizer.decode(out.token_ids, skip_special_tokens=True)
            with simple_timer("environment", timing):
                reply = conversation.reply(text, truncated=cut)
            if reply.done:
                break
            before = [*messages, {"role": "assistant", "content": text}]
            messages = [*before, *reply.messages]
            merged, new_mask, new_log_probs = await self.ct_merge_context_msg(before, messages, ids, mask, log_probs)
            if self._room(prompt_length, len(new_mask)) < MIN_REPLY_TOKENS:
                conversation.stop(StopReason.max_tokens)
                break
            ids, mask, log_probs = merged.token_ids, new_mask, new_log_probs

        limit = self.rollout_config.response_length
        record = conversation.record().to_dict()
        split = row["extra_info"]["split"]
        step = int(row.get("global_steps", -1))
        header = {
            "step": step,
            "split": split,
            "uid": str(row.get("uid")),
            "session_id": int(row.get("session_id", 0)),
            "scenario_id": row["extra_info"]["scenario_id"],
            "prompt_tokens": prompt_length,
            "response_tokens": len(mask),
            "engine_tokens": sum(mask),
            "seconds": {name: round(seconds, 4) for name, seconds in timing.items()},
        }
        record_dir = settings.record_dir
        return EpisodeOutput(
            prompt_ids=ids[:prompt_length],
            response_ids=ids[prompt_length:][:limit],
            response_mask=mask[:limit],
            response_logprobs=log_probs[:limit] if log_probs else None,
            num_turns=len(messages),
            metrics=AgentLoopMetrics(
                generate_sequences=timing.get("generate", 0.0), tool_calls=timing.get("environment", 0.0)
            ),
            extra_fields={**engine_fields, "episode": record},
            record_file=str(Path(record_dir) / split / f"{step:06d}.jsonl") if record_dir else None,
            record_header=header,
        )

    def _room(self, prompt_length: int, response_length: int) -> int:
        """Tokens that still fit into the response budget and into the model's context."""
        room = self.rollout_config.response_length - response_length
        if self.rollout_config.max_model_len:
            room = min(room, self.rollout_config.max_model_len - prompt_length - response_length)
        return room

    async def _generate(self, request_id: str, ids: list[int], sampling_params: dict[str, Any]) -> TokenOutput:
        try:
            out = await self.server_manager.generate(
                request_id=request_id, prompt_ids=ids, sampling_params=sampling_params
            )
        except Exception as error:  # whatever the engine or its transport raises, it is no fault of the model
            raise EngineFault(repr(error)) from error
        if not out.token_ids:
            raise EngineFault(f"no tokens returned (stop_reason={out.stop_reason})")
        return out
