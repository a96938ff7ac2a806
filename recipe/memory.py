"""How much memory a run takes on a GPU, on the host and on the disk, from configurations alone: docs/hardware.md.

    python -m recipe.memory MODEL [--config-name stage3] [--card GB] [Hydra overrides]

MODEL is a model folder, a config.json, or one of the models in recipe/config/models.json. The exit status is 1 where
the run does not fit. Nothing here imports torch.

The terms follow verl 0.9.1 and PyTorch's FSDP2; `benchmarks/bench_memory.py` runs both on fake tensors and says how far
off each total is. 2 and 4 are the bytes of bfloat16 and float32.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from recipe.files import PreflightError
from recipe.settings import CONFIG_DIR, compose, is_offline

GB = 1e9
USABLE = 0.99  # of a card; the driver keeps the rest
MARGIN = 0.95  # of a card that may be filled: the estimate is up to 2 % off
SHORTEST = 12288  # tokens of prompt and response below which no advice goes: up to 8192 of them are the prompt's
BYTES = {None: 4, "fp32": 4, "float32": 4, "bf16": 2, "bfloat16": 2, "fp16": 2, "float16": 2}
SHIPPED: dict[str, Any] = json.loads((CONFIG_DIR / "models.json").read_text())  # config.json of models, no weights

TRAINER_CONTEXT = 1.2 * GB  # CUDA, NCCL and cuBLAS in a trainer's process. Assumed, as are the next four
ENGINE_CONTEXT = 0.6 * GB  # CUDA context of vLLM's process, which vLLM does not count into its share
ENGINE_ASLEEP = 1.2 * GB  # what vLLM keeps while it sleeps: CUDA graphs and their pool, NCCL
ENGINE_OTHER = 0.8 * GB  # CUDA graphs, NCCL and the sampler within vLLM's share
FRAGMENTS = 0.05  # of passing tensors: what PyTorch's allocator reserves and cannot use
SCORES = 10  # bytes of a token and word of a teacher's batch: logits, their log-softmax in float32, a copy
TEACHER_PROCESS = 2.5 * GB  # on a CPU, vLLM's cache of 1 GiB in it. Assumed
FUSED_CHUNK = 512  # tokens whose logits verl's fused log-probs make at a time
PADDING = 2.5
"""Tokens of the largest padded micro-batch for each token of the budget. verl fills a micro-batch by real tokens and,
without packing, pads each row to the longest one: 163,000 tokens at a budget of 65,536 in 20 simulated steps."""

Parts = dict[str, float]
"""Bytes by name."""


class UnknownArchitecture(ValueError):
    """A model whose layers are not those counted here."""


@dataclass(frozen=True)
class Architecture:
    """A dense decoder: per layer q, k, v and o, a gated MLP and two norms. Sizes are in elements, not bytes."""

    name: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    queries: int  # of a token, all heads together
    keys: int
    tied: bool  # the output layer is the embedding
    normed_heads: bool  # queries and keys go through a norm of their own
    bias: int  # parameters of a layer's biases and of norms other than its two

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def layer(self) -> int:
        attention = self.hidden * (2 * self.queries + 2 * self.keys)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden + self.bias

    @property
    def parameters(self) -> int:
        return (1 if self.tied else 2) * self.embedding + self.layers * self.layer + self.hidden


def load_architecture(model: str) -> Architecture:
    """Of a model folder, a config.json, one of SHIPPED, or a hub id whose config.json is in the local cache.

    Raises:
        UnknownArchitecture: there is nothing of that name, or its layers are not those counted here.
    """
    from huggingface_hub import hf_hub_download

    try:
        path = Path(model).expanduser()
        path = path / "config.json" if path.is_dir() else path
        if model not in SHIPPED and not path.is_file():
            path = Path(hf_hub_download(model, "config.json", local_files_only=True))
        values = SHIPPED.get(model) or json.loads(path.read_text())
        kind, hidden, heads = values["model_type"], values["hidden_size"], values["num_attention_heads"]
        if kind not in ("llama", "mistral", "qwen2", "qwen3"):
            raise ValueError(f"the layers of model_type {kind} are not known")
        kv_heads, size = values.get("num_key_value_heads") or heads, values.get("head_dim") or hidden // heads
        biases = (heads + 2 * kv_heads) * size * (kind == "qwen2" or bool(values.get("attention_bias")))
        return Architecture(
            name=model,
            vocabulary=int(values["vocab_size"]),
            hidden=hidden,
            intermediate=values["intermediate_size"],
            layers=values["num_hidden_layers"],
            queries=heads * size,
            keys=kv_heads * size,
            tied=bool(values.get("tie_word_embeddings")),
            normed_heads=kind == "qwen3",
            bias=biases + 2 * size * (kind == "qwen3"),
        )
    except (OSError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        known = f"a folder, a config.json, a hub id used before, or one of {', '.join(SHIPPED)}"
        raise UnknownArchitecture(f"{model} cannot be estimated ({error!r:.200}); name {known}") from error


def known_model(config: DictConfig, key: str = "actor_rollout_ref.model.path") -> Architecture | None:
    """The model that the configuration names, if its layers are those that the estimate knows."""
    try:
        return load_architecture(str(OmegaConf.select(config, key)))
    except UnknownArchitecture:
        return None


def at(key: str) -> Any:
    """A field of Settings that is read from this key of the configuration."""
    return field(metadata={"key": key})


ACTOR, MODEL, ROLLOUT = (f"actor_rollout_ref.{part}" for part in ("actor", "model", "rollout"))
TEACHER, TOP = "distillation.teacher_models.teacher_model", "forward_kl_topk"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What of a run decides about memory. Token counts are those of a micro-batch on one GPU."""

    card: float  # bytes that programs can use
    gpus: int = at("trainer.n_gpus_per_node")
    nodes: int = at("trainer.nnodes")
    shards: int  # GPUs over which FSDP spreads parameters, gradients and Adam's moments
    longest: int  # tokens of the longest prompt and response, which a micro-batch must hold whatever its budget
    update_tokens: int = at(f"{ACTOR}.ppo_max_token_len_per_gpu")
    forward_tokens: int = at(f"{ROLLOUT}.log_prob_max_token_len_per_gpu")
    reference_tokens: int = at("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu")
    packed: bool = at(f"{MODEL}.use_remove_padding")
    fused: bool = at(f"{MODEL}.use_fused_kernels")
    teaches: str = field(default="", metadata={"key": "distillation.distillation_loss.loss_mode"})
    checkpointing: bool = at(f"{MODEL}.enable_gradient_checkpointing")
    lora_rank: int = at(f"{MODEL}.lora_rank")
    param_offload: bool = at(f"{ACTOR}.fsdp_config.param_offload")
    optimizer_offload: bool = at(f"{ACTOR}.fsdp_config.optimizer_offload")
    offload_policy: bool = at(f"{ACTOR}.fsdp_config.offload_policy")
    model_bytes: int  # of a parameter as it is kept
    entropy: bool  # the loss has an entropy term
    old_log_probs: bool  # the trainer computes the log-probs of the sampled tokens again
    reference: bool  # a model of its own for the KL term, in host memory
    reference_bytes: int
    critic: bool = at("critic.enable")  # as large as the policy, all of it trained, whatever LoRA the policy has
    critic_bytes: int
    critic_param_offload: bool = at("critic.fsdp.param_offload")
    critic_optimizer_offload: bool = at("critic.fsdp.optimizer_offload")
    critic_offload: bool = at("critic.fsdp.offload_policy")
    plays: bool  # an engine shares the cards: not with stored trajectories, nor with engines on cards of their own
    utilization: float = at(f"{ROLLOUT}.gpu_memory_utilization")
    tensor_parallel: int = at(f"{ROLLOUT}.tensor_model_parallel_size")
    batched_tokens: int = at(f"{ROLLOUT}.max_num_batched_tokens")
    context: int = at(f"{ROLLOUT}.max_model_len")
    sleeps: bool = at(f"{ROLLOUT}.free_cache_engine")
    sequences: int  # episodes that one engine plays at once
    bucket: int  # bytes of the buffer that carries weights from the trainer


KEYS = {one.name: one.metadata["key"] for one in fields(Settings) if one.metadata}


def sequence_parts(part: DictConfig, engine: str) -> int:
    """Over how many GPUs verl cuts the sequences of a model: its own setting comes before that of its engine."""
    own, of_engine = (each.ulysses_sequence_parallel_size for each in (part, part[engine]))
    return own if own > 1 else of_engine


def read_settings(config: DictConfig, card: float) -> Settings:
    """From a stage's composed configuration, for cards of `card` bytes."""
    policy, actor, rollout = config.actor_rollout_ref, config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    values: dict[str, Any] = {name: OmegaConf.select(config, key) for name, key in KEYS.items()}
    longest = config.data.max_prompt_length + config.data.max_response_length
    if is_offline(config) and rollout.max_model_len:
        longest = min(longest, rollout.max_model_len)
    ref = policy.ref
    for name, dynamic, rows, part in (
        ("update_tokens", actor.use_dynamic_bsz, actor.ppo_micro_batch_size_per_gpu, actor),
        ("forward_tokens", rollout.log_prob_use_dynamic_bsz, rollout.log_prob_micro_batch_size_per_gpu, actor),
        ("reference_tokens", ref.log_prob_use_dynamic_bsz, ref.log_prob_micro_batch_size_per_gpu, ref),
    ):
        whole = -(-longest // sequence_parts(part, "fsdp_config"))
        values[name] = max(int(values[name]), whole) if dynamic else int(rows or 1) * longest
    world = values["gpus"] * values["nodes"]
    return Settings(
        **values | {"lora_rank": int(values["lora_rank"] or 0), "context": values["context"] or longest},
        card=card,
        shards=fsdp_size if 0 < (fsdp_size := actor.fsdp_config.fsdp_size) < world else world,
        longest=longest,
        model_bytes=BYTES[actor.fsdp_config.model_dtype],
        entropy=actor.entropy_coeff != 0 or bool(actor.get("calculate_entropy")),
        old_log_probs=not config.algorithm.rollout_correction.bypass_mode,
        reference=not values["lora_rank"] and bool(actor.use_kl_loss or config.algorithm.use_kl_in_reward),
        reference_bytes=BYTES[policy.ref.fsdp_config.model_dtype or "bf16"],
        critic_bytes=BYTES[config.critic.fsdp.get("model_dtype")],
        plays=not is_offline(config) and policy.hybrid_engine,
        sequences=min(
            rollout.max_num_seqs,
            -(-config.data.train_batch_size * rollout.n // max(1, world // values["tensor_parallel"])),
        ),
        bucket=rollout.checkpoint_engine.update_weights_bucket_megabytes << 20,
    )


def trained_parameters(model: Architecture, settings: Settings) -> int:
    """Parameters that get gradients: all, or those of adapters on every linear layer but the output layer."""
    if not settings.lora_rank:
        return model.parameters
    attention = 2 * (model.hidden + model.queries) + 2 * (model.hidden + model.keys)
    return model.layers * settings.lora_rank * (attention + 3 * (model.hidden + model.intermediate))


def micro_batch(model: Architecture, settings: Settings, budget: int, train: bool) -> Parts:
    """A micro-batch of `budget` tokens through the model, forwards alone or forwards and backwards.

    A pass has two moments that can be its peak: inside a layer, and between the last layer and the log-probs. The
    larger one counts, or AdamW's step after it: on GPUs PyTorch takes the square roots of all second moments at once.
    """
    tokens, whole = budget * (1.0 if settings.packed else PADDING), train and not settings.lora_rank
    size = 6 * model.intermediate + 8 * model.hidden
    if train:  # computed again, then backwards; a norm of queries and keys keeps them in float32 and in bfloat16
        heads = (10 if model.normed_heads else 4) * (model.queries + model.keys)
        size = 12 * model.intermediate + 16 * model.hidden + heads
    layer = {"gathered layers": 2 * 2 * model.layer, "a layer": size * tokens}
    head: Parts = {"hidden states": (6 if train else 4) * tokens * model.hidden}
    if settings.fused:
        head["logits of a chunk"] = (33 if train else 24) * min(tokens, FUSED_CHUNK) * model.vocabulary
        head |= {"a chunk's gradient": 2 * model.embedding} if whole else {}
    else:
        most = 30 if settings.entropy else 14 if settings.teaches == TOP else 10  # 14: log-softmax and two gradients
        head["logits"] = (most if train else 10) * tokens * model.vocabulary
    if whole:
        head["head's gradient"] = layer["head's gradient"] = 2 * model.embedding
        layer["layer's gradients"] = 4 * model.layer + 2 * model.hidden * model.intermediate
    parts: Parts = {"gathered head": 2 * model.embedding}
    if train and settings.checkpointing:
        parts["checkpoints"] = 2 * model.layers * model.hidden * tokens
    elif train:
        parts["activations"] = (model.layers - 1) * size * tokens
    parts |= layer if sum(layer.values()) >= sum(head.values()) else head
    if not settings.packed:  # a mask for every pair of tokens, boolean and in bfloat16; repeated keys and values
        parts["attention mask"] = 3 * tokens * settings.longest + 4 * tokens * model.queries
    if train and not settings.offload_policy:
        step = {"Adam's step": settings.model_bytes / settings.shards * trained_parameters(model, settings)}
        return max(parts, step, key=lambda moment: sum(moment.values()))
    return parts


def trainer_state(model: Architecture, settings: Settings, phase: str) -> Parts:
    """What of the trainer stays on the card. A critic's own passes are not counted: they come after the policy's."""
    trained, size, parts = trained_parameters(model, settings), settings.model_bytes / settings.shards, Parts()
    if not settings.offload_policy:
        if not settings.param_offload or phase in ("log-probs", "update"):
            parts["parameters"] = size * (model.parameters + trained * bool(settings.lora_rank))
        if not settings.optimizer_offload or phase == "update":
            parts["Adam"] = 2 * size * trained
        if phase == "update":
            parts["gradients"] = size * trained
    if settings.critic and not settings.critic_offload:
        size = settings.critic_bytes * model.parameters / settings.shards
        parts |= {} if settings.critic_param_offload else {"critic": size}
        parts |= {} if settings.critic_optimizer_offload else {"critic's Adam": 2 * size}
    return parts


def phases(model: Architecture, settings: Settings) -> dict[str, Parts]:
    """The phases of a training step in their order, each at its peak."""
    awake, plays = {"vLLM awake": settings.utilization * settings.card}, settings.plays
    kept = {"vLLM asleep": ENGINE_ASLEEP} if settings.sleeps else awake

    def computing(tokens: int, train: bool = False) -> Parts:
        parts = micro_batch(model, settings, tokens, train)
        return parts | {"fragments": FRAGMENTS * sum(parts.values())} | (kept if plays else {})

    found = {"generation": awake} if plays else {}
    found |= {"log-probs": computing(settings.forward_tokens)} if settings.old_log_probs else {}
    found |= {"reference": computing(settings.reference_tokens)} if settings.reference else {}
    found["update"] = computing(settings.update_tokens, train=True)
    if plays:  # new weights on their way to vLLM, whose cache is not there yet: the largest tensor is the embedding
        found["weights"] = {"vLLM's weights": engine_weights(model, settings)} if settings.sleeps else awake
        found["weights"] |= {"a whole tensor": settings.model_bytes * model.embedding}
        found["weights"] |= {"bucket": settings.bucket, "vLLM's rest": ENGINE_ASLEEP}
    context = {"CUDA context": TRAINER_CONTEXT + ENGINE_CONTEXT * plays}
    return {name: trainer_state(model, settings, name) | parts | context for name, parts in found.items()}


def peaks(model: Architecture, settings: Settings) -> Parts:
    """Bytes of each phase."""
    return {name: sum(parts.values()) for name, parts in phases(model, settings).items()}


def engine_weights(model: Architecture, settings: Settings) -> float:
    """Bytes of vLLM's weights on one card."""
    return 2 * model.parameters / settings.tensor_parallel


def cache_tokens(model: Architecture, settings: Settings) -> float:
    """Tokens that the cache of one engine holds, in bfloat16; below 0 where vLLM's share is too small for the rest."""
    batch = settings.batched_tokens * (6 * model.intermediate / settings.tensor_parallel + 8 * model.hidden)
    rest = engine_weights(model, settings) + batch + ENGINE_OTHER
    share = (settings.utilization * settings.card - rest) * settings.tensor_parallel
    return share / (4 * model.layers * model.keys)


def host_parts(model: Architecture, settings: Settings) -> Parts:
    """Bytes on one machine at the peak, beside what Ray, vLLM and the workers take as processes.

    Loading is one peak, saving another; the larger is named.
    """
    trained, whole, parts = trained_parameters(model, settings), settings.model_bytes * model.parameters, Parts()
    if settings.reference:  # FSDP keeps a model that is not trained on the host
        parts["reference"] = settings.reference_bytes * model.parameters
    if settings.offload_policy:
        parts["offloaded training"] = whole + 3 * settings.model_bytes * trained
    elif settings.param_offload:
        parts["offloaded parameters"] = whole
    if settings.optimizer_offload and not settings.offload_policy:
        parts["offloaded Adam"] = 2 * settings.model_bytes * trained
    moved = 4 if settings.critic_offload else settings.critic_param_offload + 2 * settings.critic_optimizer_offload
    if settings.critic and moved:
        parts["offloaded critic"] = moved * settings.critic_bytes * model.parameters
    parts = {name: size / settings.nodes for name, size in parts.items()}  # this machine's share
    # a tied embedding: each worker reads the whole model; else one does, and gathers it for the export
    return parts | ({"loading": settings.gpus * whole} if model.tied else {"loading, saving": whole})


def teacher_cards(config: DictConfig) -> int:
    """Devices that the teacher of a distillation takes."""
    distillation = config.distillation
    return int(distillation.nnodes * distillation.n_gpus_per_node) if distillation.enabled else 0


def longest_text(config: DictConfig) -> int:
    """Tokens that a teacher reads at most, and the one that vLLM makes it write."""
    return int(config.data.max_prompt_length + config.data.max_response_length + 1)


def teacher_problem(config: DictConfig, card: float, lines: list[str]) -> Iterator[str]:
    """Whether a teacher fits its cards; `lines` get what it takes of them."""
    if not config.distillation.enabled:
        return
    try:
        teacher = load_architecture(str(OmegaConf.select(config, f"{TEACHER}.model_path")))
    except UnknownArchitecture as error:
        lines.append(f"GPU memory of the teacher: {error}")
        return
    key, longest = f"{TEACHER}.inference", longest_text(config)
    engine = OmegaConf.select(config, key)
    served = replace(
        read_settings(config, card),
        utilization=engine.gpu_memory_utilization,
        tensor_parallel=engine.tensor_model_parallel_size,
        batched_tokens=engine.max_num_batched_tokens,
    )
    room = cache_tokens(teacher, served)
    beside = SCORES * engine.max_num_batched_tokens * teacher.vocabulary + ENGINE_CONTEXT
    lines.append(
        f"teacher: {teacher_cards(config)} cards of {card / GB:.1f} GB, weights "
        f"{engine_weights(teacher, served) / GB:.1f}, {max(0.0, room):,.0f} tokens of cache, {beside / GB:.1f} beside "
        "vLLM's share, by estimate"
    )
    if room < longest:
        yield f"the teacher has room for {max(0, int(room))} of {longest} tokens. Set {key}.tensor_model_parallel_size."
    elif beside > (1 - served.utilization) * card:
        yield f"the teacher takes {beside / GB:.1f} GB beside its share. Lower {key}.max_num_batched_tokens."


def teacher_on_host(config: DictConfig) -> float:
    """Bytes of a teacher on a CPU, beside all else: its process, vLLM's cache, weights as they are and packed."""
    if not config.distillation.enabled:
        return 0.0
    teacher = known_model(config, f"{TEACHER}.model_path")
    return TEACHER_PROCESS + (8 * teacher.parameters if teacher else 0)


def checkpoint_parts(model: Architecture, settings: Settings) -> tuple[float, float]:
    """(bytes of a checkpoint on the disk, bytes of an exported model)."""
    whole = 4 * model.parameters
    state = settings.model_bytes * (model.parameters + 2 * trained_parameters(model, settings))
    return state + whole + 3 * settings.critic * settings.critic_bytes * model.parameters, whole


PACKED: dict[str, Any] = {"packed": True, "fused": True}
MEASURES: tuple[dict[str, Any], ...] = (
    {},
    PACKED,
    PACKED | {"optimizer_offload": True},
    PACKED | {"offload_policy": True},
)
"""What is tried, in this order: each costs more speed than the one before."""


def shortfalls(model: Architecture, settings: Settings) -> list[str]:
    """A line for each phase that does not fit into the card, less a margin, and for a cache that holds not even one
    conversation, with which vLLM does not start."""
    found = peaks(model, settings).items()
    room = MARGIN * settings.card
    lines = [f"{name} takes {size / GB:.0f} of {room / GB:.1f} GB" for name, size in found if size > room]
    if settings.plays and (tokens := cache_tokens(model, settings)) < settings.context:
        left = max(0, int(tokens))
        lines.append(f"vLLM's share leaves room for {left} tokens of a conversation's {settings.context}")
    return lines


def advise(model: Architecture, settings: Settings) -> Settings | None:
    """The first that fits: MEASURES in their order, each with less for vLLM, then with shorter conversations."""
    for longest in range(settings.longest, min(SHORTEST, settings.longest) - 1, -4096):
        start = settings
        if longest < settings.longest:  # of the response: the prompt's limit stays
            start = replace(settings, longest=longest, context=min(settings.context, longest))
        least: dict[str, Any] = dict.fromkeys(("update_tokens", "forward_tokens", "reference_tokens"), longest)
        critics: list[dict[str, Any]] = [{}, {"critic_offload": True}] if settings.critic else [{}]
        lower: tuple[dict[str, Any], ...] = ({}, {"update_tokens": longest}, least)
        needed = {"fused": False} if settings.teaches == TOP else {}
        for critic, measure, budgets in product(critics, MEASURES, lower):
            tried = _engines(replace(start, **critic, **measure | needed, **budgets))
            if better := next((one for one in tried if not shortfalls(model, one)), None):
                return better
    return None


def _engines(settings: Settings) -> Iterator[Settings]:
    """The same run with less for vLLM, then with it spread over more cards."""
    given, batched = settings.tensor_parallel, settings.batched_tokens
    shares = [percent / 100 for percent in range(round(settings.utilization * 100), 15, -5)]
    sizes = [size for size in (1, 2, 4, 8) if given <= size <= settings.gpus * settings.nodes]
    for size, tokens, share in product(sizes, sorted({batched, min(batched, 8192)}, reverse=True), shares):
        yield replace(settings, tensor_parallel=size, utilization=share, batched_tokens=tokens)


def overrides(before: Settings, after: Settings, prompt: int) -> dict[str, Any]:
    """What of `after` differs from `before`, by key; `prompt` is `data.max_prompt_length`, which `longest` contains."""
    changed = {key: getattr(after, name) for name, key in KEYS.items() if getattr(after, name) != getattr(before, name)}
    if before.longest != after.longest:
        changed["data.max_response_length"] = after.longest - prompt
    return {key: str(new).lower() if isinstance(new, bool) else new for key, new in changed.items()}


def problem(model: Architecture, settings: Settings, prompt: int) -> str | None:
    """What does not fit and what to set instead, or None; `prompt` is `data.max_prompt_length`."""
    if not (short := shortfalls(model, settings)):
        return None
    fits = "more or larger cards, LoRA, or a smaller model"
    if better := advise(model, settings):
        fits = " ".join(f"{key}={value}" for key, value in overrides(settings, better, prompt).items())
    return (
        f"{model.name} does not fit on {settings.gpus * settings.nodes} GPUs of {card_text(settings.card)}, by "
        f"estimate: {'; '.join(short)}.\nIt would fit with: {fits}. launcher.check_gpu_memory=false starts anyway."
    )


def nominal_bytes(gigabytes: float) -> float:
    """Bytes that programs can use of a card that is sold with that many GB, which are 2**30 bytes each."""
    return gigabytes * 2**30 * USABLE


def card_text(card: float) -> str:
    """A card as it is sold, and the bytes of it that programs can use, in the unit of the estimate."""
    return f"{round(card / 2**30 / USABLE, 1):g} GB ({card / GB:.1f} x 10^9 bytes for programs)"


def card_bytes(config: DictConfig) -> float | None:
    """Bytes of the smallest GPU here that programs can use; without nvidia-smi, of `launcher.needs.gpu_memory_gb`."""
    query = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        listing = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        listing = ""
    sizes = [float(line) * 2**20 for line in listing.split() if line.isdigit()]
    stated = config.launcher.needs.get("gpu_memory_gb")
    return min(sizes) * USABLE if sizes else nominal_bytes(stated) if stated else None


def cache_line(model: Architecture, settings: Settings) -> str:
    """What of vLLM's share is left for conversations, and what that means for those that run at once."""
    tokens, longest = max(0, cache_tokens(model, settings)), settings.longest
    meaning = f"at full length ({longest}) {int(tokens // longest)} at once: vLLM stops others in between (preemption)"
    if tokens >= settings.sequences * longest:
        meaning = "all of them at full length"
    return (
        f"cache: {settings.utilization * settings.card / GB:.1f} GB for vLLM; {tokens:,.0f} tokens for "
        f"{settings.sequences} conversations, {tokens / settings.sequences:,.0f} each; {meaning}"
    )


def table(model: Architecture, settings: Settings) -> str:
    """Rows of GB by part and phase."""
    found = phases(model, settings)
    sizes = {name: [parts.get(name, 0.0) for parts in found.values()] for parts in found.values() for name in parts}
    sizes["all"] = list(peaks(model, settings).values())
    sizes["left of the card"] = [settings.card - size for size in sizes["all"]]
    lines = [" " * 18 + "".join(f"{name:>12}" for name in found)]
    for name, row in sizes.items():
        lines.append(f"{name:<18}{''.join(f'{size / GB:12.1f}' if size else ' ' * 12 for size in row)}".rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m recipe.memory", description="Estimate a run's memory on GPUs.")
    parser.add_argument("model", metavar="MODEL", help=f"folder, config.json, or one of {', '.join(SHIPPED)}")
    parser.add_argument("overrides", nargs="*", default=[], help="Hydra overrides, as recipe.train takes them")
    parser.add_argument("--config-name", default="stage3", help="the stage; default: stage3, the longest")
    parser.add_argument("--card", type=float, metavar="GB", help="size of a GPU; default: nvidia-smi, else the profile")
    chosen = parser.parse_intermixed_args(arguments)
    try:
        model = load_architecture(chosen.model)
        profile = [] if any(override.startswith("hardware=") for override in chosen.overrides) else ["hardware=gpu8"]
        config = compose(chosen.config_name, [*chosen.overrides, *profile])
        card = nominal_bytes(chosen.card) if chosen.card else card_bytes(config)
        if config.trainer.device != "cuda" or card is None:
            raise PreflightError("the profile is not for GPUs, or no card size is known; set --card GB")
    except (UnknownArchitecture, PreflightError) as error:
        print(f"no estimate: {error}", file=sys.stderr)
        return 2
    settings = read_settings(config, card)
    checkpoint, export = checkpoint_parts(model, settings)
    host = {"processes": config.launcher.needs.memory_gb * GB} | host_parts(model, settings)
    most, size = max(peaks(model, settings).items(), key=lambda item: item[1])
    teachers = list[str]()
    short = [*teacher_problem(config, card, teachers)]
    wrong = "\n".join(filter(None, [problem(model, settings, config.data.max_prompt_length), *short]))
    fits = f"fits on {settings.gpus * settings.nodes} GPUs of {card_text(card)}, by estimate."
    print(
        f"{wrong or f'{model.name}, {model.parameters / GB:.2f} billion parameters, {config.stage.name}, {fits}'}\n\n"
        f"{most} takes most: {size / GB:.1f} of {card / GB:.1f} GB (10^9 bytes).\n"
        f"Each phase at its peak, in GB a card, with micro-batches of {settings.update_tokens} tokens (update) and "
        f"{settings.forward_tokens} (log-probs):\n\n{table(model, settings)}\n\n{cache_line(model, settings)}\n"
        f"host: {sum(host.values()) / GB:.0f} GB: "
        + ", ".join(f"{name} {size / GB:.0f}" for name, size in host.items())
        + "".join(f"\n{line}" for line in teachers)
        + f"\ndisk: {checkpoint / GB:.0f} GB a checkpoint, {export / GB:.0f} GB an exported model"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
