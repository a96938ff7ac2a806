"""The rules: which result gets which advice. The first one that applies wins, so the order is part of the meaning."""

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

from bfcl_env.augmentation.situation import Situation
from bfcl_env.execution import schema_problem
from bfcl_env.outcomes import ErrorKind

MAX_NAMES = 30

_LOGIN = {
    "MessageAPI": "message_login",
    "TicketAPI": "ticket_login",
    "TradingBot": "trading_login",
    "TwitterAPI": "authenticate_twitter",
    "TravelAPI": "authenticate_travel",
}
_NAME_ARGUMENTS = ("folder", "file_name", "file_name1", "file_name2", "dir_name", "source", "destination")
_OPTIONS = re.compile(r"(?:\[Enum\]|Options are|Here are the options):\s*(.+)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Rule:
    """Advice for results that match all given conditions."""

    advice: Callable[[Situation], str | None]
    errors: frozenset[ErrorKind | None] = frozenset()
    """Error kinds it applies to; empty for any result."""
    pattern: re.Pattern[str] | None = None
    """Must be found in BFCL's text."""
    functions: frozenset[str] = frozenset()
    """Called functions it applies to; empty for all."""


def _names(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MAX_NAMES])
    return f"{shown} and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else shown


def unknown_function(situation: Situation) -> str:
    """The closest visible names."""
    visible = sorted(situation.visible)
    close = difflib.get_close_matches(situation.call.name.rsplit(".", 1)[-1][:100], visible, n=3, cutoff=0.5)
    if close:
        return f"There is no such function now. Did you mean: {', '.join(close)}?"
    return "There is no such function now. Call only functions that are listed as available."


def wrong_arguments(situation: Situation) -> str | None:
    """The mistake and the signature."""
    problem = schema_problem(situation.call)
    if problem is None:
        return None
    required = situation.required
    parts = [
        f"{name}: {schema['type']}{'' if name in required else ' (optional)'}"
        for name, schema in situation.parameters.items()
    ]
    return f"Wrong call: {problem}. Signature: {situation.call.name}({', '.join(parts)})."


def path_instead_of_name(situation: Situation) -> str | None:
    """Most file functions take a name in the current directory, never a path."""
    arguments = situation.call.arguments
    for key in _NAME_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and "/" in value.rstrip("/"):
            walk = situation.if_visible("cd", " Change directory first, one level at a time, with cd.")
            return f"'{key}' must be a plain name in the current directory, not a path.{walk}"
    return None


def missing_entry(situation: Situation) -> str:
    """What the current directory holds."""
    directory = situation.instances["GorillaFileSystem"]._current_dir
    entries = [name + ("/" if hasattr(item, "contents") else "") for name, item in directory.contents.items()]
    if not entries:
        return f"The current directory '{directory.name}' is empty."
    return f"The current directory '{directory.name}' contains: {_names(entries)}."


def not_logged_in(situation: Situation) -> str | None:
    """The login function, with its parameters."""
    login = _LOGIN.get(situation.class_name)
    if login is None or login not in situation.visible:
        return None
    return f"Nobody is logged in, or the token is not valid. Log in first with {login}."


def airport(situation: Situation) -> str | None:
    """Valid codes, or that the codes are valid and only the route is missing."""
    valid = situation.instance.list_all_airports()
    given = [situation.call.arguments.get(key) for key in ("travel_from", "travel_to")]
    wrong = [code for code in given if code not in valid]
    if not wrong:
        return f"Both airports exist, but there is no route from {given[0]} to {given[1]}."
    look_up = situation.if_visible("get_nearest_airport_by_city", " get_nearest_airport_by_city finds a city's code.")
    return f"Not an airport code: {_names([str(code)[:40] for code in wrong])}. Valid: {', '.join(valid)}.{look_up}"


def zip_code(situation: Situation) -> str:
    """Where zip codes come from."""
    look_up = situation.if_visible(
        "get_zipcode_based_on_city", " get_zipcode_based_on_city gives the zip code of a city that is known."
    )
    return f"Distances are known only between some zip codes of five digits.{look_up}"


def options(situation: Situation) -> str | None:
    """The documented options of the first argument that has some and was given something else."""
    for key, schema in situation.parameters.items():
        found = _OPTIONS.search(schema.get("description", ""))
        value = situation.call.arguments.get(key)
        if not found or value is None:
            continue
        words = re.findall(r"[\w ()-]+\w", found.group(1))
        if isinstance(value, str) and value not in [word.strip() for word in words]:
            return f"'{key}' must be one of: {found.group(1).strip().rstrip('.')}."
    return None


def _rule(advice: Callable[[Situation], str | None], *errors: ErrorKind | None, text: str = "", only: str = "") -> Rule:
    return Rule(advice, frozenset(errors), re.compile(text, re.IGNORECASE) if text else None, frozenset(only.split()))


_FAULTS = (ErrorKind.BAD_ARGUMENTS, ErrorKind.EXECUTION, ErrorKind.RESULT)

RULES: tuple[Rule, ...] = (
    _rule(unknown_function, ErrorKind.UNKNOWN_FUNCTION, ErrorKind.WITHHELD_FUNCTION),
    _rule(wrong_arguments, ErrorKind.BAD_ARGUMENTS),
    _rule(
        path_instead_of_name,
        ErrorKind.RESULT,
        only="cd mkdir touch echo cat wc sort grep tail diff mv cp rm rmdir",
    ),
    _rule(
        missing_entry,
        ErrorKind.RESULT,
        text=r"No such|Not a directory|Is a directory",
        only="cd echo cat find wc sort grep tail diff mv cp rm rmdir",
    ),
    _rule(
        not_logged_in,
        ErrorKind.RESULT,
        text=r"not authenticated|No user is currently logged in|Token not initialized|Token expired|"
        r"Invalid access token",
    ),
    _rule(airport, *_FAULTS, text=r"No available route|airport code", only="get_flight_cost book_flight"),
    _rule(zip_code, ErrorKind.RESULT, text=r"distance not found", only="estimate_distance"),
    _rule(options, *_FAULTS),
    _rule(options, None, text=r'"(Unknown|00000|Stock not found)"'),
)
