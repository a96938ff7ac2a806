"""Pages from templates: each one HTML file with its style and scripts in it, made to be opened from disk."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from markupsafe import Markup

TEMPLATES = Path(__file__).parents[1] / "templates"


def render(template: str, **values: Any) -> str:
    """The text of a page; values are escaped, but for `Markup`."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=select_autoescape(default=True), trim_blocks=True
    )
    return environment.get_template(template).render(asset=_asset, **values)


def _asset(name: str) -> Markup:
    """A style or script of ours, as it is; nothing that anybody else wrote comes this way."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))
