"""Rules for GorillaFileSystem: what the current directory holds, and in which directory a name is."""

from typing import Any

from bfcl_env.augmentation.rule import LIMITS, Rule, Situation, listing, rules_of, says, sentences, short
from bfcl_env.limits import tree_too_large

RULES: list[Rule] = []
rule = rules_of("GorillaFileSystem", RULES)
_NAMES = ("folder", "file_name", "file_name1", "file_name2", "dir_name", "source", "destination", "path")
"""Arguments that name an entry."""


def _is_directory(item: Any) -> bool:
    return hasattr(item, "contents")


def _missing(situation: Situation) -> str:
    """The given name that is not here, or the first one given."""
    given = [situation.argument(key) for key in _NAMES if isinstance(situation.argument(key), str)]
    here = situation.instance._current_dir.contents
    absent = [name for name in given if name not in here]
    return (absent or given or [""])[0]


def contents(situation: Situation, near: str = "", directories: bool = False) -> str:
    """What the current directory holds, for those who can look."""
    if situation.visible.isdisjoint(("ls", "find")):
        return ""
    here = situation.instance._current_dir
    names = [name for name, item in here.contents.items() if _is_directory(item) or not directories]
    kind = "directories" if directories else "entries"
    if not names:
        return f"The current directory {short(here.name)} has no {kind}."
    return f"The {kind} of the current directory {short(here.name)}: {listing(names, near)}."


def _path_to(root: Any, wanted: Any, name: str) -> tuple[str, ...] | None:
    """The directories from the root to the directory `wanted`, or, if that is None, to the first that holds `name`."""
    pending: list[tuple[Any, tuple[str, ...]]] = [(root, ())]
    for directory, path in pending:
        if directory is wanted or (wanted is None and name in directory.contents):
            return path
        pending += [(item, (*path, key)) for key, item in directory.contents.items() if _is_directory(item)]
    return None


def elsewhere(situation: Situation, name: str) -> str:
    """In which directory the name is and the first step towards it; empty if nowhere, or nothing could tell."""
    root, here = situation.instance.root, situation.instance._current_dir
    if "find" not in situation.visible or not name or tree_too_large(root):
        return ""
    target, current = _path_to(root, None, name), _path_to(root, here, "")
    if target is None or current is None or target == current:
        return ""
    below = target[: len(current)] == current
    step = target[len(current)] if below else ".."
    where = f"It is in the directory {short('/'.join((root.name, *target)))}."
    return sentences(where, situation.if_visible("cd", f"Go there one level at a time: first cd(folder={step!r})."))


@rule("", "", "cat(file_name='document/final_report.pdf')")
def path_given(situation: Situation) -> str | None:
    for key in _NAMES:
        value = situation.argument(key)
        if not isinstance(value, str) or "/" not in value.rstrip("/") or situation.call.name == "find":
            continue
        if key == "destination":
            return sentences(
                f"'{key}' must be a plain name: a directory inside the current one, or a new name.",
                contents(situation, value, directories=True),
            )
        if value.startswith("./") and "/" not in value[2:]:
            return f"'{key}' must be a plain name in the current directory: leave out './'."
        first = value.strip("/").split("/")[0] or "/"
        start = "/" if value.startswith("/") and situation.instance._current_dir.parent else first
        return sentences(
            f"'{key}' must be a plain name in the current directory, not a path.",
            situation.if_visible("cd", f"Change directory one level at a time: first cd(folder={short(start)})."),
            contents(situation, first),
        )
    return None


rule("mkdir touch echo cat", "Invalid character", "mkdir(dir_name='what?')", name="forbidden_character")(
    says('A name must not contain any of | / \\ ? % * : " > < in it. Choose a plain name without them.')
)


@rule("cd", r"already the root|cd: \.\.: No such directory", "cd(folder='..')")
def above_root(situation: Situation) -> str:
    return sentences(
        "This is the root directory, nothing lies above it. Go on from here.", contents(situation, directories=True)
    )


@rule("cd find", "No such file or directory", "cd(folder='documents')")
def no_directory(situation: Situation) -> str:
    name = _missing(situation) or str(situation.argument("folder") or situation.argument("path"))
    if name.rstrip("/") in situation.instance._current_dir.contents:
        return sentences(
            f"{short(name)} is a file, not a directory.", situation.if_visible("cat", "cat shows what a file contains.")
        )
    return sentences(
        f"There is no directory {short(name)} here. Use one that exists.",
        elsewhere(situation, name),
        contents(situation, name, directories=True),
    )


@rule("echo", "No such file", "echo(content='hello', file_name='new.txt')")
def no_file_to_write(situation: Situation) -> str:
    name = situation.argument("file_name")
    create = situation.if_visible("touch", f"Create it with touch(file_name={short(name)}) first.")
    return sentences(
        f"Only a file that exists here can be written, and {short(name)} does not.",
        create or "Choose one that exists.",
        elsewhere(situation, name),
        contents(situation, name),
    )


@rule(
    "cat wc sort grep tail diff mv cp rm rmdir",
    "No such file or directory|Is a directory",
    "cat(file_name='final_report.pdf')",
)
def no_entry(situation: Situation) -> str:
    name = _missing(situation)
    item = situation.instance._current_dir.contents.get(name)
    if _is_directory(item):
        return sentences(
            f"{short(name)} is a directory, and a file is needed.",
            situation.if_visible("cd", f"cd(folder={short(name)}) goes into it."),
            situation.if_visible("find", f"It contains: {listing(item.contents)}." if item.contents else ""),
        )
    return sentences(
        f"There is no {short(name)} in the current directory.",
        elsewhere(situation, name) or "Use a name that exists here.",
        contents(situation, name),
    )


@rule("mkdir touch mv cp", "File exists|already exists in directory", "mkdir(dir_name='document')")
def exists(situation: Situation) -> str:
    step = {
        "mkdir": situation.if_visible("cd", "Use the existing one (cd goes into it), or choose another name."),
        "touch": situation.if_visible("echo", "Use the existing one (echo writes to it), or choose another name."),
    }
    return sentences(
        "An entry of this name is already there.",
        step.get(situation.call.name) or "Use the existing one, or choose another name.",
        contents(situation),
    )


@rule(
    "mv cp",
    "Not a directory",
    "cd(folder='document')",
    "mv(source='final_report.pdf', destination='previous_report.pdf')",
)
def destination_is_file(situation: Situation) -> str:
    return sentences(
        f"{situation.shown('destination')} is an existing file, and is never overwritten.",
        "Give a name that is not in use, or a directory.",
        contents(situation, directories=True),
    )


@rule("rmdir", "Directory not empty", "rmdir(dir_name='document')")
def not_empty(situation: Situation) -> str:
    name = situation.argument("dir_name")
    inside = situation.instance._current_dir.contents[name].contents
    return sentences(
        f"{short(name)} is not empty; remove what is in it first.",
        situation.if_visible("find", f"It contains: {listing(inside)}."),
        situation.if_visible("cd rm", f"cd(folder={short(name)}), then rm for each of them."),
    )


@rule("rmdir", "Not a directory", "cd(folder='document')", "rmdir(dir_name='final_report.pdf')")
def not_a_directory(situation: Situation) -> str:
    return sentences(
        f"{situation.shown('dir_name')} is a file, not a directory.",
        situation.if_visible("rm", "rm removes files.", "Choose a directory."),
    )


rule("wc", "invalid mode", "wc(file_name='x', mode='lines')", name="wc_mode")(
    says("'mode' must be 'l' for lines, 'w' for words or 'c' for characters.")
)


@rule(
    "",
    "object has no attribute|object of type|not iterable|argument of type",
    "touch(file_name='a')",
    "echo(content=5, file_name='a')",
    "sort(file_name='a')",
)
def content_not_text(situation: Situation) -> str:
    name = situation.argument("file_name")
    if situation.call.name == "echo" and isinstance(name, str):
        return sentences(f"{short(name)} is a directory. Give the name of a file.", contents(situation, name))
    return sentences(
        "The content of the file is not text, so it cannot be split into lines.",
        situation.if_visible("echo", "Write it again with echo and a text as content.", "Use another file."),
    )


rule(
    "find du cp mv",
    "file tree",
    *[f"mkdir(dir_name='{letter * 45_000}')" for letter in "abcde"],
    "find()",
    errors=LIMITS,
    name="tree_limit",
)(says("There are too many files and directories. Remove copies that are not needed, then try again."))
