"""What the CPU engines leave out changes no number: against verl's own engines on the same rows, in one process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet
from support.engines import rows
from transformers import AutoConfig, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from recipe.cpu.tiny_policy import make_tiny_policy

ROOT = Path(__file__).parents[3]
MODELS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "window": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "lora": {},
    "padded": {"vocab_size": 2100},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    """Model -> of `ours` and of `verl's` -> what -> name -> tensor."""
    make_tiny_policy(folder / "base")
    settings = Qwen2Config.from_pretrained(folder / "base").to_dict() | {"layer_types": None, "initializer_range": 0.2}
    for name, changes in MODELS.items():
        shutil.copytree(folder / "base", folder / name)
        torch.manual_seed(0)
        Qwen2ForCausalLM(Qwen2Config(**settings | changes)).save_pretrained(folder / name)
    cases = [(str(folder / name), 4 * (name == "lora")) for name in MODELS]
    command = [sys.executable, "-m", "support.engines", repr(cases), str(folder / "found.pt")]
    given = {"VERL_PLATFORM": "cpu", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=ROOT, env={**os.environ, **given}, check=True)
    return {Path(path).name: result for path, result in torch.load(folder / "found.pt").items()}


@pytest.mark.parametrize("model", MODELS)
def test_log_probabilities_entropies_losses_gradients_and_values_are_verls(found: dict[str, Any], model: str) -> None:
    ours, plain = found[model]["ours"], found[model]["verl's"]
    updates = ("ppo", "second update", "kl", "sft")
    assert ours.keys() == plain.keys() == {*updates, "values"}
    computed = {what: int(side[what].pop("tokens")) for side in (plain, ours) for what in updates}
    if model != "window":  # beginnings once; rows without advantage or learned tokens only where KL wants them
        assert computed["ppo"] == 9 + 16 + 40 + 31 + 24 - 6
        assert min(computed["kl"], computed["second update"]) >= computed["ppo"] + 3 + 1 + 60 + 5 - 1
    for what, tensors in plain.items():
        assert ours[what].keys() == tensors.keys()
        for name, expected in tensors.items():
            scale = float(expected.abs().max())
            torch.testing.assert_close(ours[what][name], expected, rtol=1e-5, atol=3e-5 * max(scale, 1e-3), msg=name)
    assert plain["ppo"]["log_probs"].std() > 0.1 and plain["ppo"]["loss"].abs().sum() > 0, "they say something"
    assert plain["values"]["values"].std() > 0.01 and plain["second update"]["actor/ppo_kl"].abs() > 0.01
    for name in ("log_probs", "entropy"):
        values = found[model]["bfloat16"]["ours"][name]
        assert (values.bfloat16() != values).float().mean() > 0.9, "the logits alone are rounded"


def test_the_distribution_is_that_of_the_engine_which_samples_ids_of_the_tokenizer_alone(found, folder) -> None:
    known = len(AutoTokenizer.from_pretrained(folder / "padded"))
    model = Qwen2ForCausalLM.from_pretrained(folder / "padded")
    expected = []
    for ids, mask in zip(*(rows(True)[name].unbind() for name in ("input_ids", "loss_mask")), strict=True):
        logits = model(input_ids=ids[None]).logits[0].detach() / 0.7
        logits[:, known:] = -torch.inf  # as verl's engine does it
        expected.append(logits.log_softmax(-1)[:-1].gather(-1, ids[1:, None])[:, 0][mask[1:].bool()])
    assert model.config.vocab_size > known
    torch.testing.assert_close(found["padded"]["ours"]["sft"]["log_probs"], torch.cat(expected), rtol=0, atol=1e-4)


def test_the_tiny_policy_of_any_conversations_has_no_token_that_its_tokenizer_has_not(tmp_path: Path) -> None:
    said = pyarrow.table({"messages": [[{"role": "user", "content": "one line\nand another"}]]})
    parquet.write_table(said, tmp_path / "said.parquet")
    make_tiny_policy(tmp_path / "tiny", conversations=tmp_path / "said.parquet")
    known = len(AutoTokenizer.from_pretrained(tmp_path / "tiny"))
    assert AutoConfig.from_pretrained(tmp_path / "tiny").vocab_size == known < 2048
