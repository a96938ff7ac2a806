"""The estimate as text: a column for each phase, a row for each part, and a sentence for what follows from it."""

from recipe.memory.architecture import Architecture
from recipe.memory.host import host_parts
from recipe.memory.passes import Part
from recipe.memory.settings import Settings
from recipe.memory.terms import GB, Phase, cache_tokens, engine_activations, engine_weights, phases


def peak(found: tuple[Phase, ...]) -> Phase:
    """The phase that takes most."""
    return max(found, key=lambda phase: phase.bytes)


def table(found: tuple[Phase, ...], card: float) -> str:
    """Rows of GB by part and phase."""
    names = list(dict.fromkeys(part.name for phase in found for part in phase.parts))
    width = max(len(name) for name in names) + 2
    lines = [" " * width + "".join(f"{phase.name:>12}" for phase in found)]
    for name in names:
        sizes = [sum(part.bytes for part in phase.parts if part.name == name) for phase in found]
        lines.append(f"{name:<{width}}" + "".join(f"{size / GB:12.1f}" if size else " " * 12 for size in sizes))
    lines.append(f"{'all':<{width}}" + "".join(f"{phase.bytes / GB:12.1f}" for phase in found))
    lines.append(f"{'left of the card':<{width}}" + "".join(f"{(card - phase.bytes) / GB:12.1f}" for phase in found))
    return "\n".join(line.rstrip() for line in lines)


def reasons(found: tuple[Phase, ...]) -> str:
    """Each part with its reason, once."""
    parts: dict[str, Part] = {part.name: part for phase in found for part in phase.parts}
    width = max(len(name) for name in parts) + 2
    return "\n".join(f"{name:<{width}}{part.why}" for name, part in parts.items())


def cache_line(model: Architecture, settings: Settings) -> str:
    """What of vLLM's share is left for conversations, and what that means for those that run at once."""
    engine, tokens = settings.engine, cache_tokens(model, settings)
    each = tokens / engine.sequences
    weights, batch = engine_weights(model, settings) / GB, engine_activations(model, settings) / GB
    meaning = (
        "all of them at full length"
        if each >= settings.longest
        else f"at full length ({settings.longest}) {max(0, int(tokens // settings.longest))} at once: vLLM stops "
        "others in between and reads them again (preemption)"
    )
    return (
        f"cache: {engine.utilization * settings.card / GB:.1f} GB for vLLM, of which {weights:.1f} are weights and "
        f"{batch:.1f} activations; {max(0, tokens):,.0f} tokens for {engine.sequences} conversations, "
        f"{max(0, each):,.0f} each; {meaning}"
    )


def host_line(model: Architecture, settings: Settings, processes_gb: float) -> str:
    """The machine's own memory."""
    parts = host_parts(model, settings)
    listed = ", ".join(f"{part.name} {part.bytes / GB:.0f}" for part in parts)
    total = processes_gb + sum(part.bytes for part in parts) / GB
    return f"host: {total:.0f} GB: processes {processes_gb:.0f}, {listed}"


def summary(model: Architecture, settings: Settings) -> str:
    """Two lines for the log of a start; one where there is no engine."""
    found = phases(model, settings)
    sizes = ", ".join(f"{phase.name} {phase.bytes / GB:.0f}" for phase in found)
    line = f"GPU memory, estimated: {sizes} GB of {settings.card / GB:.1f}; most in {peak(found).name}"
    return f"{line}\n{cache_line(model, settings)}" if settings.plays else line
