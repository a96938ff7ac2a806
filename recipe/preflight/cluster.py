"""A Ray cluster that a run joins has what the run needs, on each of its nodes.

What is wrong is told all at once: whoever sets up a cluster does not want to learn it one start at a time.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe import cluster, loopback
from recipe.cluster import Answer, ClusterError, Node, ask
from recipe.errors import PreflightError
from recipe.preflight.machine import GB, wanted_memory
from recipe.preflight.mode import playing
from recipe.settings import CONFIG_DIR, as_list
from recipe.stage.manifest import PACKAGES

ROOT = CONFIG_DIR.parents[1]
"""The checkout."""

CODE = ("recipe", "interaction", "rewards", "bfcl_env", "tau_env", "data_prep")

CPUS_PER_GPU = 3
"""What verl's resource pools ask Ray for beside each GPU."""

CPUS_BESIDE = 2
"""What its other actors ask for on a node."""

ON_ONE_NODE = {
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    "VLLM_HOST_IP": "127.0.0.1",
    "DIST_INIT_METHOD": "loopback://",
}
"""Values with which a node's processes talk to none on another one."""

ALIKE = "Use one checkout that all nodes mount at the same place, or bring the others up to date."


@dataclass(frozen=True)
class Cluster:
    """What a run joins."""

    address: str
    here: str
    """Id of the node that this process is on."""
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Needs:
    """What a run asks of a cluster."""

    nodes: int
    gpus: int
    """Of each node."""
    memory: float
    """Bytes on each node."""
    root: str
    folder: str
    shared: str
    playing: int = 0
    """GPUs beside the others, on whichever nodes, that only play."""


def check_cluster(config: DictConfig) -> Cluster | None:
    """Look at each node of the cluster that this run joins; None where it starts a Ray of its own.

    Raises:
        PreflightError: there is none, or something is missing on a node.
    """
    nodes = int(config.trainer.nnodes)
    if (address := loopback.cluster(nodes)) is None:
        if nodes == 1:
            return None
        raise PreflightError(
            f"trainer.nnodes={nodes} needs a Ray cluster, and none is known here: RAY_ADDRESS is not set, and `ray "
            "start` has noted none. Run `bash run_cluster.sh` on each node and `source outputs/cluster/environment` "
            "here, or set RAY_ADDRESS=host:port (docs/cluster.md)."
        )
    run = Path(config.paths.run).absolute()
    existing = next(path for path in (run, *run.parents) if path.is_dir())
    needs = Needs(
        nodes=nodes,
        gpus=int(config.trainer.n_gpus_per_node),
        playing=playing(config),
        memory=wanted_memory(config),
        root=str(ROOT),
        folder=os.getcwd(),
        shared=str(existing / f".nodes-{uuid.uuid4().hex}"),
    )
    asked = {
        "root": needs.root,
        "code": list(CODE),
        "packages": list(PACKAGES),
        "folder": needs.folder,
        "secrets": _secrets(config),
        "variables": list(ON_ONE_NODE),
        "salt": uuid.uuid4().hex,
        "paths": read_paths(config),
        "shared": needs.shared,
    }
    try:
        answer = ask(address, "recipe.cluster:look", asked)
    except ClusterError as error:
        raise PreflightError(f"{error}.") from error
    finally:
        shutil.rmtree(needs.shared, ignore_errors=True)
    if wrong := mistakes(answer, cluster.describe(asked), needs):
        listed = "".join(f"\n- {text}" for text in wrong)
        raise PreflightError(f"the Ray cluster at {address} is not ready for this run:{listed}")
    return Cluster(address, answer.here, answer.nodes)


def read_paths(config: DictConfig) -> list[str]:
    """Files and folders that a run names and its workers read, absolute: data, model, adapter, reward."""
    model = config.actor_rollout_ref.model
    named = [*as_list(config.data.train_files), *as_list(config.data.val_files), model.path, model.lora_adapter_path]
    named += [config.reward.custom_reward_function.path, *config.interaction.environments.values()]
    named += [OmegaConf.select(config, "environment.guard"), OmegaConf.select(config, "offline.files")]
    texts = [str(one) for item in named if item is not None for one in as_list(item)]
    paths = [os.path.abspath(os.path.expanduser(text)) for text in texts if "://" not in text]
    return sorted({path for path in paths if os.path.exists(path)})  # what is not here, other checks tell


def _secrets(config: DictConfig) -> list[str]:
    user = config.interaction.get("user")
    key = user.get("api_key_env") if user else None
    return sorted({*cluster.secrets(os.environ), *([str(key)] if key and os.environ.get(str(key)) else [])})


def mistakes(answer: Answer, here: Mapping[str, Any], needs: Needs) -> list[str]:
    """What is wrong with a cluster, a sentence for each; empty if nothing is.

    Args:
        answer: of `recipe.cluster.look`.
        here: of `recipe.cluster.describe` in this process.
    """
    working = [node for node in answer.nodes if node.resources.get("CPU", 0) or node.resources.get("GPU", 0)]
    wrong = _too_few(working, needs)
    wrong += [f"{node} cannot be asked: {node.fault}." for node in working if node.fault]
    sound = [node for node in working if not node.fault]
    for check in CHECKS:
        wrong += [f"{node} {text}" for node in sound if (text := check(node, here, needs))]
    return wrong + _unshared(sound, needs)


def _too_few(nodes: Sequence[Node], needs: Needs) -> list[str]:
    enough = [node for node in nodes if node.resources.get("GPU", 0) >= needs.gpus]
    has = ", ".join(f"{node} has {node.resources.get('GPU', 0):.0f}" for node in nodes)
    wanted, found = needs.nodes * needs.gpus + needs.playing, sum(node.resources.get("GPU", 0) for node in nodes)
    if len(enough) < needs.nodes:
        return [
            f"{needs.nodes} nodes with {needs.gpus} GPUs are asked for (trainer.nnodes, trainer.n_gpus_per_node), and "
            f"it has {len(enough)}: {has}. Start Ray on the missing nodes (bash run_cluster.sh), or lower these "
            "settings."
        ]
    if found < wanted:
        return [
            f"{wanted} GPUs are asked for, {needs.playing} of them to play (actor_rollout_ref.rollout.nnodes, "
            f"n_gpus_per_node), and it has {found:.0f}: {has}. Start Ray on more nodes (bash run_cluster.sh), or "
            "lower these settings or trainer.n_gpus_per_node."
        ]
    return []


def _unshared(nodes: Sequence[Node], needs: Needs) -> list[str]:
    """One sentence for all of them: where a folder is not shared, every node misses every other one's file."""
    folder = str(Path(needs.shared).parent)
    for node in nodes:
        if (fault := node.answer["wrote"]) is not None:
            return [f"{node} cannot write into {folder}: {fault}. {_SHARE}"]
    for node in nodes:
        missing = [str(other) for other in nodes if other.id not in node.answer["seen"]]
        if missing:
            return [f"{node} does not see what {', '.join(missing)} writes into {folder}. {_SHARE}"]
    return []


_SHARE = (
    "Checkpoints, metrics and episodes of all nodes go there: set paths.run (or RUN) to a folder on a file system that "
    "all nodes mount at the same place."
)


def _code(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    there = node.answer["code"]
    if there is None:
        return f"has no folder {needs.root}, where this start has its code. {ALIKE}"
    return None if there == here["code"] else f"has other code than this start in {needs.root}. {ALIKE}"


def _packages(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    there, own = node.answer, {"python": here["python"], **here["packages"]}
    found = {"python": there["python"], **there["packages"]}
    other = [name for name in sorted({*own, *found}) if own.get(name) != found.get(name)]
    if not other:
        return None
    listed = ", ".join(f"{name} {found.get(name, 'is missing')} (here {own.get(name, 'none')})" for name in other)
    return f"has other packages in {there['executable']}: {listed}. Run `bash setup.sh` there and start its Ray again."


def _folder(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    if node.answer["folder"]:
        return None
    return f"has no folder {needs.folder}, where this start was made and relative paths begin. {ALIKE}"


def _files(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    there = node.answer["paths"]
    other = [path for path, size in here["paths"].items() if there.get(path) != size]
    if not other:
        return None
    sizes = ", ".join(f"{path} ({_bytes(there.get(path))}, here {_bytes(here['paths'][path])})" for path in other[:3])
    return f"does not have the same of what is read: {sizes}. Put it where all nodes have it at the same place."


def _bytes(size: int | None) -> str:
    return "missing" if size is None else f"{size} bytes"


def _variables(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    there = node.answer["variables"]
    bad = [f"{name}={value}" for name, value in ON_ONE_NODE.items() if there.get(name) == value]
    if not bad or needs.nodes == 1 or node.address.startswith("127."):
        return None
    return (
        f"has {', '.join(bad)}, with which its processes reach no other node. Unset that, or name the interface of the "
        "cluster's network, before `ray start` there."
    )


def _keys(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    there = node.answer["secrets"]
    other = [
        f"{name} {'differs' if name in there else 'is not set'}"
        for name in here["secrets"]
        if there.get(name) != here["secrets"][name]
    ]
    if not other:
        return None
    return (
        f"lacks variables of this start: {', '.join(other)}. Keys and tokens are not sent over the network: set them "
        "before `ray start` there."
    )


def _memory(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    total = node.answer["memory"]
    if not node.resources.get("GPU", 0) or total >= needs.memory:
        return None
    return (
        f"has {total / GB:.1f} GB of memory, and this run needs {needs.memory / GB:.0f} on each node "
        "(launcher.needs.memory_gb and what the model takes)."
    )


def _cpus(node: Node, here: Mapping[str, Any], needs: Needs) -> str | None:
    has, wanted = node.resources.get("CPU", 0), CPUS_PER_GPU * needs.gpus + CPUS_BESIDE
    if node.resources.get("GPU", 0) < needs.gpus or has >= wanted:
        return None
    return (
        f"has {has:.0f} CPUs for Ray, and verl asks for {wanted} with {needs.gpus} GPUs: it would wait for ever. Start "
        f"its Ray with --num-cpus={wanted} (a number that Ray counts, not cores), or lower trainer.n_gpus_per_node."
    )


CHECKS: tuple[Callable[[Node, Mapping[str, Any], Needs], str | None], ...] = (
    _folder,
    _code,
    _packages,
    _files,
    _variables,
    _keys,
    _memory,
    _cpus,
)
"""Of a single node that answers, each what follows its name where something is wrong."""
