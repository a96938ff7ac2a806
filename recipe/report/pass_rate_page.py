"""The table of pass rates as text, as CSV files, and as a page that opens without a network."""

import csv
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from textwrap import fill

from recipe.columns import aligned
from recipe.files import write_atomic
from recipe.report.pass_rate import Figure, Method, Paired, compare, figures, label, ordered
from recipe.report.pass_rate_words import Words, words
from recipe.report.played_with import differing
from recipe.report.render import render


def differences(methods: Sequence[Method], baseline: Method) -> list[Paired]:
    """Every other method against the baseline."""
    return [pair for method in methods if method is not baseline for pair in compare(method, baseline)]


def notes(methods: Sequence[Method], baseline: Method) -> list[str]:
    """What a reader has to know of single rows."""
    found = differing(methods) + [f"{method.name}: {note}" for method in methods for note in method.notes]
    for method in methods:
        if lacks := ", ".join(map(label, _lacking(method, methods))):
            found.append(f"{method.name} has no {lacks}, so its Average is over other subsets than another row's")
        if method is not baseline and not compare(method, baseline):
            query = words([method, baseline]).query
            found.append(f"{method.name} and {baseline.name} have no {query} in common, so they are not compared")
    return found


def _lacking(method: Method, methods: Sequence[Method]) -> list[str]:
    """Subsets of the rows that have one of its subsets, which it has not."""
    like = [other.subsets for other in methods if other.subsets.keys() & method.subsets.keys()]
    return ordered(name for subsets in like for name in subsets if name not in method.subsets)


def text(methods: Sequence[Method], baseline: Method) -> str:
    """The tables for a terminal."""
    say = words(methods)
    parts = [aligned(_table(methods, say)), fill(say.what, 120)]
    if pairs := differences(methods, baseline):
        lines = [[say.row, "against", say.subset, say.queries, say.rates, "difference [95 %]"]]
        lines += [
            [pair.method, pair.baseline, label(pair.subset), str(pair.queries), rates_text(pair), say.difference(pair)]
            for pair in pairs
        ]
        parts += [aligned(lines), fill(say.paired, 120)]
    return "\n\n".join(parts + [fill(f"{note}.", 120) for note in notes(methods, baseline)])


def _table(methods: Sequence[Method], say: Words) -> list[list[str]]:
    """A row for each method; a column for each subset that any of them has, then for what is put together."""
    rows = [(method, figures(method)) for method in methods]
    subsets = ordered(name for method in methods for name in method.subsets)
    more = [name for _, found in rows for name in found if name not in subsets]
    columns = [*subsets, *sorted(dict.fromkeys(more), key=_last)]
    lines = [[say.row, say.queries, *map(label, columns)]]
    for method, found in rows:
        queries = sum(map(len, method.subsets.values()))
        lines.append([method.name, str(queries), *(figure_text(found.get(name)) for name in columns)])
    return lines


def _last(name: str) -> tuple[bool, str]:
    """I1, I2, then Average."""
    return not name.startswith("I"), name


def figure_text(figure: Figure | None) -> str:
    """In percent, as the field writes it; without a deviation where there is one round."""
    if figure is None:
        return "-"
    return f"{100 * figure.mean:.1f}" + ("" if figure.deviation is None else f" +- {100 * figure.deviation:.1f}")


def rates_text(pair: Paired) -> str:
    """The baseline's pass rate and the method's."""
    return f"{100 * pair.before:.1f} -> {100 * pair.after:.1f}"


def write(methods: Sequence[Method], baseline: Method, out: Path) -> list[Path]:
    """Write pass_rate.html, pass_rate.csv and differences.csv into a folder; returns their paths.

    The CSV files have a line for each number, unrounded, in percent; those of what is put together have no votes.

    Raises:
        OSError: they cannot be written.
    """
    out.mkdir(parents=True, exist_ok=True)
    made = {
        "pass_rate.html": _page(methods, baseline),
        "pass_rate.csv": _rates_csv(methods),
        "differences.csv": _differences_csv(methods, baseline),
    }
    for name, content in made.items():
        write_atomic(out / name, content)
    return [out / name for name in made]


def _page(methods: Sequence[Method], baseline: Method) -> str:
    say = words(methods)
    head, *rows = _table(methods, say)
    return render(
        "pass_rate.html",
        head=head,
        rows=rows,
        say=say,
        pairs=differences(methods, baseline),
        label=label,
        rates_text=rates_text,
        notes=notes(methods, baseline),
    )


def _rates_csv(methods: Sequence[Method]) -> str:
    lines: list[Sequence[object]] = [("method", "subset", "queries", "votes", "pass_rate", "standard_deviation")]
    for method in methods:
        for name, item in figures(method).items():
            deviation = None if item.deviation is None else 100 * item.deviation
            lines.append((method.name, label(name), item.queries, item.votes, 100 * item.mean, deviation))
    return _csv(lines)


def _differences_csv(methods: Sequence[Method], baseline: Method) -> str:
    lines: list[Sequence[object]] = [
        ("method", "baseline", "subset", "queries", "baseline_pass_rate", "pass_rate", "difference", "low", "high")
    ]
    for pair in differences(methods, baseline):
        low, high = (None, None) if pair.interval is None else pair.interval
        numbers = (pair.before, pair.after, pair.after - pair.before, low, high)
        percent = [None if number is None else 100 * number for number in numbers]
        lines.append((pair.method, pair.baseline, label(pair.subset), pair.queries, *percent))
    return _csv(lines)


def _csv(lines: Sequence[Sequence[object]]) -> str:
    """None is an empty cell. A text that a spreadsheet would take for a formula begins with a quote."""
    made, formula = StringIO(), re.compile(r"[=+\-@\t\r]")
    cells = [[f"'{cell}" if isinstance(cell, str) and formula.match(cell) else cell for cell in line] for line in lines]
    csv.writer(made, lineterminator="\n").writerows(cells)
    return made.getvalue()
