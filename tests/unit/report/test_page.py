"""The page as a reader uses it, in a headless Chromium, and what it says of a run that lacks things."""

import json
from math import inf, nan

import pytest
import yaml
from support.browser import CHROMIUM, chromium
from support.runs import STAGE, a_run

from bfcl_env import load_scenarios
from interaction import get_protocol
from interaction.episode_file import append, path_of
from recipe.report import page as pages
from recipe.tools.policies import play
from rewards.progress import compute_score

BASE = load_scenarios("multi_turn_base")
EVIL = "</script><img src=x onerror=\"document.title='broken'\"><b id=injected>bold</b>"
think_xml = get_protocol("think_xml")


def choose(page, control, value):
    event = "input" if control in ("search", "low", "high") else "change"
    it = f"document.getElementById({control!r})"
    page.value(f"{it}.value = {value!r}; {it}.dispatchEvent(new Event({event!r}))")


def listed(page):
    return page.value("[...document.querySelectorAll('#list button span:first-child')].map(it => it.textContent)")


def shown(page):
    return page.value("document.getElementById('episode').textContent")


def record(scenario, *messages, sample=0):
    """A stored line, played for real: these messages, or gold."""
    episode = play(scenario, think_xml, lambda game: messages or game.gold()).to_dict()
    metrics = compute_score("bfcl", "", None, {"episode": episode})
    head = {"uid": "u", "session_id": sample, "task_id": scenario.id, "part": "test"}
    task = {"environment": "bfcl", "category": scenario.category, "cluster": scenario.cluster}
    return {**head, **task, "score": metrics["score"], "reward": metrics, "episode": episode}


def store(run, split, step, *records):
    for line in records:
        append(path_of(run / "stage2_base" / "rollouts", split, step), {"split": split, "step": step, **line})


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH (Debian: apt install chromium)")
    with chromium(tmp_path_factory.mktemp("chromium")) as tab:
        yield tab


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with a hostile episode, a solved one and a failed validation."""
    run = tmp_path_factory.mktemp("runs") / "first"
    a_run(run, [0.1, 0.5] * 6, "stage2_base")
    call = json.dumps([{"name": "echo", "arguments": {"content": EVIL}}])
    evil = think_xml.render_calls(f"I think {EVIL}", []).replace("[]", call)
    store(run, "train", 1, record(BASE[0], evil, EVIL))
    store(run, "train", 12, *(record(BASE[1], sample=n) for n in range(2)))
    store(run, "val", 12, record(load_scenarios("multi_turn_miss_func")[0], "no tags at all"))
    (run / "manifest.json").write_text(json.dumps({"starts": [{"stage": "stage2_base", "time": "t", "x": EVIL}]}))
    return run


def test_it_opens_without_a_network_and_what_a_model_wrote_stays_text(page, run):
    page.events.clear()
    page.open(path := pages.write(run))
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("file:")] == []
    assert [e for e in page.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []
    choose(page, "task", "multi_turn_base_0")
    assert f"I think {EVIL}" in shown(page) and page.value("document.getElementById('injected')") is None
    assert page.value("document.title") == "first"
    text = path.read_text()
    assert "<b id=injected" not in text and "<img" not in text
    assert {part[0] for part in text.split('href="')[1:]} == {"#"}, "it loads nothing, not even from beside it"


def test_a_click_shows_an_episode_and_filters_leave_what_was_asked_for(page, run):
    page.open(pages.write(run))
    assert listed(page)[0] == "multi_turn_miss_func_0" and len(listed(page)) == 4, "a failed validation comes first"
    assert "no tags at all" in shown(page) and "malformed" in shown(page)
    last = "document.querySelector('#list li:last-child button')"
    page.value(f"{last}.scrollIntoView()")
    box = page.value(f"(({{x, y}}) => [x, y])({last}.getBoundingClientRect())")
    for kind in ("mousePressed", "mouseReleased"):
        page.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 8, y=box[1] + 8, button="left", clickCount=1)
    assert shown(page).count("Turn ") == len(BASE[1].turns) == shown(page).count("passed")
    choose(page, "low", "1")
    assert listed(page) == ["multi_turn_base_1"] * 2
    choose(page, "low", "")
    choose(page, "search", "no TAGS at all")
    assert listed(page) == ["multi_turn_miss_func_0"]
    texts = page.value("[...document.querySelectorAll('#episode details')].map(it => it.textContent)")
    assert any(text.startswith("system prompt and functions") and '"name":' in text for text in texts)
    assert any(text.startswith("gold's calls") and "(" in text for text in texts)
    choose(page, "search", "nobody has said this")
    assert listed(page) == []


def cells(page, session, kind):
    page.value(f"show(episodes.findIndex(it => it.session_id === {session}))")
    return page.value(f"[...document.querySelectorAll('#episode .turn {kind}')].map(it => it.textContent)")


def test_an_episode_that_is_judged_as_a_whole_shows_its_outcome_and_differences(page, tmp_path):
    a_run(tmp_path, [0.5], "stage2_base")
    items = [
        {"table": "orders", "row": EVIL, "expected": "{'a': 1, 'b': 2}", "found": "{'a': 7, 'b': 2}"},
        {"table": "users", "note": "gone", "found": "3"},
    ]
    own = {**record(BASE[0], sample=1), "environment": "shop"}
    own["episode"]["turns"] = [{**own["episode"]["turns"][0], "passed": None, "difference": items}]
    outcome = {"passed": False, "components": {"database": 1.0, "told": 0.0}}
    own["episode"] |= {"environment": "shop", "outcome": outcome}
    store(tmp_path, "train", 1, record(BASE[0], think_xml.render_answer("t", "x")), own)
    page.open(pages.write(tmp_path))
    assert sorted(listed(page)) == ["bfcl/multi_turn_base_0", "shop/multi_turn_base_0"]
    assert cells(page, 0, "th")[:4] == ["class", "attribute", "expected", "found"]
    assert cells(page, 1, "th") == ["table", "row", "note", "expected", "found"]
    assert cells(page, 1, "td")[:2] == ["orders", EVIL] and cells(page, 1, "mark") == ["1", "7"]
    assert "episode not passed" in shown(page) and "judgement: database 1, told 0" in shown(page)


def test_all_of_the_viewer_can_be_used_without_a_mouse(page, run):
    page.open(pages.write(run))
    at = "[shown.indexOf(current), document.activeElement === entryOf(current)]"
    for key, place in (("j", 1), ("k", 0), ("End", 3), ("j", 3), ("ArrowUp", 2), ("Home", 0)):
        page.press(key)
        assert page.value(at) == [place, True], key
    for key, place in (("n", 0), ("n", 1), ("p", 0)):
        page.press(key)
        assert page.value("[...document.querySelectorAll('.turn')].indexOf(document.activeElement)") == place, key
    for key in ("Escape", "/", "j"):
        page.press(key)
    assert page.value("[document.activeElement.id, byId('search').value]") == ["search", "j"], "a letter, no command"


def test_settings_in_which_runs_differ_are_named_and_runs_with_odd_numbers_and_damaged_notes_have_a_page(tmp_path):
    runs = []
    formula = r"$\frac{1}{0}$<b>"  # and one that a legend would hide
    for name, own in {formula: {"betas": [0.9, 0.95]}, "_two": {"betas": [0.9, 0.99], "x": EVIL}}.items():
        runs.append(run := a_run(tmp_path / name, [0.5] * 6 + [nan, inf] * 3))
        settings = {"paths": {"run": f"outputs/{name}"}, "folder": f"outputs/{name}/x", "lr": 1e-6, **own}
        settings["ray_kwargs"] = {"ray_init": {"runtime_env": {"py_executable": name}}}
        (run / STAGE / "config").mkdir()
        (run / STAGE / "config" / "resolved.yaml").write_text(yaml.safe_dump(settings))
        for note in ("manifest.json", "curriculum.json", f"{STAGE}/metrics/2.jsonl"):
            (run / note).write_bytes(b"\xff{")
    found = [[STAGE, "betas", "[0.9, 0.95]", "[0.9, 0.99]"], [STAGE, "x", "", EVIL]]
    assert pages.differing(runs, [STAGE])[1:] == found
    assert "<img" not in (both := pages.write(runs[0], (runs[1],)).read_text()) + pages.write(runs[1]).read_text()
    assert r">$\frac{1}{0}$&lt;b&gt;</text>" in both and "> _two</text>" in both, "names are drawn as they are"
