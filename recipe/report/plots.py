"""How a page's figures look: SVG with the page's own ink and ground, so that they can be read in light and in dark."""

import io
from typing import Any

INK, GROUND = "#1c1e21", "#fefefe"
"""Stand for the page's: in SVG the first becomes `currentColor`, the second `var(--page)`."""

COLORS = (
    "#1f77b4",
    "#c8640a",
    "#2c8f2c",
    "#d62728",
    "#9467bd",
    "#a0685a",
    "#cf5aa6",
    "#7f7f7f",
    "#858616",
    "#138fa0",
)
"""Of the lines, by number of the run; each differs by 3 : 1 or more from the page in light and in dark."""

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.prop_cycle": f"cycler(color={list(COLORS)})",
    "legend.facecolor": GROUND,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
"""matplotlib's settings for what a page shows."""


def color(number: int) -> str:
    """The colour of a run, by its number; they begin again after ten."""
    return COLORS[number % len(COLORS)]


def label(name: str) -> str:
    """A name as it is: matplotlib reads what is between two dollars as a formula, and hides what begins with _."""
    return (f" {name}" if name.startswith("_") else name).replace("$", r"\$")


def svg(figure: Any) -> str:
    """A figure as the text of an element; the page's colours show through."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None}, transparent=True)
    text = drawn.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor").replace(GROUND, "var(--page)")
