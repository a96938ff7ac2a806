"""Training on several nodes: on a Ray cluster that somebody has started, and that stays when the run has ended.

There Ray's workers are children of raylets that are not ours, on machines that may lack the folder, the code or the
packages of this one. So a start first looks at each node (`ask`, `look`), and `recipe.preflight.machine` judges. Its
workers take over environment and folder (`runtime_env`, `begin`). A node, worker or process of Ray's that dies is named
(`watching`, on one machine too).
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from interaction.masked import is_secret

MARK = "cluster answer: "
"""Before the answer, whatever Ray has printed."""
PATIENCE = 60.0
"""Seconds that a node has for one function."""
SEEN_WITHIN = 10.0
"""Seconds: a file system over a network shows another node's new file a little later."""
FOLDER = "BFCL_FOLDER"
"""Environment variable of a worker: the folder that relative paths start from."""
LAUNCHED = "BFCL_LAUNCHED"
"""The same: when the launch began, as a text that sorts by time. Set means that each process writes its own file of
records: appends to one file over a network would mix."""
TOKEN = "BFCL_LAUNCH"
"""Environment variable that every process of a launch has (`recipe.machine.processes`)."""
TOKEN_FILE = "launch"
"""In the folder of temporary files: the launch's token."""
CGROUPS = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")  # versions 2 and 1

TRAVELS = re.compile(
    r"(BFCL|VERL|VLLM|NCCL|GLOO|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|CUBLAS|OMP|MKL|MALLOC)_"
    r"|(HF|HUGGINGFACE|TRANSFORMERS|WANDB|MLFLOW|TENSORBOARD|TQ)_"
    r"|(PYTHONPATH|PYTHONHASHSEED|TOKENIZERS_PARALLELISM|TORCHDYNAMO_DISABLE|TMPDIR|no_proxy|NO_PROXY)$"
)
"""Variables that go along, by the beginnings of their names, or whole."""
STAYS = re.compile(r"SOCKET_IFNAME$|HOST_IP$|VISIBLE_DEVICES$|^NCCL_IB_HCA$|^TORCHELASTIC_")
"""Of these, what is another one on each node: its interfaces, addresses, devices."""

EVERY = 3.0
"""Seconds between two looks for what has died."""
NOTICED = 45.0
"""Seconds in which Ray notices that a node is lost: five times three seconds, and what it takes to tell."""


class ClusterError(Exception):
    """Why a cluster cannot be asked, in one line."""


@dataclass(frozen=True)
class Node:
    """A living node."""

    id: str
    name: str
    address: str
    resources: dict[str, float]
    answer: Any = None  # what the function returned there
    fault: str | None = None  # why there is no answer

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@dataclass(frozen=True)
class Answer:
    """What a cluster says."""

    nodes: tuple[Node, ...]
    here: str
    """Id of the node that the asking process is on, and a training started there would be."""


def ask(address: str, function: str, argument: Any, environment: Mapping[str, str] | None = None) -> Answer:
    """Run a function (`module:name`) on every node, and return what it said there.

    In a process of its own, which has left the cluster before a training joins it. The function travels by value, as
    this checkout may be missing there: it may use Python's own modules and psutil only.

    Args:
        address: of the cluster, as RAY_ADDRESS has it.
        function: gets `argument`, the node's id and the ids of all, and returns what JSON can hold.
        environment: variables for it.

    Raises:
        ClusterError: there is no cluster, or it lets us not in.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), 5.0).close()
        except (OSError, OverflowError) as error:
            said = f"no Ray cluster answers at {address} ({error}). Set RAY_ADDRESS=host:port of one (run_cluster.sh)"
            raise ClusterError(f"{said}; `ray stop` forgets one that has ended") from error
    question = json.dumps({"function": function, "argument": argument, "environment": dict(environment or {})})
    command, given = [sys.executable, "-m", "recipe.machine.cluster"], {**os.environ, "RAY_ADDRESS": address}
    try:
        done = subprocess.run(command, input=question, env=given, capture_output=True, text=True, timeout=60 + PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"the Ray cluster at {address} did not answer within {error.timeout:.0f} s") from error
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            content = json.loads(line.removeprefix(MARK))
            return Answer(tuple(Node(**node) for node in content["nodes"]), content["here"])
    if re.search(r"authentication ?error|InvalidAuthToken|unauthenticated|authentication token", done.stderr, re.I):
        how = "Set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH (run_cluster.sh: `source outputs/cluster/environment`)"
        raise ClusterError(f"the Ray cluster at {address} wants a token, and this start has none or another one. {how}")
    raise ClusterError(f"the Ray cluster at {address} cannot be asked: {_last_line(done.stderr)}")


def _last_line(text: object) -> str:
    return (str(text).strip().splitlines() or ["it said nothing"])[-1][:300]


def main() -> None:
    """What `ask` runs: a question as JSON on standard input, the answer on standard output."""
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    question = json.load(sys.stdin)
    name, _, function = question["function"].partition(":")
    module = importlib.import_module(name)
    cloudpickle.register_pickle_by_value(module)
    environment = {"env_vars": question["environment"]} if question["environment"] else None
    task = ray.remote(num_cpus=0, max_retries=0, runtime_env=environment)(getattr(module, function))
    ray.init(logging_level="ERROR", log_to_driver=False)
    alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}
    asked = {}
    for id in alive:
        there = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(id, soft=False))
        asked[id] = there.remote(question["argument"], id, list(alive))
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=PATIENCE)
    said = []
    for id, node in alive.items():
        answer, fault = None, None
        try:
            answer = ray.get(asked[id], timeout=0.1)
        except ray.exceptions.GetTimeoutError:
            fault = f"no answer within {PATIENCE:.0f} s"
        except Exception as error:  # whatever a node's Python or Ray raises is what there is to say about it
            fault = f"{type(error).__name__}: {_last_line(error)}"
        host, address = node["NodeManagerHostname"], node["NodeManagerAddress"]
        said.append(Node(id, host, address, node["Resources"], answer, fault))
    answer = Answer(tuple(said), ray.get_runtime_context().get_node_id())
    print(f"\n{MARK}{json.dumps(asdict(answer))}", flush=True)


def look(asked: dict[str, Any], node: str, nodes: list[str]) -> dict[str, Any]:
    """What this node is (`describe`), and whether all nodes share a folder: each leaves a file and looks for all.

    Returns:
        Also `wrote`: None, or why it cannot write into the folder `asked["shared"]`; `seen`: ids of the nodes whose
        file it reads. If it misses one, it removes its own; else the asking process removes the folder.
    """
    fault, shared, last = None, Path(asked["shared"]), time.monotonic() + SEEN_WITHIN
    try:
        shared.mkdir(exist_ok=True)
        (shared / node).write_text(node)
    except OSError as error:
        fault = f"{error.strerror}: {error.filename}"
    while len(seen := [id for id in nodes if (shared / id).is_file()]) < len(nodes) and time.monotonic() < last:
        time.sleep(0.5)
    if len(seen) < len(nodes):
        with suppress(OSError):
            (shared / node).unlink(missing_ok=True)
            shared.rmdir()
    return {**describe(asked), "wrote": fault, "seen": seen}


def describe(asked: dict[str, Any]) -> dict[str, Any]:
    """What this machine is.

    Args:
        asked: `root`: the checkout; `code`: its folders of source; `packages`: their names; `folder`: where relative
            paths start; `secrets`, `variables`: names of variables; `salt`: any text; `paths`: files and folders that
            are read.
    """
    root, code = Path(asked["root"]), hashlib.sha256()
    for path in (path for name in asked["code"] for path in sorted((root / name).rglob("*.*"))):
        if path.suffix in (".py", ".yaml", ".json"):
            code.update(path.read_bytes())
    versions, sizes, mark = {}, {}, hashlib.sha256
    for name in asked["packages"]:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    for path in map(Path, asked["paths"]):  # of a folder: of its files, without those below it
        files = path.iterdir() if path.is_dir() else [path]
        sizes[str(path)] = sum(file.stat().st_size for file in files if file.is_file()) if path.exists() else None
    return {
        "name": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "folder": os.path.isdir(asked["folder"]),
        "code": code.hexdigest() if root.is_dir() else None,
        "packages": versions,
        "secrets": {  # what tells equal from different, and nothing else
            name: mark(f"{asked['salt']}{os.environ[name]}".encode()).hexdigest()
            for name in asked["secrets"]
            if os.environ.get(name)
        },
        "variables": {name: os.environ[name] for name in asked["variables"] if name in os.environ},
        "paths": sizes,
        "memory": memory()[0],
    }


def memory() -> tuple[int, int]:
    """Bytes of memory that this machine has, and has free: at most what the cgroup of a container allows."""
    there, texts = psutil.virtual_memory(), [path.read_text() for path in CGROUPS if path.is_file()]
    limits = [int(text) for text in texts if text.strip().isdigit()]
    return min([there.total, *limits]), min([there.available, *limits])


def travelling(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment goes to the workers of all nodes. No secret: Ray shows what travels in its pages."""
    names = [name for name in environment if TRAVELS.match(name) and not STAYS.search(name) and not is_secret(name)]
    return {name: environment[name] for name in names}


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
    more = {name: str(value) for name, value in (asked.get("env_vars") or {}).items()}
    variables = {**travelling(environment), **more, FOLDER: os.getcwd(), LAUNCHED: launched}
    return {**asked, "env_vars": variables, "worker_process_setup_hook": "recipe.machine.cluster.begin"}


def begin() -> None:
    """Called by Ray in each worker: go to the folder of the start, and make the launch's folder of temporary files."""
    os.chdir(os.environ[FOLDER])
    temp, token = os.environ.get("TMPDIR"), os.environ.get(TOKEN)
    if temp is not None and token is not None:
        Path(temp).mkdir(parents=True, exist_ok=True, mode=0o700)
        (Path(temp) / TOKEN_FILE).write_text(token)
        tempfile.tempdir = None  # it may have been looked for before it was there


@contextmanager
def watching(nodes: Mapping[str, str] | None = None, grace: float = 10.0) -> Iterator[None]:
    """Say in one line what has died, and end this process where the training waits for it.

    Ray tells of a death in the answer to a call only, and processes on GPUs wait in a collective for a peer that is
    gone: without this a wait may have no end.

    Args:
        nodes: id -> name of each node of the cluster that the run has joined; None on one machine.
        grace: seconds for the training to end by itself.
    """
    over, said, look = threading.Event(), threading.Event(), Losses(nodes or {})

    def found() -> bool:
        if not said.is_set() and (line := look()):
            said.set()
            print(line, flush=True)
        return said.is_set()

    def watch() -> None:
        while not over.wait(EVERY):
            if look() and not over.wait(1.0) and found() and not over.wait(grace):  # not as the stage ends
                os._exit(1)

    threading.Thread(target=watch, daemon=True, name="losses").start()
    try:
        yield
    except Exception:
        last = time.monotonic() + NOTICED
        while not found() and nodes and time.monotonic() < last:
            time.sleep(EVERY)
        raise
    finally:
        over.set()


class Losses:
    """A line on the node, the worker or the process of Ray's own that has died unasked; None while all live."""

    def __init__(self, nodes: Mapping[str, str]) -> None:
        self.nodes, self.kills = nodes, kills_for_memory()
        self.own: dict[psutil.Process, str] = {}
        """Processes here that Ray says nothing about: its own, without which it waits for minutes, and vLLM's."""

    def __call__(self) -> str | None:
        with suppress(psutil.NoSuchProcess):  # another one that has ended meanwhile
            for child in psutil.Process().children(recursive=True):
                if (name := child.name()) in ("gcs_server", "raylet") or name.startswith("VLLM::"):
                    self.own[child] = name.partition("::")[0]
        line = self._actor()
        for process, name in self.own.items() if line is None else ():
            if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                worker = self._worker(f"{name} (process {process.pid})", "")
                line = worker if name == "VLLM" else f"RAY its {name} has died"
        return line

    def _actor(self) -> str | None:
        """What Ray says of its actors; the public list of them needs Ray's dashboard."""
        with suppress(Exception):  # Ray has not started, or its head is gone
            import ray
            from ray._private.state import state

            alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
            for actor in state.actor_table(None, actor_state_name="DEAD").values():
                if (node := actor["Address"]["NodeID"]) in self.nodes and node not in alive:
                    return f"CLUSTER node {self.nodes[node]} was lost"
                cause = actor["DeathCause"]
                text = cause.oom_context.error_message or cause.actor_died_error_context.error_message
                if cause.HasField("oom_context") or "SYSTEM_ERROR" in text:
                    return self._worker(f"{actor['ActorClassName'].rpartition('.')[2]} (process {actor['Pid']})", text)
        return None

    def _worker(self, name: str, text: str) -> str:
        killed = "because memory ran out. Lower what the stage takes (docs/resume.md)"
        if used := re.search(r"was ([\d.]+GB used / [\d.]+GB)", text):
            return f"RAY worker {name} was killed by Ray ({used[1]}) {killed}"
        if kills_for_memory() > self.kills:
            return f"RAY worker {name} was killed by the kernel {killed}"
        return f"RAY worker {name} has died (docs/resume.md)"


def kills_for_memory() -> int:
    """Processes that this machine's kernel has killed for memory since it started."""
    found = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


if __name__ == "__main__":
    main()
