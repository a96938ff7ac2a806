"""An environment whose user has to be asked: by a conversation without I/O, beside all other episodes, and by whom."""

import asyncio
import importlib
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, completion, serving
from support.phone import SAYS, write_phone

from interaction import Conversation, EpisodeRecord, StopReason, users
from interaction.endpoint import Endpoint
from interaction.environment import AskUser, load_tasks, register
from interaction.gold import opening, play_gold
from interaction.outcome import TurnResult, Verdicts
from interaction.plain_text import generic
from interaction.users import EndpointUser, UserFault, make_user
from recipe import evaluate
from recipe.cpu.tiny_policy import make_tokenizer
from rewards import format as form
from rewards import progress

ANSWER = PROTOCOL.render_answer("a", "done")
HELLO = AskUser(({"role": "system", "content": "You have a phone."}, {"role": "user", "content": "Hello."}))


@pytest.fixture
def phone(tmp_path: Path) -> Any:
    """A task whose user says `SAYS`, each to be asked for; the last words end the conversation."""
    path = write_phone(tmp_path)
    register({path.stem: str(path)})
    return load_tasks(path.stem)["phone_0"]


# In a conversation.


def test_a_conversation_asks_and_hears_and_does_nothing_itself(phone: Any) -> None:
    with Conversation(phone, PROTOCOL) as conversation:
        reply = conversation.begin()
        assert reply.ask is not None and not reply.messages and conversation.asks
        assert (reply.ask.task_id, reply.ask.heard) == ("phone_0", 0)
        with pytest.raises(RuntimeError, match="asked"):
            conversation.reply(ANSWER)
        messages = conversation.hear(SAYS[0]).messages
        assert messages[0]["content"].startswith("Be kind.") and messages[1]["content"] == SAYS[0]
        with pytest.raises(RuntimeError, match="nobody was asked"):
            conversation.hear("again")
        asked = conversation.reply(ANSWER).ask
        assert asked is not None and [message["role"] for message in asked.messages] == ["system", "assistant", "user"]
        assert asked.heard == 1 and conversation.hear(SAYS[1]).stop_reason == StopReason.user_stop
        record = conversation.record()
    assert [(turn.user, turn.ended, turn.passed) for turn in record.turns] == [(SAYS[0], "answer", None)]
    assert record.outcome is not None and record.outcome.passed and record.heard == SAYS
    question = {"episode": json.loads(json.dumps(record.to_dict()))}
    assert EpisodeRecord.from_dict(question["episode"]) == record
    assert progress.compute_score("", "", "", question)["score"] == form.compute_score("", "", "", question)["acc"] == 1


def test_words_of_a_user_are_bounded_and_are_text(phone: Any) -> None:
    with Conversation(phone, PROTOCOL) as conversation:
        conversation.begin()
        content = conversation.hear("x" * 1_000_000 + "\ud800").messages[1]["content"]
    assert len(content) < 21_000 and content.encode()


def test_words_that_cannot_be_used_are_the_users_fault_and_of_gold_the_environments(
    phone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for before in ((), (SAYS[0],)):
        with Conversation(phone, PROTOCOL) as conversation:
            conversation.begin()
            for words in before:
                conversation.hear(words)
                conversation.reply(ANSWER)
            with pytest.raises(UserFault, match="no sentence"):
                conversation.hear("???")
            assert not conversation.done
        record = conversation.record()
        assert record.stop_reason == StopReason.infrastructure and not record.outcome.passed  # type: ignore[union-attr]
    attempt = type(phone.open())

    def wrong(*_: Any) -> None:
        raise UserFault("nobody was heard")

    monkeypatch.setattr(attempt, "answer", wrong)
    with Conversation(phone, PROTOCOL) as conversation:
        conversation.begin()
        conversation.hear(SAYS[0])
        assert conversation.reply(ANSWER).stop_reason == StopReason.environment_error
    monkeypatch.setattr(attempt, "hear", wrong)
    messages, record = play_gold(phone, PROTOCOL)
    assert (messages, record.stop_reason) == ([], StopReason.environment_error) and "was heard" in str(record.fault)
    assert opening(phone, PROTOCOL) == []


def test_an_episode_that_is_cut_does_not_pass_whatever_the_environment_says(
    phone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    generous = Verdicts((TurnResult(SAYS[0], True),), passed=True)
    monkeypatch.setattr(type(phone.open()), "verdicts", lambda _: generous)
    with Conversation(phone, PROTOCOL) as conversation:
        conversation.begin()
        conversation.hear(SAYS[0])
        conversation.reply("cut off", truncated=True)
        record = conversation.record()
    assert record.outcome is not None and not record.outcome.passed
    assert [turn.passed for turn in record.turns] == [False]


# In a rollout.


@pytest.fixture
def rollouts(phone: Any, make_loop: Any, engine: Any, tmp_path: Path) -> Any:
    """Plays episodes side by side, each with an engine that answers at once; returns the tokenizer and the outputs."""
    tokenizer = make_tokenizer([message["content"] for message in play_gold(phone, PROTOCOL)[0]])
    row = {"extra_info": {"split": "train", "environment": phone.environment, "task_id": "phone_0"}, "uid": "u"}

    def played(user: dict[str, Any] | None, episodes: int = 1) -> tuple[Any, list[Any]]:
        async def all_of_them() -> list[Any]:
            engines = [engine(tokenizer, [ANSWER] * 9, "<|im_end|>") for _ in range(episodes)]
            loops = [make_loop(tokenizer, one, record_dir=tmp_path, user=user) for one in engines]
            return await asyncio.gather(*(loop.run({}, session_id=n, **row) for n, loop in enumerate(loops)))

        return tokenizer, asyncio.run(all_of_them())

    return played


def test_users_of_all_episodes_are_waited_for_side_by_side(rollouts: Any) -> None:
    user = {"kind": "scripted", "lines": list(SAYS), "seconds": 0.2}
    rollouts(user)  # what is loaded once
    began = time.monotonic()
    _, found = rollouts(user, 32)
    took = time.monotonic() - began
    assert all(output.extra_fields["episode"]["outcome"]["passed"] for output in found)
    assert 2 * 0.2 <= took < 32 * 2 * 0.2 / 4


def test_an_episode_whose_user_fails_is_dropped_and_never_scored(
    rollouts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert rollouts({"kind": "scripted", "lines": [SAYS[0]]})[1] == [[]]
    assert rollouts(None)[1] == [[]]
    with serving(lambda _: "???") as server:
        assert rollouts({"kind": "endpoint", "url": server.url})[1] == [[]]
    for said in ("asked for one more", "set interaction.user", "the user says no sentence"):
        assert said in caplog.text
    assert "environment fault" not in caplog.text


def test_words_that_cannot_be_used_are_played_again_and_counted(rollouts: Any) -> None:
    said = iter(["???", *SAYS])
    with serving(lambda _: next(said)) as server:
        _, (output,) = rollouts({"kind": "endpoint", "url": server.url})
    assert output.extra_fields["episode"]["heard"] == list(SAYS)
    for counted in (output.extra_fields, output.record_header):
        assert (counted["user_faults"], counted["engine_faults"]) == (1, 0)


def test_what_a_user_model_says_is_no_control_token_to_the_policy(rollouts: Any) -> None:
    counts = []
    for words in (SAYS[0], ECHO):
        with serving(lambda messages, words=words: [words, SAYS[1]][len(messages) > 2]) as server:
            tokenizer, (output,) = rollouts({"kind": "endpoint", "url": server.url})
        special = set(tokenizer.all_special_ids)
        counts.append(sum(token in special for token in [*output.prompt_ids, *output.response_ids]))
        assert output.extra_fields["episode"]["heard"][0] == words
    assert counts[0] == counts[1] > 0


# A model behind a server.


def user_of(url: str, **settings: Any) -> EndpointUser:
    user = make_user({"kind": "endpoint", "url": url, "timeout": 5.0, "backoff": 0.0, "attempts": 2, **settings})
    assert isinstance(user, EndpointUser)
    return user


def heard(url: str, ask: AskUser = HELLO, **settings: Any) -> str:
    async def once() -> str:
        user = user_of(url, **settings)
        try:
            return await user.say(ask)
        finally:
            await user.close()

    return asyncio.run(once())


FAULTS = (
    *(429, 500, 503, 4.0, None, b"<html>", {"choices": []}),
    {"choices": [{"message": {"content": ["x"]}, "finish_reason": "stop"}]},
    completion("half a", "abort"),
    *(completion(text) for text in (None, "", " \n\t", "\x00\x07\x1b\u200b\n")),
    completion("", "length"),
)
"""Statuses, seconds of silence, hanging up, and bodies in which nobody says a word."""


def test_a_fault_of_the_server_is_asked_again_and_then_the_users() -> None:
    for fault in FAULTS:
        timeout = 2.0 if fault == 4.0 else 10.0
        with serving(lambda _: "words", [fault]) as server:
            assert heard(server.url, timeout=timeout) == "words"
            assert len(server.requests) == 2
    with serving(lambda _: "words", [FAULTS[-1]] * 2) as server:
        with pytest.raises(UserFault, match="gave no words in 2 attempts") as lasting:
            heard(server.url)
        assert len(server.requests) == 2 and "\n" not in str(lasting.value)


def test_what_no_second_attempt_would_change_is_the_users_fault_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(words: str) -> Any:
        return lambda _: (400, {"error": {"message": words}})

    monkeypatch.setenv("USER_KEY", "two words")
    for answer, faults, key, said in (
        (None, [401], None, "interaction.user.url, interaction.user.model and interaction.user.api_ke"),
        (None, [404], None, "interaction.user.model"),
        (refusal("Unsupported value: temperature does not support 0.7"), [], None, "interaction.user.temperature=null"),
        (refusal("maximum context length is 64 tokens"), [], None, "does not fit the context"),
        (None, [], "NO_SUCH", "there is no such environment variable"),
        (None, [], "USER_KEY", "what interaction.user.api_key_env names is no key"),
    ):
        more = {"api_key_env": key} if key else {"max_tokens": None}
        with serving(answer, faults) as server, pytest.raises(UserFault, match=said):
            heard(server.url, attempts=5, **more)
        assert len(server.requests) == (key is None), said
    for wrong in ("127.0.0.1:8000", "http://me:key@127.0.0.1/v1", "http://127.0.0.1/v1?key=x", "file:///etc/passwd"):
        with pytest.raises(ValueError, match="interaction.user with kind=endpoint"):
            make_user({"kind": "endpoint", "url": wrong})


def test_a_request_has_the_settings_the_key_and_no_control_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "secret")
    forged = AskUser((*HELLO.messages, {"role": "user", "content": ECHO}))
    with serving(lambda _: (200, completion("x" * 1000, "length"))) as server:
        said = heard(server.url, forged, temperature=0.2, seed=7, max_tokens=9, api_key_env="USER_KEY", max_chars=10)
        heard(server.url, temperature=None, max_tokens=None, model="named")
        first, second = server.requests
    assert said == "x" * 10 + "... [990 more characters]", "words that are cut off are words"
    assert (first["temperature"], first["seed"], first["max_tokens"], first["model"]) == (0.2, 7, 9, "m")
    assert first["messages"][-1]["content"] == generic(ECHO) != ECHO
    assert server.keys == ["Bearer secret", "Bearer EMPTY"] and second["model"] == "named"
    assert not {"temperature", "seed", "max_tokens"} & second.keys()


def test_all_episodes_share_one_client_and_wait_outside_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "CONNECTIONS", 4)
    opened, now, most, lock = [], 0, 0, threading.Lock()
    known = Endpoint.open

    async def counted(self: Endpoint) -> None:
        opened.append(self)
        await known(self)

    monkeypatch.setattr(Endpoint, "open", counted)

    def slow(messages: Any) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.2)
        with lock:
            now -= 1
        return "words"

    async def many(url: str) -> list[str]:
        made = [user_of(url, timeout=2.5, attempts=1) for _ in range(80)]  # as each episode makes its own
        return await asyncio.gather(*(user.say(HELLO) for user in made))

    importlib.import_module("openai")
    with serving(slow) as server:
        assert asyncio.run(many(server.url)) == ["words"] * 80
    assert most <= 4 and len(opened) == 1


def test_an_address_is_of_this_machine_alone_or_not() -> None:
    local = ["http://127.0.0.1:8001/v1", "http://127.9.9.9/v1", "http://localhost:8001/v1", "http://[::1]:8001/v1"]
    remote = ["http://0.0.0.0:8001/v1", "http://localhost.example.com/v1", "http://10.0.0.7/v1", "https://a.b/v1"]
    assert [url for url in [*local, *remote] if user_of(url).local] == local


# What was said before.

LINES = {"task_id": "phone_0", "lines": list(SAYS)}
DAMAGED = [
    *(b'{"task_id": "a", "li', b"\n", b"[]", b'{"lines": ["a"]}', b'{"task_id": "a"}', b"[" * 100_000),
    *(b'{"task_id": "a", "lines": [1]}', b'{"task_id": "a", "lines": "abc"}', b'{"task_id": "\xff", "lines": []}'),
    b'{"task_id": "a", "episode": 3}',
    b'{"task_id": "a", "episode": {"heard": "abc", "turns": []}}',
]


def test_lines_are_said_in_order_by_task(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in (LINES, {"task_id": "phone_1", "lines": ["Other."]})))
    user = make_user({"kind": "replay", "file": str(file)})

    def say(task_id: str, number: int) -> str:
        return asyncio.run(user.say(AskUser((), task_id, number)))  # type: ignore[union-attr]

    assert [say("phone_0", 0), say("phone_0", 1), say("phone_1", 0)] == [*SAYS, "Other."]
    for task_id in ("phone_9", "phone_0"):
        with pytest.raises(UserFault, match=f"lines of .*{task_id}"):
            say(task_id, 2)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    for number, damage in enumerate(DAMAGED):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(json.dumps(LINES).encode() + b"\n" + damage + b"\n")
        with pytest.raises(ValueError, match="line 2 holds no recording") as error:
            make_user({"kind": "replay", "file": str(file)})
        assert "\n" not in str(error.value) and len(str(error.value)) < 700, damage
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "No such file"), ("empty", "no files of episodes")):
        with pytest.raises(ValueError, match=words):
            make_user({"kind": "replay", "file": str(tmp_path / name)})


def test_an_evaluation_is_played_again_against_the_words_of_another(tmp_path: Path) -> None:
    phone = write_phone(tmp_path)

    def played(out: Path, *user: str) -> list[str]:
        with serving(lambda messages: PROTOCOL.render_answer("done", "done")) as server:
            given = ["--endpoint", server.url, "--out", str(out), "--environment", str(phone), "--split", "test"]
            assert evaluate.main([*given, *(word for pair in user for word in ("--user", pair))]) == 0
        return (out / "episodes.jsonl").read_text().splitlines()

    first = played(tmp_path / "first", "kind=scripted", "lines=[My line is dead., Goodbye.]")
    rollouts = tmp_path / "run" / "stage" / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    (rollouts / "000001.jsonl").write_text("".join(f"{line}\n" for line in first))
    for name, file in (("folder", "first"), ("file", "first/episodes.jsonl"), ("rollouts", "run")):
        again = played(tmp_path / name, "kind=replay", f"file={tmp_path / file}")
        episodes = [json.loads(line)["episode"] for line in again]
        assert [episode["heard"] for episode in episodes] == [list(SAYS)] * 8
        assert all(episode["outcome"]["passed"] for episode in episodes)
