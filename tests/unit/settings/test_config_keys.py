"""Every key that our configurations set in verl's sections is read by verl on the path that runs here.

verl's configuration has keys that nothing reads, or only another engine: `actor.grad_clip` is a field of a dataclass,
has a default and a comment, and clips nothing. So this test looks for the read itself. verl's modules are parsed, not
imported; a key counts as read if code of the V1 trainer, the FSDP engine, the vLLM rollout or the SFT trainer takes
that name from an object that stands for that section. `OBJECTS` says which names stand for it where.

A key you added is reported? Then verl ignores it where you put it: search verl for the name of the key, and set the one
that the engine reads. If verl does read it in a way that this cannot see, say where in `ELSEWHERE`.
"""

import ast
import copy
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass

from recipe.launch.compose import launch_overrides
from recipe.settings import CONFIG_DIR

ROOT = Path(__file__).parents[3]
VERL = Path(importlib.util.find_spec("verl").submodule_search_locations[0])  # type: ignore[union-attr,index]

OURS = {"defaults", "paths", "stage", "environment", "interaction", "offline", "launcher", "hydra", "preflight_only"}
"""Sections that verl does not have."""

ENGINE = "workers/engine/fsdp/transformer_impl.py"
WORKERS = "workers/engine_workers.py"
TRAINER = "trainer/ppo/v1/trainer_base.py"
LOSSES = "workers/utils/losses.py"
ALGOS = "trainer/ppo/core_algos.py"
SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"
LOOPS = "experimental/agent_loop/agent_loop.py"
LOOPS_V1 = "trainer/ppo/v1/agent_loop_tq.py"
SFT = "trainer/sft_trainer.py"
SFT_DATA = "utils/dataset/multiturn_sft_dataset.py"

_ENGINE = [f"{ENGINE}: engine_config", f"{WORKERS}: engine_config"]
_PRECISION = [f"{ENGINE}: mixed_precision_config"]
_OPTIM = [
    f"{ENGINE}: optimizer_config",
    f"{ENGINE}: optim_config",
    "workers/config/optimizer.py build_optimizer: config",
]
_MODEL = ["workers/config/model.py __post_init__: self", f"{ENGINE}: model_config", f"{WORKERS}: model_config"]
_OPTIM_ARGS = ("workers/config/optimizer.py", "optimizer_args.update(config.override_optimizer_config)")
_CHECKPOINT = ["utils/checkpoint/checkpoint_manager.py: checkpoint_config"]

OBJECTS: dict[str, list[str]] = {
    "actor_rollout_ref": ["trainer/ppo/v1/trainer_separate_async.py: actor_rollout_ref"],
    "actor_rollout_ref.model": _MODEL,
    "actor_rollout_ref.model.override_config": ["workers/config/model.py __post_init__: self.override_config"],
    "actor_rollout_ref.actor": [
        f"{WORKERS}: config.actor",
        f"{LOSSES} ppo_loss: config",
        f"{ALGOS}: config",
        f"{TRAINER}: actor_rollout_ref.actor",
        f"{TRAINER}: actor_config",
    ],
    "actor_rollout_ref.actor.policy_loss": [
        f"{LOSSES}: policy_loss",
        f"{ALGOS}: policy_loss",
        "recipe/credit/policy_loss.py: policy_loss",
    ],
    "actor_rollout_ref.actor.checkpoint": _CHECKPOINT,
    "actor_rollout_ref.actor.optim": _OPTIM,
    "actor_rollout_ref.actor.fsdp_config": _ENGINE,
    "actor_rollout_ref.actor.fsdp_config.mixed_precision": _PRECISION,
    "actor_rollout_ref.ref": [f"{WORKERS}: config.ref"],
    "actor_rollout_ref.ref.fsdp_config": _ENGINE,
    "actor_rollout_ref.ref.fsdp_config.mixed_precision": _PRECISION,
    "actor_rollout_ref.rollout": [
        f"{WORKERS}: config.rollout",
        f"{WORKERS}: rollout_config",
        f"{SERVER}: config",
        f"{TRAINER}: actor_rollout_ref.rollout",
        "workers/rollout/llm_server.py: rollout_config",
    ],
    "actor_rollout_ref.rollout.agent": [f"{LOOPS}: config.agent", f"{LOOPS}: rollout_config.agent"],
    "actor_rollout_ref.rollout.val_kwargs": [f"{LOOPS_V1}: config.val_kwargs"],
    "actor_rollout_ref.rollout.checkpoint_engine": [f"{WORKERS}: checkpoint_engine_config"],
    "critic": [
        f"{TRAINER}: config.critic",
        f"{TRAINER}: critic_cfg",
        f"{LOSSES} value_loss: config",
        "trainer/ppo/utils.py need_critic: config.critic",
    ],
    "critic.model": _MODEL,
    "critic.model.override_config": ["workers/config/model.py __post_init__: self.override_config"],
    "critic.checkpoint": _CHECKPOINT,
    "critic.optim": _OPTIM,
    "critic.fsdp": _ENGINE,
    "critic.fsdp.mixed_precision": _PRECISION,
    "algorithm": [f"{TRAINER}: config.algorithm"],
    "algorithm.kl_ctrl": [f"{ALGOS} get_kl_controller: kl_ctrl"],
    "algorithm.filter_groups": [f"{TRAINER}: filter_groups"],
    "algorithm.rollout_correction": [
        f"{TRAINER}: rollout_corr_config",
        "trainer/ppo/rollout_corr_helper.py: rollout_corr_config",
    ],
    "algorithm.credit": ["recipe/credit/registry.py: credit"],
    "data": [
        f"{TRAINER}: config.data",
        "trainer/ppo/utils.py: data_config",
        "utils/dataset/rl_dataset.py __init__: config",
    ],
    "reward": [
        "experimental/reward_loop/reward_loop.py: config.reward",
        "recipe/reward.py: config.reward",
    ],
    "reward.custom_reward_function": ["trainer/ppo/reward.py get_custom_reward_fn: reward_fn_config"],
    "trainer": [f"{TRAINER}: config.trainer"],
    "trainer.v1": [f"{TRAINER}: config.trainer.v1"],
    "trainer.v1.colocate_async": ["trainer/ppo/v1/trainer_colocate_async.py: v1.colocate_async"],
    "trainer.v1.separate_async": ["trainer/ppo/v1/trainer_separate_async.py: v1.separate_async", f"{TRAINER}: v1"],
    "trainer.v1.sampler": [f"{TRAINER}: sampler_config", f"{TRAINER}: v1.sampler"],
}

SFT_OBJECTS: dict[str, list[str]] = {
    "data": [f"{SFT}: config.data", f"{SFT}: data_config", f"{SFT_DATA} __init__: config"],
    "model": _MODEL,
    "model.override_config": OBJECTS["actor_rollout_ref.model.override_config"],
    "engine": _ENGINE,
    "engine.mixed_precision": _PRECISION,
    "optim": _OPTIM,
    "checkpoint": _CHECKPOINT,
    "trainer": [f"{SFT}: config.trainer", f"{SFT}: trainer_config"],
}

ELSEWHERE: dict[str, tuple[str, str]] = {
    "actor_rollout_ref.actor.optim.override_optimizer_config": _OPTIM_ARGS,
    "critic.optim.override_optimizer_config": _OPTIM_ARGS,
    "optim.override_optimizer_config": _OPTIM_ARGS,
    "actor_rollout_ref.rollout.engine_kwargs.vllm": (SERVER, "            **engine_kwargs,"),
    "critic.strategy": ("workers/config/critic.py", 'object.__setattr__(self.engine, "strategy", self.strategy)'),
    "critic.use_dynamic_bsz": ("workers/config/critic.py", "if not self.use_dynamic_bsz:"),  # asks for a number of rows
    "critic.ppo_max_token_len_per_gpu": (
        "recipe/config/base.yaml",
        "ppo_infer_max_token_len_per_gpu: ${.ppo_max_token",
    ),
    "data.max_response_length": ("trainer/config/rollout/rollout.yaml", "${oc.select:data.max_response_length,512}"),
    "data.val_share": ("recipe/conversations.py", "hold_out(train, data.val_share,"),
    "ray_kwargs.ray_init": ("trainer/main_ppo.py", "ray.init(**OmegaConf.to_container(ray_init_kwargs))"),
    "transfer_queue": ("trainer/main_ppo.py", "tq.init(config.transfer_queue)"),
}
"""Keys, with all below them, that are read in a way that a search for names does not see: file, and what it says."""


class Read(NamedTuple):
    """One place where code takes a name from an object: `self.config.actor.strategy` in a function."""

    function: str
    chain: tuple[str, ...]


def chain_of(node: ast.AST) -> tuple[str, ...]:
    """`a.b["c"].get("d")` and `getattr(a.b, "c")` as names; empty for what is none of these."""
    if isinstance(node, ast.Name):
        return (node.id,)
    of: ast.AST | None = None
    name: Any = None
    if isinstance(node, ast.Attribute):
        of, name = node.value, node.attr
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        of, name = node.value, node.slice.value
    elif isinstance(node, ast.Call) and node.args:
        last = node.args[0]
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            of = node.func.value
        elif isinstance(node.func, ast.Name) and node.func.id == "getattr":
            of, last = node.args[0], node.args[1]
        name = last.value if isinstance(last, ast.Constant) else None
    chain = chain_of(of) if of is not None and isinstance(name, str) else ()
    return (*chain, name) if chain else ()


@cache
def reads(file: str) -> list[Read]:
    """Everything that a module takes from anything by name."""
    found: list[Read] = []

    def visit(node: ast.AST, function: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if not stored and len(chain := chain_of(node)) > 1:
            found.append(Read(function, chain))
        for child in ast.iter_child_nodes(node):
            visit(child, function)

    base = ROOT if file.startswith("recipe/") else VERL
    visit(ast.parse((base / file).read_text()), "")
    return found


def is_read(key: str, objects: dict[str, list[str]]) -> bool:
    """Whether code on the path takes the key from an object that stands for its section."""
    section, leaf = key.rsplit(".", 1)
    for place in objects.get(section, []):
        where, standing = place.split(": ")
        file, _, function = where.partition(" ")
        wanted = (*standing.split("."), leaf)
        for read in reads(file):
            if read.chain[-len(wanted) :] == wanted and function in ("", read.function):
                return True
    return False


def leaves(node: dict, path: str = "") -> Iterator[str]:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{name}.")
        elif name != "_target_":  # Hydra's
            yield f"{path}{name}"


def our_keys(sft: bool) -> dict[str, str]:
    """Key -> file that sets it, in verl's sections."""
    folders = ["sft.yaml", "sft_hardware/*.yaml", "preset/*.yaml"] if sft else ["base.yaml", "stage*.yaml", "*/*.yaml"]
    files = [path for pattern in folders for path in sorted(CONFIG_DIR.glob(pattern))]
    keys = {}
    for path in files:
        if path.parent.name in ("curricula", *([] if sft else ["sft_hardware", "preset"])):
            continue
        content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        keys |= {key: path.name for key in leaves(content) if key.split(".")[0] not in OURS}
    return keys


def is_dead(key: str, objects: dict[str, list[str]]) -> bool:
    return not is_read(key, objects) and not any(key == known or key.startswith(f"{known}.") for known in ELSEWHERE)


@pytest.mark.parametrize("sft", [False, True], ids=["training", "warm start"])
def test_verl_reads_every_key_that_our_configurations_set(sft):
    objects = SFT_OBJECTS if sft else OBJECTS
    dead = [f"{key} ({file})" for key, file in our_keys(sft).items() if is_dead(key, objects)]
    assert not dead, "verl reads none of these where they stand, see the first lines of this file:\n" + "\n".join(dead)


@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.actor.grad_clip",  # a field of a dataclass
        "critic.grad_clip",
        "actor_rollout_ref.nccl_timeout",  # Megatron's
        "actor_rollout_ref.actor.optim.clip_gard",
        "actor_rollout_ref.actor.made_up",
        "made_up.lr",
        "algorithm.loss_agg_mode",  # right in another section
        "trainer.lr",
        "data.made_up",
    ],
)
def test_a_key_that_nothing_reads_is_found(key):
    assert is_dead(key, OBJECTS)


def test_what_is_said_to_be_read_elsewhere_is():
    for key, (file, text) in ELSEWHERE.items():
        assert text in ((ROOT if file.startswith("recipe/") else VERL) / file).read_text(), f"{key}: not in {file}"


@cache
def _composed(*choices: str) -> Any:
    own = [item for item in launch_overrides(list(choices)) if item.startswith("hydra.searchpath")]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose("stage1", overrides=[*choices, *own])


def composed(hardware: str = "gpu8", algorithm: str = "tppo", **settings: Any) -> Any:
    """Stage 1, with `settings` (dots as two underscores) as a user would override them."""
    config = copy.deepcopy(_composed(f"hardware={hardware}", f"algorithm={algorithm}"))
    for key, value in settings.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    return config


@pytest.mark.parametrize("algorithm", ["appo", "tppo"])
def test_the_gradient_clip_of_the_algorithm_is_where_the_engine_takes_it_from(algorithm):
    config = composed(algorithm=algorithm)
    for optim in (config.actor_rollout_ref.actor.optim, config.critic.optim):
        assert omega_conf_to_dataclass(OmegaConf.merge(optim, {"total_training_steps": 1})).clip_grad == 0.5
