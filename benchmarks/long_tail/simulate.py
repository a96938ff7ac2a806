r"""Where the time of a training step goes, played in turn and while training: a simulation with numbers of your own.

    python -m benchmarks.long_tail.simulate --replicas 8 --concurrency 64 --tokens-a-second 2500 \
      --tokens-a-second-alone 60 --messages 12 --tokens 250 --user-median 60 --environment 0.1 --prompts 32 \
      --rollouts 16 --log-probs 40 --update 80 --weights 15

Printed for each mode, mean over steps and seeds: seconds a step and where they go (generation: what the engines would
need at full rate; waiting: the rest of the time in which they play, when too few messages are at them because the
others wait for users or the slowest alone are left), tokens a second as a share of what the engines can do while they
play, and how many steps lie between a prompt and its training. With separate, generation is beside the rest, and
waiting is what the trainer waits. docs/scale.md has the assumptions.
"""

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from statistics import fmean

from benchmarks.long_tail.load import Load, option
from benchmarks.long_tail.modes import SYNC, Mode, Step, simulate
from recipe.columns import aligned

HEADER = ("mode", "s/step", "generation", "waiting", "log-probs", "update", "weights", "staleness", "max", "engines")
HELP = {
    "replicas": "engines, each of which may be several GPUs",
    "concurrency": "messages that an engine writes at a time: max_num_seqs, or what its KV cache holds",
    "tokens_a_second": "of one engine at full load",
    "tokens_a_second_alone": "of one message that has an engine for itself",
    "messages": "of the model in an episode",
    "tokens": "in a message",
    "user_median": "seconds for which an episode waits for its user in all, log-normal",
    "prompts": "groups of a training step: data.train_batch_size",
    "rollouts": "episodes of a group: rollout.n",
    "log_probs": "seconds a step for old and reference log-probabilities",
    "update": "seconds a step for the update",
    "weights": "seconds a step for engines to sleep, wake up and get the new weights",
    "user_p99": "99th percentile of --user-median's times (default: ten times the median)",
    "environment": "seconds for the call after each message (default: 0)",
    "reading": "seconds for which an engine reads an interrupted episode's tokens again (default: 0)",
}


@dataclass(frozen=True)
class Times:
    """Means over the steps of one training, in seconds a step."""

    rollout: float
    playing: float
    generation: float
    """Of the same: what the engines would need at full rate."""
    pause: float
    staleness: float
    stalest: int

    @property
    def step(self) -> float:
        return self.rollout + self.pause

    @property
    def engines(self) -> float:
        """Share of what they can write while they play."""
        return self.generation / self.playing if self.playing else 0.0


def times(load: Load, steps: Sequence[Step]) -> Times:
    """Of these steps."""
    return Times(
        rollout=fmean(step.rollout for step in steps),
        playing=fmean(step.playing for step in steps),
        generation=fmean(step.written for step in steps) / (load.replicas * load.tokens_a_second),
        pause=load.pause,
        staleness=fmean(float(step.staleness.mean()) for step in steps),
        stalest=max(int(step.staleness.max()) for step in steps),
    )


def row(mode: Mode, load: Load, seeds: Sequence[Times]) -> list[str]:
    """A line of the table."""
    step = fmean(one.step for one in seeds)
    generation = 0.0 if mode.beside else fmean(one.generation for one in seeds)
    waiting = fmean(one.rollout for one in seeds) - generation
    parts = (generation, waiting, load.log_probs, load.update, load.weights)
    shares = [f"{part / step if step else 0.0:.0%}" for part in parts]
    return [
        mode.name,
        f"{step:.1f}",
        *(["beside", *shares[1:]] if mode.beside else shares),
        f"{fmean(one.staleness for one in seeds):.2f}",
        str(max(one.stalest for one in seeds)),
        f"{fmean(one.engines for one in seeds):.0%}",
    ]


def parser() -> argparse.ArgumentParser:
    """Options: the fields of `Load`, and how to play."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.long_tail.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for field in fields(Load):
        made.add_argument(
            option(field.name),
            type=field.type,  # type: ignore[arg-type]
            required=field.default is MISSING,
            default=argparse.SUPPRESS,
            metavar="N" if field.type is int else "X",
            help=HELP[field.name],
        )
    for name, default, text in (
        ("warmup", 1, "batches of prompts in play beside the one that is waited for: num_warmup_batches"),
        ("threshold", 4, "steps after which a group is waited for: max_off_policy_threshold"),
        ("steps", 20, "that are counted, after as many as the threshold, in which play gets ahead"),
        ("seeds", 3, "trainings, each with users of its own"),
    ):
        made.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: {default})")
    made.add_argument(
        "--playing",
        type=float,
        default=0.5,
        metavar="X",
        help="with two engines or more, the share of their devices that only play with separate (default: 0.5)",
    )
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parser()
    given = vars(options.parse_args(argv))
    warmup, threshold, steps, seeds = (given.pop(name) for name in ("warmup", "threshold", "steps", "seeds"))
    if not 0 < (playing := given.pop("playing")) < 1:
        options.error(f"--playing {playing}: expected a number between 0 and 1")
    for name, value in (("steps", steps), ("seeds", seeds)):
        if value < 1:
            options.error(f"--{name} {value}: expected a whole number of at least 1")
    try:
        load = Load(**given)
        loads = {SYNC: load, Mode("async", warmup, threshold): load}
        if load.replicas > 1:
            loads[Mode("separate", warmup, threshold, beside=True)] = load.apart(playing)
        played = {
            mode: [times(of, simulate(of, mode, threshold + steps, seed)[threshold:]) for seed in range(seeds)]
            for mode, of in loads.items()
        }
    except ValueError as error:
        options.error(str(error))
    print(
        f"{load.prompts} x {load.rollouts} episodes a step, {load.messages} messages of {load.tokens:g} tokens each, "
        f"on {load.replicas} engines; users {load.user_median:g} s, 1 in 100 above {load.user_p99:g} s"
    )
    print(aligned([HEADER, *(row(mode, loads[mode], played[mode]) for mode in loads)]))
    for mode in [*loads][1:]:
        ratios = [sync.step / other.step for sync, other in zip(played[SYNC], played[mode], strict=True) if other.step]
        if ratios:
            spread = f" ({min(ratios):.2f} to {max(ratios):.2f} over {seeds} seeds)" if seeds > 1 else ""
            print(f"{mode.name} is {fmean(ratios):.2f} times as fast{spread}")


if __name__ == "__main__":
    main()
