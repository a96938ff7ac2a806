"""Peak memory of a GPU's trainer process, measured without a GPU, beside what `recipe.memory` estimates.

    python -m benchmarks.bench_memory                 # the points below: about 15 minutes
    python -m benchmarks.bench_memory qwen2.5-1.5b,8192,fused,update,8,0
    python -m benchmarks.bench_memory --cuda ...      # on a GPU, with numbers: one rank's share, and the seconds

FSDP2, gradient checkpointing, AdamW and verl's own log-prob functions run on fake tensors: shapes, dtypes and lifetimes
are those of eager autograd, no number is computed, and the other ranks are a process group that answers at once. Every
storage is followed from its making to its end; the peak is the largest sum. Not seen this way: what the allocator
loses to fragments, workspaces of cuBLAS and NCCL, the CUDA context, and temporary memory inside a kernel.
"""

import argparse
import gc
import time
import types
import weakref
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.attention.varlen
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from recipe.gpu import attention as attention_module
from recipe.memory import SHIPPED, Settings, load_architecture, micro_batch, trainer_state

GB = 1e9


@dataclass(frozen=True)
class Point:
    """One measurement: a micro-batch of `tokens` tokens in one row."""

    model: str
    tokens: int
    path: str
    """fused: packed, log-probs without logits | packed: packed, with logits | padded: as verl does without packing"""
    phase: str
    """update: two micro-batches forwards and backwards and a step of AdamW | forward: log-probs and entropy"""
    shards: int = 8
    lora_rank: int = 0


POINTS = [
    *(
        Point(model, tokens, "fused", phase)
        for model in ("qwen2.5-1.5b", "qwen2.5-7b", "qwen3-4b", "qwen3-8b", "llama-3.1-8b")
        for tokens, phase in ((12000, "update"), (32768, "update"), (32768, "forward"))
    ),
    *(Point("qwen2.5-7b", 32768, "fused", "update", shards) for shards in (1, 2, 4)),
    *(Point(model, 32768, "fused", "update", 8, 32) for model in ("qwen2.5-1.5b", "qwen2.5-7b", "qwen3-8b")),
    Point("qwen3-8b", 32768, "fused", "forward", 8, 32),
    *(Point(model, 4096, path, "update") for path in ("packed", "padded") for model in ("qwen2.5-1.5b", "qwen2.5-7b")),
    *(Point("qwen2.5-7b", 4096, path, "forward") for path in ("packed", "padded")),
]


class CudaAutocast(TorchFunctionMode):
    """What autocast("cuda", bfloat16) does to the functions used here (ATen/autocast_mode.h), on CPU tensors."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        functional = torch.nn.functional
        if func in (functional.softmax, functional.log_softmax, torch.softmax, torch.log_softmax):
            kwargs["dtype"] = kwargs.get("dtype") or torch.float32
        elif func in (torch.sum, torch.Tensor.sum) and kwargs.get("dtype") is None and args[0].is_floating_point():
            kwargs["dtype"] = torch.float32
        elif func in (torch.logsumexp, torch.exp, torch.Tensor.exp) and args[0].dtype == torch.bfloat16:
            args = (args[0].float(), *args[1:])
        return func(*args, **kwargs)


class Card:
    """Bytes that PyTorch's allocator has given out on a GPU, and their peak."""

    wait = staticmethod(torch.cuda.synchronize)
    bytes = property(lambda _: torch.cuda.memory_allocated())

    @property
    def peak(self) -> int:
        """Since it was last set, to whatever value."""
        return torch.cuda.max_memory_allocated()

    @peak.setter
    def peak(self, _: int) -> None:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


class Live(TorchDispatchMode):
    """Bytes of all storages that are alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.peak = 0
        self._storages: dict[int, tuple[int, Any]] = {}

    def wait(self) -> None:
        """Nothing is computed."""

    def _count(self, storage: Any, new: bool = True) -> None:
        key, size = id(storage), storage.nbytes()
        before = self._storages.get(key)
        if before is None and not new:
            return

        def gone(_: Any) -> None:
            self.bytes -= self._storages.pop(key)[0]

        self._storages[key] = size, before[1] if before else weakref.ref(storage, gone)
        self.bytes += size - (before[0] if before else 0)
        self.peak = max(self.peak, self.bytes)

    def _see(self, value: Any) -> None:
        value = getattr(value, "_local_tensor", value)  # of a DTensor
        if isinstance(value, torch.Tensor) and value.device.type != "meta":
            self._count(value.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        pytree.tree_map(self._see, result)
        return result

    def __enter__(self) -> "Live":
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: Any, size: int) -> Any:  # FSDP frees gathered parameters so, which is not dispatched
            result = self._resize(storage, size)
            self._count(storage, new=False)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)


def _varlen(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **_: Any) -> Any:
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (query, key, value))
    bounds = torch.zeros(3, dtype=torch.int32, device=q.device)
    attend = torch.nn.attention.varlen.varlen_attn
    result = attend(
        q, k, v, bounds, bounds, q.shape[0], q.shape[0], scale=scaling, window_size=(-1, 0), **attention_module.GROUPED
    )
    return result.unflatten(0, (query.shape[0], query.shape[2])), None


def _make_model(point: Point, mesh: Any, attention: str) -> torch.nn.Module:
    """The model as verl's engine builds it: float32, patched, with adapters, checkpointed, in FSDP2 units."""
    import verl.utils.fsdp_utils as fsdp_utils
    from torch.distributed.fsdp import MixedPrecisionPolicy
    from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from verl.models.transformers.dense_common import forward_with_torch_backend

    attention_module.register()
    AttentionInterface.register("varlen_measured", _varlen)
    ALL_MASK_ATTENTION_FUNCTIONS.register("varlen_measured", lambda *_, **__: None)
    config = AutoConfig.for_model(**SHIPPED[point.model])
    config._attn_implementation = attention
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    head = model.lm_head
    if point.path == "fused":
        model._verl_fused_kernels_backend = "torch"
        model.forward = types.MethodType(forward_with_torch_backend, model)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if point.lora_rank:
        from peft import LoraConfig, get_peft_model

        model.enable_input_require_grads()
        adapters = LoraConfig(task_type="CAUSAL_LM", r=point.lora_rank, target_modules="all-linear")
        with mock.patch.object(torch.nn.Module, "to", lambda module, *_, **__: module):  # fake tensors cannot be moved
            model = get_peft_model(model, adapters, autocast_adapter_dtype=False)
    precision = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=True)
    wrap = fsdp_utils._select_fsdp2_wrap_targets
    fused = point.path == "fused"  # then the head stays in the root unit, as recipe's GPU plug-in leaves it
    fsdp_utils._select_fsdp2_wrap_targets = lambda *a: [m for m in wrap(*a) if not (fused and m is head)]
    try:
        keywords = {"mesh": mesh, "mp_policy": precision, "offload_policy": None, "reshard_after_forward": True}
        fsdp_utils.apply_fsdp2(model, keywords, {})
    finally:
        fsdp_utils._select_fsdp2_wrap_targets = wrap
    return model


def _micro_batch(model: torch.nn.Module, point: Point, train: bool, autocast: Any) -> None:
    """As `FSDPEngineWithLMHead.forward_step` and `prepare_model_outputs` do it, then a loss like verl's."""
    from verl.utils import torch_functional as functional

    tokens = torch.arange(point.tokens)[None]
    more = {"temperature": 1.0, "return_dict": True} if point.path == "fused" else {}
    with autocast, torch.set_grad_enabled(train):
        output = model(input_ids=tokens, attention_mask=None, position_ids=tokens, use_cache=False, **more)
        if point.path == "fused":
            log_probs, entropy = output.log_probs[0], output.entropy[0]
        else:
            logits = output.logits[0]
            entropy = functional.entropy_from_logits(logits)
            if point.path == "padded":  # the rows are put one after the other, which copies them
                logits = torch.cat([logits])
            log_probs = functional.logprobs_from_logits_v2(logits, tokens[0])
            del logits
        if train:
            loss = -torch.exp(log_probs - log_probs.detach()).mean() - 0.001 * entropy.mean()
            del log_probs, entropy
    if train:
        loss.backward()


def measure(point: Point, cuda: bool = False) -> tuple[int, int, float]:
    """Bytes of parameters and Adam's moments, bytes at the peak of the phase, and its seconds.

    Sets up a process group of `point.shards` ranks that answers at once, and takes it down.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=point.shards, store=FakeStore())
    device, attention, autocast = "cpu", "varlen_measured", CudaAutocast()
    if cuda:
        device, attention, autocast = "cuda", "varlen", torch.autocast("cuda", torch.bfloat16)
    try:
        mesh = init_device_mesh(device, (point.shards,), mesh_dim_names=("fsdp",))
        fake = nullcontext() if cuda else FakeTensorMode(allow_non_fake_inputs=True)
        with fake, torch.device(device), nullcontext(Card()) if cuda else Live() as live:
            model = _make_model(point, mesh, attention)
            trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
            optimizer = torch.optim.AdamW(trained, foreach=True)  # the default on GPUs
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            optimizer.zero_grad()
            gc.collect()
            live.peak = state = live.bytes
            train = point.phase == "update"
            model.train(train)
            _micro_batch(model, point, train, autocast)
            live.wait()
            begun = time.perf_counter()
            _micro_batch(model, point, train, autocast)
            if train:
                optimizer.step()
            live.wait()
            return state, live.peak, time.perf_counter() - begun
    finally:
        dist.destroy_process_group()


def estimate(point: Point) -> float:
    """Bytes that `recipe.memory` says this point takes at its peak."""
    off = ("param_offload", "optimizer_offload", "offload_policy", "plays", "sleeps", "critic")
    off += ("critic_param_offload", "critic_optimizer_offload", "critic_offload")
    engine = ("utilization", "tensor_parallel", "batched_tokens", "context", "sequences", "bucket", "critic_bytes")
    on = ("packed", "checkpointing", "entropy", "reference", "old_log_probs")  # one row: nothing is padded
    settings = Settings(
        card=80e9,
        nodes=1,
        fused=point.path == "fused",
        lora_rank=point.lora_rank,
        model_bytes=4,
        reference_bytes=2,
        **dict.fromkeys(("gpus", "shards"), point.shards),
        **dict.fromkeys(("update_tokens", "forward_tokens", "reference_tokens", "longest"), point.tokens),
        **dict.fromkeys(on, True),
        **dict.fromkeys(off, False),
        **dict.fromkeys(engine, 1),
    )
    model, train = load_architecture(point.model), point.phase == "update"
    parts = (trainer_state(model, settings, point.phase), micro_batch(model, settings, point.tokens, train))
    return sum(sum(part.values()) for part in parts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("points", nargs="*", help="MODEL,TOKENS,PATH,PHASE[,SHARDS[,LORA_RANK]]")
    parser.add_argument("--cuda", action="store_true", help="compute on this machine's GPU instead of fake tensors")
    arguments = parser.parse_args()
    split = [text.split(",") for text in arguments.points]
    points = [Point(f[0], int(f[1]), f[2], f[3], *(int(number) for number in f[4:])) for f in split] or POINTS
    head = f"{'model':14}{'tokens':>7} {'path':7}{'phase':9}{'shards':>6}{'LoRA':>5}"
    print(f"{head}{'state':>8}{'peak':>8}{'estimate':>9}")
    for point in points:
        state, peak, seconds = measure(point, arguments.cuda)
        said = estimate(point)
        setting = f"{point.model:14}{point.tokens:7} {point.path:7}{point.phase:9}{point.shards:6}{point.lora_rank:5}"
        more = ""
        if arguments.cuda:
            free, whole = torch.cuda.mem_get_info()
            reserved, beside = torch.cuda.max_memory_reserved(), whole - free - torch.cuda.memory_reserved()
            more = f"  reserved {reserved / GB:.2f}, beside {beside / GB:.2f}; second micro-batch {seconds:.2f} s"
            gc.collect()
            torch.cuda.empty_cache()
        print(f"{setting}{state / GB:8.2f}{peak / GB:8.2f}{said / GB:9.2f} {said / peak - 1:+7.1%}{more}", flush=True)


if __name__ == "__main__":
    main()
