"""The numbers of a dense decoder that memory depends on, from its config.json."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipe.files import Damaged, read_json
from recipe.typed import shown

KNOWN_TYPES = ("llama", "mistral", "qwen2", "qwen3")
"""Values of `model_type` whose layers are as counted here. Mixtures of experts, vision towers and others are not."""

MODELS = Path(__file__).parent / "models"


class UnknownArchitecture(ValueError):
    """A model whose layers are not those counted here."""


@dataclass(frozen=True)
class Architecture:
    """A dense decoder: per layer q, k, v and o, a gated MLP and two norms. Sizes are in elements, not bytes."""

    name: str
    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    tied: bool
    """The output layer is the embedding."""
    normed_heads: bool = False
    """Queries and keys go through a norm of their own."""
    bias: int = 0
    """Parameters of a layer's biases and of norms other than its two."""

    @property
    def queries(self) -> int:
        """Size of a token's queries, which is that of what attention puts out."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Size of a token's keys, which is that of its values."""
        return self.kv_heads * self.head_size

    @property
    def embedding(self) -> int:
        """Parameters of the embedding, and of the output layer."""
        return self.vocabulary * self.hidden

    @property
    def layer(self) -> int:
        """Parameters of one layer."""
        attention = self.hidden * (2 * self.queries + 2 * self.keys)
        return attention + 3 * self.hidden * self.intermediate + 2 * self.hidden + self.bias

    @property
    def parameters(self) -> int:
        """Parameters of the model."""
        return (1 if self.tied else 2) * self.embedding + self.layers * self.layer + self.hidden

    def adapters(self, rank: int) -> int:
        """Parameters of LoRA adapters of that rank on every linear layer but the output layer."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return self.layers * rank * (attention + 3 * (self.hidden + self.intermediate))

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token in vLLM's cache, in bfloat16."""
        return 2 * self.layers * self.keys * 2


def read_architecture(values: dict[str, Any], name: str) -> Architecture:
    """From the content of a config.json.

    Raises:
        UnknownArchitecture: its `model_type` is none of `KNOWN_TYPES`, or a number is missing.
    """
    kind = values.get("model_type")
    if kind not in KNOWN_TYPES:
        raise UnknownArchitecture(f"model_type {kind} is not one whose layers are known ({', '.join(KNOWN_TYPES)})")
    try:
        hidden, heads = int(values["hidden_size"]), int(values["num_attention_heads"])
        kv_heads = int(values.get("num_key_value_heads") or heads)
        head_size = int(values.get("head_dim") or hidden // heads)
        sizes = {key: int(values[key]) for key in ("vocab_size", "intermediate_size", "num_hidden_layers")}
    except KeyError as error:
        raise UnknownArchitecture(f"its config.json has no {error.args[0]}") from error
    except (TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
        raise UnknownArchitecture(f"a size in its config.json is no number that can be used: {error}") from error
    attention_bias = kind == "qwen2" or bool(values.get("attention_bias"))
    return Architecture(
        name=name,
        vocabulary=sizes["vocab_size"],
        hidden=hidden,
        intermediate=sizes["intermediate_size"],
        layers=sizes["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        tied=bool(values.get("tie_word_embeddings", False)),
        normed_heads=kind == "qwen3",
        bias=(heads + 2 * kv_heads) * head_size * attention_bias + 2 * head_size * (kind == "qwen3"),
    )


def shipped_models() -> dict[str, dict[str, Any]]:
    """Contents of the config.json of the models in `models/`: what is public about them, and no weights."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(MODELS.glob("*.json"))}


def load_architecture(model: str) -> Architecture:
    """Of a model folder, a config.json, one of `models/`, or a hub id whose config.json is in the local cache.

    Raises:
        FileNotFoundError: there is nothing of that name.
        UnknownArchitecture: the layers are not those counted here.
    """
    path = Path(model).expanduser()
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file() and model in shipped_models():
        return read_architecture(shipped_models()[model], model)
    if not path.is_file():
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(model, "config.json") if re.fullmatch(r"[\w.-]+/[\w.-]+", model) else None
        if not isinstance(cached, str):
            raise FileNotFoundError(
                f"{model} is no model folder, no config.json, no hub id that was used here before, and none of "
                f"{', '.join(shipped_models())}."
            )
        path = Path(cached)
    try:
        values = read_json(path)
    except Damaged as error:
        raise UnknownArchitecture(str(error)) from error
    if not isinstance(values, dict):
        raise UnknownArchitecture(f"{path} holds {shown(values)}; expected an object")
    return read_architecture(values, model)
