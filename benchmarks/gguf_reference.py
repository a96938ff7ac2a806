"""Tokenizer and log-probabilities of the folder that `MODEL=smollm2` makes, beside llama.cpp's own of the same file.

    python -m venv /tmp/llama && /tmp/llama/bin/pip install xllamacpp       # llama.cpp, built for Python
    /tmp/llama/bin/python -c 'import sys, time, xllamacpp as x; p = x.CommonParams(); p.model.path = sys.argv[1]; \
        s = x.Server(p); print(s.listening_address, flush=True); time.sleep(600)' FILE.gguf
    .venv/bin/python -m benchmarks.gguf_reference http://127.0.0.1:PORT

llama.cpp multiplies activations of 8 bits, so its log-probabilities differ a little from those of the same weights.
"""

import json
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from recipe import smollm2

TEXTS = [path.read_text() for path in sorted(Path("docs").glob("*.md"))]
PREFIX, POSITIONS = 64, range(0, 2000, 100)


def ask(server: str, path: str, content: dict) -> dict:
    with urlopen(Request(f"{server}/{path}", json.dumps(content).encode())) as answer:
        return json.load(answer)


def main(server: str) -> None:
    folder = smollm2.folder()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = different = 0
    for text in TEXTS:
        theirs = ask(server, "tokenize", {"content": text, "parse_special": True})["tokens"]
        ours = tokenizer(text)["input_ids"]
        tokens, different = tokens + len(ours), different + (ours != theirs or tokenizer.decode(ours) != text)
    print(f"{len(TEXTS)} texts, {tokens} tokens: {different} texts differ, or are not what is decoded from them")
    ids = tokenizer("\n".join(TEXTS))["input_ids"]
    apart, same = [], 0
    for start in POSITIONS:
        prompt = ids[start : start + PREFIX]
        given = {"prompt": prompt, "n_predict": 1, "n_probs": 20, "temperature": 0}
        found = ask(server, "completion", given)["completion_probabilities"][0]["top_logprobs"]
        with torch.no_grad():
            log_probs = model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1)
        apart += [abs(log_probs[one["id"]].item() - one["logprob"]) for one in found]
        same += int(log_probs.argmax()) == found[0]["id"]
    print(
        f"{len(POSITIONS)} prefixes of {PREFIX} tokens: the most likely token is the same in {same}; log-probabilities"
    )
    print(f"of the 20 most likely differ by {sum(apart) / len(apart):.4f} in the mean, {max(apart):.4f} at most")


if __name__ == "__main__":
    main(sys.argv[1])
