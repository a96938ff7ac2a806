"""What a table of pass rates calls things and says below itself: a verdict is no judge's opinion."""

from collections.abc import Sequence
from dataclasses import dataclass

from recipe.report.pass_rate import AVERAGE, Method, Paired, figures

VOTES = (
    "Pass rate in percent: Solved 1, Unsure 0.5, Unsolved 0. +- is the population standard deviation over rounds "
    "of votes, which says how far a judge agrees with itself and nothing about which queries there are. I1 and I2 "
    "weigh their subsets by queries, Average weighs a row's subsets the same; their +- is the mean of the subsets'."
)
AMONG_VOTES = " Of an evaluation or a run a vote is the environment's verdict on a sample: Solved or Unsolved."
VERDICTS = "Tasks solved, in percent, by the verdict of their environment: an evaluation's acc, not acc_official."
SAMPLES = (
    " +- is the population standard deviation over the samples of each task, which says how far a model agrees with "
    "itself and nothing about which tasks there are."
)
CATEGORIES = " Average weighs a row's categories the same."
PAIRED = (
    "The same {} under both, each counting the same; the brackets are 95 % by Student's t over {}, over clusters "
    "where {} of one cluster are known."
)


@dataclass(frozen=True, slots=True)
class Words:
    """Of one page and its tables."""

    title: str
    row: str
    """What the table has a row of."""
    subset: str
    query: str
    rates: str
    what: str
    """What the numbers of the first table are."""

    @property
    def queries(self) -> str:
        return {"query": "queries", "task": "tasks"}[self.query]

    @property
    def paired(self) -> str:
        """What those of the second table are."""
        return PAIRED.format(*[self.queries] * 3)

    def difference(self, pair: Paired) -> str:
        """A difference in percentage points with its interval, or why it has none."""
        if not pair.differing:
            tasks = f"all {pair.queries} {self.queries}" if pair.queries > 1 else f"the one {self.query}"
            return f"none: the same on {tasks}"
        difference = f"{100 * (pair.after - pair.before):+.1f}"
        if pair.interval is not None:
            return f"{difference} [{100 * pair.interval[0]:+.1f}, {100 * pair.interval[1]:+.1f}]"
        if pair.clusters == 1:
            return f"{difference} (one {self.query} or cluster: no interval)"
        return f"{difference} (the same on every {self.query} or cluster: no interval)"


def words(methods: Sequence[Method]) -> Words:
    """Those that fit who judged these rows."""
    judged_by = {method.judged_by for method in methods}
    if judged_by == {"verdicts"}:
        found = [figures(method) for method in methods]
        several = any(item.deviation is not None for one in found for item in one.values())
        average = any(AVERAGE in one for one in found)
        what = VERDICTS + several * SAMPLES + average * CATEGORIES
        return Words("Solved tasks", "evaluation", "category", "task", "solved", what)
    what = VOTES + (len(judged_by) > 1) * AMONG_VOTES
    return Words("Pass rates", "method", "subset", "query", "pass rates", what)
