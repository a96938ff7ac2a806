"""An environment behind OpenEnv's server: a message of the model is an action, what it reads next the observation.

`app = server("bfcl")` in a file app.py, then `uvicorn app:app`. A client calls `reset(task_id="multi_turn_base_17")`,
`reset(split="test", index=3)` or `reset(seed=1)`, which draws a task; then `step({"text": ...})` until `done`.
"""

from typing import Any, get_args
from uuid import uuid4

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

from adapters import reward_of
from interaction.environment import Part, load_tasks
from interaction.gym_env import GymEnv, Reward


class ModelMessage(Action):
    text: str


class Answer(Observation):
    """What it reads next; nothing after the end."""

    text: str = ""
    messages: list[dict[str, str]] = Field(default_factory=list)
    """The same as chat messages, for a chat template."""
    task_id: str = ""
    turn: int = 0
    """The user turn, from 0."""
    stop_reason: str | None = None


class Progress(State):
    """The record of the episode, once there is one: for who trains, no model is to read it."""

    record: dict[str, Any] | None = None


class ConversationEnvironment(Environment[ModelMessage, Answer, Progress]):
    """Plays one episode after the other. Arguments are `GymEnv`'s; a reward may be given by name."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, environment: str = "bfcl", reward: str | Reward = "progress", **settings: Any) -> None:
        super().__init__()
        self._env = GymEnv(environment, reward_of(reward), **settings)
        self._state = Progress()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Answer:
        """Begins an episode. Raises as `GymEnv.reset`, and IndexError for a split without such an index."""
        if "split" in options:
            options["task_id"] = self.get_task(str(options.pop("split")), int(options.pop("index", 0)))["id"]
        text, info = self._env.reset(seed=seed, options=options)
        self._state = Progress(episode_id=episode_id or uuid4().hex)
        return _answer(text, info)

    def step(self, action: ModelMessage, timeout_s: float | None = None, **_: Any) -> Answer:
        """Takes one message. Raises as `GymEnv.step`."""
        text, reward, terminated, truncated, info = self._env.step(action.text)
        self._state.step_count += 1
        return _answer(text, info, reward=reward, done=terminated or truncated)

    @property
    def state(self) -> Progress:
        self._state.record = self._env.record().to_dict() if self._state.episode_id else None
        return self._state

    def close(self) -> None:
        self._env.close()

    def list_splits(self) -> list[str]:
        return list(get_args(Part))

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        tasks = (task for task in load_tasks(self._env.environment).values() if task.part == split)
        return [{"id": task.id, "index": index, "category": task.category} for index, task in enumerate(tasks)]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return self.list_tasks(split)[index]


def _answer(text: str, info: dict[str, Any], **more: Any) -> Answer:
    known = {name: info[name] for name in ("messages", "task_id", "turn", "stop_reason")}
    return Answer(text=text, metadata=info["metrics"], **known, **more)


def server(environment: str = "bfcl", reward: str | Reward = "progress", **settings: Any) -> FastAPI:
    """A server on which any number of clients play, each in a session of its own."""

    def made() -> ConversationEnvironment:
        return ConversationEnvironment(environment, reward, **settings)

    made().close()  # wrong arguments are refused here, not at the first client
    return create_app(made, ModelMessage, Answer, env_name=environment, max_concurrent_envs=64, state_cls=Progress)
