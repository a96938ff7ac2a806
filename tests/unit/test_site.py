"""The documentation site: it builds without a warning, and has every page and every setting."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
import yaml

from recipe.reward import sample_record
from recipe.settings import CONFIG_DIR

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2])
    assert len(listed) == len({*listed})
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert {*listed} == written | {"reference/settings.md", "reference/classes.md", "rewards.md", "protocols.md"}


def test_the_site_builds_without_a_warning_and_has_every_setting_on_its_page(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "-r", "requirements/docs.txt"]
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"requirements/docs.txt cannot be installed (bash run_docs.sh): {done.stderr[-300:]}")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    page = unescape(re.sub("<[^>]*>", "", (tmp_path / "reference" / "settings.html").read_text(encoding="utf-8")))
    for name in ("base", "sft", "hardware/cpu", "algorithm/dapo"):
        content = yaml.safe_load((CONFIG_DIR / f"{name}.yaml").read_text(encoding="utf-8"))
        for section in content.keys() - {"defaults", "hydra"}:
            keys = content[section] if isinstance(content[section], dict) else ()
            missing = [key for key in keys if f"{key}:" not in page]
            assert f"{section}:" in page and not missing, (name, section, missing)


def test_the_tutorials_reward_takes_a_record() -> None:
    text = (ROOT / "docs" / "quick_start.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(def compute_score.*?)```", text, re.DOTALL)
    names: dict = {}
    exec(code, names)  # ours, from our own page
    result = names["compute_score"]("bfcl/base", "", "[]", {"episode": sample_record()})
    assert result["score"] <= 1 and result["malformed"] >= 0
