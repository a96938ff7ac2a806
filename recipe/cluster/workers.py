"""Ray's workers on all nodes begin as those on one machine do: with the environment and in the folder of the start.

They are children of raylets that were started elsewhere, so that neither comes by itself. Ray hands both on, as a job's
`runtime_env`: variables, and a function that each worker calls before anything else (`begin`). It also writes down
which process that is: Ray's workers write their titles over their environment, and nothing else tells whose they are.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interaction.masked import is_secret

FOLDER = "BFCL_FOLDER"
"""Environment variable of a worker: the folder that relative paths start from."""

LAUNCHED = "BFCL_LAUNCHED"
"""The same: when the launch began, as a text that sorts by time. Set means that the records of a step are in several
files, one for each process that writes some: appends to one file over a network would mix."""

TOKEN = "BFCL_LAUNCH"
"""The same: the launch's (`recipe.launch.remains`), written into the folder of temporary files."""

PROCESSES = "workers"
"""Folder in that of temporary files: a file for each worker, by its number."""

TRAVELS = re.compile(
    r"(BFCL|VERL|VLLM|NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|CUBLAS|OMP|MKL|MALLOC)_"
    r"|(HF|HUGGINGFACE|TRANSFORMERS|WANDB|MLFLOW|TENSORBOARD|TQ)_"
    r"|(PYTHONPATH|PYTHONHASHSEED|TOKENIZERS_PARALLELISM|TORCHDYNAMO_DISABLE|TMPDIR|no_proxy|NO_PROXY)$"
)
"""Variables that go along, by the beginnings of their names, or whole."""

STAYS = re.compile(r"SOCKET_IFNAME$|HOST_IP$|VISIBLE_DEVICES$|^NCCL_IB_HCA$|^TORCHELASTIC_")
"""Of these, what is another one on each node: its interfaces, addresses, devices."""


def travelling(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment goes to the workers of all nodes. No secret: Ray shows what travels in its pages."""
    return {
        name: value
        for name, value in environment.items()
        if TRAVELS.match(name) and not STAYS.search(name) and not is_secret(name)
    }


def secrets(environment: Mapping[str, str]) -> list[str]:
    """Names of what has to be there on each node, because it does not travel."""
    return sorted(name for name, value in environment.items() if value and TRAVELS.match(name) and is_secret(name))


def runtime_env(environment: Mapping[str, str], launched: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What Ray is told about the workers of a launch.

    Args:
        environment: of this process.
        launched: when it began, as `LAUNCHED`.
        asked: what the configuration says of it, such as variables by other names.
    """
    own = {FOLDER: os.getcwd(), LAUNCHED: launched}
    more = {name: str(value) for name, value in (asked.get("env_vars") or {}).items()}
    variables = {**travelling(environment), **more, **own}
    return {**asked, "env_vars": variables, "worker_process_setup_hook": f"{__name__}.begin"}


def begin() -> None:
    """Called by Ray in each worker.

    Raises:
        OSError: the folder is not there.
    """
    os.chdir(os.environ[FOLDER])
    temp, token = os.environ.get("TMPDIR"), os.environ.get(TOKEN)
    if temp is None or token is None:
        return
    Path(temp).mkdir(parents=True, exist_ok=True, mode=0o700)
    (Path(temp) / PROCESSES).mkdir(exist_ok=True)
    for name, text in (("launch", token), (f"{PROCESSES}/{os.getpid()}", _started())):
        (Path(temp) / name).write_text(text)
    tempfile.tempdir = None  # it may have been looked for before it was there


def _started() -> str:
    """When the kernel started this process, as it counts: a number alone may go to another one later."""
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
