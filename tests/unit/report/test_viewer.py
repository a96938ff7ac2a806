"""The page as a reader uses it, in a headless Chromium: clicked, filtered, with the keys alone, in light and dark."""

import time

import pytest
from support.report_pages import EVIL, choose, click, listed, log_steps, record, shown, store, think_xml

from bfcl_env import load_scenarios
from recipe import report


def test_a_click_shows_an_episode_turn_by_turn(page, run):
    page.open(report.write(run))
    assert listed(page)[0] == "multi_turn_miss_func_0", "a failed validation comes first"
    assert "no tags at all" in shown(page) and "malformed" in shown(page)
    click(page, "#list li:last-child button")
    turns = load_scenarios("multi_turn_base")[1].turns
    assert shown(page).count("Turn ") == len(turns) == shown(page).count("passed")
    assert all(turn.user in shown(page) for turn in turns)
    assert "I do it" in shown(page)


def test_filters_and_search_leave_what_was_asked_for(page, run):
    page.open(report.write(run))
    assert len(listed(page)) == 4
    choose(page, "category", "multi_turn_base")
    assert set(listed(page)) == {"multi_turn_base_0", "multi_turn_base_1"}
    choose(page, "low", "1")
    assert listed(page) == ["multi_turn_base_1"] * 2
    choose(page, "low", "")
    choose(page, "category", "")
    choose(page, "search", "NO TAGS AT ALL")
    assert listed(page) == ["multi_turn_miss_func_0"]
    choose(page, "search", "nobody has said this")
    assert (listed(page), shown(page)) == ([], "No episode is like this.")
    choose(page, "search", "")
    choose(page, "stop", "max_tokens")
    assert listed(page) == ["multi_turn_miss_func_0", "multi_turn_base_0"]


def test_what_a_model_wrote_stays_text(page, run):
    page.open(report.write(run))
    choose(page, "task", "multi_turn_base_0")
    assert EVIL in shown(page)
    assert page.value("document.getElementById('injected')") is None
    assert page.value("document.title") == "first"
    assert "<b id=injected" not in report.write(run).read_text(), "nor is it in the file as it was written"


def test_a_link_of_the_slowest_episodes_shows_the_episode_whatever_is_filtered(page, tmp_path):
    scenarios = load_scenarios("multi_turn_base")
    log_steps(tmp_path, "stage2_base", 3)
    for step in range(1, 4):
        lines = [
            {"seconds": {"total": 1.0 + n / 9, "user": n / 9}, **record(scenarios[n % 2], step=step, sample=n)}
            for n in range(40)
        ]
        store(tmp_path, "stage2_base", "train", step, lines)
    page.open(report.write(tmp_path))
    links = page.value("[...document.querySelectorAll('a[href^=\"#episode-\"]')].map(it => it.textContent)")
    assert links == [scenarios[1].id], "one of 120, the first that took longest"
    choose(page, "task", scenarios[0].id)
    click(page, "a[href^='#episode-']")
    end = time.monotonic() + 5  # the browser tells the page of a new address in its own time
    while len(listed(page)) != page.value("episodes.length"):
        assert time.monotonic() < end, listed(page)
    assert "step 1, sample 39" in shown(page) and "5.333 s in all, user 4.333 s" in shown(page)


def judged_as_a_whole(outcome, difference=()):
    """A stored line of an environment that judges no turn."""
    line = record(load_scenarios("multi_turn_base")[0], step=1, sample=0, solved=True)
    turns = [{**turn, "passed": None, "difference": list(difference)} for turn in line["episode"]["turns"][:1]]
    episode = {**line["episode"], "environment": "shop", "outcome": outcome, "turns": turns}
    return {"environment": "shop", **line, "episode": episode}


@pytest.mark.parametrize(
    "outcome, entry, badge",
    [
        ({"passed": False, "components": {"database": 1.0, "told": 0.0}}, "not passed, ", "episode not passed"),
        ({"passed": True, "components": {"database": 1.0, "told": 1.0}}, "passed, ", "episode passed"),
        ({"passed": True, "components": {}}, "passed, ", "episode passed"),
        (None, "not judged, ", "episode not judged"),
    ],
)
def test_an_episode_that_is_judged_as_a_whole_shows_its_outcome_and_what_it_is_made_of(
    page, tmp_path, outcome, entry, badge
):
    log_steps(tmp_path, "stage2_base", 1)
    store(tmp_path, "stage2_base", "train", 1, [judged_as_a_whole(outcome)])
    page.open(report.write(tmp_path))
    small = page.value("[...document.querySelectorAll('#list small')].map(it => it.textContent)")
    assert small[1].startswith(entry) and "turns" not in small[1]
    assert badge in page.value("[...document.querySelectorAll('#episode h3 .badge')].map(it => it.textContent)")
    told = shown(page)
    if outcome and outcome["components"]:
        made_of = f"database 1, told {outcome['components']['told']:g}"
        assert small[2] == made_of and f"judgement: {made_of}" in told
    else:
        assert len(small) == 2 and "judgement: " not in told


def test_a_page_with_two_environments_says_of_each_task_which_is_its_own(page, tmp_path):
    log_steps(tmp_path, "stage2_base", 1)
    bfcl = record(load_scenarios("multi_turn_base")[0], step=1, sample=0, answers=["x"])
    store(tmp_path, "stage2_base", "train", 1, [bfcl, judged_as_a_whole({"passed": True, "components": {}})])
    page.open(report.write(tmp_path))
    assert sorted(listed(page)) == ["bfcl/multi_turn_base_0", "shop/multi_turn_base_0"]
    choose(page, "task", "shop/multi_turn_base_0")
    assert listed(page) == ["shop/multi_turn_base_0"] and shown(page).startswith("shop/multi_turn_base_0")


def cells(page, session, kind):
    page.value(f"show(episodes.findIndex(it => it.session_id === {session}))")
    return page.value(f"[...document.querySelectorAll('#episode .turn {kind}')].map(it => it.textContent)")


def test_what_was_expected_stands_beside_what_was_found_behind_the_columns_that_name_the_place(page, tmp_path):
    log_steps(tmp_path, "stage2_base", 1)
    items = [{"table": "orders", "row": EVIL, "expected": "2"}, {"table": "users", "note": "gone", "found": "3"}]
    bfcl = record(load_scenarios("multi_turn_base")[0], step=1, sample=0, answers=[think_xml.render_answer("t", "x")])
    own = judged_as_a_whole({"passed": False, "components": {}}, items)
    store(tmp_path, "stage2_base", "train", 1, [bfcl, {**own, "session_id": 1}])
    page.open(report.write(tmp_path))
    assert cells(page, 0, "th")[:4] == ["class", "attribute", "expected", "found"]
    assert cells(page, 1, "th") == ["table", "row", "note", "expected", "found"]
    assert cells(page, 1, "td") == ["orders", EVIL, "", "2", "", "users", "", "gone", "", "3"]


PARTED = [
    ("from character 9: ab", "from character 9: abc", ["", "c"]),
    ("{'a': 1, 'b': 2}", "{'a': 7, 'b': 2}", ["1", "7"]),
    ("aaa", "aaaa", ["", "a"]),
    ("absent", "7", []),
    ("x <b>1</b>", "x <b>2</b>", ["1", "2"]),
    ("", "", []),
    ("<i>", "", []),
]


@pytest.mark.parametrize("expected, found, marked", PARTED)
def test_where_two_texts_part_is_marked_and_no_character_is_lost(page, tmp_path, expected, found, marked):
    log_steps(tmp_path, "stage2_base", 1)
    items = [{"where": "w", "expected": expected, "found": found}]
    store(tmp_path, "stage2_base", "train", 1, [judged_as_a_whole({"passed": False, "components": {}}, items)])
    page.open(report.write(tmp_path))
    assert cells(page, 0, "td") == ["w", expected, found]
    assert cells(page, 0, "mark") == [mark for mark in marked if mark]


FOCUS = "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"


def test_all_of_the_viewer_can_be_used_without_a_mouse(page, run):
    page.open(report.write(run))
    at = "[shown.indexOf(current), document.activeElement === entryOf(current)]"
    for key, place in (("j", 1), ("j", 2), ("k", 1), ("End", 3), ("j", 3), ("ArrowUp", 2), ("Home", 0), ("k", 0)):
        page.press(key)
        assert page.value(at) == [place, True], key
    assert page.value("[...document.querySelectorAll('#list button')].filter(it => it.tabIndex === 0).length") == 1
    turn = "[...document.querySelectorAll('.turn')].indexOf(document.activeElement)"
    for key, place in (("n", 0), ("n", 1), ("p", 0), ("p", 0)):
        page.press(key)
        assert page.value(turn) == place, key
    page.press("Escape")
    assert page.value(at) == [0, True]
    page.press("/")
    page.press("j")
    assert page.value(f"[{FOCUS}, byId('search').value]") == ["search", "j"], "a letter, and no command"
    page.press("Escape")
    page.press("f")
    assert page.value(FOCUS) == "stage"
    page.press("Escape")
    page.press("?")
    assert page.value("byId('keys').open")
    page.press("j")
    page.press("Enter")
    assert page.value("[byId('keys').open, shown.indexOf(current)]") == [False, 0]


def test_a_filter_that_leaves_nothing_does_not_stop_the_keys(page, run):
    page.open(report.write(run))
    choose(page, "search", "nobody has said this")
    for key in ("j", "k", "n", "Escape"):
        page.press(key)
    choose(page, "search", "")
    page.press("j")
    assert page.value("shown.indexOf(current)") == 1


COLORS = """[document.body, document.querySelector('.curves text')].map(it => getComputedStyle(it)).map(
  it => [it.color, it.backgroundColor, it.fill])"""


def test_a_page_is_dark_where_the_system_is_and_the_button_says_otherwise_the_next_time_too(page, run):
    path, ink = report.write(run), {}
    try:
        for scheme, other in (("light", "dark"), ("dark", "light")):
            page.colors(scheme)
            page.open(path)
            (ink[scheme], ground, _), (_, _, plot) = page.value(COLORS)
            assert plot == ink[scheme], "the plots have the page's ink"
            assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 28)"}[scheme]
            assert page.value("byId('theme').textContent") == other
        assert ink["light"] != ink["dark"]
        page.press("d")
        assert page.value(COLORS)[0][0] == ink["light"]
        page.open(path)
        assert page.value(COLORS)[0][0] == ink["light"], "it is kept"
        page.press("d")
        assert page.value("[document.documentElement.dataset.theme, localStorage.length]") == [None, 0]
    finally:
        page.colors("")


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_list_shows_the_chosen_episode(page, run):
    try:
        page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        page.open(report.write(run))
        assert page.value("document.documentElement.scrollWidth") <= 390
        assert page.value("document.getElementById('list').scrollTop") == 0, "the first is chosen"
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")
