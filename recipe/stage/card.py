"""The card (README.md) of an exported model: its base model, licence and protocol, for the hub and for evaluations.

`python -m recipe.tools.publish` adds scores, data and settings to it.
"""

import re
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from interaction import get_protocol
from recipe.files import one_line

CARD = "README.md"
OURS = "bfcl-grpo"
"""A tag of every card that is written here."""
TAGGED = ("protocol", "docs")
"""Settings of `interaction` that a card has as tags, such as `protocol:hermes`."""
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
EXAMPLE = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def write_card(config: DictConfig, folder: Path) -> None:
    """Write the card of a stage's export. The model is whole without it, so a fault is printed and no more."""
    path = folder / CARD
    try:
        path.write_text(_card(config), encoding="utf-8")
    except (OSError, ValueError, yaml.YAMLError) as error:  # the start model's card may hold anything
        print(f"NOTE {path} was not written: {one_line(error)}", flush=True)


def _card(config: DictConfig) -> str:
    from huggingface_hub import ModelCardData

    start = str(OmegaConf.select(config, "actor_rollout_ref.model.path") or OmegaConf.select(config, "model.path"))
    before, random = metadata(start), Path(start).name == "untrained"
    inherited = before.get("base_model") if OURS in (before.get("tags") or []) else None
    base = start if is_hub_id(start) else inherited
    asked = {name: OmegaConf.select(config, f"interaction.{name}") for name in TAGGED}
    data = ModelCardData(
        base_model=base,
        license=before.get("license") or ("apache-2.0" if random else None),
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["function-calling", "tool-use", "multi-turn", "verl", OURS]
        + [f"{name}:{value}" for name, value in asked.items() if value],
    )
    name = "random weights" if random else f"`{start if is_hub_id(start) else Path(start.removesuffix('/hf')).name}`"
    length = OmegaConf.select(config, "actor_rollout_ref.rollout.max_model_len")
    limit = f" --max-model-len {length}" if length else ""
    text = f"""# {Path(config.paths.run).name}/{config.stage.name}

A model that calls functions over several turns, trained from {name} with
[verl](https://github.com/volcengine/verl) and bfcl-grpo{f". Its base model is {base}" if inherited else ""}.

## Serving

```bash
vllm serve FOLDER_OR_REPOSITORY --generation-config vllm{limit}
```

Use neither a reasoning parser nor a tool-call parser: calls are part of the message's text.
Check names and arguments of calls before you run any. Never execute the model's text as code.
"""
    if asked["protocol"]:
        prompt = get_protocol(asked["protocol"], docs=asked["docs"] or "json").system_prompt([EXAMPLE])
        text += f"\nIts protocol is `{asked['protocol']}`, with this system prompt:\n\n~~~~text\n{prompt}\n~~~~\n"
    return f"---\n{data.to_yaml()}\n---\n\n{text}"


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
    """The `interaction` settings that a model was trained with: those of its stage, else those in its card's tags."""
    for folder in list(model.absolute().parents)[:4]:
        if (path := folder / "config" / "resolved.yaml").is_file():
            return yaml.load(path.read_text(encoding="utf-8"), LOADER).get("interaction") or {}
    pairs = [str(tag).partition(":") for tag in metadata(str(model)).get("tags") or []]
    return {name: value for name, _, value in pairs if name in TAGGED}
