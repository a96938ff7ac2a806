"""llama.cpp, run by itself in an environment that has xllamacpp: what it makes of texts and of tokens.

Arguments: a GGUF file, and a JSON file {"texts": [...], "ids": [[...], ...]}. Prints as JSON the tokens of each text,
and the log-probabilities of the likeliest tokens after each list of ids.
"""

import json
import sys
import urllib.request

import xllamacpp  # type: ignore[import-not-found]

params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_gpu_layers = sys.argv[1], 1024, 0
server = xllamacpp.Server(params)


def post(path: str, body: dict) -> dict:
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode())
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


with open(sys.argv[2]) as file:
    given = json.load(file)
tokens = [post("/tokenize", {"content": text, "parse_special": False})["tokens"] for text in given["texts"]]
likeliest = []
for ids in given["ids"]:
    answer = post("/completion", {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 20})
    likeliest.append({one["id"]: one["logprob"] for one in answer["completion_probabilities"][0]["top_logprobs"]})
print(json.dumps({"tokens": tokens, "likeliest": likeliest}))
