"""Checks of the model's chat template: a conversation can be continued with it, token by token, without rewriting.

During a rollout verl renders each message of the environment on its own, behind a made-up request, and appends the
tokens. Not every template allows that; one that does not would fail in every rollout, after minutes of start-up.
"""

from collections.abc import Mapping
from typing import Any

from interaction.chat_template import closing_ids
from interaction.protocol import Message, Protocol
from recipe.errors import PreflightError

MADE_UP: list[Message] = [
    {"role": "system", "content": "made-up rules"},
    {"role": "user", "content": "made-up request"},
]
LATER: Message = {"role": "user", "content": "Results: [1]"}


def check_template(tokenizer: Any, protocol: Protocol, model: str, template_kwargs: Mapping[str, Any]) -> str:
    """Render what a rollout renders. Returns a line about what the template does, for the log.

    Args:
        template_kwargs: `data.apply_chat_template_kwargs`, which verl gives to the template.

    Raises:
        PreflightError: the template refuses the messages, loses some of their text, or cannot be continued.
    """
    where = f"the chat template of {model}"
    remedy = "Take another model, or put a chat_template.jinja that does it into the model's folder."

    def render(messages: list[Message], header: bool = False) -> str:
        try:
            return tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=header, **template_kwargs
            )
        except Exception as error:
            roles, words = ", ".join(message["role"] for message in messages), " ".join(str(error).split())[:300]
            raise PreflightError(
                f"{where} refuses messages with the roles {roles}: {type(error).__name__}: {words}. The agent loop "
                f"needs them. {remedy}"
            ) from error

    before, after = render(MADE_UP), render([*MADE_UP, LATER], header=True)
    for message in (*MADE_UP, LATER):
        if message["content"] not in after:
            raise PreflightError(f"{where} leaves out the text of a message in the role {message['role']}. {remedy}")
    header = render(MADE_UP, header=True).removeprefix(before)
    if not header or not after.endswith(header):
        raise PreflightError(
            f"{where} writes no header for the model's next message (add_generation_prompt): the model would go on "
            f"with the user's. {remedy}"
        )
    ids, longer = (_ids(tokenizer, text) for text in (before, after))
    if longer[: len(ids)] != ids:
        raise PreflightError(
            f"{where} changes what it has written when a message follows, so that nothing can be appended. {remedy}"
        )
    _check_thought(protocol, header, where)
    try:
        closing = closing_ids(lambda messages: _ids(tokenizer, render(messages)))
    except ValueError as error:
        raise PreflightError(f"{where}: {error}. {remedy}") from error
    rewritten = _drops_thoughts(render, protocol)
    note = "; drops earlier thoughts, which rollouts keep" if rewritten else ""
    return f"messages end with {tokenizer.decode(closing)!r}{note}"


def _check_thought(protocol: Protocol, header: str, where: str) -> None:
    """A header that opens the thought makes a message begin inside it; the protocol must read it so."""
    if not header.rstrip().endswith("<think>"):
        return
    for example in protocol.examples():
        meant = protocol.parse(example)
        action = example.partition("</think>")[2] or example
        read = protocol.parse(f"a thought\n</think>\n\n{action.strip()}")
        if (read.calls, read.answer) != (meant.calls, meant.answer):
            raise PreflightError(
                f"{where} opens <think> itself, so the model's messages begin inside the thought, and "
                f"interaction.protocol={protocol.name} does not read them so. Set interaction.protocol=hermes (with "
                "data made for it), or take <think> out of the template's header."
            )


def _drops_thoughts(render: Any, protocol: Protocol) -> bool:
    answer = {"role": "assistant", "content": protocol.render_answer("an earlier thought", "done")}
    whole = render([*MADE_UP, answer, {"role": "user", "content": "next"}, answer])
    return whole.count("an earlier thought") < 2 * answer["content"].count("an earlier thought")


def _ids(tokenizer: Any, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False)
