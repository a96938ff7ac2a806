"""The files of a data set, and the manifest that says how they came to be. The environment says what goes into them."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from data_prep.rows import replacing, rl_table, sft_table, write_table
from interaction import get_protocol
from interaction.environment import DEFAULT, DataSet, data_sets, named, read_options, source_of
from interaction.protocol import DocStyle, Protocol


@dataclass(frozen=True, slots=True)
class Options:
    """What the files depend on, besides the data. `None` stands for the default of the chosen size."""

    protocol: str = "think_xml"
    docs: DocStyle | None = None
    tiny: bool = False
    max_result_chars: int | None = None
    environment: str = DEFAULT
    """A name, or a Python file."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The environment's own settings."""

    @property
    def docs_style(self) -> DocStyle:
        """Full JSON docs; signatures for the tiny model, whose context they would not leave room in."""
        return self.docs or ("signature" if self.tiny else "json")

    def command(self, result_chars: int | None) -> str:
        """The command that makes the same files again."""
        parts = ["python -m data_prep --out DIR", f"--protocol {self.protocol}", f"--docs {self.docs_style}"]
        if result_chars is not None:
            parts.append(f"--max-result-chars {result_chars}")
        if self.environment != DEFAULT:
            parts.append(f"--environment {self.environment}")
        parts += [f"--option {shlex.quote(f'{key}={json.dumps(value)}')}" for key, value in self.options.items()]
        return " ".join(parts + ["--tiny"] * self.tiny)


def build(out: Path, options: Options) -> dict:
    """Writes all files into `out` and returns the manifest, which is also written there, last of all.

    Raises:
        OSError: the folder cannot be made or written.
        ValueError: unknown environment, protocol or documentation style.
        RuntimeError: what the tasks are made from is missing, or is not the pinned release.
    """
    protocol, environment = get_protocol(options.protocol, docs=options.docs_style), named(options.environment)
    read_options(environment, options.options)
    sets = data_sets(environment, options.tiny, options.options)
    chars = options.max_result_chars or next((one.max_result_chars for one in sets.values() if one.kind == "sft"), None)
    out.mkdir(parents=True, exist_ok=True)
    entries = {}
    for name, data_set in sets.items():
        table = _table(data_set, protocol, chars, options.options)
        write_table(table, out / name)
        entries[name] = {"rows": table.num_rows, "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest()}
    manifest = {
        "command": options.command(chars),
        **source_of(environment),
        "protocol": options.protocol,
        "docs": options.docs_style,
        **({"options": dict(options.options)} if options.options else {}),
        "max_result_chars": chars,
        "pyarrow": pa.__version__,
        "files": entries,
    }
    with replacing(out / "manifest.json") as partial:
        partial.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def _table(data_set: DataSet, protocol: Protocol, max_result_chars: int | None, options: Mapping[str, Any]) -> pa.Table:
    if data_set.kind == "sft":
        return sft_table(data_set.tasks, protocol, max_result_chars, options)
    return rl_table(data_set.tasks, data_set.kind, protocol, options)
