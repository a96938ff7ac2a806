"""What a stage hands on: a Hugging Face folder that loads anywhere, and beside it the adapter if LoRA was trained.

verl's `hf_model` export is such a folder only without LoRA. With it the file has PEFT's names (`base_model.model...`,
`lora_A`), from which transformers builds a model at random without an error. So `export` merges, drops what only this
training needs, and lets transformers say whether the folder fits its own config.json, before anything has the name
under which the next stage looks for it. A card (README.md) says base model, licence and protocol.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from safetensors import safe_open

from interaction import get_protocol
from recipe.files import Damaged, one_line, read_json
from recipe.settings import as_list
from recipe.stage.weights import SUMS, note_base, note_sums

PEFT_PREFIX = "base_model.model."
"""How PEFT's names begin; the rest is the name in the model itself."""
ADAPTER_FILE = "lora_train_meta.json"
"""Written by verl beside LoRA weights: their rank and alpha."""
CARD = "README.md"
OURS = "bfcl-grpo"
"""A tag of every card that is written here."""
TAGGED = ("protocol", "docs")
"""Settings of `interaction` that a card has as tags, such as `protocol:hermes`."""
DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""Names of safetensors -> those of torch."""
ATTENTION = "attn_implementation"
EXAMPLE = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class ExportError(ValueError):
    """A model folder that another program could not load, or would load as something else."""


def export(source: Path, target: Path, start: str) -> Path:
    """Copy a model folder so that whatever is killed when, `target` is the old one, none, or the whole new one.

    With LoRA the merged weights are base + B A alpha / r, and the adapter goes to the folder `adapter` beside `target`,
    in PEFT's format with a note of its base (`recipe.stage.weights`): it goes on with that base, `target` without it.

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
    _write_config(part)
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
    level = logging.get_verbosity()
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
        return f"it does not load: {type(error).__name__}: {one_line(error)}"
    finally:
        logging.set_verbosity(level)
    mismatched = [name if isinstance(name, str) else name[0] for name in found["mismatched_keys"]]
    unexpected = found["unexpected_keys"] if surplus else []
    named = {"missing": found["missing_keys"], "unexpected": unexpected, "of another shape": mismatched}
    said = [f"{len(names)} tensors are {how} ({sorted(names)[0]}, ...)" for how, names in named.items() if names]
    return f"for a {model_class.__name__} {', '.join(said)}; missing ones would start at random" if said else None


def _replace(part: Path, target: Path) -> None:
    old = target.with_name(target.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write_config(folder: Path) -> None:
    """Take the attention of this training out of config.json, which another program may not have, and say what the
    weights are: verl says bfloat16 whatever it has saved."""
    found = Counter[str]()
    for weights in folder.glob("*.safetensors"):
        with safe_open(weights, "numpy") as file:
            found.update(file.get_slice(name).get_dtype() for name in file.keys())  # noqa: SIM118
    dtype = dict(("dtype", DTYPES[kind]) for kind, _ in found.most_common(1) if kind in DTYPES)

    def mended(value: dict[str, Any]) -> dict[str, Any]:
        return {key: dtype.get(key.removeprefix("torch_"), item) for key, item in value.items() if ATTENTION not in key}

    path = folder / "config.json"
    content = dtype | json.loads(path.read_text(), object_hook=mended)
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _merge(source: Path, part: Path, adapter: Path, start: str) -> None:
    """Write `source`, whose tensors have PEFT's names, as a merged model and as an adapter."""
    import torch
    import transformers
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file

    weights = dict[str, torch.Tensor]()
    for path in sorted(source.glob("*.safetensors")):
        weights |= load_file(path)
    trained = sorted({name.removeprefix(PEFT_PREFIX).split(".lora_A.")[0] for name in weights if ".lora_A." in name})
    folder = Path(start).expanduser()
    try:
        note = read_json(source.parent / ADAPTER_FILE)
        settings = LoraConfig(target_modules=trained, **{name: note[name] for name in ("r", "lora_alpha", "task_type")})
    except (Damaged, KeyError, TypeError) as error:
        raise ExportError(f"the adapter in {source} cannot be merged: {ADAPTER_FILE}: {error}") from error
    config = transformers.AutoConfig.from_pretrained(source, attn_implementation="eager")
    with torch.device("meta"):
        base = getattr(transformers, config.architectures[0])(config)
        base.name_or_path = str(folder.absolute()) if folder.is_dir() else start  # what PEFT writes as the base model
        model = get_peft_model(base, settings)
    surplus = model.load_state_dict(weights, strict=False, assign=True).unexpected_keys
    base.tie_weights()
    empty = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if surplus or empty:
        raise ExportError(
            f"the adapter in {source} cannot be merged: {len(surplus)} of its tensors have no place in a "
            f"{type(base).__name__} with LoRA, {len(empty)} are missing ({', '.join([*surplus, *empty][:3])})."
        )
    del weights
    model.save_pretrained(str(adapter), save_embedding_layers=False)
    (adapter / CARD).unlink(missing_ok=True)  # a form that nobody has filled in
    note_base(adapter, base.name_or_path)
    model.merge_and_unload().save_pretrained(part)
    other = shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", SUMS)  # the sums are of these
    shutil.copytree(source, part, ignore=other, dirs_exist_ok=True)  # the configuration as without LoRA, the tokenizer


def write_card(config: DictConfig, folder: Path) -> None:
    """Write the card of a stage's export. The model is whole without it, so a fault is printed and no more."""
    try:
        (folder / CARD).write_text(_card(config), encoding="utf-8")
    except (OSError, ValueError, yaml.YAMLError) as error:  # the start model's card may hold anything
        print(f"NOTE {folder / CARD} was not written: {one_line(error)}", flush=True)


def _card(config: DictConfig) -> str:
    from huggingface_hub import ModelCardData

    start = str(OmegaConf.select(config, "actor_rollout_ref.model.path") or OmegaConf.select(config, "model.path"))
    before, random, published = metadata(start), Path(start).name == "untrained", is_hub_id(start)
    inherited = before.get("base_model") if OURS in (before.get("tags") or []) else None
    asked = {name: OmegaConf.select(config, f"interaction.{name}") for name in TAGGED}
    if "interaction" not in config:
        asked |= data_written_with(as_list(OmegaConf.select(config, "data.train_files")))
        asked |= {name: config.data[name] for name in TAGGED if config.data.get("protocol")}
    data = ModelCardData(
        base_model=start if published else inherited,
        license=before.get("license") or ("apache-2.0" if random else None),
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["function-calling", "tool-use", "multi-turn", "verl", OURS]
        + [f"{name}:{value}" for name, value in asked.items() if value],
    )
    name = "random weights" if random else f"`{start if published else Path(start.removesuffix('/hf')).name}`"
    length = OmegaConf.select(config, "actor_rollout_ref.rollout.max_model_len")
    text = f"""---
{data.to_yaml()}
---

# {Path(config.paths.run).name}/{config.stage.name}

A model that calls functions over several turns, trained from {name} with
[verl](https://github.com/volcengine/verl) and bfcl-grpo{f". Its base model is {inherited}" if inherited else ""}.

## Serving

```bash
vllm serve THIS_FOLDER --host 127.0.0.1 --generation-config vllm{f" --max-model-len {length}" if length else ""}
```

Use neither a reasoning parser nor a tool-call parser: calls are part of the message's text.
Check names and arguments of calls before you run any. Never execute the model's text as code.
"""
    if asked["protocol"]:
        prompt = get_protocol(asked["protocol"], docs=asked["docs"] or "json").system_prompt([EXAMPLE])
        text += f"\nIts protocol is `{asked['protocol']}`, with this system prompt:\n\n~~~~text\n{prompt}\n~~~~\n"
    return text


def data_written_with(files: Sequence[str]) -> dict[str, Any]:
    """Protocol and docs of the manifest beside the first file of data; empty where there is none."""
    try:
        manifest = json.loads(Path(files[0]).with_name("manifest.json").read_text(encoding="utf-8"))
        known = TAGGED if Path(files[0]).name in manifest["files"] else ()
        return {name: manifest[name] for name in known if name in manifest}
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def is_hub_id(model: str) -> bool:
    """Whether a model is named as on the hub, and is no folder here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", model)) and not Path(model).exists()


def metadata(model: str) -> dict[str, Any]:
    """The hub's metadata in the card of a folder, or of a hub id in the cache; empty where there is none."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.repocard import metadata_load

    found = try_to_load_from_cache(model, CARD) if is_hub_id(model) else None
    path = Path(found) if isinstance(found, str) else Path(model) / CARD
    return (metadata_load(path) or {}) if path.is_file() else {}


def trained_with(model: Path) -> dict[str, Any]:
    """The `interaction` settings that a model was trained with: those of its stage, else those in its card's tags.

    A warm start's card has those of its data.
    """
    for folder in list(model.absolute().parents)[:4]:
        if (path := folder / "config" / "resolved.yaml").is_file():
            config = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
            if "interaction" in config:
                return config["interaction"] or {}
    pairs = [str(tag).partition(":") for tag in metadata(str(model)).get("tags") or []]
    return {name: value for name, _, value in pairs if name in TAGGED}
