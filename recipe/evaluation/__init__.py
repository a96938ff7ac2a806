"""The parts of `recipe.evaluate`: a server, episodes played through an endpoint, verdicts, numbers.

server.py      `vllm serve` for a model folder, ended surely afterwards
plain.py       what goes to a server, without control tokens in it
play.py        all episodes of an evaluation, side by side
episode.py     one of them, message after message
search.py      one of them by a search over branches
store.py       settings and finished episodes on disk, from which a second start goes on
intervals.py   confidence intervals and pass@k
cost.py        messages, branches and tokens that the episodes have cost
summary.py     results as data and as text tables

The endpoint is `interaction.endpoint`. BFCL's own verdict and the way of our protocols into its command are
`bfcl_env/leaderboard/`.
"""
