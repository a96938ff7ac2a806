"""Any environment as one of Gymnasium's: a text in, what the model reads next out, and a reward for every message.

    env = GymEnv("bfcl", rewards.progress.compute_score)
    observation, info = env.reset(seed=1)
    observation, reward, terminated, truncated, info = env.step(model(observation))

An action is a message of the model in the words of the protocol; it need not be well-formed. An observation is what the
environment says to it, the texts of `info["messages"]`: at first system prompt and request, nothing at the end.
Protocols, turn policy and rewards are those of training.

A step earns by how much it raised what training would pay for the episode if a token budget ended it there. So rewards
add up to what training pays for the record, wherever the episode is left. A step may earn less than nothing.

There is no tokenizer here. So no token budget ends an episode (a caller who has one uses `GymEnv.cut`), and control
tokens are told by their common spellings (`plain_text.generic`). This is the only file that imports Gymnasium.
"""

import asyncio
import math
import string
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any

import gymnasium
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Text

from interaction.conversation import Conversation, Reply
from interaction.environment import AskUser, Task, UserFault, named, read_options, task_of, tasks_under, turn_policy
from interaction.plain_text import generic
from interaction.policy import TurnPolicy
from interaction.protocol import DocStyle, get_protocol
from interaction.record import EpisodeRecord, StopReason, question_of
from interaction.users import EndpointUser, make_user
from interaction.words import cut

MOST_SHOWN = 2**20
"""Characters of a message of the environment; the rest is cut off, with a mark. More than any context holds."""

BY_ITSELF = (StopReason.completed, StopReason.user_stop, StopReason.transfer, StopReason.done)
"""Ends that are `terminated`; at all others, limits and faults, the episode is `truncated`."""

Reward = Callable[..., Any]
"""A reward in verl's form, as training calls it (rewards/README.md); arguments of its own with `functools.partial`."""


class AnyText(Text):
    """Texts of at most so many characters, whichever.

    Samples are of printable ASCII: Gymnasium lists the characters of samples, and a list of all there are is 200 MB.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length


class GymEnv(gymnasium.Env[str, str]):
    """Plays tasks of one environment, an episode after the other. To be closed.

    Args:
        environment: name, or Python file of the user's (docs/your_tools.md).
        reward: called with the record of the episode.
        tasks: ids to draw from; without them, those to train on.
        protocol: how messages are written, as under `interaction`.
        docs: how the functions' documentation is, as there.
        user: who plays the user where the environment asks for one, as `interaction.user`.
        settings: of the turn policy (`TurnPolicy`), as under `interaction.train`; where they are not given, those with
            which the environment's tasks are evaluated.

    Raises:
        ValueError: one of these is wrong, or no task is left; the message says which.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        environment: str,
        reward: Reward,
        *,
        tasks: Collection[str] = (),
        protocol: str = "think_xml",
        docs: DocStyle = "json",
        user: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.environment = named(environment)
        if settings.pop("from_gold", None):
            raise ValueError("from_gold is for training with this recipe: an episode begins with its first turn here")
        options = read_options(self.environment, TurnPolicy(**settings).environments.get(self.environment, {}))
        self._settings = {**turn_policy(self.environment, options), **settings}
        self._reward, self._protocol, self._user = reward, get_protocol(protocol, docs=docs), make_user(user)
        self.tasks = [self._named(task_id) for task_id in tasks]
        """Those that `reset` draws from."""
        if not tasks:
            self.tasks = [task for task in tasks_under(self.environment, options) if task.part == "train"]
        if not self.tasks:
            raise ValueError(f"environment {environment} has no tasks to train on; say which with tasks")
        self._conversation: Conversation | None = None
        self._paid = 0.0
        self.action_space = AnyText(self._protocol.max_chars)  # a longer one is malformed, and so answered
        self.observation_space = AnyText(4 * MOST_SHOWN)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begins an episode; one that was running is abandoned.

        Args:
            options: `task_id` names the task, any of the environment's; without it one is drawn.

        Raises:
            ValueError: there is no such task.
            UserFault: nobody plays the user, or whoever does has failed.
            RuntimeError: the environment could not begin.
        """
        super().reset(seed=seed)
        self.close()
        if options:
            task = self._named(options["task_id"])
        else:
            task = self.tasks[int(self.np_random.integers(len(self.tasks)))]
        self._conversation, self._paid = Conversation(task, self._protocol, **self._settings), 0.0
        try:
            reply = self._heard(self._conversation, Conversation.begin)
        except BaseException:
            self.close()
            raise
        if reply.done:
            raise RuntimeError(f"{self._conversation.task.id} could not be begun: {self.record().fault}")
        return self._shown(reply, {})

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The environment's answer to one message of the model.

        Raises:
            InvalidAction: the action is no text.
            ResetNeeded: no episode is running. After one of the following none is either.
            UserFault: whoever plays the user has failed: such an episode is not scored.
            ValueError: the reward gave no finite number.
        """
        if not isinstance(action, str):
            raise InvalidAction(f"an action is a text, the message of the model; given: {type(action).__name__}")
        return self._advance(lambda conversation: conversation.reply(action))

    def cut(self, text: str | None = None) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Ends the episode as a token budget does in training: it cut this message, or left no room for one.

        Raises:
            ResetNeeded, ValueError: as `step`.
        """

        def end(conversation: Conversation) -> Reply:
            if text is not None:
                return conversation.reply(text, truncated=True)
            conversation.stop(StopReason.max_tokens)
            return Reply([], done=True)

        return self._advance(end)

    def record(self) -> EpisodeRecord:
        """What happened in the episode, as rewards read it.

        Raises:
            ResetNeeded: none was begun.
        """
        if self._conversation is None:
            raise ResetNeeded("no episode was begun: call reset()")
        return self._conversation.record()

    def close(self) -> None:
        """Frees the episode; may be called twice. One that was running is abandoned."""
        if self._conversation is not None:
            self._conversation.close()

    def _named(self, task_id: Any) -> Task:
        return task_of({"environment": self.environment, "task_id": task_id})

    def _advance(self, act: Callable[[Conversation], Reply]) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if (conversation := self._conversation) is None or conversation.done:
            raise ResetNeeded("no episode is running: call reset()")
        try:
            reply = self._heard(conversation, act)
            score, metrics = self._score(conversation)
        except BaseException:
            self.close()
            raise
        earned, self._paid = score - self._paid, score
        ended = conversation.stop_reason
        observation, info = self._shown(reply, metrics)
        return observation, earned, ended in BY_ITSELF, ended is not None and ended not in BY_ITSELF, info

    def _heard(self, conversation: Conversation, act: Callable[[Conversation], Reply]) -> Reply:
        """What the environment says, once its user was heard where it asks for one."""
        reply = act(conversation)
        while reply.ask is not None:
            reply = conversation.hear(self._said(reply.ask))
        return reply

    def _said(self, ask: AskUser) -> str:
        if (user := self._user) is None:
            raise UserFault(
                f"the environment {self.environment} asks for the words of a user: give GymEnv a user, such as "
                "user={'kind': 'endpoint', 'url': 'http://127.0.0.1:8001/v1'}"
            )

        async def say() -> str:
            try:
                return await user.say(ask)
            finally:
                if isinstance(user, EndpointUser):
                    await user.close()

        with ThreadPoolExecutor(1) as aside:  # the caller may be in an event loop, as in a notebook
            return aside.submit(asyncio.run, say()).result()

    def _score(self, conversation: Conversation) -> tuple[float, dict[str, Any]]:
        """What the episode is worth so far, and the metrics that the reward gives beside it."""
        result = self._reward(**question_of(conversation.record_if_cut().to_dict()))
        metrics = dict(result) if isinstance(result, Mapping) else {"score": result}
        score = metrics.pop("score", None)
        if isinstance(score, bool) or not isinstance(score, Real) or not math.isfinite(score):
            said = f"the reward gave {str(result)[:300]} for {conversation.task.id}"
            raise ValueError(f"{said}; expected a finite number, or a dict with one as `score`")
        metrics.pop("step_scores", None)
        return float(score), metrics

    def _shown(self, reply: Reply, metrics: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Observation and info."""
        assert self._conversation is not None
        messages = [{**message, "content": generic(cut(message["content"], MOST_SHOWN))} for message in reply.messages]
        ended = self._conversation.stop_reason
        info = {
            "task_id": self._conversation.task.id,
            "category": self._conversation.task.category,
            "turn": self._conversation.turn,
            "messages": messages,
            "stop_reason": None if ended is None else ended.value,
            "metrics": metrics,
        }
        return "\n\n".join(message["content"] for message in messages), info
