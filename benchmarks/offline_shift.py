"""Did learning from stored trajectories make what was rewarded more probable, and what was punished less?

    python -m benchmarks.offline_shift --start MODEL --trained MODEL [--temperature T] FILE_OR_FOLDER ...

Both models compute the log-probability of every stored step (message of the model), given all that stands before it. A
step counts as rewarded if what was earned from it on, `--gamma` a step, is more than the mean of the steps with that
number after the same prompt, as punished if it is less: the advantage that a critic would see who knows no more than
that.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

import torch

from recipe.files import aligned
from recipe.offline.trajectories import Limits, Stored, found, read, survey

ANY = Limits(prompt=2**31, response=2**31, context=None, reply=None, final_only=False)


@dataclass(frozen=True)
class Step:
    """One step of one trajectory."""

    trajectory: int
    kind: tuple[int, ...]  # its number in the trajectory, and the ids of the prompt
    earned: float  # from it on
    start: float  # log-probability in nats, of all its tokens
    trained: float


def log_probs(model: Any, stored: Stored, temperature: float) -> list[float]:
    """Of each step, in nats."""
    ids = torch.tensor([stored.trajectory.ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, :-1].float() / temperature
    of_tokens = torch.log_softmax(logits, -1).gather(-1, ids[0, 1:, None])[:, 0]
    before = len(stored.trajectory.prompt) - 1
    return [float(of_tokens[before + span.start : before + span.end].sum()) for span in stored.trajectory.spans]


def earned(stored: Stored, gamma: float) -> list[float]:
    """From each step on; a single score is earned by the last one."""
    rewards = stored.step_scores or [0.0] * (len(stored.trajectory.spans) - 1) + [stored.score]
    return list(accumulate(rewards[::-1], lambda later, reward: reward + gamma * later))[::-1]


def steps_of(trajectories: Iterator[Stored], start: Any, trained: Any, temperature: float, gamma: float) -> list[Step]:
    """All steps under both models."""
    steps = []
    for place, stored in enumerate(trajectories):
        both = (log_probs(model, stored, temperature) for model in (start, trained))
        for number, (value, before, after) in enumerate(zip(earned(stored, gamma), *both, strict=True)):
            steps.append(Step(place, (number, *stored.trajectory.prompt), value, before, after))
    return steps


def row(name: str, steps: list[Step]) -> list[str]:
    """Means over the steps, and how far they moved."""
    moved: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        moved[step.trajectory].append(step.trained - step.start)
    before, after = (fmean(getattr(step, when) for step in steps) for when in ("start", "trained"))
    return [
        name,
        str(len(steps)),
        f"{before:.2f} -> {after:.2f}",
        f"{fmean(map(fmean, moved.values())):+.2f}",
        f"{fmean(step.trained > step.start for step in steps):.0%}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument("--start", required=True, metavar="MODEL", help="the model that the stage began with")
    parser.add_argument("--trained", required=True, metavar="MODEL", help="what it exported: <stage>/hf")
    parser.add_argument("--temperature", type=float, default=1.0, help="that of the training")
    parser.add_argument("--gamma", type=float, default=0.99, help="algorithm.gamma of the training")
    given = parser.parse_args()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given.start)
    load = AutoModelForCausalLM.from_pretrained
    models = [load(path, dtype=torch.float32).eval() for path in (given.start, given.trained)]
    result = survey(found(given.files), ANY, tokenizer, models[0].config.vocab_size)
    if result.mistakes:
        raise SystemExit("\n".join(result.mistakes))
    places = [place for (place,) in result.items(grouped=False)]
    steps = steps_of((read(place, ANY, tokenizer) for place in places), *models, given.temperature, given.gamma)
    alike: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for step in steps:
        alike[step.kind].append(step.earned)
    mean = {kind: fmean(values) for kind, values in alike.items()}
    parts = {
        "rewarded": [step for step in steps if step.earned > mean[step.kind] + 1e-9],
        "punished": [step for step in steps if step.earned < mean[step.kind] - 1e-9],
    }
    print(f"{len(places)} trajectories, {len(steps)} steps; log-probabilities in nats")
    head = ["step is", "steps", "log-prob of a step", "mean move of a trajectory", "rose"]
    print(aligned([head, *(row(name, part) for name, part in parts.items() if part)]))


if __name__ == "__main__":
    main()
