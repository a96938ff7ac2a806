"""Talk to a model that calls functions. Its calls and their results are shown as they happen.

    python -m recipe.tools.chat outputs/default/stage3_full/hf --environment bfcl_single --task simple_python_0
    python -m recipe.tools.chat http://127.0.0.1:8000/v1 --protocol hermes --tools functions.json

You type the messages; an empty line sends the task's own next one. Calls run on the task's code; with --tools you type
what they return. Ctrl-D ends. Options of recipe.evaluate hold here too: --environment, --max-tokens, --temperature,
--served-name, --api-key-env, --adapter, what follows `--` for vLLM, and --protocol, --docs and --max-tokens, by default
those that the folder's model was trained with (1024 tokens where it had no limit).
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from interaction import get_protocol
from interaction.boundary import ToolUnavailable
from interaction.call import Call
from interaction.endpoint import Completion, ContextFull, Endpoint, EndpointFault, EndpointRefusal
from interaction.environment import DEFAULT, AskUser, Request, load_tasks, opened, read_options
from interaction.masked import masked_text
from interaction.outcome import ToolResult, Verdicts
from interaction.protocol import Message
from interaction.protocol.docs import render_docs
from interaction.words import line_of, spoken
from recipe.evaluation.arguments import parse, settings_of, through
from recipe.evaluation.play import play_episode
from recipe.evaluation.store import Settings
from recipe.files import PreflightError
from recipe.machine.processes import Interruptible

USAGE = "python -m recipe.tools.chat MODEL [--environment NAME] [--task ID | --tools FILE] [options of recipe.evaluate]"


def main(arguments: Sequence[str] | None = None) -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(usage=USAGE, description=__doc__, formatter_class=form)
    parser.add_argument("model", metavar="MODEL", help="Hugging Face folder to serve with vLLM, or a server's URL")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--task", metavar="ID", help="of the environment (default: the first held-out one)")
    what.add_argument("--tools", type=Path, metavar="FILE", help="JSON list of functions as BFCL or OpenAI has them")
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = parser.parse_known_args(arguments[:at])
    url = "://" in own.model
    source = ["--endpoint" if url else "--model", own.model]
    given, flags = parse([*source, *rest, *arguments[at:]], None, prog=parser.prog, usage=USAGE)
    given.max_tokens = given.max_tokens or 1024
    if sys.stdin.isatty():
        import readline  # noqa: F401  input() has arrow keys then
    try:
        with Interruptible():
            settings = settings_of(given)
            begun = _tools(own.tools) if own.tools else _task(settings, own.task)
            through(given, flags, settings, Path("outputs/chat/server.log"), lambda it: _talk(it, settings, begun))
    except (EndpointFault, EndpointRefusal, PreflightError, ContextFull, ToolUnavailable) as error:
        print(f"\n{masked_text(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _task(settings: Settings, name: str | None) -> Callable[[], Any]:
    tasks = load_tasks(settings.environment)
    name = name or min(tasks, key=lambda name: tasks[name].part != "test")
    if name not in tasks:
        raise PreflightError(f"environment {settings.environment} has no task {name} (--task), but {[*tasks][:3]} ...")
    options = read_options(settings.environment, settings.rules())
    return lambda: opened(tasks[name], options)


def _tools(file: Path) -> Callable[[], Any]:
    try:
        functions = [item.get("function", item) for item in json.loads(file.read_text("utf-8"))]
        render_docs(functions, "signature")
    except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
        wanted = "a JSON list of functions with name, description and parameters"
        raise PreflightError(f"--tools {file} cannot be read: {line_of(error)}\nexpected {wanted}") from error
    return lambda: SimpleNamespace(
        begin=lambda: Request("Hello.", functions),
        call=lambda call: ToolResult(typed("result") or "ok"),
        answer=lambda text: Request("Go on."),
        verdicts=lambda: Verdicts((), passed=False),
        cut=lambda reason: True,
        close=lambda: None,
        facts=dict,
        over=None,
    )


async def _talk(endpoint: Endpoint, settings: Settings, begun: Callable[[], Any]) -> None:
    """One conversation after the other, until the input ends."""
    protocol: Any = get_protocol(settings.protocol, docs=settings.docs)  # type: ignore[arg-type]
    show("chat", f"--protocol {protocol.name} --docs {protocol.docs}; Ctrl-D ends")

    async def complete(messages: Sequence[Message]) -> Completion:
        said = await endpoint.complete(messages)
        parsed = protocol.parse(said.text)
        show("thinks", parsed.thought)
        show("model", said.text if parsed.error or said.truncated else parsed.answer or parsed.beside)
        show("wrong", parsed.error and protocol.explain(parsed))
        return said

    while True:
        typist: Any = Typist(begun)
        shown: Any = SimpleNamespace(complete=complete)
        episode = (await play_episode(shown, settings, typist))["episode"]
        judged = episode["outcome"] if typist.as_written else None
        verdict = judged and ("passed" if judged["passed"] else "not passed")
        ends = [episode["stop_reason"], episode["fault"], verdict, "a new conversation begins"]
        show("end", "; ".join(filter(None, ends)))


class Typist:
    """A task, and the attempt at it, whose user types. The task's next turn comes after its own words of this one."""

    environment, id, category, waits = DEFAULT, "", "", False  # not the played one's: typing has no time limit

    def __init__(self, begun: Callable[[], Any]) -> None:
        self._begun, self.as_written = begun, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)

    def open(self, **_: Any) -> "Typist":
        self._of = self._begun()
        return self

    def begin(self) -> Request | None:
        return self._said(self._of.begin())

    def call(self, call: Call) -> ToolResult:
        show("calls", str(call))
        result: ToolResult = self._of.call(call)
        show("gets", result.text)
        return result

    def answer(self, text: str) -> Request | None:
        goes_on = self._own or self._of.over
        return self._said(self._of.answer(text) if goes_on else replace(self._next, functions=()))

    def _said(self, following: Request | AskUser | None) -> Request | None:
        self._own, asked = True, isinstance(following, AskUser)
        while isinstance(following, AskUser):  # the task is for two models, and you are the other one
            show("task", "\n".join(message["content"] for message in following.messages[-2:]))
            following = self._of.hear(typed("you") or "Hello.")
        if following is None or asked:
            return following
        show("functions", ", ".join(str(item["name"]) for item in following.functions))
        show("task", f"{following.user or 'you can call these now'}  [Enter sends it]")
        words = typed("you") or following.user
        self._own, self._next = words == following.user, following
        self.as_written = self.as_written and self._own
        return replace(following, user=words)


def show(name: str, text: str | None) -> None:
    """Print a text that others wrote, if it says anything."""
    if text:
        print(spoken(name, text), flush=True)


def typed(name: str) -> str:
    """A line of the terminal's or of a pipe's. At the end of the input the program ends."""
    try:
        line = input(f"{name:>9}> ").strip()
    except EOFError:
        print()
        raise SystemExit(0) from None
    if not sys.stdin.isatty():
        print(line, flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())
