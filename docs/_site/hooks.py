"""Makes pages when the site is built: all settings, from the configuration files; BFCL's classes (`bfcl_classes`); and
those that stand elsewhere in the repository (`ELSEWHERE`).

And names for those who do not see a page, or have no mouse, what the theme leaves without a name or out of reach.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import bfcl_classes  # noqa: E402

PAGE = "reference/settings.md"
ELSEWHERE = {"rewards.md": "rewards/README.md", "protocols.md": "interaction/protocol/README.md"}
"""Page -> the file in the repository that it is. Links between it and docs/ are those of the repository."""

CONFIGURATIONS = {"base.yaml": "Training", "sft.yaml": "Supervised training"}
SEARCH = 'data-md-component="search" role="dialog"'
WORKER = "https://unpkg.com/iframe-worker/shim"
START = """# Settings

Everything after a script's name is an override: `bash run_stage1.sh KEY=VALUE`. These are the defaults; a hardware
profile, an algorithm and a stage's own file change some. `bash run_stage1.sh --cfg job` prints the whole configuration,
with verl's other settings.

| environment variable | meaning |
|---|---|
| `MODEL`, `RUN`, `SEED`, `HARDWARE`, and sizes of a batch | [Train your model](../train.md#run-one-stage) |
| `PYTHON`, `TORCH_INDEX_URL` | of `setup.sh`: the interpreter, and where torch comes from |
| `SMOLLM2_GGUF` | the file of SmolLM2, where no package index can be reached |
| `OMP_NUM_THREADS` | threads of trainer and engine on a CPU (2) |
| `WANDB_DIR`, `TRACKIO_DIR`, `MLFLOW_TRACKING_URI` | where these trackers write |
"""


def on_config(config: Any, **_: Any) -> Any:
    """mkdocs' event: links to the repository, where pyproject.toml names one."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        config.repo_url = tomllib.load(file)["project"].get("urls", {}).get("Repository", config.repo_url)
    return config


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
    for name, path in (ELSEWHERE | {PAGE: "recipe/config/base.yaml"}).items():
        markdown = markdown.replace(f"](../{path}", f"]({name}")
    return markdown


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """mkdocs' event: a page as it is written. Tables and code scroll; the theme takes a tabindex from `code` itself.

    The script with which search works in a folder is the site's own, and not fetched.
    """
    output = _named(output).replace(WORKER, f"{'../' * page.url.count('/')}assets/iframe-worker.js")
    output = output.replace("<th></th>", "<td></td>").replace("<table>", '<table tabindex="0">')
    code = r"(<pre><span></span><code>)(.*?)(</code></pre>)"
    return re.sub(code, r'\1<span tabindex="0">\2</span>\3', output, flags=re.DOTALL)


def on_post_template(output_content: str, **_: Any) -> str:
    """mkdocs' event: a page of the theme's own, 404.html."""
    return _named(output_content).replace(WORKER, "assets/iframe-worker.js")


def _named(html: str) -> str:
    return html.replace(SEARCH, f'{SEARCH} aria-label="Search"')


def page() -> str:
    """The page in Markdown: the configuration files, a heading for each section; then profiles and algorithms."""
    config, parts = ROOT / "recipe" / "config", [START]
    for file, title in CONFIGURATIONS.items():
        parts.append(f"## {title}")
        for section in re.split(r"\n(?=\w)", (config / file).read_text(encoding="utf-8"))[1:]:
            name = section.partition(":")[0]
            if name not in ("defaults", "hydra"):
                parts += [f"### {name} {{#{file[:-5]}-{name}}}", f"```yaml\n{section.rstrip()}\n```"]
    for group in ("hardware", "algorithm", "trainer", "environment", "preset"):
        parts.append(f"## {group}=NAME")
        for path in sorted((config / group).glob("*.yaml")):
            parts += [f"### {group}={path.stem}", f"```yaml\n{path.read_text(encoding='utf-8').rstrip()}\n```"]
    return "\n\n".join(parts)
