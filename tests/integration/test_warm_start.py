"""Warm starts on conversations of one's own, for real: a validation loss, and an adapter that is resumed and merged.

About three minutes on two cores.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support import short_training
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.stage.metrics_log import read_steps
from recipe.stage.state import TRACKER, update

EQUAL: dict[str, float] = {"atol": 1e-5, "rtol": 1e-5}
"""Logits in float32, of the adapter on its base and of the merged model."""


def start(folder: Path, *overrides: str) -> str:
    files = f"data.train_files={folder}/chat.jsonl", "data.train_batch_size=4", "trainer.total_epochs=2"
    done = short_training.start("recipe.sft", f"paths.run={folder}/run", *files, *overrides, MODEL=f"{folder}/model")
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tiny policy, and 26 conversations that differ in their number."""
    make_tiny_policy(tmp_path / "model")
    lines = []
    for number in range(26):
        call, wet = f"Action: rain\nAction Input: {json.dumps({'day': number})}", number % 2
        talk = [("user", f"Will it rain in Oslo on day {number}?"), ("assistant", call)]
        talk += [("tool", "wet" if wet else "dry"), ("assistant", "Yes." if wet else "No.")]
        messages = [{"role": role, "content": text} for role, text in talk]
        lines.append(json.dumps({"messages": messages, "id": number}) + "\n")
    (tmp_path / "chat.jsonl").write_text("".join(lines))
    return tmp_path


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def loss_of(model: Any, tokenizer: Any, conversations: list[list[dict[str, str]]]) -> float:
    """Mean over the tokens of the assistant's messages and their ends; the template says where they are."""
    total, count = 0.0, 0
    for messages in conversations:
        ids = tokenizer.apply_chat_template(messages, tokenize=True)["input_ids"]
        with torch.no_grad():
            log_probs = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        for end in [at for at, message in enumerate(messages, start=1) if message["role"] == "assistant"]:
            opened = tokenizer.apply_chat_template(messages[: end - 1], tokenize=True, add_generation_prompt=True)
            closed = tokenizer.apply_chat_template(messages[:end], tokenize=True)
            for place in range(len(opened["input_ids"]), len(closed["input_ids"])):
                total, count = total - float(log_probs[place - 1, ids[place]]), count + 1
    return total / count


@pytest.mark.slow
def test_lines_of_json_are_learned_and_what_is_held_out_shows_the_loss(folder: Path) -> None:
    said = start(folder, "data.val_share=0.2", "trainer.test_freq=3", "trainer.save_freq=-1")
    assert "21 conversations to train on, with 42 messages of the model; 5 to validate on" in said
    stage = folder / "run" / "stage0_sft"
    steps = read_steps(stage)
    assert sorted(steps) == list(range(1, 11))
    held_out = {step: values["val/loss"] for step, values in steps.items() if "val/loss" in values}
    assert list(held_out) == [3, 6, 9, 10]
    assert held_out[10] < held_out[3] and steps[10]["train/loss"] < steps[1]["train/loss"]
    rows = parquet.read_table(stage / "data" / "val.parquet").column("messages").to_pylist()
    tokenizer = AutoTokenizer.from_pretrained(stage / "hf")
    assert held_out[10] == pytest.approx(loss_of(load(stage / "hf"), tokenizer, rows), abs=1e-4)


@pytest.mark.slow
def test_an_adapter_is_trained_resumed_between_two_epochs_and_handed_on_merged(folder: Path) -> None:
    given = ["optim.lr=1e-2", "model.lora_rank=8", "model.lora_alpha=16", "trainer.max_ckpt_to_keep=2"]
    given.append("trainer.save_freq=after_each_epoch")
    start(folder, *given)
    stage = folder / "run" / "stage0_sft"
    first, last = sorted(int(path.name.split("_")[-1]) for path in (stage / "checkpoints").glob("global_step_*"))
    assert (first, last) == (6, 12)
    straight = load_file(stage / "adapter" / "adapter_model.safetensors")
    for path in (stage / "hf", stage / "adapter", stage / "checkpoints" / "global_step_12"):
        shutil.rmtree(path)
    update(stage, done=None)
    (stage / "checkpoints" / TRACKER).write_text("6")  # as if it had been killed after the first epoch
    said = start(folder, *given)
    assert "RESUME from the checkpoint of step 6" in said and max(read_steps(stage)) == 12
    again = load_file(stage / "adapter" / "adapter_model.safetensors")
    assert again.keys() == straight.keys()
    for name in again:
        torch.testing.assert_close(again[name], straight[name], **EQUAL)

    ids = torch.arange(40, 80)[None]
    base, merged = load(folder / "model"), load(stage / "hf")(input_ids=ids).logits
    assert (merged - base(input_ids=ids).logits).abs().max() > 0.01
    adapted = PeftModel.from_pretrained(base, stage / "adapter").eval()
    torch.testing.assert_close(merged, adapted(input_ids=ids).logits, **EQUAL)
