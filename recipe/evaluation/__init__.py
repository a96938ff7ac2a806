"""The parts of `recipe.evaluate`: a server, an endpoint, episodes played through it, verdicts, numbers.

server.py      `vllm serve` for a model folder, ended surely afterwards
endpoint.py    one message of the model from an OpenAI-compatible server, with retries
play.py        all episodes of an evaluation, side by side, resumable
official.py    BFCL's own verdict on a recorded conversation, and where it may differ from ours
checker.py     the process in which that verdict is made, because BFCL evaluates text
intervals.py   confidence intervals and pass@k
summary.py     results as data and as text tables
bfcl_handler.py  the way of our protocols into `bfcl generate`, for the leaderboard's own command
"""
