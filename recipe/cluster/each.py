"""Ask each node of a Ray cluster: functions of ours run there, one after the other on all nodes at once.

    python -m recipe.cluster.each                 # Question as JSON on standard input, Answer on standard output

In a process of its own, which has left the cluster before a training joins it, and which can be given up when nothing
answers. The functions travel by value, so that they run where this checkout is missing: their module may import nothing
but what Python brings, or has to say in its docstring that the checkout was looked at before.
"""

import importlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

MARK = "cluster answer: "
"""Before the answer, whatever Ray has printed."""

PATIENCE = 60.0
"""Seconds that a node has for one function."""

REACH = 5.0
"""Seconds to reach the cluster's address."""


class ClusterError(Exception):
    """Why a cluster cannot be asked, in one line."""


@dataclass(frozen=True)
class Node:
    """A living node."""

    id: str
    name: str
    address: str
    resources: dict[str, float]
    answers: list[Any] = field(default_factory=list)
    """What each function returned; the last one is missing where `fault` says why."""
    fault: str | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@dataclass(frozen=True)
class Answer:
    """What a cluster says."""

    nodes: tuple[Node, ...]
    here: str
    """Id of the node that the asking process is on, and a training started there would be."""

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Answer":
        """The answer in what `asdict` made of it."""
        return cls(tuple(Node(**node) for node in content["nodes"]), content["here"])


def ask(address: str, functions: Sequence[str], argument: Any, environment: Mapping[str, str] | None = None) -> Answer:
    """Run `module:function` on every node, and return what they said.

    Args:
        address: of the cluster, as RAY_ADDRESS has it.
        functions: each gets `argument`, the node's id and the ids of all, and returns what JSON can hold.
        environment: variables for them.

    Raises:
        ClusterError: there is no cluster, or it lets us not in.
    """
    _reach(address)
    question = {"functions": list(functions), "argument": argument, "environment": dict(environment or {})}
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "recipe.cluster.each"],
            input=json.dumps(question),
            env={**os.environ, "RAY_ADDRESS": address},
            capture_output=True,
            text=True,
            timeout=60.0 + PATIENCE * len(functions),
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"the Ray cluster at {address} did not answer within {error.timeout:.0f} s") from error
    line = next((line for line in answer.stdout.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise ClusterError(_why(address, answer.stderr))
    return Answer.of(json.loads(line.removeprefix(MARK)))


def _reach(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address:
        raise ClusterError(
            f"RAY_ADDRESS={address} is for Ray's clients, which training is none of. Start it on a node of the "
            "cluster with RAY_ADDRESS=host:port, or hand it in with `ray job submit`"
        )
    if not host or not port.isdecimal():
        return  # "auto": Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(
            f"no Ray cluster answers at {address} ({error}). If it has ended, `ray stop` forgets it; start one with "
            "`bash run_cluster.sh` on each node, or set RAY_ADDRESS to the one that is up"
        ) from error


def _why(address: str, said: str) -> str:
    """The cause in one line of what a failed asker has said."""
    if re.search(r"AuthenticationError|InvalidAuthToken|Unauthenticated|UNAUTHENTICATED|authentication token", said):
        return (
            f"the Ray cluster at {address} wants a token, and this start has none or another one. Set "
            "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the file that the cluster was started with "
            "(run_cluster.sh: `source outputs/cluster/environment`)"
        )
    words = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    return f"the Ray cluster at {address} cannot be asked: {words[:400]}"


def main() -> None:
    """Entry point of `python -m recipe.cluster.each`."""
    import ray

    question = json.load(sys.stdin)
    ray.init(logging_level="ERROR", log_to_driver=False)
    nodes = [
        Node(node["NodeID"], node["NodeManagerHostname"], node["NodeManagerAddress"], node["Resources"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    for name in question["functions"]:
        nodes = _asked(nodes, name, question)
    answer = Answer(tuple(nodes), ray.get_runtime_context().get_node_id())
    print(f"\n{MARK}{json.dumps(asdict(answer))}", flush=True)


def _asked(nodes: list[Node], name: str, question: Mapping[str, Any]) -> list[Node]:
    import ray
    from ray import cloudpickle
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    module = importlib.import_module(name.partition(":")[0])
    cloudpickle.register_pickle_by_value(module)
    task = ray.remote(num_cpus=0, max_retries=0)(getattr(module, name.partition(":")[2]))
    environment = {"env_vars": question["environment"]} if question["environment"] else None
    asked = {
        node.id: task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False), runtime_env=environment
        ).remote(question["argument"], node.id, [one.id for one in nodes])
        for node in nodes
        if node.fault is None
    }
    ready = set()
    if asked:
        ready = set(ray.wait(list(asked.values()), num_returns=len(asked), timeout=PATIENCE)[0])
    said = []
    for node in nodes:
        content = asdict(node)
        if node.id in asked and asked[node.id] in ready:
            try:
                content["answers"].append(ray.get(asked[node.id]))
            except Exception as error:  # whatever a node's Python or Ray raises is what there is to say about it
                content["fault"] = f"{type(error).__name__}: {_last_line(error)}"
        elif node.id in asked:
            content["fault"] = f"no answer within {PATIENCE:.0f} s"
        said.append(Node(**content))
    return said


def _last_line(error: Exception) -> str:
    with suppress(StopIteration):
        return next(line.strip() for line in reversed(str(error).splitlines()) if line.strip())[:300]
    return "it says no more"


if __name__ == "__main__":
    main()
