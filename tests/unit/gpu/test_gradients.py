"""What the GPU profiles compute is what the plain computation does: every gradient, by verl's own engine and loss."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
TRAINED = {"tied": "embed_tokens", "untied": "lm_head", "untied_lora": "lora_", "untied_window": "lm_head"}


def test_packed_and_fused_gradients_are_those_of_padded_rows_and_logits(tmp_path: Path):
    """Two processes, half a minute each."""
    command = [sys.executable, "benchmarks/gpu_path_gradients.py", "--json", str(tmp_path / "found.json")]
    subprocess.run(command, cwd=ROOT, check=True)
    found = json.loads((tmp_path / "found.json").read_text())
    for model, trained in TRAINED.items():
        exact, rounded = found[f"{model} fp32"], found[f"{model} bf16"]
        assert max(tensor["difference"] for tensor in exact.values()) <= 1e-4, model
        assert min(tensor["cosine"] for tensor in rounded.values()) >= 0.99, model
        assert any(trained in name for name in exact), model
