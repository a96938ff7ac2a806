"""Print the memory that a run would take, without a GPU, weights or data.

    python -m recipe.memory MODEL [--config-name stage3] [--card GB] [Hydra overrides]
    python -m recipe.memory --fits                  # which models fit which cards, and with which values

MODEL is a model folder, a config.json, or one of the models in recipe/memory/models. The exit status is 1 where the
run does not fit.
"""

import argparse
import sys

from recipe.errors import PreflightError
from recipe.memory.advice import shortfalls
from recipe.memory.architecture import UnknownArchitecture, load_architecture, shipped_models
from recipe.memory.check import card_bytes, card_text, nominal_bytes, problem
from recipe.memory.compose import compose_stage, fitting_profile
from recipe.memory.host import checkpoint_parts
from recipe.memory.settings import read_settings
from recipe.memory.table import cache_line, host_line, peak, reasons, table
from recipe.memory.terms import GB, phases


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.memory", description="Estimate the memory of a training run on GPUs."
    )
    parser.add_argument("model", nargs="?", help=f"folder, config.json, or one of {', '.join(shipped_models())}")
    parser.add_argument("overrides", nargs="*", help="Hydra overrides, as recipe.train takes them")
    parser.add_argument("--config-name", default="stage3", help="the stage; default: stage3, the longest")
    parser.add_argument("--card", type=float, metavar="GB", help="size of a GPU; default: nvidia-smi, else the profile")
    parser.add_argument("--fits", action="store_true", help="a table over models and cards instead")
    chosen = parser.parse_intermixed_args(arguments)
    if chosen.fits:
        from recipe.memory.fits import fits_table

        print(fits_table(chosen.config_name))
        return 0
    if not chosen.model:
        parser.error("name a MODEL, or ask for --fits")
    try:
        model = load_architecture(chosen.model)
    except (FileNotFoundError, UnknownArchitecture) as error:
        print(f"no estimate: {error}", file=sys.stderr)
        return 2
    try:
        config = compose_stage(chosen.config_name, chosen.overrides)
    except PreflightError as error:
        print(f"no estimate: {error}", file=sys.stderr)
        return 2
    card = nominal_bytes(chosen.card) if chosen.card else card_bytes(config)
    if config.trainer.device != "cuda" or card is None:
        print("no estimate: the profile is not for GPUs, or no card size is known; set --card GB", file=sys.stderr)
        return 2
    settings = read_settings(config, card)
    found = phases(model, settings)
    checkpoint, export = checkpoint_parts(model, settings)
    print(
        f"{model.name}, {model.parameters / GB:.2f} billion parameters, {config.stage.name}: "
        f"{settings.gpus * settings.nodes} GPUs of {card_text(card)}; micro-batches of {settings.update_tokens} "
        f"tokens (update) and {settings.forward_tokens} (log-probs). GB (10^9 bytes) a card, each phase at its peak:\n"
    )
    print(table(found, card))
    print(f"\n{peak(found).name} takes most: {peak(found).bytes / GB:.1f} of {card / GB:.1f} GB")
    print(cache_line(model, settings))
    print(host_line(model, settings, config.launcher.needs.memory_gb))
    print(f"disk: {checkpoint / GB:.0f} GB a checkpoint, {export / GB:.0f} GB an exported model\n")
    print(reasons(found))
    profile = None
    if shortfalls(model, settings):
        profile = fitting_profile(chosen.config_name, chosen.overrides, model, settings)
    wrong = problem(model, settings, config.data.max_prompt_length, profile)
    if wrong:
        print(f"\n{wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
