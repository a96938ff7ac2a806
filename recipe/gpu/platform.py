"""Where verl's platform for NVIDIA cards assumes too much, loaded through the `verl.plugins` entry point.

verl imports this at the end of its own import, in every process, so the work is done at import time:

* its transfer engine for another maker's accelerators imports vLLM before it finds none: 20 to 30 s of each process's
  start. Declared absent;
* with `BFCL_CUDA_IPC=0` weights go to vLLM through shared memory. verl says of every card that one process can hand its
  memory to another; where a sandbox forbids that, the trainer would wait without end.
"""

import os
import sys

from verl.plugin.platform.platform_cuda import PlatformCUDA
from verl.utils.device import is_npu_available

if not is_npu_available:
    sys.modules["verl.checkpoint_engine.hccl_checkpoint_engine"] = None  # type: ignore[assignment]
if os.environ.get("BFCL_CUDA_IPC") == "0":
    PlatformCUDA.is_ipc_supported = lambda self: False  # type: ignore[method-assign]
