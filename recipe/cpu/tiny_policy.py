"""The model of the tiny profile: 0.66M random parameters in Qwen2's architecture, and a tokenizer of its own.

    python -m recipe.cpu.tiny_policy OUT

It knows nothing until `run_sft.sh` has warm-started it on gold conversations of training scenarios, and then mostly
recites them. It solves no scenario it has not seen. Heads have 32 dimensions, the smallest that vLLM takes on CPUs.

The tokenizer is byte-level BPE, trained on gold conversations of the 100 training scenarios only. Protocol tags are
single tokens and not marked special, so that decoding keeps them; the chat template is ChatML without a default
system prompt, which renders the same token ids message by message as for a whole conversation.
"""

import argparse
import re
from pathlib import Path
from typing import Any

from data_prep.sft import gold_messages
from interaction import get_protocol
from interaction.environment import load_tasks

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TURN_TAGS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
LINE = r"\\n|[\n,|]"
"""What ends a piece of text that can be one token: a line, written out or in JSON, or an item of a list."""
VOCABULARY = 2048
CONTEXT = 4096


def make_tokenizer(texts: list[str], lines: bool = False) -> Any:
    """A `PreTrainedTokenizerFast` of at most `VOCABULARY` tokens, trained on `texts`.

    Args:
        lines: whole lines become tokens where they are frequent, as those of a phone that says one of twenty things:
            a conversation is a fifth as long, and what is said at once is learned at once.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not lines)
    at_lines = pre_tokenizers.Split(Regex(LINE), "merged_with_previous")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([at_lines, bytewise]) if lines else bytewise
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(TAGS),
        special_tokens=list(TURN_TAGS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    if lines:  # tags would become parts of lines
        texts = [part for text in texts for part in re.split("|".join(TAGS), text) if part]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_tiny_policy(folder: Path, conversations: Path | None = None) -> int:
    """Write tokenizer and random weights as a Hugging Face folder; returns the number of parameters.

    Args:
        conversations: a parquet file of them, whose lines the tokenizer is to know; without it, it is BFCL's.
    """
    import pyarrow.parquet as parquet
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

    if conversations is None:
        protocol = get_protocol("think_xml", docs="signature")
        tasks = [task for task in load_tasks().values() if task.category == "multi_turn_base" and task.part == "train"]
        talks = [gold_messages(task, protocol) for task in tasks]
    else:
        talks = parquet.read_table(conversations, columns=["messages"])["messages"].to_pylist()
    texts = [message["content"] for talk in talks for message in talk]
    tokenizer = make_tokenizer(texts, lines=conversations is not None)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    model: Any
    if conversations is None:
        model = Qwen2ForCausalLM(Qwen2Config(**shape))
    else:  # transformers gives every Qwen2 model Qwen2's splitting of texts, whatever its tokenizer's file says
        model = Qwen3ForCausalLM(Qwen3Config(head_dim=32, **shape))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="OUT", help="folder to write")
    arguments = parser.parse_args()
    parameters = make_tiny_policy(arguments.folder)
    print(f"{arguments.folder}: {parameters / 1e6:.2f}M parameters")
