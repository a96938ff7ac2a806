"""Which scenarios go into which file, and the manifest that says how the files came to be."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from bfcl_env import load_scenarios, train_indices
from bfcl_env.scenarios import split_seed
from bfcl_env.source import DATA_SHA256, VERSION
from data_prep import tiny
from data_prep.rows import rl_table, sft_table, write_table
from interaction import get_protocol
from interaction.protocol import DocStyle, Protocol

FORMAT_ROWS = 75
"""Stage 1 trains on the base tasks of the first 75 training indices as drawn."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the files depend on, besides the data. `None` stands for the default of the chosen size."""

    protocol: str = "think_xml"
    docs: DocStyle | None = None
    tiny: bool = False
    max_result_chars: int | None = None

    @property
    def docs_style(self) -> DocStyle:
        """Full JSON docs; signatures for the tiny model, whose context they would not leave room in."""
        return self.docs or ("signature" if self.tiny else "json")

    @property
    def result_chars(self) -> int | None:
        """Length to which results in the SFT conversations are cut."""
        return self.max_result_chars or (tiny.MAX_RESULT_CHARS if self.tiny else None)

    @property
    def command(self) -> str:
        """The command that makes the same files again."""
        parts = ["python -m data_prep --out DIR", f"--protocol {self.protocol}", f"--docs {self.docs_style}"]
        if self.result_chars is not None:
            parts.append(f"--max-result-chars {self.result_chars}")
        return " ".join(parts + ["--tiny"] * self.tiny)


def build(out: Path, options: Options) -> dict:
    """Writes all files into `out` and returns the manifest, which is also written there.

    Raises:
        OSError: the folder cannot be made or written.
        ValueError: unknown protocol or documentation style.
        SourceError: bfcl-eval is missing or is not the pinned release.
    """
    protocol = get_protocol(options.protocol, docs=options.docs_style)
    out.mkdir(parents=True, exist_ok=True)
    tables = _tiny_tables(protocol, options) if options.tiny else _full_tables(protocol, options)
    entries = {}
    for name, table in tables.items():
        write_table(table, out / name)
        entries[name] = {"rows": table.num_rows, "sha256": hashlib.sha256((out / name).read_bytes()).hexdigest()}
    manifest = {
        "command": options.command,
        "seed": split_seed(),
        "bfcl_eval": VERSION,
        "data_sha256": DATA_SHA256,
        "protocol": options.protocol,
        "docs": options.docs_style,
        "max_result_chars": options.result_chars,
        "pyarrow": pa.__version__,
        "files": entries,
    }
    part = out / "manifest.json.part"
    part.write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    part.replace(out / "manifest.json")  # at once, after all others: where it is, the data are whole
    return manifest


def _full_tables(protocol: Protocol, options: Options) -> dict[str, pa.Table]:
    first = frozenset(train_indices()[:FORMAT_ROWS])
    base = load_scenarios("multi_turn_base", split="train")
    train = load_scenarios(split="train")
    return {
        "train_format_75.parquet": rl_table([item for item in base if item.index in first], "train", protocol),
        "bfcl_train_base.parquet": rl_table(base, "train", protocol),
        "bfcl_train.parquet": rl_table(train, "train", protocol),
        "bfcl_val.parquet": rl_table(load_scenarios(split="val"), "val", protocol),
        "sft_train.parquet": sft_table(train, protocol, options.result_chars),
    }


def _tiny_tables(protocol: Protocol, options: Options) -> dict[str, pa.Table]:
    chosen = tiny.rl_tasks()
    mixed = tiny.one_per_category(chosen)
    return {
        "tiny_format.parquet": rl_table(chosen, "train", protocol),
        "tiny_base.parquet": rl_table(chosen, "train", protocol),
        "tiny_full.parquet": rl_table(mixed, "train", protocol),
        "tiny_val.parquet": rl_table(tiny.in_all_categories(tiny.val_tasks()), "val", protocol),
        "tiny_sft.parquet": sft_table(tiny.sft_conversations(), protocol, options.result_chars),
    }
