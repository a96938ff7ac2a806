"""A user's own data set: a JSON file of entries in BFCL's form is an environment, named by the file's stem.

Multi-turn entries are played on BFCL's executable classes. Single-turn entries are judged as BFCL's own, with functions
of their own. All problems of a file are reported at once.
"""

from pathlib import Path

from bfcl_env.entries.tasks import EntriesError, FileEnvironment

__all__ = ["EntriesError", "FileEnvironment", "environment"]


def environment(name: str, path: Path) -> FileEnvironment:
    """The environment of a file, which is read when it is first needed."""
    return FileEnvironment(name, path)
