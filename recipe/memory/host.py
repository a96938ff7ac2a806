"""What a run takes of a machine's own memory and of its disk, beside the GPUs."""

from recipe.memory.architecture import Architecture
from recipe.memory.passes import Part, trained_parameters
from recipe.memory.settings import Settings


def host_parts(model: Architecture, settings: Settings) -> list[Part]:
    """Bytes on one machine at the peak, beside what Ray, vLLM and the workers take as processes.

    Loading is one peak, saving another; the larger is named.
    """
    here = 1 / settings.nodes  # this machine's share of what is spread over all
    parts = []
    if settings.reference:
        size = settings.reference_bytes * model.parameters * here
        parts.append(Part("reference", size, "pinned: FSDP keeps a model that is not trained on the host"))
    trained = trained_parameters(model, settings)
    if settings.offload_policy:
        size = settings.model_bytes * (model.parameters + 3 * trained) * here
        parts.append(Part("offloaded training", size, "offload_policy: parameters, gradients and Adam, pinned"))
    if settings.param_offload and not settings.offload_policy:
        parts.append(Part("offloaded parameters", settings.model_bytes * model.parameters * here, "param_offload"))
    if settings.optimizer_offload and not settings.offload_policy:
        parts.append(Part("offloaded Adam", 2 * settings.model_bytes * trained * here, "optimizer_offload"))
    if critic := settings.critic:
        size = critic.model_bytes * model.parameters * here
        moved = 4 if critic.offload_policy else critic.param_offload + 2 * critic.optimizer_offload
        if moved:
            parts.append(Part("offloaded critic", moved * size, "what critic.fsdp keeps on the host"))
    whole = settings.model_bytes * model.parameters
    if model.tied:
        parts.append(Part("loading", settings.gpus * whole, "each worker reads the whole model: its embedding is tied"))
    else:
        parts.append(Part("loading, saving", whole, "one worker reads the whole model, and gathers it for the export"))
    return parts


def checkpoint_parts(model: Architecture, settings: Settings) -> tuple[float, float]:
    """(bytes of a checkpoint on the disk, bytes of an exported model)."""
    whole = 4 * model.parameters
    state = settings.model_bytes * model.parameters + 2 * settings.model_bytes * trained_parameters(model, settings)
    critic = 3 * settings.critic.model_bytes * model.parameters if settings.critic else 0
    return state + critic + whole, whole
