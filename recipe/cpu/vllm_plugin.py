"""vLLM plug-in for the CPU profile, loaded through the `vllm.general_plugins` entry point in every vLLM process.

On CPUs vLLM packs the weights of linear layers and leaves an empty parameter behind, which the trainer could not write
new weights into. Its own fallback, plain `F.linear`, keeps them.
"""

import os


def install() -> None:
    """Choose the unpacked linear kernels. Does nothing unless `VERL_PLATFORM=cpu`."""
    if os.environ.get("VERL_PLATFORM", "").strip().lower() != "cpu":
        return
    import vllm._custom_ops
    import vllm.model_executor.layers.utils

    vllm._custom_ops._supports_onednn = False
    vllm.model_executor.layers.utils.check_cpu_sgl_kernel = lambda *args: False
