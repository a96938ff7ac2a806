"""An environment whose user has to be asked: by a conversation without I/O, and beside all other episodes."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from data_prep.sft import gold_messages
from interaction import Conversation, StopReason, get_protocol
from interaction.environment import AskUser, EnvironmentBase, GoldMessage, Request, UserWords
from interaction.gold import opening, play_gold
from interaction.outcome import ToolResult, TurnResult, Verdicts
from interaction.users import UserFault
from recipe.cpu.tiny_policy import make_tokenizer

PROTOCOL = get_protocol("think_xml", docs="signature")
ANSWER = PROTOCOL.render_answer("a", "done")
WORDS = ("My line is dead.", "Yes, it is.", "Goodbye.")


@dataclass(frozen=True)
class Task:
    """The user says three things, each to be asked for; the last one ends the conversation."""

    id: str = "phone_0"
    cluster: str = "0"
    environment: str = "phone"
    category: str = "phone"
    part: str = "train"

    def open(self) -> "Attempt":
        return Attempt()

    def gold(self) -> list[Any]:
        asked = [UserWords(WORDS[0]), GoldMessage(answer="Is it?"), UserWords(WORDS[1]), GoldMessage(answer="Fixed.")]
        return [*asked, UserWords(WORDS[2])]


class Attempt(EnvironmentBase):
    def __init__(self) -> None:
        self.said: list[dict[str, str]] = []
        self.heard: list[str] = []

    def begin(self) -> AskUser:
        return AskUser(({"role": "system", "content": "You have a phone."},))

    def call(self, call: Any) -> ToolResult:
        return ToolResult("there is nothing to call")

    def answer(self, text: str) -> AskUser:
        self.said += [{"role": "assistant", "content": self.heard[-1]}, {"role": "user", "content": text}]
        return AskUser(({"role": "system", "content": "You have a phone."}, *self.said))

    def hear(self, words: str) -> Request | None:
        self.heard.append(words)
        if words == WORDS[-1]:
            self.over = StopReason.user_stop
            return None
        return Request(words, policy="Be kind." if len(self.heard) == 1 else "")

    def cut(self, reason: StopReason) -> bool:
        return False

    def verdicts(self) -> Verdicts:
        return Verdicts(tuple(TurnResult(words, None) for words in self.heard[:2]), passed=self.over is not None)


@pytest.fixture(autouse=True)
def phone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import interaction.environment as environments

    module = type("phone", (), {"load_tasks": staticmethod(lambda: [Task()])})
    known = environments._module
    monkeypatch.setattr(environments, "_module", lambda name: module if name == "phone" else known(name))
    environments.load_tasks.cache_clear()
    yield
    environments.load_tasks.cache_clear()


def test_a_conversation_asks_and_hears_and_does_nothing_itself() -> None:
    with Conversation(Task(), PROTOCOL) as conversation:
        reply = conversation.begin()
        assert reply.ask is not None and not reply.messages and conversation.asks
        with pytest.raises(RuntimeError, match="asked"):
            conversation.reply(ANSWER)
        opening = conversation.hear(WORDS[0])
        assert opening.messages[0]["content"].startswith("Be kind.") and opening.messages[1]["content"] == WORDS[0]
        with pytest.raises(RuntimeError, match="nobody was asked"):
            conversation.hear("again")
        asked = conversation.reply(ANSWER).ask
        assert asked is not None and [message["role"] for message in asked.messages] == ["system", "assistant", "user"]
        assert conversation.hear(WORDS[1]).messages == [{"role": "user", "content": WORDS[1]}]
        conversation.reply(ANSWER)
        assert conversation.hear(WORDS[2]).stop_reason == StopReason.user_stop
        record = conversation.record()
    assert [(turn.user, turn.ended, turn.passed) for turn in record.turns] == [(w, "answer", None) for w in WORDS[:2]]
    assert record.outcome is not None and record.outcome.passed


def test_words_of_a_user_are_bounded_and_are_text() -> None:
    with Conversation(Task(), PROTOCOL) as conversation:
        conversation.begin()
        content = conversation.hear("x" * 1_000_000 + "\ud800").messages[1]["content"]
    assert len(content) < 21_000 and content.encode()


def opened_as(attempt: type[Attempt]) -> Conversation:
    class Open(Task):
        def open(self) -> Attempt:
            return attempt()

    return Conversation(Open(), PROTOCOL)


def test_words_that_an_environment_cannot_use_are_the_users_fault_and_not_the_environments() -> None:
    class Strict(Attempt):
        def hear(self, words: str) -> Request | None:
            if words == "???":
                raise UserFault("the user says no sentence")
            return super().hear(words)

    for before in ((), (WORDS[0],)):
        with opened_as(Strict) as conversation:
            conversation.begin()
            for words in before:
                conversation.hear(words)
                conversation.reply(ANSWER)
            with pytest.raises(UserFault, match="no sentence"):
                conversation.hear("???")
            assert not conversation.done
        record = conversation.record()
        assert record.stop_reason == StopReason.infrastructure and not record.outcome.passed  # type: ignore[union-attr]


def test_elsewhere_an_environment_that_raises_it_has_failed_itself() -> None:
    class Wrong(Attempt):
        def answer(self, text: str) -> AskUser:
            raise UserFault("nobody was heard")

    with opened_as(Wrong) as conversation:
        conversation.begin()
        conversation.hear(WORDS[0])
        assert conversation.reply(ANSWER).stop_reason == StopReason.environment_error


def test_gold_whose_words_the_environment_cannot_use_is_the_environments_fault() -> None:
    class Deaf(Attempt):
        def hear(self, words: str) -> Request | None:
            raise UserFault("no sentence")

    class Open(Task):
        def open(self) -> Attempt:
            return Deaf()

    messages, record = play_gold(Open(), PROTOCOL)  # type: ignore[arg-type]
    assert (messages, record.stop_reason) == ([], StopReason.environment_error) and "no sentence" in str(record.fault)
    assert opening(Open(), PROTOCOL) == []  # type: ignore[arg-type]


EPISODES, SECONDS = 32, 0.2


@pytest.fixture
def play(make_loop: Any, engine: Any, tmp_path: Any) -> Any:
    """Plays episodes side by side; each with an engine of its own that answers at once."""
    tokenizer = make_tokenizer([message["content"] for message in gold_messages(Task(), PROTOCOL)])  # type: ignore[arg-type]
    row = {"extra_info": {"split": "train", "environment": "phone", "task_id": "phone_0"}, "uid": "u"}

    def played(episodes: int, user: dict[str, Any] | None) -> tuple[list[Any], float]:
        async def all_of_them() -> tuple[list[Any], float]:
            loops = [
                make_loop(tokenizer, engine(tokenizer, [ANSWER] * 9, "<|im_end|>"), record_dir=tmp_path, user=user)
                for _ in range(episodes)
            ]
            began = time.monotonic()
            found = await asyncio.gather(*(loop.run({}, session_id=n, **row) for n, loop in enumerate(loops)))
            return found, time.monotonic() - began

        return asyncio.run(all_of_them())

    return played


def test_users_of_all_episodes_are_waited_for_side_by_side(play: Any) -> None:
    user = {"kind": "scripted", "lines": list(WORDS), "seconds": SECONDS}
    play(1, user)  # what is loaded once
    (one,), alone = play(1, user)
    assert one.extra_fields["episode"]["stop_reason"] == "user_stop"
    found, together = play(EPISODES, user)
    assert all(output.extra_fields["episode"]["outcome"]["passed"] for output in found)
    print(f"1 episode {alone:.2f} s, {EPISODES} side by side {together:.2f} s")
    assert alone >= 3 * SECONDS and together < EPISODES / 4 * alone  # one after the other: EPISODES times


def test_an_episode_whose_user_fails_is_dropped_and_never_scored(play: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert play(1, {"kind": "scripted", "lines": [WORDS[0]]})[0] == [[]]
    assert "asked for one more" in caplog.text
    assert play(1, None)[0] == [[]]
    assert "set interaction.user" in caplog.text


def test_an_episode_that_runs_out_of_tokens_does_not_pass_whatever_the_environment_says() -> None:
    class Generous(Attempt):
        def verdicts(self) -> Verdicts:
            return Verdicts((TurnResult(WORDS[0], True),), passed=True)

    with opened_as(Generous) as conversation:
        conversation.begin()
        conversation.hear(WORDS[0])
        conversation.reply("cut off", truncated=True)
        record = conversation.record()
    assert record.outcome is not None and not record.outcome.passed
    assert [turn.passed for turn in record.turns] == [False]


def test_a_task_that_is_judged_as_a_whole_is_paid_as_a_whole() -> None:
    from rewards import format as form
    from rewards import progress

    _, record = play_gold(Task(), PROTOCOL)  # type: ignore[arg-type]
    assert record.turns[0].passed is None
    question = {"episode": record.to_dict()}
    assert progress.compute_score("", "", "", question)["score"] == 1.0
    assert form.compute_score("", "", "", question)["acc"] == 1.0
