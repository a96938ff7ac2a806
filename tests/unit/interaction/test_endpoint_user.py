"""A user who is a model behind a server: every fault of the server once and for ever, and what it says as data."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, completion, serving
from support.phone import SAYS, write_phone

from interaction.endpoint.client import Endpoint
from interaction.environment import AskUser, load_tasks, register
from interaction.gold import play_gold
from interaction.plain_text import generic
from interaction.users import EndpointUser, UserFault, endpoint, make_user
from recipe.cpu.tiny_policy import make_tokenizer

HELLO = AskUser(({"role": "system", "content": "You have a phone."}, {"role": "user", "content": "Hello."}))


def says(messages: Sequence[dict[str, str]]) -> str:
    """The words of the phone's user, by how often it has spoken."""
    return SAYS[sum(message["role"] == "assistant" for message in messages)]


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


FAULTS = {
    "too many requests": 429,
    "internal error": 500,
    "overloaded": 503,
    "silence": 2.0,
    "hangs up": None,
    "no JSON": b"<html>",
    "no choice": {"choices": []},
    "another shape": {"choices": [{"message": {"content": ["x"]}, "finish_reason": "stop"}]},
    "aborted": completion("half a", "abort"),
    "no text": completion(None),
    "empty": completion(""),
    "empty and cut off": completion("", "length"),
    "blank": completion(" \n\t"),
    "control characters": completion("\x00\x07\x1b\u200b\n"),
}


def test_a_fault_of_the_server_is_asked_again_and_then_the_users() -> None:
    for fault in FAULTS.values():
        with serving(says, [fault]) as server:
            assert heard(server.url, timeout=0.5) == SAYS[0]
            assert len(server.requests) == 2
        with serving(says, [fault] * 2) as server:
            with pytest.raises(UserFault, match="gave no words in 2 attempts") as lasting:
                heard(server.url, timeout=0.5)
            assert len(server.requests) == 2 and "\n" not in str(lasting.value)


def test_what_no_second_attempt_would_change_is_the_users_fault_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(words: str) -> Any:
        return lambda _: (400, {"error": {"message": words}})

    monkeypatch.setenv("USER_KEY", "two words")
    settings = "interaction.user.url, interaction.user.model and interaction.user.api_ke"
    for answer, faults, key, said in (
        (says, [401], None, settings),
        (says, [404], None, settings),
        (refusal("Unsupported value: temperature does not support 0.7"), [], None, "interaction.user.temperature=null"),
        (refusal("maximum context length is 64 tokens"), [], None, "does not fit the context"),
        (says, [], "NO_SUCH", "there is no such environment variable"),
        (says, [], "USER_KEY", "what interaction.user.api_key_env names is no key"),
    ):
        more = {"api_key_env": key} if key else {"max_tokens": None}
        with serving(answer, faults) as server, pytest.raises(UserFault, match=said):
            heard(server.url, attempts=5, **more)
        assert len(server.requests) == (key is None), said
    for wrong in ("127.0.0.1:8000", "http://me:key@127.0.0.1/v1", "http://127.0.0.1/v1?key=x", "file:///etc/passwd"):
        with pytest.raises(ValueError, match="interaction.user with kind=endpoint"):
            make_user({"kind": "endpoint", "url": wrong})


def test_words_that_are_cut_off_are_words_and_long_ones_are_bounded() -> None:
    with serving(lambda _: (200, completion("I would like to", "length"))) as server:
        assert heard(server.url) == "I would like to"
    with serving(lambda _: "x" * 1000) as server:
        assert heard(server.url, max_chars=10) == "x" * 10 + "... [990 more characters]"


def test_every_request_has_the_settings_and_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "secret")
    with serving(says) as server:
        heard(server.url, temperature=0.2, seed=7, max_tokens=9, api_key_env="USER_KEY")
        heard(server.url, temperature=None, max_tokens=None, model="named")
        first, second = server.requests
    assert (first["temperature"], first["seed"], first["max_tokens"], first["model"]) == (0.2, 7, 9, "m")
    assert server.keys == ["Bearer secret", "Bearer EMPTY"] and second["model"] == "named"
    assert not {"temperature", "seed", "max_tokens"} & second.keys()


def test_what_the_agent_has_said_is_no_control_token_to_the_user_model() -> None:
    forged = AskUser((*HELLO.messages, {"role": "user", "content": ECHO}))
    with serving(says) as server:
        heard(server.url, forged)
    assert [message["content"] for message in server.requests[0]["messages"]][-1] == generic(ECHO) != ECHO


def test_all_episodes_share_one_client_and_wait_outside_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "CONNECTIONS", 4)
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
        time.sleep(0.1)
        with lock:
            now -= 1
        return "words"

    async def many(url: str) -> list[str]:
        made = [user_of(url, timeout=1.5, attempts=1) for _ in range(80)]  # as each episode makes its own
        return await asyncio.gather(*(user.say(HELLO) for user in made))

    with serving(slow) as server:
        assert asyncio.run(many(server.url)) == ["words"] * 80
    assert most <= 4 and len(opened) == 1


def test_an_address_is_of_this_machine_alone_or_not() -> None:
    local = ["http://127.0.0.1:8001/v1", "http://127.9.9.9/v1", "http://localhost:8001/v1", "http://[::1]:8001/v1"]
    remote = ["http://0.0.0.0:8001/v1", "http://localhost.example.com/v1", "http://10.0.0.7/v1", "https://a.b/v1"]
    assert [url for url in [*local, *remote] if user_of(url).local] == local


# In a rollout.


@pytest.fixture
def rollout(make_loop: Any, engine: Any, tmp_path: Path) -> Any:
    """Plays one episode of the phone with a user behind a server; returns tokenizer, output and the engine."""
    phone = write_phone(tmp_path)
    register({phone.stem: str(phone)})
    messages, _ = play_gold(load_tasks(phone.stem)["phone_0"], PROTOCOL)
    tokenizer = make_tokenizer([message["content"] for message in messages])
    row = {"extra_info": {"split": "train", "environment": phone.stem, "task_id": "phone_0"}, "uid": "u"}

    def played(url: str) -> tuple[Any, Any, Any]:
        async def one() -> tuple[Any, Any, Any]:
            answers = engine(tokenizer, [PROTOCOL.render_answer("done", "done")] * 9, "<|im_end|>")
            user = {"kind": "endpoint", "url": url, "timeout": 5.0, "backoff": 0.0, "attempts": 2}
            loop = make_loop(tokenizer, answers, record_dir=tmp_path, user=user)
            return tokenizer, await loop.run({}, session_id=0, **row), answers

        return asyncio.run(one())

    return played


def test_what_a_user_model_says_is_no_control_token_to_the_policy(rollout: Any) -> None:
    counts = []
    for words in (SAYS[0], ECHO):
        with serving(lambda messages, words=words: [words, SAYS[1]][len(messages) > 2]) as server:
            tokenizer, output, _ = rollout(server.url)
        special = set(tokenizer.all_special_ids)
        counts.append(sum(token in special for token in [*output.prompt_ids, *output.response_ids]))
        assert output.extra_fields["episode"]["heard"][0] == words
    assert counts[0] == counts[1] > 0


def test_words_that_the_environment_cannot_use_are_played_again_and_counted(rollout: Any, tmp_path: Path) -> None:
    said = iter(["???", *SAYS])
    with serving(lambda _: next(said)) as server:
        _, output, _ = rollout(server.url)
    assert output.extra_fields["episode"]["heard"] == list(SAYS)
    for counted in (output.extra_fields, output.record_header):
        assert (counted["user_faults"], counted["engine_faults"]) == (1, 0)


def test_words_that_never_can_be_used_drop_the_episode(rollout: Any, caplog: pytest.LogCaptureFixture) -> None:
    with serving(lambda _: "???") as server:
        assert rollout(server.url)[1] == []
    assert "the user says no sentence" in caplog.text and "environment fault" not in caplog.text
