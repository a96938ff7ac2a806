"""A browser's tab, and a run with a hostile episode, a solved one and a failed validation."""

import json

import pytest
from support.browser import CHROMIUM, chromium
from support.report_pages import EVIL, log_steps, record, store, think_xml

from bfcl_env import load_scenarios


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH (Debian: apt install chromium)")
    with chromium(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "first"
    base, functions = load_scenarios("multi_turn_base"), load_scenarios("multi_turn_miss_func")
    log_steps(run, "stage2_base", 12)
    evil = think_xml.render_calls(EVIL, []).replace(
        "[]", json.dumps([{"name": "echo", "arguments": {"content": EVIL}}])
    )
    store(run, "stage2_base", "train", 1, [record(base[0], step=1, sample=0, answers=[evil, EVIL])])
    store(run, "stage2_base", "train", 12, [record(base[1], step=12, sample=n, solved=True) for n in range(2)])
    store(run, "stage2_base", "val", 12, [record(functions[0], step=12, sample=0, answers=["no tags at all"])])
    (run / "manifest.json").write_text(json.dumps({"starts": [{"stage": "stage2_base", "time": "t", "x": EVIL}]}))
    return run
