"""Makes pages when the site is built: that of all settings, from the list that `python -m recipe.options` prints, that
of BFCL's classes (`bfcl_classes`), and those that stand elsewhere in the repository (`ELSEWHERE`).

And names for those who do not see a page, or have no mouse, what the theme leaves without a name or out of reach.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import bfcl_classes  # noqa: E402
from table_cells import code, row  # noqa: E402

from recipe.options.listing import Option, listing  # noqa: E402

PAGE = "reference/settings.md"
ELSEWHERE = {"rewards.md": "rewards/README.md", "protocols.md": "interaction/protocol/README.md"}
"""Page -> the file in the repository that it is. Links between it and docs/ are those of the repository."""

CONFIGURATIONS = {"stage1": "Training", "sft": "Supervised training"}
SEARCH = 'data-md-component="search" role="dialog"'
START = """# Settings

Everything after a script's name is an override: `bash run_stage1.sh KEY=VALUE`. The table shows the values of stage 1
on `gpu8`, then other values of other profiles; a stage's own file changes some. `bash run_stage1.sh --cfg job` prints
the whole configuration. verl's documentation describes the settings that are not listed here.
"""


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """mkdocs' event: the pages become files of the site."""
    made = {PAGE: page(), bfcl_classes.PAGE: bfcl_classes.page()}
    made |= {name: (ROOT / path).read_text(encoding="utf-8") for name, path in ELSEWHERE.items()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs' event: a page before it is rendered. Links to what stands elsewhere lead to its page, and back."""
    if page.file.src_uri in ELSEWHERE:
        return markdown.replace("](../docs/", "](")
    for name, path in ELSEWHERE.items():
        markdown = markdown.replace(f"](../{path}", f"]({name}")
    return markdown


def on_post_page(output: str, **_: Any) -> str:
    """mkdocs' event: a page as it is written. Tables and code scroll; the theme takes a tabindex from `code` itself."""
    output = _named(output).replace("<table>", '<table tabindex="0">')
    code = r"(<pre><span></span><code>)(.*?)(</code></pre>)"
    return re.sub(code, r'\1<span tabindex="0">\2</span>\3', output, flags=re.DOTALL)


def on_post_template(output_content: str, **_: Any) -> str:
    """mkdocs' event: a page of the theme's own, 404.html."""
    return _named(output_content)


def _named(html: str) -> str:
    return html.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def page() -> str:
    """The page in Markdown, a table for each section of the configuration."""
    parts = [START]
    for name, title in CONFIGURATIONS.items():
        found = listing(name)
        sections: dict[str, list[Option]] = defaultdict(list)
        for option in found.options:
            sections[option.key.partition(".")[0]].append(option)
        parts.append(f"## {title}\n")
        for section, options in sections.items():
            parts.append(f"### `{section}`{' (supervised)' if name == 'sft' else ''}\n")
            parts += [row("setting", "value", "meaning"), row("---", "---", "---")]
            parts += [row(f"`{one.key}`", values(one, found.written_for), meaning(one)) for one in options]
            parts.append("")
    return "\n".join(parts)


def values(option: Option, written_for: str) -> str:
    """The value on the profile that the files are written for, and where another one has another."""
    first = option.values[written_for]
    others = [f"{name}: {code(value)}" for name, value in option.values.items() if value != first]
    return "<br>".join([code(first), *others])


def meaning(option: Option) -> str:
    """What is said about it, and our file that says so first."""
    where = next((f"`{place}`" for place in option.said if not place.startswith("verl/")), "")
    return f"{option.meaning} {where}".strip()
