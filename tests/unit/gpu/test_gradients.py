"""What the GPU profiles compute is what the plain computation does: every gradient, by verl's own engine and loss."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

Comparison = dict[str, dict[str, dict[str, float]]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """By model and type, by tensor: `difference` and `cosine`. Two processes, half a minute each."""
    file = tmp_path_factory.mktemp("gradients") / "found.json"
    command = [sys.executable, "benchmarks/gpu_path_gradients.py", "--json", str(file)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    print(answer.stdout)
    return json.loads(file.read_text())


@pytest.mark.parametrize("model", ["tied", "untied", "untied_lora", "untied_window"])
def test_packed_and_fused_gradients_are_those_of_padded_rows_and_logits(found: Comparison, model: str):
    exact, rounded = found[f"{model} fp32"], found[f"{model} bf16"]
    assert max(tensor["difference"] for tensor in exact.values()) <= 1e-4
    assert min(tensor["cosine"] for tensor in rounded.values()) >= 0.99
    trained = "lora_" if model == "untied_lora" else "lm_head" if "untied" in model else "embed_tokens"
    assert any(trained in name for name in exact)
