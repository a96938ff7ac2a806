"""Bytes of all tensors that are alive, for fake ones: shapes, dtypes and lifetimes as in eager autograd, no numbers."""

import weakref
from collections import Counter
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


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


class Live(TorchDispatchMode):
    """Bytes of all storages that are alive, their peak, and what was there when `at` bytes were reached first."""

    def __init__(self, at: int | None = None):
        super().__init__()
        self.bytes = self.peak = 0
        self.at, self.parts = at, Counter[tuple[tuple[int, ...], str]]()
        self._storages: dict[int, tuple[int, Any, tuple[tuple[int, ...], str]]] = {}

    def _count(self, storage: Any, what: tuple[tuple[int, ...], str] | None = None) -> None:
        key, size = id(storage), storage.nbytes()
        before = self._storages.get(key)
        if before is None and what is None:
            return

        def gone(_: Any) -> None:
            self.bytes -= self._storages.pop(key)[0]

        reference = before[1] if before else weakref.ref(storage, gone)
        self._storages[key] = (size, reference, before[2] if before else what)  # type: ignore[assignment]
        self.bytes += size - (before[0] if before else 0)
        self.peak = max(self.peak, self.bytes)
        if self.at and self.bytes >= 0.998 * self.at and not self.parts:  # a run differs a little from the next
            for size, _, what in self._storages.values():
                self.parts[what] += size

    def _see(self, value: Any) -> None:
        value = getattr(value, "_local_tensor", value)  # of a DTensor
        if isinstance(value, torch.Tensor) and value.device.type != "meta":
            self._count(value.untyped_storage(), (tuple(value.shape), str(value.dtype).removeprefix("torch.")))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        pytree.tree_map(self._see, result)
        return result

    def __enter__(self) -> "Live":
        self._resize = torch.UntypedStorage.resize_

        def resize(storage: Any, size: int) -> Any:  # FSDP frees gathered parameters so, which is not dispatched
            result = self._resize(storage, size)
            self._count(storage)
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*error)
