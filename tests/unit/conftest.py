"""No settings from outside; for the agent loop, verl's loop with a configuration, and an engine with given words."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    """A command that was run in this process has set up logging to a stream that is closed by now."""
    root = logging.getLogger()
    handlers, level = [*root.handlers], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARDWARE", "tiny")


class Engine:
    """In place of vLLM. Says `replies` in order: a text closed by `ending`, ids as they are; an exception is raised."""

    HANGS = object()

    def __init__(self, tokenizer: Any, replies: list[Any], ending: str | None = None):
        self.tokenizer, self.replies = tokenizer, list(replies)
        self.ending = tokenizer.convert_tokens_to_ids(ending) if ending else tokenizer.eos_token_id
        self.prompts: list[list[int]] = []
        self.outputs: list[list[int]] = []
        self.log_probs: list[list[float]] = []
        self.requests: list[str] = []
        self.stops: list[list[int]] = []

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        self.prompts.append(list(prompt_ids))
        self.requests.append(request_id)
        self.stops.append(sampling_params["stop_token_ids"])
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        if reply is self.HANGS:
            await asyncio.Event().wait()
        if isinstance(reply, TokenOutput):
            return reply
        if isinstance(reply, str):
            reply = [*self.tokenizer.encode(reply, add_special_tokens=False), self.ending]
        ids = list(reply)[: sampling_params["max_tokens"]]
        log_probs = [-0.25 - 0.001 * len(self.outputs) - 0.0001 * position for position in range(len(ids))]
        self.outputs.append(ids)
        self.log_probs.append(log_probs)
        versions = dict.fromkeys(("min_global_steps", "max_global_steps"), len(self.prompts))
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason="completed", extra_fields=versions)


@pytest.fixture
def engine() -> type[Engine]:
    return Engine


def loop_config(record_dir: Path | None = None, **settings: Any) -> Any:
    """The part of the configuration that the agent loop reads. `policy` replaces settings of the turn policy."""
    policy = {"max_steps_per_turn": 4, "max_format_errors_per_turn": 1, "max_result_chars": 300}
    policy |= settings.pop("policy", {})
    rollout: dict[str, Any] = {"name": "vllm", "prompt_length": 8192, "response_length": 4096, "max_model_len": None}
    rollout |= {"n": 1, "temperature": 1.0, "val_kwargs": {"n": 1}}
    rollout |= {name: settings.pop(name) for name in rollout.keys() & settings.keys()}
    interaction = {
        **{"protocol": "think_xml", "docs": "signature", "max_tokens_per_reply": None, "engine_timeout": 30},
        **{"user": None, "record_dir": str(record_dir) if record_dir else None, "train": policy, "val": policy},
        **{"waiting": 64, "overlong": {"train": True, "penalty": 0.0, "window": 0.2} | settings.pop("overlong", {})},
    }
    interaction |= settings
    return OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}, "interaction": interaction})


@pytest.fixture
def config() -> Callable[..., Any]:
    return loop_config


@pytest.fixture
def make_loop() -> Callable[..., Any]:
    """Makes an agent loop as verl's worker does. To call inside a running event loop."""

    def make(tokenizer: Any, engine: Any, hf_model_type: str = "qwen2", **settings: Any) -> Any:
        from verl.experimental.agent_loop.agent_loop import DictConfigWrap

        from interaction.agent_loop import ConversationAgentLoop

        config = loop_config(**settings)
        configs = {"trainer_config": DictConfigWrap(config), "data_config": DictConfigWrap(config.data)}
        other = {"processor": None, "dataset_cls": SimpleNamespace, "hf_model_type": hf_model_type}
        return ConversationAgentLoop(server_manager=engine, tokenizer=tokenizer, **configs, **other)

    return make


@pytest.fixture
def trainer_for() -> Callable[..., Any]:
    """Makes this recipe's trainer at step 7 with that replay buffer and nothing else; 4 rollouts a prompt."""

    def make(buffer: Any, groups: int, max_lost_share: float = 0.25) -> Any:
        from recipe.training.trainer import CurriculumTrainer

        trainer = CurriculumTrainer.__new__(CurriculumTrainer)
        trainer.replay_buffer, trainer.global_steps = buffer, 7
        trainer.failed_prompts, trainer.lone_samples = len(buffer.failure_keys["train"]), 0
        stage = {"max_lost_share": max_lost_share, "resample": {"pool": None}}
        config = {"data": {"train_batch_size": groups}, "actor_rollout_ref": {"rollout": {"n": 4}}, "stage": stage}
        config["algorithm"] = {"adv_estimator": "mine", "credit": {"grouped": True}}
        config["reward"] = {"custom_reward_function": {"path": "my_reward.py", "name": "compute_score"}}
        trainer.config = OmegaConf.create(config)
        return trainer

    return make
