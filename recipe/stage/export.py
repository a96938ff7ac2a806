"""What a stage hands on: a Hugging Face folder that loads anywhere, and beside it the adapter if LoRA was trained.

verl's `hf_model` export is such a folder only without LoRA. With it the file has PEFT's names (`base_model.model...`,
`lora_A`), from which transformers builds a model at random without an error. `export` therefore merges, drops what only
this training needs, and lets transformers itself say whether the folder fits its own config.json, before anything has
the name under which the next stage looks for it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from recipe.files import Damaged
from recipe.stage.adapter import note_base
from recipe.stage.integrity import SUMS, note_sums
from recipe.stage.notes import ADAPTER, ADAPTER_FILE

PEFT_PREFIX = "base_model.model."
"""How PEFT's names begin; the rest is the name in the model itself."""


class ExportError(ValueError):
    """A model folder that another program could not load, or would load as something else."""


def export(source: Path, target: Path, start: str) -> Path:
    """Copy a model folder so that whatever is killed when, `target` is the old one, none, or the whole new one.

    With LoRA the merged weights are base + B A alpha / r, and the adapter goes to the folder `adapter` beside `target`,
    in PEFT's format with a note of its base (`recipe.stage.adapter`): it goes on with that base, `target` without it.

    Args:
        source: `huggingface` of a checkpoint, or a folder that this function made.
        target: the folder to write; what was there is replaced.
        start: model that the training started from, which the adapter belongs to: a folder or a hub id.

    Raises:
        ExportError: the result does not fit its config.json; `target` is left as it was.
    """
    adapter = target.with_name("adapter")
    part, adapter_part = (path.with_name(path.name + ".part") for path in (target, adapter))
    for rest in (part, adapter_part):
        shutil.rmtree(rest, ignore_errors=True)
    if (source.parent / ADAPTER_FILE).is_file():
        _merge(source, part, adapter_part, start)
    else:
        shutil.copytree(source, part)
        if source.with_name("adapter").is_dir():
            shutil.copytree(source.with_name("adapter"), adapter_part)
    _drop_attention(part / "config.json")
    if not (part / SUMS).is_file():  # a copy keeps the sums of what it was made from
        note_sums(part)
    if fault := misfit(part):
        raise ExportError(f"the model in {source} cannot be handed on: {fault}")
    if adapter_part.is_dir():
        _replace(adapter_part, adapter)
    else:
        shutil.rmtree(adapter, ignore_errors=True)  # of an earlier training with LoRA
    _replace(part, target)
    return target


def misfit(folder: Path, surplus: bool = True) -> str | None:
    """How the weights in a model folder differ from the model that its config.json names; None if they fit.

    transformers loads the folder without its numbers, so this takes no memory and under a second, after the import.

    Args:
        surplus: object to tensors that the model has no place for, too. Published models have them (heads for
            speculative decoding); our exports do not.
    """
    import transformers
    from transformers.utils import logging

    try:
        settings = json.loads((folder / "config.json").read_text())
        model_class = getattr(transformers, settings["architectures"][0], None)
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        return f"its config.json names no model: {type(error).__name__}: {error}"
    if model_class is None or "auto_map" in settings:
        return None  # a class of the folder's own: running that code is not for a check
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # its own report of a misfit has a line for every tensor
    logging.disable_progress_bar()
    try:
        _, found = model_class.from_pretrained(
            folder,
            device_map="meta",
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below
            attn_implementation="eager",
        )
    except Exception as error:  # of a damaged folder transformers and its libraries raise what they like
        return f"it does not load: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
    mismatched = [name if isinstance(name, str) else name[0] for name in found["mismatched_keys"]]
    unexpected = found["unexpected_keys"]
    if not (found["missing_keys"] or mismatched or (surplus and unexpected)):
        return None
    named = {"missing": found["missing_keys"], "unexpected": unexpected, "of another shape": mismatched}
    said = [f"{len(names)} tensors are {how} ({sorted(names)[0]}, ...)" for how, names in named.items() if names]
    return f"for a {model_class.__name__} {', '.join(said)}; missing ones would start at random"


def _replace(part: Path, target: Path) -> None:
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _drop_attention(path: Path) -> None:
    """Take the attention of this training out of a config.json: another program may not have it."""

    def without(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        own = ("attn_implementation", "_attn_implementation", "_attn_implementation_internal")
        return {key: without(item) for key, item in value.items() if key not in own}

    path.write_text(json.dumps(without(json.loads(path.read_text())), indent=2, sort_keys=True) + "\n")


def _merge(source: Path, part: Path, adapter: Path, start: str) -> None:
    """Write `source`, whose tensors have PEFT's names, as a merged model and as an adapter."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file

    try:
        note = ADAPTER.read(source.parent / ADAPTER_FILE)
    except Damaged as error:
        raise ExportError(f"the adapter in {source} cannot be merged: {error}") from error
    assert note is not None
    weights = {
        name: tensor for path in sorted(source.glob("*.safetensors")) for name, tensor in load_file(path).items()
    }
    trained = {name.removeprefix(PEFT_PREFIX).split(".lora_A.")[0] for name in weights if ".lora_A." in name}
    config = transformers.AutoConfig.from_pretrained(source, attn_implementation="eager")
    model_class = getattr(transformers, config.architectures[0])
    with torch.device("meta"):
        base = model_class(config)
    endings = {name.rsplit(".", 1)[-1] for name in trained}
    alike = {name for name, _ in base.named_modules() if name.rsplit(".", 1)[-1] in endings}
    folder = Path(start).expanduser()
    base.name_or_path = str(folder.absolute()) if folder.is_dir() else start  # what PEFT writes as the base model
    settings = LoraConfig(
        r=note.r,
        lora_alpha=note.lora_alpha,
        target_modules=sorted(endings if alike == trained else trained),
        task_type=note.task_type,
    )
    with torch.device("meta"):
        model = get_peft_model(base, settings)
    surplus = model.load_state_dict(weights, strict=False, assign=True).unexpected_keys
    base.tie_weights()
    empty = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if surplus or empty:
        raise ExportError(
            f"the adapter in {source} cannot be merged: {len(surplus)} of its tensors have no place in a "
            f"{model_class.__name__} with LoRA on {', '.join(sorted(endings))}, {len(empty)} are missing "
            f"({', '.join([*surplus, *empty][:3])})."
        )
    del weights
    model.save_pretrained(str(adapter), save_embedding_layers=False)
    (adapter / "README.md").unlink(missing_ok=True)  # a form that nobody has filled in
    note_base(adapter, base.name_or_path)
    model.merge_and_unload().save_pretrained(part)
    other = shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", SUMS)  # the sums are of these
    shutil.copytree(source, part, ignore=other, dirs_exist_ok=True)  # the configuration as without LoRA, the tokenizer
