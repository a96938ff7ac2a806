"""What is wrong with a Hugging Face model folder, seen without loading the model or importing anything heavy.

Every file that transformers and vLLM would read is a plain file of a sensible size, every JSON file an object.
`recipe.stage.integrity` says whether the weights are whole, `recipe.stage.export.misfit` whether the tensors are those
of the model that config.json names.
"""

from pathlib import Path

from recipe.files import Damaged, read_text, require_file
from recipe.stage.integrity import broken_weights, read_object, there
from recipe.typed import shown

SETTINGS = (
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "processor_config.json",
    "preprocessor_config.json",
)
"""Objects that are read if they are there."""

TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "merges.txt", "vocab.txt")
VOCABULARIES = ("tokenizer.json", "*.model", "vocab.*", "*.tiktoken", "tekken.json")
MOST_LAYERS = 10_000
"""Of a model; a number that is larger would be built, layer by layer, to be compared with the weights."""
LARGEST_TOKENIZER = 512 * 2**20
LARGEST_TEMPLATE = 2**20


def fault(folder: Path) -> str | None:
    """What of a model folder is missing, cut off or unreadable, on one line; None if nothing is."""
    try:
        settings = read_object(folder / "config.json")
        if not isinstance(settings.get("model_type"), str) or not settings["model_type"]:
            return f"{folder / 'config.json'} has no model_type, which says how to read the weights"
        classes = settings.get("architectures")
        if not isinstance(classes, list) or len(classes) != 1 or not isinstance(classes[0], str):
            return f"{folder / 'config.json'} has architectures={shown(classes)}; expected a list of one class"
        layers = settings.get("num_hidden_layers")
        if isinstance(layers, int) and layers > MOST_LAYERS:
            return f"{folder / 'config.json'} has num_hidden_layers={shown(layers)}; expected at most {MOST_LAYERS}"
        for name in (name for name in SETTINGS if there(folder, name)):
            read_object(folder / name)
        for name in (name for name in TOKENIZERS if there(folder, name)):
            require_file(folder / name, LARGEST_TOKENIZER)
        if there(folder, "chat_template.jinja"):
            read_text(folder / "chat_template.jinja", LARGEST_TEMPLATE)
        if not any(list(folder.glob(name)) for name in VOCABULARIES):
            return f"{folder} has no tokenizer: neither tokenizer.json nor a vocabulary; save it beside the weights"
    except FileNotFoundError as error:
        return f"{error.filename} is a link to nothing" if there(folder, "config.json") else _without_config(folder)
    except Damaged as error:
        return str(error)
    return broken_weights(folder)


def _without_config(folder: Path) -> str:
    if there(folder, "adapter_config.json"):
        return (
            f"{folder} is a LoRA adapter, not a model. Merge it into its base model (peft: merge_and_unload, "
            "save_pretrained) and take that folder; to train it further, set actor_rollout_ref.model.lora_adapter_path "
            "to it"
        )
    return f"no config.json in {folder}"
