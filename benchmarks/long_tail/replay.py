r"""The simulation against trainings that were measured: the same users, each waiting as long as it did there.

    python -m benchmarks.long_tail.replay --tokens-a-second 1814 --tokens-a-second-alone 300 --concurrency 64 \
      outputs/sync1 outputs/async1

Rates are of other runs; messages, tokens, log-probabilities, update and weights are those that a run has logged. So
what is compared is what the simulation is for: how long a step waits for its episodes. Printed for each run: seconds a
step, measured and simulated, mean over the steps after those in which play gets ahead.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from benchmarks.long_tail.compare import LOG_PROBS, PLAYING, UPDATE, seconds
from benchmarks.long_tail.load import Load
from benchmarks.long_tail.modes import SYNC, Mode, simulate
from recipe.columns import aligned
from recipe.report.episodes import headers
from recipe.report.tables import trained_stages
from recipe.stage.metrics_log import read_steps

NEVER = 1e5
"""Seconds for which an episode waits that the training had not finished when it ended."""
HEADER = ("run", "mode", "engines", "steps", "measured s/step", "simulated", "waiting, measured", "simulated")
MODES = {
    "sync": SYNC,
    "colocate_async": Mode("async", 1, 4),
    "separate_async": Mode("separate", 1, 4, beside=True),
}


class Recorded(Load):
    """A load whose users wait as they did.

    Args:
        recorded: seconds for each episode, (groups, rollouts).
        given: all fields of a load.
    """

    def __init__(self, recorded: NDArray[np.float64], **given: Any) -> None:
        super().__init__(**given)
        object.__setattr__(self, "recorded", recorded)

    def waits(self, batches: int, seed: int) -> NDArray[np.float64]:
        recorded: NDArray[np.float64] = vars(self)["recorded"]
        return recorded[: batches * self.prompts]

    def spread(self, waits: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All before the first message, as `loop.py` has it."""
        return waits, np.full_like(waits, self.environment)


def waits_of(stage: Path, prompts: int, rollouts: int, warmup: int) -> tuple[NDArray[np.float64], list[dict[str, Any]]]:
    """Seconds for which each episode waited, (groups, rollouts) in the order in which they were handed out; headers."""
    groups: list[list[float]] = []
    found = []
    for path in sorted((stage / "rollouts" / "train").glob("*.jsonl")):
        step = int(path.stem.partition(".")[0])
        played: dict[str, dict[int, float]] = {}
        for place in headers(path):
            found.append(place.header)
            played.setdefault(place.header["uid"], {})[place.header["session_id"]] = place.header["seconds"]["user"]
        missing = prompts * (1 + warmup if step == 1 else 1) - len(played)
        of_step = [*played.values(), *({} for _ in range(missing))]
        groups += [[group.get(number, NEVER) for number in range(rollouts)] for group in of_step]
    return np.array(groups), found


def replay(run: Path, rates: dict[str, Any]) -> list[str]:
    """A line of the table."""
    stage = trained_stages(run)[0]
    config = cast(DictConfig, OmegaConf.load(stage / "config" / "resolved.yaml"))
    mode, rollout = config.trainer.v1.trainer_mode, config.actor_rollout_ref.rollout
    logged, simulated = read_steps(stage), MODES[mode]
    prompts, rollouts = config.data.train_batch_size, rollout.n
    recorded, played = waits_of(stage, prompts, rollouts, simulated.warmup)
    messages = round(fmean(header["reward"]["steps"] for header in played))
    pauses = [fmean(seconds(logged, names)[1:]) for names in (LOG_PROBS, UPDATE, ("step",), PLAYING)]
    devices = rollout.n_gpus_per_node * rollout.nnodes if simulated.beside else config.trainer.n_gpus_per_node
    load = Recorded(
        recorded,
        replicas=devices,
        messages=messages,
        tokens=fmean(header["engine_tokens"] for header in played) / messages,
        user_median=1.0,
        prompts=prompts,
        rollouts=rollouts,
        log_probs=pauses[0],
        update=pauses[1],
        weights=max(0.0, pauses[2] - pauses[3] - pauses[0] - pauses[1]),
        environment=fmean(header["seconds"]["environment"] for header in played) / messages,
        **rates,
    )
    first = simulated.threshold if simulated.warmup else 1
    steps = simulate(load, simulated, len(logged), 0)[first:]
    measured = [seconds(logged, names)[first:] for names in (("step",), PLAYING)]
    waited = fmean(step.rollout for step in steps)
    return [
        run.name,
        simulated.name,
        str(devices),
        str(len(steps)),
        f"{fmean(measured[0]):.1f}",
        f"{waited + load.pause:.1f}",
        f"{fmean(measured[1]):.1f}",
        f"{waited:.1f}",
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the comparison."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.long_tail.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    for name in ("tokens-a-second", "tokens-a-second-alone"):
        options.add_argument(f"--{name}", type=float, required=True, metavar="X")
    options.add_argument("--concurrency", type=int, required=True, metavar="N")
    given = vars(options.parse_args(argv))
    runs = given.pop("runs")
    print(aligned([HEADER, *(replay(run, given) for run in runs)]))


if __name__ == "__main__":
    main()
