"""List the settings: what each is for, its default on each hardware profile, and the file that says so.

    python -m recipe.options                    # all of them, of training and of the warm start
    python -m recipe.options epoch              # those with the word in their name, or in what is said about them
    python -m recipe.options --config-name tau_solo overlong

Each is shown as the override that would set it again. Where none of these has the word, those of verl's that have it in
their name are shown, as verl has them. Imports neither torch nor Ray. The exit status is 1 where nothing has the word.
"""

import argparse
import signal
import sys
import textwrap
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import yaml

from recipe.errors import PreflightError
from recipe.options.fields import UNSET, variables
from recipe.options.listing import Listing, Option, all_of, listing, names
from recipe.typed import shown

SHOWN = ("stage1", "sft")
"""Configurations whose settings are listed where none is named: all stages have the first's."""

WIDTH = 120


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.options", description="List the settings, their defaults and what they are for."
    )
    parser.add_argument("word", nargs="?", default="", help="a part of a setting's name, or of what is said about it")
    parser.add_argument("--config-name", choices=names(), help=f"whose settings; default: {' and '.join(SHOWN)}")
    chosen = parser.parse_args(arguments)
    try:
        listings = [listing(name) for name in ([chosen.config_name] if chosen.config_name else SHOWN)]
    except PreflightError as error:
        print(f"no list: {error}", file=sys.stderr)
        return 2
    texts = [text for one in listings if (text := _listed(one, chosen.word))]
    if text := _variables(chosen.word):
        texts.append(text)
    if not texts and (left := [line for one in listings for line in _untouched(one.name, chosen.word)]):
        texts.append("\n".join(["settings of verl's that this recipe leaves as they are", *dict.fromkeys(left)]))
    if texts:
        print("\n\n".join(texts))
        return 0
    known = [option.key for one in listings for option in one.options]
    print(f"no setting has {shown(chosen.word)} in its name or meaning.{_near(chosen.word, known)}", file=sys.stderr)
    return 1


def _listed(found: Listing, word: str) -> str:
    """The settings of one configuration that have the word, this recipe's first; empty if none has."""
    chosen = [option for option in found.options if _has(word, option.key, *option.said.values())]
    if not chosen:
        return ""
    start = f"settings of {found.name}; values are those of {found.written_for}, others in brackets"
    lines = [start, "=" * len(start)]
    for title, ours in (("this recipe's", True), ("verl's, as this recipe sets them", False)):
        if part := [option for option in chosen if option.ours is ours]:
            lines += ["", f"{title}:"]
            lines += [line for option in part for line in ("", *_lines(option, found.written_for))]
    return "\n".join(lines)


def _lines(option: Option, written_for: str) -> Iterator[str]:
    value = option.values[written_for]
    others = " | ".join(f"{profile}: {_text(other)}" for profile, other in option.values.items() if other != value)
    yield f"{option.key}={_text(value)}" + (f"   ({others})" if others else "")
    for place, said in option.said.items():
        yield from textwrap.wrap(
            f"{place:<30} {said}".rstrip(), WIDTH, initial_indent="    ", subsequent_indent=" " * 35
        )


def _variables(word: str) -> str:
    found = [one for one in variables() if _has(word, one.key, one.text)]
    lines = [line for one in found for line in ("", one.key, *textwrap.wrap(one.text, WIDTH - 4))]
    indented = [f"    {line}" if line and line not in {one.key for one in found} else line for line in lines]
    return "\n".join(["environment variables", "=" * 21, *indented]) if found else ""


def _has(word: str, *texts: str) -> bool:
    return any(word.lower() in text.lower() for text in texts)


def _text(value: Any) -> str:
    """A value as an override has it, on one line."""
    if value == UNSET or value is None:
        return "null" if value is None else UNSET
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _untouched(name: str, word: str) -> list[str]:
    return [f"{key}={_text(value)}" for key, value in all_of(name).items() if _has(word, key)]


def _near(word: str, known: list[str]) -> str:
    """The end of a message about a word that nothing has: the settings that are named most like it."""
    by_last = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = [by_last[last] for last in get_close_matches(word.rpartition(".")[2], list(by_last), 3)]
    near += [key for key in get_close_matches(word, known, 3) if key not in near]
    return f" Nearest: {', '.join(near[:3])}." if near else ""


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it as it ends any other program
    sys.exit(main())
