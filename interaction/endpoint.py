"""One message of a model from an OpenAI-compatible server, asked for again while the server is at fault.

Three outcomes are kept apart, because a score must not depend on the network: a message of the model; `ContextFull`,
which is the model's doing; `EndpointFault`, which is nobody's answer and never a zero. A reply that may
not hold the whole message is none.

Nothing that a server says is trusted: a reply is read up to `LONGEST_REPLY`, one of another shape is a fault, and what
goes to it holds no control tokens but those of its own template (`interaction.plain_text`).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, cast

from interaction.masked import masked_text
from interaction.plain_text import generic
from interaction.protocol import Message

for _client in ("httpx", "httpx2"):  # of openai's library: a line for every request, where a program logs at INFO
    logging.getLogger(_client).setLevel(logging.WARNING)
_CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|size|window|limit)|maximum (context|sequence|model)|max_model_len|n_ctx|"
    r"(input|prompt|seq|sequence)[ _-](length|len|tokens)\b|too many (\w+ )?tokens|reduce the (length|number)|"
    r"(prompts?|inputs?|request|messages?|conversation|entity|payload)( is| are|'s)? (\w+ )?too (long|large)|"
    r"exceed\w* .{0,40}(context|token)|(context|input) .{0,40}(exceed|longer than)|at least \d+, (but )?got -\d+",
    re.IGNORECASE,
)
"""How vLLM, SGLang, llama.cpp, OpenAI and others word a refusal of a conversation that does not fit."""
WHOLE = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence", "complete"})
CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"}) | {
    *("model_context_window_exceeded", "context_length_exceeded")
}
"""Finish reasons of a message that is whole, and of one that a limit has cut. With any other it may be either."""
_TAKEN_OUT = re.compile(r"^(reasoning|thinking|thought|tool_call|function_call)")
"""Names of fields in which servers put what they take out of a message."""
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""The fields of a request that decide how a token is drawn."""
BEYOND_OPENAI = frozenset({"top_k", "min_p", "repetition_penalty", "stop_token_ids"})
"""Those of a request that vLLM and most other servers take and OpenAI's own does not."""
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
_REFUSED_STATUS = frozenset({400, 413, 422})
_FULL_STATUS = _REFUSED_STATUS | {500, 503}
"""With these a conversation may be refused; with these in words that say that it is too long."""
MOST_OF_NOTHING = 8
"""Tokens that a message without text can have: those that end it."""
CONNECT_SECONDS = 3.0
LONGEST_WAIT = 60.0
"""Seconds that are waited at most, whatever a server asks for."""
LONGEST_WORDS = 500
"""Characters of what a server says that are repeated."""
MOST_TOKENS = 2**40
"""A message that a server counts more in was counted by nobody."""
LONGEST_REPLY = 2**23
"""Bytes of a reply with everything around it; a million tokens have about half as many."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One message of the model."""

    text: str
    truncated: bool
    """Cut by the token budget (finish_reason "length")."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the server counts them; 0 where it does not."""
    taken_out: tuple[str, ...] = ()
    """Where else in the reply the server has put parts of the message."""


class ReplyTooLarge(RuntimeError):
    """A reply that is not read to its end. The message says why."""


class EndpointFault(RuntimeError):
    """The server gave no usable reply in all attempts."""


class EndpointRefusal(RuntimeError):
    """No reply of the server can be used: address, key, what is sent ... are wrong. The message names the setting."""


class ContextFull(Exception):
    """The conversation has no room left in the model's context."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a person calls the settings of an endpoint: a message says which of them to change."""

    url: str = "url"
    model: str = "model"
    key: str = "api_key"
    left_out: str = "Leave {name} out of what is sent."
    """What to do where the server refuses the field `name`, as an `option` of a command line."""


class Endpoint:
    """A server's chat completions. To be used with `async with`.

    Args:
        url: address up to and with `/v1`.
        model: name under which the server knows the model; None: the only one that it serves.
        api_key: sent as bearer token.
        timeout: seconds for one reply, queueing included.
        attempts: how often one message is asked for.
        backoff: seconds before the second attempt; doubled each time, with jitter, unless the server says when.
        sampling: temperature, max_tokens and what else goes into every request.
        plain: makes a text free of control tokens; each message goes through it.
        thoughts: whether the server may take the model's thoughts out of a message.
        named: names of settings, for messages.
        private: whether nothing may leave for another address: no proxy is asked, and no redirection followed.

    Raises:
        EndpointRefusal: the key cannot be sent.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        api_key: str = "EMPTY",
        timeout: float = 600.0,
        attempts: int = 5,
        backoff: float = 1.0,
        sampling: dict[str, Any] | None = None,
        plain: Callable[[str], str] = generic,
        named: Named = Named(),  # noqa: B008  frozen
        private: bool = False,
        thoughts: bool = False,
    ) -> None:
        from openai import AsyncOpenAI  # here, because `--help` should not wait for it

        if not api_key.isascii() or not api_key.isprintable() or len(api_key.split()) != 1:  # libraries quote it
            raise EndpointRefusal(f"what {named.key} names is no key: expected printable ASCII without spaces")
        self.url = masked_text(url)  # for messages
        self.model, self.timeout, self.attempts, self.backoff = model, timeout, attempts, backoff
        self.sampling, self.plain, self.named, self.thoughts = sampling or {}, plain, named, thoughts
        self._shortest = math.inf
        """Characters of the shortest conversation that was answered; of none, so far."""
        self._client = AsyncOpenAI(
            base_url=url, api_key=api_key, timeout=timeout, max_retries=0, http_client=_bounded_client(private)
        )

    async def __aenter__(self) -> Endpoint:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Learn the name of the model where none was given. Raises EndpointRefusal if the server does not say one."""
        if self.model is not None:
            return
        names = await self.reach()
        if not names:
            raise EndpointRefusal(
                f"{self.url} does not say which models it serves. Expected the address of an OpenAI-compatible server "
                f"up to and with /v1 ({self.named.url}); or give {self.named.model}."
            )
        if len(names) > 1:
            raise EndpointRefusal(f"{self.url} serves {one_line(', '.join(names))}; choose with {self.named.model}")
        self.model = names[0]

    async def reach(self) -> list[str]:
        """The models that the server lists; none where it does not say. Raises EndpointRefusal if nothing answers."""
        from openai import APIConnectionError, APIError, Timeout

        try:
            once = self._client.with_options(timeout=Timeout(self.timeout, connect=CONNECT_SECONDS))
            return [str(model.id) for model in (await once.models.list()).data]
        except APIConnectionError as error:
            raise EndpointRefusal(
                f"{self.url} cannot be reached: {words(error)}. Look at {self.named.url}; is the server running?"
            ) from error
        except (APIError, ValueError, TypeError, AttributeError):
            return []

    async def close(self) -> None:
        await self._client.close()

    async def complete(
        self, messages: Sequence[Message], require: Callable[[Completion], object] = lambda said: None
    ) -> Completion:
        """The model's next message. After one for which `require` raises ValueError it is asked for again.

        Raises:
            ContextFull: the conversation does not fit any more.
            EndpointRefusal: it makes no sense to ask again.
            EndpointFault: no usable reply in all attempts.
        """
        fault = ""
        for attempt in range(self.attempts):
            wait = min(LONGEST_WAIT, self.backoff * 2**attempt) * random.uniform(0.5, 1.0)
            try:
                async with asyncio.timeout(self.timeout):
                    return await self._ask(messages, require)
            except (ContextFull, EndpointRefusal):
                raise
            except TimeoutError:
                fault = f"no reply within {self.timeout:g} s"
            except Exception as error:
                fault = words(error)
                status = getattr(error, "status_code", None)
                if isinstance(status, int) and 400 <= status < 500 and status not in _RETRIED_STATUS:
                    break  # the same request gets the same answer
                wait = asked_to_wait(error) or wait
            if attempt + 1 < self.attempts:
                await asyncio.sleep(wait)
        raise EndpointFault(fault)

    async def _ask(self, messages: Sequence[Message], require: Callable[[Completion], object]) -> Completion:
        from openai import APIStatusError, AuthenticationError, NotFoundError, PermissionDeniedError

        options, refused = dict(self.sampling), 0
        request: list[Message] = [{**message, "content": self.plain(message["content"])} for message in messages]
        length = sum(len(message["content"]) for message in request)
        while True:
            try:
                response = await self._send(request, options)
                if not refused:
                    self._shortest = min(self._shortest, length)
                said = read(response)
                self._require_whole(said)
                require(said)
                return said
            except (AuthenticationError, NotFoundError, PermissionDeniedError) as error:
                raise EndpointRefusal(
                    f"{self.url} refuses to answer as model {self.model!r}: {words(error)}. "
                    f"Look at {self.named.url}, {self.named.model} and {self.named.key}."
                ) from error
            except APIStatusError as error:
                full = _CONTEXT_FULL.search(_all_words(error))
                if error.status_code not in (_FULL_STATUS if full else _REFUSED_STATUS):
                    raise
                refused += 1
                if not full and (refused > 1 or self._shortest == math.inf):
                    await self._require_own(error, length)
                # Some servers refuse a budget that is larger than what is left: ask for what is left instead.
                if options.pop("max_tokens", None) is None and (full or refused > 1):
                    raise ContextFull(words(error)) from error

    async def _send(self, request: list[Message], options: dict[str, Any]) -> Any:
        known = {name: value for name, value in options.items() if name not in BEYOND_OPENAI}
        more = {name: value for name, value in options.items() if name in BEYOND_OPENAI}
        return await self._client.chat.completions.create(
            model=self.model or "", messages=cast(Any, request), extra_body=more, **known
        )

    def _require_whole(self, said: Completion) -> None:
        """Raises EndpointRefusal if the server has taken a part out of the message."""
        only_thoughts = not any("call" in name for name in said.taken_out)
        if said.taken_out and not (self.thoughts and only_thoughts):
            raise EndpointRefusal(
                f"{self.url} takes parts out of the model's messages ({one_line(', '.join(said.taken_out))}). Start it "
                "without --reasoning-parser and --tool-call-parser; llama.cpp with --reasoning-format none."
            )

    async def _require_own(self, refusal: Any, length: int) -> None:
        """Returns if it is this conversation that is refused: a short one is answered, or a shorter one was.

        Raises EndpointRefusal if none was ever answered with these fields, APIError if none is now.
        """
        from openai import APIError

        said, taken = _all_words(refusal), self._shortest < math.inf
        at = sorted((found.start(), name) for name in self.sampling if (found := re.search(rf"\b{name}\b", said)))
        if taken or not at:
            try:
                await self._send([{"role": "user", "content": "Hi"}], self.sampling)
                self._shortest = 0
                return
            except APIError as fault:
                if getattr(fault, "status_code", None) not in _REFUSED_STATUS:
                    if self._shortest < length:
                        return
                    raise
                if taken:
                    raise refusal from None
        name = at[0][1] if at else "FIELD"
        sent = f"{self.sampling} ({self.named.model}, {self.named.key})"
        what = f"the field {name}={self.sampling[name]}" if at else f"every request with {sent}"
        advice = self.named.left_out.format(name=name, option=name.replace("_", "-"))
        raise EndpointRefusal(f"{self.url} refuses {what}: {words(refusal)}. {advice}") from refusal


def _bounded_client(private: bool) -> Any:
    """The HTTP client of openai's library. It reads no more of a reply than a message can be, and opens nothing.

    Unless it is to be private, it uses the environment's proxies and follows redirections.
    """
    from openai import DefaultAsyncHttpxClient

    async def bound(response: Any) -> None:
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):  # a few kilobytes of gzip become gigabytes
            raise ReplyTooLarge(f"a reply in the encoding {encoding[:40]!r}, which was not asked for and is not opened")
        response.stream = _counted(response.stream)

    return DefaultAsyncHttpxClient(
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [bound]},
        trust_env=not private,
        follow_redirects=not private,
    )


def _counted(stream: Any) -> Any:
    """The stream with an end. Of its own class: which library it is of depends on the release of openai's."""

    class Counted(type(stream)):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for part in stream:
                read += len(part)
                if read > LONGEST_REPLY:
                    raise ReplyTooLarge(f"a reply of more than {LONGEST_REPLY} bytes")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Counted()


def read(response: Any) -> Completion:
    """The message in a reply, without lone surrogates. Raises ValueError for a body that is not a chat completion."""
    try:
        choice = response.choices[0]
        text, finish = choice.message.content, choice.finish_reason
        fields = {**vars(choice.message), **(choice.message.model_extra or {})}
    except (AttributeError, IndexError, TypeError):
        raise ValueError(f"malformed body: {str(response)[:200]!r}") from None
    taken_out = [name for name, value in fields.items() if value and _TAKEN_OUT.search(name)]
    if finish in ("tool_calls", "function_call"):
        taken_out.append(f"finish_reason {finish}")
    if not (text or taken_out) and _tokens(response, "completion_tokens") > MOST_OF_NOTHING:
        taken_out.append("all of its tokens")
    end, unsaid = finish.lower() if isinstance(finish, str) else "", not text and fields.get("refusal")
    if not isinstance(text, str | None) or unsaid or not (taken_out or end in WHOLE | CUT):
        raise ValueError(f"not known to be a whole message: content {str(text)[:80]!r}, finish_reason {finish!r}")
    return Completion(
        text=(text or "").encode("utf-8", "replace").decode("utf-8"),
        truncated=end in CUT,
        prompt_tokens=_tokens(response, "prompt_tokens"),
        completion_tokens=_tokens(response, "completion_tokens"),
        taken_out=tuple(taken_out),
    )


def _tokens(response: Any, name: str) -> int:
    """A number of the reply's `usage`; 0 where it says none that can be: no score depends on it."""
    value = getattr(getattr(response, "usage", None), name, None)
    return value if type(value) is int and 0 <= value < MOST_TOKENS else 0


def asked_to_wait(error: Exception) -> float | None:
    """Seconds after which the server wants to be asked again; None where it does not say."""
    response = getattr(error, "response", None)
    try:
        wait = float(response.headers["retry-after"]) if response is not None else 0.0
        return min(LONGEST_WAIT, wait) if wait > 0 else None
    except (KeyError, ValueError):
        return None


def words(error: Exception) -> str:
    """A fault, and what caused it, on one line."""
    more = f" ({error.__cause__})" if error.__cause__ is not None and str(error.__cause__) else ""
    if re.fullmatch(r"Error code: \d+", str(error)):  # of openai's, where a reply has no error.message
        more = f" - {error.response.text}"  # type: ignore[attr-defined]
    return one_line(f"{type(error).__name__}: {error}{more}")


def _all_words(error: Any) -> str:
    """All that a server has said to a request that it refused: the exception's text has only a part of it."""
    return f"{error} {error.response.text}"[: LONGEST_WORDS * 20]


def one_line(text: str) -> str:
    """A server's words on one line of a terminal: what is not printable is shown as its code."""
    text = " ".join(text[: 2 * LONGEST_WORDS].split())[:LONGEST_WORDS]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


async def side_by_side(work: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
    """Runs so many of `work()` at once, until all have ended.

    Raises:
        EndpointRefusal, OSError: of the first that ended so; the others are cancelled.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(work())
    except ExceptionGroup as error:  # not except*: before Python 3.11.4 it wraps what is raised in it
        if (ends := error.subgroup((EndpointRefusal, OSError))) is None:
            raise
        raise ends.exceptions[0] from None
