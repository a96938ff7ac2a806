"""How much a stage's reward moved from its first steps to its last, and how sure that is.

Within a run the two windows of steps are compared task by task, on the tasks that both have: on the GPUs a step plays
other tasks than the one before, and a window with easier ones is no progress. The standard error comes from the
episodes, thousands of them, and not from the five step means of a window, whose own spread is mostly luck.

It covers which episodes were sampled and, where the windows have not all tasks in common, which tasks they happened to
share. It does not cover what another run would have done: runs with another seed, or the same one, differ by more than
their episodes say. For that there are several runs, each with its own difference: their mean, and an interval from the
spread of the differences.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

import numpy as np

from recipe.evaluation.intervals import Interval, t_interval, t_quantile

Episodes = Mapping[Hashable, Sequence[float]]
"""Task -> a value of each of its episodes in one window of steps."""


@dataclass(frozen=True)
class Difference:
    """One run: the mean over tasks in its last steps and in its first."""

    first: float
    last: float
    standard_error: float | None = None
    """None where it cannot be told; then `missing` says why."""
    degrees: float = float("inf")
    """Degrees of freedom of the standard error."""
    tasks: int = 0
    """How many are compared; 0 where step means are."""
    all_tasks: bool = True
    """Whether both windows have the same tasks."""
    missing: str = ""

    @property
    def value(self) -> float:
        return self.last - self.first

    @property
    def interval(self) -> Interval | None:
        """95 % interval for this run's difference; None without a standard error."""
        if self.standard_error is None:
            return None
        half = t_quantile(self.degrees) * self.standard_error
        return self.value - half, self.value + half


def compare(first: Episodes, last: Episodes, drawn: bool = False) -> Difference | None:
    """The difference between two windows on the tasks that both have, each task counting the same.

    `drawn` says that the tasks stand for others that nobody has played, as held-out ones do: f is 0 then.

    With G tasks in common, d_t the difference of task t's means and s^2/n the variance of one such mean:

        variance = (1 - f) var(d_t) / G  +  f sum_t (s^2/n in the first window + s^2/n in the last) / G^2

    This is the variance of a mean from two-stage sampling, tasks and then episodes (W. G. Cochran, Sampling Techniques,
    3rd ed. 1977, chapter 10, units of equal size). f is the share of all tasks that are compared. Where every step
    plays the same tasks f is 1, the tasks are all there are, and only the episodes are a sample. Where a window has
    drawn its tasks from a larger pool, how differently they moved says how far the pool may be from them. The size of
    the pool is estimated from the overlap, as if animals were caught, marked and caught again (Lincoln and Petersen):
    f = G^2 / (G1 G2), with G1 and G2 tasks in the windows. A task with one episode in a window has no s^2; then f is
    taken as 0, which makes the error rather too large. Degrees of freedom are Satterthwaite's.

    Returns None if no task is in both.
    """
    tasks = [task for task in first if task in last]
    if not tasks:
        return None
    windows = [np.asarray(values, float) for task in tasks for values in (first[task], last[task])]
    sizes = np.array([values.size for values in windows])
    starts, flat = np.cumsum(sizes) - sizes, np.concatenate(windows)
    means = np.add.reduceat(flat, starts) / sizes
    squares = np.add.reduceat((flat - np.repeat(means, sizes)) ** 2, starts)
    start, end = float(means[::2].mean()), float(means[1::2].mean())
    count, all_tasks = len(tasks), len(tasks) == len(first) == len(last)
    share = count**2 / (len(first) * len(last)) if sizes.min() > 1 and not drawn else 0.0
    if share < 1 and count == 1:
        return Difference(start, end, tasks=1, all_tasks=all_tasks, missing="one task in both windows")
    free = sizes - 1.0
    terms = share * squares / np.maximum(free, 1) / sizes / count**2
    if share < 1:
        terms = np.append(terms, (1 - share) * np.var(means[1::2] - means[::2], ddof=1) / count)
        free = np.append(free, count - 1)
    variance = float(terms.sum())
    known = terms > 0
    degrees = variance**2 / float((terms[known] ** 2 / free[known]).sum()) if variance else float("inf")
    return Difference(start, end, sqrt(variance), degrees, count, all_tasks)


@dataclass(frozen=True)
class Rise:
    """The same stage in one or several runs, which are never pooled as if they were one."""

    runs: tuple[Difference, ...]

    @property
    def first(self) -> float:
        return fmean(run.first for run in self.runs)

    @property
    def last(self) -> float:
        return fmean(run.last for run in self.runs)

    @property
    def difference(self) -> float:
        return self.last - self.first

    @property
    def interval(self) -> Interval | None:
        """95 % interval for the mean difference of such runs, by Student's t on the runs' own; None for one run."""
        return t_interval([run.value for run in self.runs]) if len(self.runs) > 1 else None
