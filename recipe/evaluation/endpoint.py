"""One message of a model from an OpenAI-compatible server, asked for again while the server is at fault.

Three outcomes are kept apart, because a score must not depend on the network: a message of the model; `ContextFull`,
which is the model's doing, it has said too much; `EndpointFault`, which is nobody's answer and never a zero.

Nothing that a server says is trusted: a reply is read up to a limit (`bounded`), one of another shape is a fault, and
what goes to it holds no control tokens but those of its own template (`plain`).
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from interaction.protocol import Message
from recipe.evaluation.bounded import bounded_client
from recipe.evaluation.plain import generic

_CONTEXT_FULL = re.compile(
    r"context[ _-]?(length|size|window)|maximum (context|sequence|model)|max_model_len|"
    r"(prompt|input|request)( is| are|'s)? (\w+ )?too long|exceed\w* .{0,40}(context|token)",
    re.IGNORECASE,
)
"""How vLLM, SGLang, llama.cpp, OpenAI and others word a 400 for a conversation that does not fit."""
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)
"""The fields of a request that decide how a token is drawn."""
BEYOND_OPENAI = frozenset({"top_k", "min_p", "repetition_penalty"})
"""Those of them that vLLM and most other servers take and OpenAI's own does not."""
_RETRIED_STATUS = frozenset({408, 409, 425, 429})
LONGEST_WAIT = 60.0
LONGEST_WORDS = 500
"""Characters of what a server says that are repeated."""
MOST_TOKENS = 2**40
"""A message that a server counts more in was counted by nobody."""


class EndpointFault(RuntimeError):
    """The server gave no usable reply in all attempts."""


class EndpointRefusal(RuntimeError):
    """The server refuses every request of this evaluation: address, key or model name are wrong."""


class ContextFull(Exception):
    """The conversation has no room left in the model's context."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One message of the model."""

    text: str
    truncated: bool
    """Cut by the token budget (finish_reason "length")."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """As the server counts them; 0 where it does not."""


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
    ) -> None:
        from openai import AsyncOpenAI  # here, because `--help` should not wait for it

        self.url = url
        self.model = model
        self.timeout = timeout
        self.attempts = attempts
        self.backoff = backoff
        self.sampling = sampling or {}
        self.plain = plain
        self._taken = False
        """Whether a request was answered, so that the server takes these fields."""
        self._client = AsyncOpenAI(
            base_url=url, api_key=api_key, timeout=timeout, max_retries=0, http_client=bounded_client()
        )

    async def __aenter__(self) -> Endpoint:
        if self.model is None:
            self.model = await self._only_model()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._client.close()

    async def complete(self, messages: Sequence[Message]) -> Completion:
        """The model's next message.

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
                    return await self._ask(messages)
            except (ContextFull, EndpointRefusal):
                raise
            except TimeoutError:
                fault = f"no reply within {self.timeout:g} s"
            except Exception as error:
                fault = _words(error)
                status = getattr(error, "status_code", None)
                if isinstance(status, int) and 400 <= status < 500 and status not in _RETRIED_STATUS:
                    break  # the same request gets the same answer
                wait = _asked_to_wait(error) or wait
            if attempt + 1 < self.attempts:
                await asyncio.sleep(wait)
        raise EndpointFault(fault)

    async def _ask(self, messages: Sequence[Message]) -> Completion:
        from openai import AuthenticationError, BadRequestError, NotFoundError, PermissionDeniedError
        from openai import UnprocessableEntityError as InvalidError

        options = dict(self.sampling)
        request = cast(Any, [{**message, "content": self.plain(message["content"])} for message in messages])
        while True:
            try:
                known = {name: value for name, value in options.items() if name not in BEYOND_OPENAI}
                more = {name: value for name, value in options.items() if name in BEYOND_OPENAI}
                response: Any = await self._client.chat.completions.create(
                    model=self.model or "", messages=request, extra_body=more, **known
                )
                self._taken = True
                return _read(response)
            except (AuthenticationError, NotFoundError, PermissionDeniedError) as error:
                raise EndpointRefusal(
                    f"{self.url} refuses to answer as model {self.model!r}: {_words(error)}. "
                    "Look at --endpoint, --served-name and --api-key-env."
                ) from error
            except (BadRequestError, InvalidError) as error:
                if not _CONTEXT_FULL.search(str(error)):
                    self._refused_field(error)
                    raise
                if options.pop("max_tokens", None) is None:
                    raise ContextFull(_words(error)) from error
                # Some servers refuse a budget that is larger than what is left: ask for what is left instead.

    def _refused_field(self, error: Exception) -> None:
        """Raises EndpointRefusal if the server does not take one of the sampling fields."""
        sent = [name for name in SAMPLING if name in self.sampling]
        named = [name for name in sent if re.search(rf"\b{name}\b", str(error))]
        if named and not self._taken:
            name = named[0]
            raise EndpointRefusal(
                f"{self.url} refuses the sampling field {name}={self.sampling[name]}: {_words(error)}. Add --leave-out "
                f"{name}: then the server decides it, and settings.json says so. Results compare only where that is "
                "the same."
            ) from error

    async def _only_model(self) -> str:
        try:
            listed = await self._client.with_options(max_retries=self.attempts).models.list()
            names = [str(model.id) for model in listed.data]
        except Exception as error:
            raise EndpointRefusal(
                f"{self.url} does not say which models it serves: {_words(error)}. "
                "Expected the address of an OpenAI-compatible server up to and with /v1; or give --served-name."
            ) from error
        if len(names) != 1:
            raise EndpointRefusal(
                f"{self.url} serves {_line(', '.join(names)) or 'nothing'}; choose with --served-name"
            )
        return names[0]


def _read(response: Any) -> Completion:
    """The message in a reply, without lone surrogates. Raises ValueError for a body that is not a chat completion."""
    try:
        choice = response.choices[0]
        text, finish = choice.message.content, choice.finish_reason
    except (AttributeError, IndexError, TypeError):
        raise ValueError(f"malformed body: {str(response)[:200]!r}") from None
    if not isinstance(text, str | None) or not isinstance(finish, str) or finish in ("abort", "error"):
        raise ValueError(f"malformed choice: content {str(text)[:80]!r}, finish_reason {finish!r}")
    return Completion(
        text=(text or "").encode("utf-8", "replace").decode("utf-8"),
        truncated=finish == "length",
        prompt_tokens=_tokens(response, "prompt_tokens"),
        completion_tokens=_tokens(response, "completion_tokens"),
    )


def _tokens(response: Any, name: str) -> int:
    """A number of the reply's `usage`; 0 where it says none that can be: no score depends on it."""
    value = getattr(getattr(response, "usage", None), name, None)
    return value if type(value) is int and 0 <= value < MOST_TOKENS else 0


def _asked_to_wait(error: Exception) -> float | None:
    response = getattr(error, "response", None)
    try:
        wait = float(response.headers["retry-after"]) if response is not None else 0.0
        return min(LONGEST_WAIT, wait) if wait > 0 else None
    except (KeyError, ValueError):
        return None


def _words(error: Exception) -> str:
    cause = f" ({error.__cause__})" if error.__cause__ is not None and str(error.__cause__) else ""
    return _line(f"{type(error).__name__}: {error}{cause}")


def _line(text: str) -> str:
    """A server's words on one line of a terminal: what is not printable is shown as its code."""
    text = " ".join(text[: 2 * LONGEST_WORDS].split())[:LONGEST_WORDS]
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
