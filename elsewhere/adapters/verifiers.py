"""An environment as verifiers has them: its tasks a taskset, and an `Env` in which the environment is the model's user.

    vf-eval bfcl-grpo-environments --env.taskset.environment bfcl --env.taskset.part test -m MODEL

Each message of the model is a turn: the environment parses it, runs its calls and says what comes next. The harness is
verifiers' `null`, a chat without tools: calls are written in the text, as the protocol has them.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import verifiers.v1 as vf

from adapters import reward_of
from interaction.environment import load_tasks
from interaction.gym_env import GymEnv
from interaction.protocol import DocStyle

__all__ = ["ConversationEnv", "ConversationTaskset"]


class ConversationConfig(vf.TasksetConfig):
    """Which tasks."""

    environment: str = "bfcl"
    """Its name, or a Python file of the user's."""
    part: Literal["train", "dev", "test"] = "train"


class ConversationData(vf.TaskData):
    """`id` is the task's; the prompt is the environment's, who speaks first."""

    environment: str
    category: str


class ConversationTask(vf.Task[ConversationData]):
    """A task of the environment."""

    @property
    def key(self) -> str:
        return f"{self.data.environment}/{self.data.id}"


class ConversationTaskset(vf.Taskset[ConversationTask, ConversationConfig]):
    """The tasks of one part of an environment, in its order."""

    def load(self) -> Iterator[ConversationTask]:
        name, part = self.config.environment, self.config.part
        for task in load_tasks(GymEnv(name, reward_of("progress")).environment).values():
            if task.part == part:
                data = ConversationData(id=task.id, name=task.id, environment=name, category=task.category)
                yield ConversationTask(data, self.config.task)


class ConversationEnvConfig(vf.EnvConfig):
    """How they are played; `settings` are those of the turn policy (`TurnPolicy`)."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})
    reward: str = "progress"
    protocol: str = "think_xml"
    docs: DocStyle = "json"
    user: dict[str, Any] | None = None
    settings: dict[str, Any] = {}


class ConversationEnv(vf.Env[ConversationEnvConfig]):
    """Plays one episode of a task with one agent."""

    async def run(self, task: ConversationTask, agents: vf.Agents) -> None:
        """Raises as `GymEnv`: what fails in the environment or its user fails the episode, which is not scored."""
        config, data = self.config, task.data
        play = {"protocol": config.protocol, "docs": config.docs, "user": config.user, **config.settings}
        with GymEnv(data.environment, reward_of(config.reward), tasks=[str(data.id)], **play) as env:
            _, info = await asyncio.to_thread(env.reset, options={"task_id": data.id})
            system, text = (message["content"] for message in info["messages"])
            earned, over = 0.0, False
            asked = task.with_data(system_prompt=system, prompt=None)  # the environment opens the conversation
            async with agents.player.interaction(asked) as interaction:
                while not over:
                    segment = await interaction.turn(text)
                    if segment.terminated and interaction.trace.errors:
                        return  # the engine or the harness failed, as the trace says: that is no zero
                    said = None if segment.terminated else segment.last_reply
                    # A limit of verifiers' ends it as a token budget does in training, also within a message.
                    if said is None or [call.finish_reason for call in interaction.trace.calls][-1:] == ["length"]:
                        step = env.cut(said)
                    else:
                        step = await asyncio.to_thread(env.step, said)
                    text, reward, terminated, truncated, info = step
                    earned, over = earned + reward, terminated or truncated
            interaction.trace.info["episode"] = env.record().to_dict()
            interaction.trace.record_metrics({name: float(value) for name, value in info["metrics"].items()})
            interaction.trace.record_reward(config.reward, earned, 1.0)
