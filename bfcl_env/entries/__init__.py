"""Data sets of a user's own: a JSON file of entries in BFCL's form is an environment, named by the file's stem.

Entries of several turns are played on BFCL's executable classes, those of one turn judged as BFCL's single-turn tasks,
with functions of their own. A file is used as a whole or not at all: whatever is wrong with it is said at once.
"""

from pathlib import Path

from bfcl_env.entries.file_environment import FileEnvironment
from bfcl_env.entries.mistakes import EntriesError

__all__ = ["EntriesError", "FileEnvironment", "environment"]


def environment(name: str, path: Path) -> FileEnvironment:
    """The environment of a file, which is read when it is first needed."""
    return FileEnvironment(name, path)
