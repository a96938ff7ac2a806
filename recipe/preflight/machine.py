"""GPUs, attention, memory, disk and the nodes of a cluster: what a run would stop at after minutes, or hours.

The attention is tried by `recipe.gpu.selfcheck`, in a process that has ended before Ray starts.
"""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.files import PreflightError
from recipe.machine import loopback
from recipe.machine.cluster import Answer, ClusterError, ask, describe, memory, secrets
from recipe.memory import (
    Architecture,
    cache_line,
    card_bytes,
    checkpoint_parts,
    host_parts,
    known_model,
    peaks,
    problem,
    read_settings,
    teacher_cards,
    teacher_on_host,
    teacher_problem,
)
from recipe.preflight import teacher
from recipe.preflight.settings import devices, playing_devices
from recipe.settings import CONFIG_DIR, as_list, count_gpus
from recipe.stage.starts import PACKAGES
from recipe.stage.state import step_folders

GB = 10**9
CPUS_PER_GPU, CPUS_BESIDE = 3, 2
"""What verl's resource pools ask Ray for beside each GPU, and its other actors on a node."""
MEMORY = "launcher.needs.memory_gb"

ROOT = CONFIG_DIR.parents[1]
CODE = ("recipe", "interaction", "rewards", "bfcl_env", "tau_env", "data_prep")
LOOPBACK = {name: value for name, value in loopback.ENVIRONMENT.items() if not name.startswith("RAY_")}
"""Values with which a node's processes talk to none on another one."""


def lacks(config: DictConfig, model: Architecture | None, notes: list[str], alone: bool = True) -> Iterator[str]:
    """GPUs, memory and disk that this machine lacks. With `preflight_only` the other checks go on."""
    space = wanted_disk(config, model)
    if alone:  # else `find_cluster` has looked at each node
        found, wanted = count_gpus(), devices(config)
        if config.trainer.device == "cuda" and found < wanted:
            beside = f", {playing_devices(config)} of them to play" * bool(playing_devices(config))
            beside += f", {teacher_cards(config)} of them for the teacher" * bool(teacher_cards(config))
            yield f"{wanted} GPUs are asked for{beside}, {found} found. Set trainer.n_gpus_per_node, or hardware=cpu."
        (total, available), needed = memory(), wanted_memory(config, model)
        if total < needed:
            yield f"this machine has {total / GB:.1f} GB of memory, {needed / GB:.0f} are needed ({MEMORY})."
        short = f"; only {available / GB:.0f} GB of memory are free just now" * bool(available < needed)
        notes.append(f"needs about {needed / GB:.0f} GB of memory and {space / GB:.0f} GB of disk{short}")
    folder = Path(config.paths.stage).absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if (free := shutil.disk_usage(existing).free) < space:
        said = f"{free / GB:.1f} GB are free on the disk of {existing}, about {space / GB:.1f} GB are needed"
        yield f"{said}. Set paths.run to another disk, or lower trainer.max_actor_ckpt_to_keep."


def wanted_memory(config: DictConfig, model: Architecture | None) -> float:
    """Bytes of memory that a node needs: for the processes, and for what the model takes outside the GPUs."""
    processes = config.launcher.needs.memory_gb * GB
    if model is None:
        return processes
    if config.trainer.device != "cuda":  # float32: parameters, gradients, Adam; the engine's, and those on their way
        return processes + 24 * model.parameters + teacher_on_host(config)
    return processes + sum(host_parts(model, read_settings(config, card=0)).values())


def wanted_disk(config: DictConfig, model: Architecture | None) -> float:
    """Bytes of disk that a stage's checkpoints take, beside what an earlier start of it has written."""
    stated = config.launcher.needs.disk_gb * GB
    if config.trainer.save_freq <= 0 or model is None:
        return stated
    resumed = step_folders(Path(config.trainer.default_local_dir)) if config.trainer.resume_mode == "auto" else {}
    there = sum(path.stat().st_size for old in resumed.values() for path in old.rglob("*") if path.is_file())
    checkpoint, export = checkpoint_parts(model, read_settings(config, card=0))
    exports = 2 if config.stage.handover == "last" else 4  # a new copy beside the old one; the best model likewise
    return max(stated, checkpoint * ((config.trainer.max_actor_ckpt_to_keep or 1) + 1) + export * exports - there)


def gpu_memory(config: DictConfig, model: Architecture | None, notes: list[str]) -> Iterator[str]:
    """The run fits its cards, by the estimate of `recipe.memory`."""
    if config.trainer.device != "cuda":
        return
    card = card_bytes(config)
    if card is None or model is None:
        what = "the card's size is unknown (launcher.needs.gpu_memory_gb)" if card is None else "its layers are unknown"
        notes.append(f"GPU memory: no estimate for {config.actor_rollout_ref.model.path}, {what}")
        return
    settings = read_settings(config, card)
    sizes = ", ".join(f"{name} {size / GB:.0f}" for name, size in peaks(model, settings).items())
    notes.append(f"GPU memory, estimated: {sizes} GB of {card / GB:.1f}")
    notes += [cache_line(model, settings)] * settings.plays
    wrongs = [problem(model, settings, config.data.max_prompt_length), *teacher_problem(config, card, notes)]
    for wrong in filter(None, wrongs):
        if config.launcher.check_gpu_memory:
            yield wrong
        notes.append(wrong)


def check_attention(config: DictConfig, settings: Any, notes: list[str], alone: bool = True) -> None:
    """`choose_attention` on this machine's GPUs. Where it has none, as a cluster's head, nothing is tried."""
    if config.trainer.device != "cuda":
        return
    if (config.preflight_only or not alone) and not count_gpus():
        command = " ".join(selfcheck(head_shape(settings, str(config.actor_rollout_ref.model.path))))
        notes.append(f"attention: not tried, nvidia-smi shows no GPU here; try `python {command}` there")
    else:
        notes += choose_attention(config, "cuda", settings)


def choose_attention(config: DictConfig, device: str, settings: Any) -> list[str]:
    """Try `varlen` and `varlen_repeat_kv` on the device; where only the latter is right, the configuration gets it.

    Args:
        config: of a stage, or of the warm start, whose model stands at another place.
        settings: the model's, as `recipe.preflight.model.load_settings` reads them.

    Returns:
        A line for the log; none where another attention is chosen.

    Raises:
        PreflightError: neither is right, or torch cannot use the device.
    """
    place = "actor_rollout_ref.model" if "actor_rollout_ref" in config else "model"
    model, key = OmegaConf.select(config, place), f"{place}.override_config.attn_implementation"
    chosen, other = str(model.override_config.get("attn_implementation")), "varlen_repeat_kv"
    if not chosen.startswith("varlen"):
        return []
    shape = head_shape(settings, str(model.path))
    found = run_selfcheck(device, shape)
    if found["device"] is None:
        raise PreflightError(f"the attention cannot be tried on a GPU: {found['cuda']}. hardware=cpu needs none.")
    where = f"on {found['device']} with {shape}"
    for name in (chosen, other):
        if found[name]["right"]:
            model.override_config.attn_implementation = name
            wrong = f"{chosen} is wrong: {found[chosen]['says']}; so {key}=" * (name != chosen)
            return [f"attention: {wrong}{name} is right {where}: {found[name]['says']}"]
    said = f"is wrong {where}: {found[chosen]['says']}; {other}: {found[other]['says']}"
    raise PreflightError(f"PyTorch's packed attention {said}. Set {key}=sdpa, which takes more memory.")


def head_shape(settings: Any, path: str) -> dict[str, int | None]:
    """Numbers of attention heads, of key and value heads, size of a head, and window, from a model's configuration.

    Raises:
        PreflightError: it does not have them.
    """
    heads = getattr(settings, "num_attention_heads", None)
    size = getattr(settings, "head_dim", None) or (settings.hidden_size // heads if heads else None)
    if not heads or not size:
        raise PreflightError(f"config.json of {path} names no attention heads. Choose the attention sdpa.")
    window = getattr(settings, "sliding_window", None) if getattr(settings, "use_sliding_window", True) else None
    kv_heads = getattr(settings, "num_key_value_heads", None) or heads
    return {"heads": heads, "kv_heads": kv_heads, "head_size": size, "window": window}


def selfcheck(shape: Mapping[str, int | None]) -> list[str]:
    """The arguments of python for `recipe.gpu.selfcheck`."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in shape.items() if value is not None]
    return ["-m", "recipe.gpu.selfcheck", *flags]


def run_selfcheck(device: str, shape: Mapping[str, int | None]) -> dict[str, Any]:
    """What `recipe.gpu.selfcheck` prints; where it prints nothing, what it died of under `cuda`."""
    command = [sys.executable, *selfcheck(shape), f"--device={device}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=600)
        return json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired as late:
        return {"device": None, "cuda": f"the attention's check did not end within {late.timeout:.0f} s"}
    except (IndexError, json.JSONDecodeError):
        words = " ".join(answer.stderr.split())[-400:]
        return {"device": None, "cuda": f"the attention's check ended with status {answer.returncode}: {words}"}


def find_cluster(config: DictConfig) -> tuple[str, Answer] | None:
    """Look at each node of the cluster that this run joins; None where it starts a Ray of its own.

    Returns:
        The cluster's address, and what it says.

    Raises:
        PreflightError: there is none, or something is missing on a node.
    """
    nodes = int(config.trainer.nnodes)
    if (address := loopback.cluster(nodes)) is None:
        if nodes == 1:
            return None
        how = "Run `bash run_cluster.sh` on each node and `source outputs/cluster/environment` here (docs/cluster.md)"
        raise PreflightError(f"trainer.nnodes={nodes} needs a Ray cluster. {how}, or set RAY_ADDRESS=host:port.")
    run = Path(config.paths.run).absolute()
    existing = next(path for path in (run, *run.parents) if path.is_dir())
    key = str(config.interaction.user.get("api_key_env")) if config.interaction.user else ""
    asked = {
        **{"root": str(ROOT), "code": list(CODE), "packages": list(PACKAGES), "folder": os.getcwd()},
        "secrets": sorted({*secrets(os.environ), *([key] if os.environ.get(key) else [])}),
        **{"variables": list(LOOPBACK), "salt": uuid.uuid4().hex, "paths": read_paths(config)},
        "shared": str(existing / f".nodes-{uuid.uuid4().hex}"),
    }
    try:
        answer = ask(address, "recipe.machine.cluster:look", asked)
    except ClusterError as error:
        raise PreflightError(f"{error}.") from error
    finally:
        shutil.rmtree(str(asked["shared"]), ignore_errors=True)
    if wrong := [*node_problems(config, answer, asked, describe(asked))]:
        raise PreflightError("\n- ".join([f"the Ray cluster at {address} is not ready for this run:", *wrong]))
    return address, answer


def read_paths(config: DictConfig) -> list[str]:
    """Files and folders that a run names and its workers read, absolute: data, model, adapter, reward, user's words."""
    model, user = config.actor_rollout_ref.model, config.interaction.user
    named = [config.data.train_files, config.data.val_files, model.path, model.lora_adapter_path]
    named += [config.reward.custom_reward_function.path, list(config.interaction.environments.values())]
    named += [config.environment.guard, config.offline.files, OmegaConf.select(config, teacher.PATH)]
    named += [config.stage.resample.pool, user and user.get("file")]
    paths = {os.path.abspath(os.path.expanduser(text)) for item in named for text in as_list(item) if "://" not in text}
    return sorted(path for path in paths if os.path.exists(path))  # what is not here, other checks tell


def node_problems(
    config: DictConfig, answer: Answer, asked: Mapping[str, Any], here: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with the nodes of a cluster, all of it.

    Args:
        answer: of `recipe.machine.cluster.look`.
        here: of `recipe.machine.cluster.describe` in this process.
    """
    working = [node for node in answer.nodes if node.resources.get("CPU", 0) or node.resources.get("GPU", 0)]
    nodes, each = int(config.trainer.nnodes), int(config.trainer.n_gpus_per_node)
    gpus = [node.resources.get("GPU", 0) for node in working]
    if sum(has >= each for has in gpus) < nodes or sum(gpus) < devices(config):
        has = ", ".join(f"{node} has {number:.0f}" for node, number in zip(working, gpus, strict=True))
        said = f"{nodes} nodes with {each} GPUs, and {devices(config) - nodes * each} more, are asked for: {has}"
        yield f"{said}. Start Ray on more nodes (bash run_cluster.sh), or lower trainer.nnodes and n_gpus_per_node."
    wanted, cpus, own = wanted_memory(config, known_model(config)), CPUS_PER_GPU * each + CPUS_BESIDE, _facts(here)
    for node in working:
        if node.fault:
            yield f"{node} cannot be asked: {node.fault}."
            continue
        there, cards = node.answer, node.resources.get("GPU", 0)
        if not there["folder"] or there["code"] is None:
            yield f"{node} has no folder {asked['folder']} or {asked['root']}. Mount the checkout at the same place."
        elif other := [name for name in sorted({*own, *_facts(there)}) if own.get(name) != _facts(there).get(name)]:
            yield (
                f"{node} is not as this machine: {'; '.join(other[:5])}. All nodes need one checkout, one environment "
                "(bash setup.sh), the same files at the same places, and secrets set before `ray start`."
            )
        closed = [f"{name}={value}" for name, value in LOOPBACK.items() if there["variables"].get(name) == value]
        if closed and nodes > 1 and not node.address.startswith("127."):
            yield f"{node} has {', '.join(closed)}, and reaches no other node. Unset that before `ray start` there."
        if cards and there["memory"] < wanted:
            yield f"{node} has {there['memory'] / GB:.1f} GB of memory, {wanted / GB:.0f} are needed ({MEMORY})."
        if cards >= each and node.resources.get("CPU", 0) < cpus:
            yield f"{node} has fewer than {cpus} CPUs, for which verl would wait. Start its Ray with --num-cpus={cpus}."
    for node in (node for node in working if not node.fault):
        missing = ", ".join(str(other) for other in working if not other.fault and other.id not in node.answer["seen"])
        if (fault := node.answer["wrote"]) is not None or missing:
            how = f"cannot write: {fault}" if fault else f"does not see what {missing} writes"
            yield f"{node} {how}, in {Path(asked['shared']).parent}. Set paths.run (or RUN) to a folder on all nodes."
            return  # where a folder is not shared, every node misses every other one's file


def _facts(node: Mapping[str, Any]) -> dict[str, Any]:
    """What has to be the same on all nodes, by name."""
    inner = {f"{kind} {name}": value for kind in ("packages", "paths", "secrets") for name, value in node[kind].items()}
    return {"code": node["code"], "Python": node["python"], **inner}
