"""LoRA adapters by stage, for real: trained further, killed and resumed, evaluated on one base; sixteen minutes."""

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as parquet
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from support.short_training import engine_agrees, kill_after, prepared, succeed
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.curriculum import runner
from recipe.evaluation.server import adapter_flags, serve
from recipe.stage.metrics_log import read_steps
from recipe.stage.state import TRACKER, latest, update

pytestmark = pytest.mark.slow

STAGES = ("stage1_format", "stage2_base", "stage3_full")
EQUAL: dict[str, float] = {"atol": 1e-5, "rtol": 1e-5}
"""Logits in float32, of the adapter on its base and of the merged model."""
CONTINUED = ("stage.adapter=continue", "stage3:actor_rollout_ref.actor.optim.lr=0.0")
"""In the third stage a learning rate of 0, to see what a start and an end leave alone."""


def command(folder: Path, *overrides: str) -> tuple[str, ...]:
    """Stages of two steps: module and arguments."""
    return (
        *("recipe.curriculum", f"paths.run={folder}/run", f"paths.data={folder}/data"),
        f"actor_rollout_ref.model.path={folder}/model",
        f"reward.custom_reward_function.path={folder}/my_reward.py",
        *("actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=24"),
        *("trainer.total_training_steps=2", "trainer.save_freq=1", "trainer.test_freq=-1", "stage.gate=null"),
        *("data.max_response_length=300", "actor_rollout_ref.rollout.n=4", "actor_rollout_ref.actor.optim.lr=0.001"),
        *overrides,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of `command`, killed after the first step of its second stage and started again."""
    folder = prepared(tmp_path_factory.mktemp("trained"))
    stage, given = folder / "run" / STAGES[1], command(folder, *CONTINUED)
    kill_after(1, stage, *given)
    assert latest(stage / "checkpoints") == 1, "it was killed too late to show anything"
    succeed(*given, timeout=3600)
    return folder


def load(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


IDS = torch.arange(40, 80)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model.float().eval()(input_ids=IDS[None]).logits[0]


def test_every_stage_hands_on_an_adapter_of_the_one_base_and_its_merge(trained: Path) -> None:
    base = logits(load(trained / "model"))
    before = base
    for stage in STAGES:
        folder = trained / "run" / stage
        assert json.loads((folder / "adapter" / "base.json").read_text())["model"] == str(trained / "model")
        on_base = logits(PeftModel.from_pretrained(load(trained / "model"), folder / "adapter"))
        torch.testing.assert_close(logits(load(folder / "hf")), on_base, **EQUAL)
        moved = (on_base - before).abs().max()
        assert moved == 0 if stage == STAGES[2] else moved > 0.01, stage
        before = on_base
    second, third = (trained / "run" / stage for stage in STAGES[1:])
    for name in ("adapter/adapter_model.safetensors", "hf/model.safetensors"):
        given, left = load_file(second / name), load_file(third / name)
        assert given.keys() == left.keys() and all(torch.equal(given[key], left[key]) for key in given), name


def test_the_killed_stage_went_on_from_its_checkpoint(trained: Path) -> None:
    entries = {entry.folder: entry for entry in runner.Curriculum.read(trained / "run" / runner.FILE).stages}
    assert all(entries[stage].global_step == 2 for stage in STAGES)
    logs = [sorted((trained / "run" / "logs").glob(f"{stage}_*.log")) for stage in STAGES]
    assert [len(of_stage) for of_stage in logs] == [1, 2, 1]
    assert "RESUME from the checkpoint of step 1" in logs[1][-1].read_text(errors="replace")
    for stage in STAGES:
        for values in read_steps(trained / "run" / stage).values():
            assert engine_agrees(values)


def test_vllm_switches_adapters_on_one_base_and_answers_as_peft_does(trained: Path, tmp_path: Path) -> None:
    adapters = {stage: trained / "run" / stage / "adapter" for stage in STAGES[:2]}
    wanted = {"model": logits(load(trained / "model"))}
    for stage, folder in adapters.items():
        wanted[stage] = logits(PeftModel.from_pretrained(load(trained / "model"), folder))
    seen: dict[str, list[float]] = {}
    with serve(trained / "model", tmp_path / "log", "tiny", adapter_flags(adapters)) as url:
        for name in (*wanted, *reversed(wanted), *wanted):
            asked = {"model": name, "prompt": IDS.tolist(), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
            answer = httpx.post(f"{url}/completions", json=asked, timeout=120).raise_for_status().json()
            said = zip(IDS.tolist(), answer["choices"][0]["prompt_logprobs"], strict=True)
            given = [entry[str(token)]["logprob"] for token, entry in said if entry]
            own = wanted[name].log_softmax(-1)[:-1].gather(1, IDS[1:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(given), own, atol=1e-4, rtol=1e-4)
            assert seen.setdefault(name, given) == pytest.approx(given, abs=1e-6), f"{name} changed by switching"
    for one, other in itertools.combinations(seen.values(), 2):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.01, "they answer alike: nothing is shown"


def warm_start(folder: Path, *overrides: str) -> str:
    files = f"data.train_files={folder}/chat.jsonl", "data.train_batch_size=4", "trainer.total_epochs=2"
    return succeed("recipe.sft", f"paths.run={folder}/run", *files, *overrides, MODEL=f"{folder}/model")


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


def test_lines_of_json_are_learned_and_what_is_held_out_shows_the_loss(folder: Path) -> None:
    said = warm_start(folder, "data.val_share=0.2", "trainer.test_freq=3", "trainer.save_freq=-1")
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


def test_an_adapter_is_trained_resumed_between_two_epochs_and_handed_on_merged(folder: Path) -> None:
    given = ["optim.lr=1e-2", "model.lora_rank=8", "model.lora_alpha=16", "trainer.max_ckpt_to_keep=2"]
    given.append("trainer.save_freq=after_each_epoch")
    warm_start(folder, *given)
    stage = folder / "run" / "stage0_sft"
    first, last = sorted(int(path.name.split("_")[-1]) for path in (stage / "checkpoints").glob("global_step_*"))
    assert (first, last) == (6, 12)
    straight = load_file(stage / "adapter" / "adapter_model.safetensors")
    for path in (stage / "hf", stage / "adapter", stage / "checkpoints" / "global_step_12"):
        shutil.rmtree(path)
    update(stage, done=None)
    (stage / "checkpoints" / TRACKER).write_text("6")  # as if it had been killed after the first epoch
    said = warm_start(folder, *given)
    assert "RESUME from the checkpoint of step 6" in said and max(read_steps(stage)) == 12
    again = load_file(stage / "adapter" / "adapter_model.safetensors")
    assert again.keys() == straight.keys()
    for name in again:
        torch.testing.assert_close(again[name], straight[name], **EQUAL)
    base, merged = load(folder / "model"), logits(load(stage / "hf"))
    assert (merged - logits(base)).abs().max() > 0.01
    torch.testing.assert_close(merged, logits(PeftModel.from_pretrained(base, stage / "adapter")), **EQUAL)
