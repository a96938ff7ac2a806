"""Finds tau2-bench's data: tasks, databases and policies, as files that are read and nothing that is imported.

The data comes with `inspect-evals` (UK AISI, MIT), which carries that of tau2-bench (Sierra Research, MIT) at commit
377cecff, before v1.0.0 corrected tasks (docs/environments.md). Files are hashed when they are read: a silent change of
tasks would make two runs incomparable. The folder of a newer checkout of tau2-bench takes its place where
`TAU2_DATA_DIR` names one; its version and hashes go into manifests and results.
"""

import gzip
import hashlib
import importlib.metadata
import importlib.util
import os
import tomllib
from functools import cache
from pathlib import Path

VERSION = "0.26.0"
INSTALL = f"python -m pip install --no-deps inspect-evals=={VERSION}"

RELEASE = "before v1.0.0 (377cecff)"
FOLDER = "TAU2_DATA_DIR"
"""Environment variable: a folder with `domains/` and `user_simulator/`, such as a checkout's `data/tau2`."""

SHA256 = {
    "domains/telecom/db.toml": "562d647ef9d7df8df91eafd8ee76036e707c8f9e32aaedc4a7fde06975aea2c0",
    "domains/telecom/main_policy.txt": "dde1c5d65d680e1f733863f7eab379fa045360f43dfa4c4cc8fe0b82fd7d1be6",
    "domains/telecom/main_policy_solo.txt": "346f3587c1b6e3bb20e543ab70685892d0162f088fc1362dc8e21462f40ef673",
    "domains/telecom/split_tasks.json": "01db106162c422516d8df199a10baded2c0d09daef03ab51b9d669eeb69e19ca",
    "domains/telecom/tasks.json.gz": "5c0b9203cda0c1f8842ff7b8c618ab870cef578adcd9f60934f398362b092282",
    "domains/telecom/tech_support_manual.txt": "aaa9139ff05a692cfa7ac5499541f7a08d5850d185abb78547c79b82c627835a",
    "domains/telecom/tech_support_workflow.txt": "415ae6ba307116802cf4d68b1fbc6a5c610fe9428bc14175e72c23b57db1bac9",
    "domains/telecom/tech_support_workflow_solo.txt": (
        "77f093cc09271971a274ab3937c10586cbe2ad0208f7b36bbd1cc2f4bac178c8"
    ),
    "domains/telecom/user_db.toml": "4886107ea0c16f8e16d74bef91cfb557de61822afe9361f5a9b241806aea2e4c",
    "domains/retail/db.json.gz": "d2d99f30a74c1f8cb1cba432f9d63328318cbc7ad7611c5dba9cb974a90604be",
    "domains/retail/policy.txt": "2c9652afbce57d6e087768d37cda64d31c53d50b3e3225cfdb791bac66466467",
    "domains/retail/split_tasks.json": "5786a7b81edf271360255b4368bc15fbe7461bb4928f094dc8dfab97aeeb1696",
    "domains/retail/tasks.json": "b8bfb7a5bf636d263b34bde94283a09e4380c816770bd29e21f067f98f21358c",
    "domains/airline/db.json.gz": "95cec1fdf3e0421853bbff35dbca42a2c63888241894b1e9ef2200bef2117778",
    "domains/airline/policy.txt": "8307c50fda0c7476b79d19eb7bae5550f4f60e03db9ee09b82fbb1203f955e10",
    "domains/airline/split_tasks.json": "53997ae7261defa447e4fb8add99ae6393b0812014826136a2c0d548c88932c4",
    "domains/airline/tasks.json": "69db6d690e420250c298406ac9d3cbbd618e1afc7090d5f1b88a8ca74293705e",
    "user_simulator/simulation_guidelines.txt": "075938db4c2042be4dc21ea8ca02ff1c1af8e98ca088e1899cf6c54709e591b3",
    "user_simulator/simulation_guidelines_tools.txt": (
        "c64fc531ddc5f6a09eee1cf1a928252afafb2b976c696ab5fb07722ec03422ec"
    ),
}
"""Every file that is read, and its hash in the release above."""


class SourceError(RuntimeError):
    """The data is missing, or is not the release that this environment was checked against."""


@cache
def folder() -> Path:
    """The folder that holds `domains/` and `user_simulator/`.

    Raises:
        SourceError: inspect-evals is not installed, or the folder that was named has no tasks.
    """
    if given := os.environ.get(FOLDER):
        path = Path(given).expanduser()
        if not (path / "domains").is_dir():
            raise SourceError(f"{FOLDER}={given} has no folder domains; name the folder data/tau2 of a checkout")
        return path
    spec = importlib.util.find_spec("inspect_evals")
    if spec is None or not spec.submodule_search_locations:
        raise SourceError(f"tau's data is not installed. Run: {INSTALL}")
    return Path(next(iter(spec.submodule_search_locations))) / "tau2" / "data"


def read(name: str) -> bytes:
    """The content of one of the files above, unpacked. A checkout has them without `.gz`, and policies as `.md`.

    Not kept: telecom's tasks alone are 14 MB of text. Who reads a file keeps what it made of it.

    Raises:
        SourceError: it is not there, or differs from the pinned release; the message says what to install.
    """
    for path in (folder() / name, folder() / name.removesuffix(".gz"), folder() / f"{name.removesuffix('.txt')}.md"):
        if path.is_file():
            break
    else:
        raise SourceError(f"tau's data in {folder()} has no file {name}. Run: {INSTALL}")
    content = path.read_bytes()
    if not os.environ.get(FOLDER) and hashlib.sha256(content).hexdigest() != SHA256[name]:
        raise SourceError(
            f"{path} is not the file of inspect-evals {VERSION} (installed: "
            f"{importlib.metadata.version('inspect-evals')}). Run: {INSTALL}"
        )
    return gzip.decompress(content) if path.suffix == ".gz" else content


def made_from() -> dict[str, str]:
    """Release or folder, tau2-bench's version as far as it is known, and a hash over all files."""
    contents = hashlib.sha256()
    for name in SHA256:
        contents.update(hashlib.sha256(read(name)).digest())
    if not (given := os.environ.get(FOLDER)):
        return {"from": f"inspect-evals {VERSION}", "tau2_bench": RELEASE, "sha256": contents.hexdigest()}
    try:
        release = tomllib.loads((folder() / "../../pyproject.toml").read_text("utf-8"))["project"]["version"]
    except (OSError, ValueError, LookupError, TypeError):
        release = "unknown"
    return {"from": given, "tau2_bench": str(release), "sha256": contents.hexdigest()}
