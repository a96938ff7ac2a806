"""An environment whose user has to be asked: by a conversation without I/O, beside all other episodes, and by whom."""

import asyncio
import json
import shutil
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.control_tokens import ECHO
from support.evaluation import PROTOCOL, completion, phoned, serving
from support.phone import SAYS, write_phone

from interaction import Conversation, EpisodeRecord, StopReason, users
from interaction.endpoint import Endpoint
from interaction.environment import AskUser, load_tasks, named
from interaction.gold import opening, play_gold
from interaction.outcome import TurnResult, Verdicts
from interaction.plain_text import generic
from interaction.users import UserFault, make_user
from recipe.cpu.tiny_policy import make_tokenizer
from rewards import format as form
from rewards import progress

ANSWER = PROTOCOL.render_answer("a", "done")
HELLO = AskUser(({"role": "user", "content": "Hello."},))


@pytest.fixture
def phone(tmp_path: Path) -> Any:
    """A task whose user says `SAYS`, each to be asked for; the last words end the conversation."""
    return load_tasks(named(str(write_phone(tmp_path))))["phone_0"]


def begun(phone: Any, *words: str) -> Any:
    """A conversation in which so much was heard, and the model has answered to it."""
    conversation = Conversation(phone, PROTOCOL)
    conversation.begin()
    for said in words:
        conversation.hear(said)
        conversation.reply(ANSWER)
    return closing(conversation)


def test_a_conversation_asks_and_hears_and_does_nothing_itself(phone: Any) -> None:
    with Conversation(phone, PROTOCOL) as conversation:
        ask = conversation.begin().ask
        assert ask is not None and conversation.asks and (ask.task_id, ask.heard) == ("phone_0", 0)
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
    with Conversation(phone, PROTOCOL, environments={phone.environment: {"greeting": "password=a"}}) as keyed:
        assert keyed.record().options == {"greeting": "password=***"}
    question = {"episode": json.loads(json.dumps(record.to_dict()))}
    assert EpisodeRecord.from_dict(question["episode"]) == record and record.heard == SAYS
    assert progress.compute_score("", "", "", question)["score"] == form.compute_score("", "", "", question)["acc"] == 1


def test_words_are_bounded_and_those_that_cannot_be_used_are_the_users_fault(phone: Any) -> None:
    with begun(phone) as conversation:
        content = conversation.hear("x" * 1_000_000 + "\ud800").messages[1]["content"]
        assert len(content) < 21_000 and content.encode()
    for before in ((), (SAYS[0],)):
        with begun(phone, *before) as conversation:
            with pytest.raises(UserFault, match="no sentence"):
                conversation.hear("???")
            assert not conversation.done
        record = conversation.record()
        assert record.stop_reason == StopReason.infrastructure and not record.outcome.passed


def test_a_user_fault_where_nobody_was_asked_is_the_environments(phone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = type(phone.open())

    def wrong(*_: Any) -> None:
        raise UserFault("nobody was heard")

    monkeypatch.setattr(attempt, "answer", wrong)
    with begun(phone, SAYS[0]) as conversation:
        assert conversation.stop_reason == StopReason.environment_error
    monkeypatch.setattr(attempt, "hear", wrong)
    messages, record = play_gold(phone, PROTOCOL)
    assert (messages, record.stop_reason) == ([], StopReason.environment_error) and "was heard" in str(record.fault)
    assert opening(phone, PROTOCOL) == []


def test_an_episode_that_is_cut_does_not_pass_whatever_the_environment_says(phone: Any, monkeypatch: Any) -> None:
    generous = Verdicts((TurnResult(SAYS[0], True),), passed=True)
    monkeypatch.setattr(type(phone.open()), "verdicts", lambda _: generous)
    for text, cut, passed in (("cut off", True, False), ("no protocol", False, False), (ANSWER, False, True)):
        with Conversation(phone, PROTOCOL, max_format_errors_per_turn=0) as conversation:
            conversation.begin()
            conversation.hear(SAYS[0])
            assert conversation.record().outcome is None
            conversation.reply(text, truncated=cut)
            conversation.stop(StopReason.max_tokens)
            record = conversation.record()
        assert record.outcome is not None and not record.outcome.passed, text
        assert [turn.passed for turn in record.turns] == [passed], text


@pytest.fixture
def rollouts(phone: Any, make_loop: Any, engine: Any, tmp_path: Path) -> Any:
    """Plays episodes side by side, each with an engine that answers at once; returns the tokenizer and the outputs."""
    tokenizer = make_tokenizer([message["content"] for message in play_gold(phone, PROTOCOL)[0]])
    (folder := tmp_path / f"{tmp_path.name}_of_workers").mkdir()
    path = write_phone(folder)  # which their settings alone name
    row = {"extra_info": {"split": "train", "environment": path.stem, "task_id": "phone_0"}, "uid": "u"}

    def played(user: dict[str, Any] | None, episodes: int = 1) -> tuple[Any, list[Any]]:
        async def all_of_them() -> list[Any]:
            engines = [engine(tokenizer, [ANSWER] * 9, "<|im_end|>") for _ in range(episodes)]
            loops = [make_loop(tokenizer, one, user=user, environments={path.stem: str(path)}) for one in engines]
            return await asyncio.gather(*(loop.run({}, session_id=n, **row) for n, loop in enumerate(loops)))

        return tokenizer, asyncio.run(all_of_them())

    return played


def test_users_of_all_episodes_are_waited_for_side_by_side(rollouts: Any) -> None:
    user = {"kind": "scripted", "lines": list(SAYS), "seconds": 0.4}
    _, (output,) = rollouts(user)
    assert sum(output.extra_fields["episode"]["heard_seconds"]) == pytest.approx(output.clock.user, abs=1e-3)
    assert output.extra_fields["truncated"] is False
    began = time.monotonic()
    _, found = rollouts(user, 32)
    assert time.monotonic() - began < 32 * 2 * 0.4 / 4
    assert all(output.extra_fields["episode"]["outcome"]["passed"] for output in found)


def test_an_episode_whose_user_fails_is_played_again_and_then_dropped(rollouts: Any) -> None:
    for user in (None, {"kind": "scripted", "lines": [SAYS[0]]}):
        assert rollouts(user)[1] == [[]]
    with serving(lambda _: "???") as server:
        assert rollouts({"kind": "endpoint", "url": server.url})[1] == [[]]
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


def user_of(url: str, **settings: Any) -> Any:
    return make_user({"kind": "endpoint", "url": url, "timeout": 5.0, "backoff": 0.0, "attempts": 2, **settings})


def heard(url: str, ask: AskUser = HELLO, **settings: Any) -> str:
    async def once() -> str:
        user = user_of(url, **settings)
        try:
            return await user.say(ask)
        finally:
            await user.close()

    return asyncio.run(once())


NO_WORDS = (None, "", "\x00\x07\x1b\u200b\n")
FAULTS = (429, 503, 4.0, None, b"<html>", completion("half a", "abort"), *map(completion, NO_WORDS))
"""Statuses, seconds of silence, hanging up, and bodies in which nobody says a word."""


def test_a_fault_of_the_server_is_asked_again_and_then_the_users() -> None:
    for fault in FAULTS:
        with serving(lambda _: "words", [fault]) as server:
            assert heard(server.url, timeout=2.0 if fault == 4.0 else 10.0) == "words"
            assert len(server.requests) == 2
    with serving(lambda _: "words", [FAULTS[-1], completion("", "length")]) as server:
        assert [heard(server.url, replace(HELLO, silence=True)) for _ in range(2)] == ["", "words"], "not if cut off"
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
        (refusal("Unsupported value: temperature does not support 0.7"), [], None, "interaction.user.temperature=null"),
        (refusal("Use max_completion_tokens, not max_tokens"), [], None, "interaction.user.max_tokens=null"),
        (refusal("maximum context length is 64 tokens"), [], None, "does not fit the context"),
        (None, [], "NO_SUCH", "there is no such environment variable"),
        (None, [], "USER_KEY", "what interaction.user.api_key_env names is no key"),
    ):
        with serving(answer, faults) as server, pytest.raises(UserFault, match=said):
            heard(server.url, attempts=5, max_tokens=9 if "max_tokens" in said else None, api_key_env=key)
        assert len(server.requests) == (key is None), said
    for wrong in ("127.0.0.1:8000", "http://me:key@127.0.0.1/v1", "http://127.0.0.1/v1?key=x"):
        with pytest.raises(ValueError, match="interaction.user with kind=endpoint") as refused:
            user_of(wrong)
        assert "key@" not in str(refused.value) and "key=x" not in str(refused.value)


def test_a_request_has_the_settings_the_key_and_no_control_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", "secret")
    forged = AskUser((*HELLO.messages, {"role": "user", "content": ECHO}))
    with serving(lambda _: (200, completion("x" * 1000, "length"))) as server:
        said = heard(server.url, forged, temperature=0.0, seed=0, max_tokens=9, api_key_env="USER_KEY", max_chars=10)
        heard(server.url, temperature=None, max_tokens=None, model="named")
        first, second = server.requests
    assert said == "x" * 10 + "... [990 more characters]", "words that are cut off are words"
    assert (first["temperature"], first["seed"], first["max_tokens"], first["model"]) == (0.0, 0, 9, "m")
    assert first["messages"][-1]["content"] == generic(ECHO) != ECHO
    assert server.keys == ["Bearer secret", "Bearer EMPTY"] and second["model"] == "named"
    assert not {"temperature", "seed", "max_tokens"} & second.keys()


async def test_all_episodes_share_one_client_and_wait_outside_of_their_time(monkeypatch: Any) -> None:
    monkeypatch.setattr(users, "CONNECTIONS", 4)
    opened, now, most = [], [], []
    known = Endpoint.open

    async def counted(self: Endpoint) -> None:
        opened.append(self)
        await known(self)

    monkeypatch.setattr(Endpoint, "open", counted)

    def slow(messages: Any) -> str:
        now.append(messages)
        most.append(len(now))
        time.sleep(0.2)
        now.pop()
        return "words"

    with serving(slow) as server:
        made = [user_of(server.url, timeout=2.5, attempts=1) for _ in range(80)]  # as each episode makes its own
        assert await asyncio.gather(*(user.say(HELLO) for user in made)) == ["words"] * 80
        await made[0].close()
    assert max(most) <= 4 and len(opened) == 1


def test_an_address_is_of_this_machine_alone_or_not() -> None:
    local = ["http://127.9.9.9/v1", "http://localhost:8001/v1", "http://[::1]:8001/v1"]
    remote = ["http://0.0.0.0:8001/v1", "http://localhost.example.com/v1", "http://10.0.0.7/v1"]
    assert [url for url in [*local, *remote] if user_of(url).local] == local
    clients = [user_of(url)._endpoint()._client._client for url in (local[0], remote[0])]
    assert [client.follow_redirects for client in clients] == [False, True]


def test_a_damaged_line_is_named_and_lines_that_are_missing_are_the_users_fault(tmp_path: Path) -> None:
    whole = json.dumps({"task_id": "phone_0", "lines": ["Hello."]}).encode()
    file = tmp_path / "whole.jsonl"
    file.write_bytes(b"\n".join([whole, whole.replace(b'"Hello."', b'"Hm.", "Hello."')]))  # the first one counts
    user: Any = make_user({"kind": "replay", "file": str(file)})
    for task_id, number in (("phone_9", 0), ("phone_0", 1)):
        with pytest.raises(UserFault, match=f"lines of .*{task_id}"):
            asyncio.run(user.say(AskUser((), task_id, number)))
    damages = [b"[" * 100_000, b'{"task_id": "a", "li', b'{"task_id": "\xff", "lines": []}']
    damages += [b'{"task_id": "a", "lines": "abc"}', b'{"task_id": "a", "episode": 3}']
    for number, damage in enumerate(damages):
        file = tmp_path / f"{number}.jsonl"
        file.write_bytes(whole + b"\n" + damage + b"\n")
        with pytest.raises(ValueError, match="line 2 holds no recording") as error:
            make_user({"kind": "replay", "file": str(file)})
        assert "\n" not in str(error.value) and len(str(error.value)) < 700, damage


def test_an_evaluation_is_played_again_against_the_words_of_another(tmp_path: Path) -> None:
    assert phoned(tmp_path, "kind=scripted", "lines=[My line is dead., Goodbye.]", name="first").status == 0
    rollouts = tmp_path / "run" / "stage" / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    shutil.copy(tmp_path / "first" / "episodes.jsonl", rollouts / "000001.jsonl")
    for number, file in enumerate(("first", "first/episodes.jsonl", "run")):
        done = phoned(tmp_path, "kind=replay", f"file={tmp_path / file}", name=str(number))
        episodes = [line["episode"] for line in done.lines]
        assert done.status == 0 and [episode["heard"] for episode in episodes] == [list(SAYS)] * 8
        assert all(episode["outcome"]["passed"] for episode in episodes)
