"""What preflight asks: does this run fit the cards, and what of it does the host need?"""

import subprocess

from omegaconf import DictConfig

from recipe.errors import PreflightError
from recipe.memory.advice import advise, overrides, shortfalls
from recipe.memory.architecture import Architecture, UnknownArchitecture, load_architecture
from recipe.memory.settings import Settings, read_settings
from recipe.memory.table import peak, summary
from recipe.memory.terms import GB, phases

USABLE = 0.99
"""Share of a card that programs get: the driver keeps the rest."""


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


def nominal_bytes(gigabytes: float) -> float:
    """Bytes that programs can use of a card that is sold with that many GB, which are 2**30 bytes each."""
    return gigabytes * 2**30 * USABLE


def card_text(card: float) -> str:
    """A card as it is sold, and the bytes of it that programs can use, in the unit of the estimate."""
    return f"{round(card / 2**30 / USABLE, 1):g} GB ({card / GB:.1f} x 10^9 bytes for programs)"


def known_model(config: DictConfig) -> Architecture | None:
    """The model of the configuration, if its layers are those that the estimate knows."""
    try:
        return load_architecture(str(config.actor_rollout_ref.model.path))
    except (FileNotFoundError, UnknownArchitecture):
        return None


def problem(model: Architecture, settings: Settings, prompt: int, profile: str | None = None) -> str | None:
    """What does not fit and what to set instead, or None.

    Args:
        prompt: `data.max_prompt_length`.
        profile: a hardware profile with which it would fit, where one is known.
    """
    short = shortfalls(model, settings)
    if not short:
        return None
    largest = sorted(peak(phases(model, settings)).parts, key=lambda part: part.bytes, reverse=True)[:3]
    parts = ", ".join(f"{part.name} {part.bytes / GB:.0f} GB" for part in largest)
    better = advise(model, settings)
    whole = f"It would fit with the profile hardware={profile} and the same overrides. " if profile else ""
    advice = whole + (
        f"{'Changing less, it' if profile else 'It'} would fit with: " + " ".join(overrides(settings, better, prompt))
        if better
        else "No setting tried makes it fit: take more or larger cards, actor_rollout_ref.model.lora_rank=32, or a "
        "smaller model"
    )
    return (
        f"{model.name} does not fit on {settings.gpus * settings.nodes} GPUs of {card_text(settings.card)}, by "
        f"estimate: {'; '.join(short)} (most of it: {parts}). {advice}. "
        "`.venv/bin/python -m recipe.memory MODEL` shows the estimate; launcher.check_gpu_memory=false starts anyway."
    )


def check_memory(config: DictConfig) -> str:
    """Lines on the estimate for the log; empty for a run without GPUs.

    Raises:
        PreflightError: the run does not fit; the message names what would.
    """
    if config.trainer.device != "cuda":
        return ""
    card, model = card_bytes(config), known_model(config)
    if card is None or model is None:
        what = "the card's size is unknown (launcher.needs.gpu_memory_gb)" if card is None else "its layers are unknown"
        return f"GPU memory: no estimate for {config.actor_rollout_ref.model.path}, {what}"
    settings = read_settings(config, card)
    wrong = problem(model, settings, config.data.max_prompt_length)
    if wrong and config.launcher.get("check_gpu_memory", True):
        raise PreflightError(wrong)
    return summary(model, settings) + (f"\n{wrong}" if wrong else "")
