"""The number format in which trainer and engine multiply on a CPU, where `launcher.precision` is `auto`.

Processors with instructions for bfloat16 multiply it two to four times as fast as float32, others more slowly: it is
measured, once a run. Weights, optimizer, sums of gradients, log-probabilities and checkpoints are float32 either way.
"""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from timeit import repeat

from omegaconf import DictConfig, open_dict

from recipe.files import StateFile

AUTO, FLOAT32, BFLOAT16 = "auto", "float32", "bfloat16"
FILE = "precision.json"
"""In a run's folder: what was measured for it."""
SHAPE = (64, 576, 1536)
"""Of the multiplications: rows, and a weight of SmolLM2-135M's."""
TIMES = 40
"""That each format multiplies. The first time loads and compiles: .08 s on a cold machine, the others .001."""
FASTER = 1.5
"""How many times as fast bfloat16 has to be: there are conversions beside multiplications."""


@dataclass(frozen=True)
class Rates(StateFile):
    """GFLOPS of one thread."""

    float32: float
    bfloat16: float

    @property
    def best(self) -> str:
        """The format to compute in."""
        return BFLOAT16 if self.bfloat16 > FASTER * self.float32 else FLOAT32

    def __str__(self) -> str:
        return f"{self.float32:.0f} GFLOPS in float32, {self.bfloat16:.0f} in bfloat16"


@cache
def measure() -> Rates:
    """Rates of this machine, of the fastest multiplication each: others may be at work here."""
    import torch

    threads, rows, (batch, inputs, outputs) = torch.get_num_threads(), {}, SHAPE
    torch.set_num_threads(1)
    for name in (FLOAT32, BFLOAT16):
        dtype = getattr(torch, name)
        x, weight = torch.ones(batch, inputs, dtype=dtype), torch.ones(outputs, inputs, dtype=dtype)
        best = min(repeat(partial(torch.nn.functional.linear, x, weight), number=1, repeat=TIMES))
        rows[name] = 2 * batch * inputs * outputs / best / 1e9
    torch.set_num_threads(threads)
    return Rates(**rows)


def settle(config: DictConfig, folder: Path | None = None, write: bool = True) -> None:
    """Put what is faster here in the place of `auto`, with the figures as `launcher.measured`.

    Args:
        folder: of the run, whose figures count; None where there is none.
        write: whether the run keeps what is measured now.
    """
    if config.launcher.get("precision") != AUTO:
        return
    path = folder and folder / FILE
    rates = (path and Rates.read_or_none(path)) or measure()
    if path and write:
        rates.write(path)
    with open_dict(config):
        config.launcher.update({"precision": rates.best, "measured": str(rates)})
