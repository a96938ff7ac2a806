"""The page as a reader has it: opened from disk in a headless Chromium, without a network, clicked and filtered."""

import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from websockets.sync.client import connect

from bfcl_env import load_scenarios
from interaction import Conversation, get_protocol
from recipe import report
from recipe.report import episodes
from rewards.progress import compute_score

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "</script><img src=x onerror=\"document.title='broken'\"><b id=injected>bold</b>"
think_xml = get_protocol("think_xml")


class Page:
    """One tab, driven through Chromium's DevTools protocol."""

    def __init__(self, socket):
        self.socket = socket
        self.numbers = itertools.count()
        self.events = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=30))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, path: Path) -> float:
        """Returns seconds until the episodes can be read."""
        began = time.perf_counter()
        self.call("Page.navigate", url=path.as_uri())
        while self.value("document.body?.dataset.ready") != "true":
            assert time.perf_counter() - began < 30, self.events
            time.sleep(0.02)
        return time.perf_counter() - began

    def click(self, selector):
        self.value(f"document.querySelector({selector!r}).scrollIntoView()")
        box = self.value(f"(({{x, y}}) => [x, y])(document.querySelector({selector!r}).getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0] + 8, y=box[1] + 8, button="left", clickCount=1)

    def choose(self, control, value):
        event = "input" if control in ("search", "low", "high") else "change"
        self.value(
            f"(() => {{ const it = document.getElementById({control!r}); it.value = {value!r}; "
            f"it.dispatchEvent(new Event({event!r})); }})()"
        )

    def listed(self):
        return self.value("[...document.querySelectorAll('#list button span:first-child')].map(it => it.textContent)")

    def shown(self):
        return self.value("document.getElementById('episode').textContent")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH (Debian: apt install chromium)")
    folder = tmp_path_factory.mktemp("chromium")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--remote-debugging-port=0", f"--user-data-dir={folder}"]
    child = subprocess.Popen([CHROMIUM, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file = folder / "DevToolsActivePort"
        end = time.time() + 30
        while not port_file.exists() or not port_file.read_text().count("\n"):
            assert time.time() < end, "Chromium did not start within 30 s"
            time.sleep(0.05)
        port, path = port_file.read_text().split("\n")[:2]
        with connect(f"ws://127.0.0.1:{port}{path}") as browser:
            browser.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
            while "result" not in (answer := json.loads(browser.recv(timeout=30))):
                continue
        tab = f"ws://127.0.0.1:{port}/devtools/page/{answer['result']['targetId']}"
        with connect(tab, max_size=None) as socket:
            yield Page(socket)
    finally:
        child.kill()
        child.wait()


def record(scenario, *, step, sample, answers=(), solved=False):
    """A stored line, played for real: gold when `solved`, else the answers."""
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        for turn in scenario.turns:
            if solved and turn.gold:
                conversation.reply(think_xml.render_calls("I do it", turn.gold))
            if solved:
                conversation.reply(think_xml.render_answer("t", "done"))
        for answer in answers:
            conversation.reply(answer)
        conversation.stop("max_tokens")
        episode = conversation.record().to_dict()
    metrics = compute_score("bfcl", "", None, {"episode": episode})
    head = {"step": step, "split": "train", "uid": "u", "session_id": sample, "scenario_id": scenario.id}
    return {**head, "score": metrics["score"], "reward": metrics, "episode": episode}


def store(run, stage, split, step, records):
    path = run / stage / "rollouts" / split / f"{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({**line, "split": split}) + "\n" for line in records))


def log_steps(run, stage, count):
    folder = run / stage / "metrics"
    folder.mkdir(parents=True)
    data = {"critic/score/mean": 0.5, "train/progress": 0.5, "timing_s/step": 1.0, "train/stop/completed": 1.0}
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step in range(1, count + 1)]
    (folder / "20260101-000000.jsonl").write_text("".join(lines))


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


def test_it_opens_without_a_network_and_without_an_error(page, run):
    page.events.clear()
    page.open(report.write(run))
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("file:")] == []
    assert [e for e in page.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []
    assert page.value("document.title") == "first"


def test_a_click_shows_an_episode_turn_by_turn(page, run):
    page.open(report.write(run))
    assert page.listed()[0] == "multi_turn_miss_func_0", "a failed validation comes first"
    assert "no tags at all" in page.shown() and "malformed" in page.shown()
    page.click("#list li:last-child button")
    turns = load_scenarios("multi_turn_base")[1].turns
    assert page.shown().count("Turn ") == len(turns) == page.shown().count("passed")
    assert all(turn.user in page.shown() for turn in turns)
    assert "I do it" in page.shown()


def test_filters_and_search_leave_what_was_asked_for(page, run):
    page.open(report.write(run))
    assert len(page.listed()) == 4
    page.choose("category", "multi_turn_base")
    assert set(page.listed()) == {"multi_turn_base_0", "multi_turn_base_1"}
    page.choose("low", "1")
    assert page.listed() == ["multi_turn_base_1"] * 2
    page.choose("low", "")
    page.choose("category", "")
    page.choose("search", "NO TAGS AT ALL")
    assert page.listed() == ["multi_turn_miss_func_0"]
    page.choose("search", "nobody has said this")
    assert (page.listed(), page.shown()) == ([], "No episode is like this.")
    page.choose("search", "")
    page.choose("stop", "max_tokens")
    assert page.listed() == ["multi_turn_miss_func_0", "multi_turn_base_0"]


def test_what_a_model_wrote_stays_text(page, run):
    page.open(report.write(run))
    page.choose("task", "multi_turn_base_0")
    assert EVIL in page.shown()
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
    page.choose("task", scenarios[0].id)
    page.click("a[href^='#episode-']")
    end = time.monotonic() + 5  # the browser tells the page of a new address in its own time
    while len(page.listed()) != page.value("episodes.length"):
        assert time.monotonic() < end, page.listed()
    assert "step 1, sample 39" in page.shown() and "5.333 s in all, user 4.333 s" in page.shown()


def test_at_most_500_episodes_failures_of_validation_among_them_and_it_opens_within_3_seconds(
    page, tmp_path, run, monkeypatch
):
    big = tmp_path / "big"
    log_steps(big, "stage2_base", 20)
    line = record(load_scenarios("multi_turn_long_context")[0], step=1, sample=0, solved=True)
    for step in range(1, 21):
        lines = [{**line, "step": step, "session_id": n, "scenario_id": f"multi_turn_base_{n % 8}"} for n in range(64)]
        store(big, "stage2_base", "train", step, lines)
    failed = {**line, "step": 20, "reward": {**line["reward"], "acc": 0.0}}
    store(big, "stage2_base", "val", 20, [{**failed, "scenario_id": f"multi_turn_base_{n}"} for n in range(100)])
    seconds = page.open(report.write(big))
    assert page.value("episodes.length") == 500
    assert page.value("episodes.filter(it => it.split === 'val').length") == 100
    assert page.value("new Set(episodes.filter(it => it.split === 'train').map(it => it.step)).size") == 12
    print(f"opened in {seconds:.2f} s")


def test_long_texts_are_cut_with_a_mark(tmp_path):
    path = tmp_path / "stage" / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    text = "x" * (episodes.LONGEST_TEXT + 7)
    line = {"step": 1, "session_id": 0, "scenario_id": "multi_turn_base_0", "episode": {"turns": [{"user": text}]}}
    path.write_text(json.dumps(line) + "\n")
    (shown,) = episodes.load(episodes.headers(path))
    assert shown["episode"]["turns"][0]["user"].endswith("... [7 more characters in the stored episode]")


def test_a_run_with_nothing_but_metrics_says_what_is_missing(page, tmp_path):
    log_steps(tmp_path / "bare", "stage1_format", 1)
    path = report.write(tmp_path / "bare")
    page.open(path)
    assert "stage1_format has no stored episodes" in path.read_text()
    assert "stage1_format has no validation so far" in path.read_text()
    assert page.shown() == "No episode is stored."


def test_a_line_cut_off_by_a_crash_is_left_out(tmp_path):
    line = record(load_scenarios("multi_turn_base")[0], step=1, sample=0)
    store(tmp_path, "stage2_base", "train", 1, [line, {**line, "session_id": 1}, {**line, "score": 0.75}])
    path = tmp_path / "stage2_base" / "rollouts" / "train" / "000001.jsonl"
    with path.open("a") as file:
        file.write(json.dumps({**line, "session_id": 2})[:-20])
    places = episodes.headers(path)
    assert [(p.header["session_id"], p.header["score"]) for p in places] == [(0, 0.75), (1, line["score"])]
    assert [record["score"] for record in episodes.load(places)] == [line["score"], 0.75]


def test_a_task_that_one_launch_played_twice_in_a_step_counts_twice_and_one_of_an_earlier_launch_not(tmp_path):
    """The former is dynamic sampling, the latter a step that was played again after a resume."""
    stage = tmp_path / "stage2_base" / "rollouts" / "train"
    stage.mkdir(parents=True)
    head = {"step": 1, "session_id": 0, "scenario_id": "multi_turn_base_0"}
    played = [("first", "a", 0.1), ("first", "b", 0.2), ("second", "c", 0.3), ("second", "d", 0.4), (None, "e", 0.5)]

    def scores(lines: list) -> tuple[list[float], list[float]]:
        path = stage / "000001.jsonl"
        path.write_text(
            "".join(
                json.dumps({**head, "launch": launch, "uid": uid, "score": score, "episode": {"turns": []}}) + "\n"
                for launch, uid, score in lines
            )
        )
        found = [place.header["score"] for place in episodes.headers(path)]
        return found, [record["score"] for record in episodes.read_records(path)]

    assert scores(played[:2]) == ([0.1, 0.2],) * 2
    assert scores(played[:4]) == ([0.3, 0.4],) * 2
    assert scores(played) == ([0.5],) * 2


def test_a_line_that_a_resumed_launch_appended_to_a_cut_one_is_left_out_and_the_page_is_made(page, tmp_path):
    line = record(load_scenarios("multi_turn_base")[0], step=1, sample=0)
    log_steps(tmp_path, "stage2_base", 1)
    store(tmp_path, "stage2_base", "train", 1, [line])
    path = tmp_path / "stage2_base" / "rollouts" / "train" / "000001.jsonl"
    cut, next_one = json.dumps({**line, "session_id": 1})[:-200], json.dumps({**line, "session_id": 2})
    with path.open("a") as file:
        file.write(f"{cut}{next_one}\n{json.dumps({**line, 'session_id': 3})}\n")
    page.open(report.write(tmp_path))
    assert page.value("episodes.map(it => it.session_id)") == [0, 3]


def test_values_that_no_browser_reads_and_records_without_turns_do_not_empty_the_viewer(page, tmp_path):
    line = record(load_scenarios("multi_turn_base")[0], step=1, sample=0)
    log_steps(tmp_path, "stage2_base", 1)
    odd = [{**line, "score": float("nan")}, {**line, "session_id": 1, "episode": {}}, {**line, "session_id": 2}]
    store(tmp_path, "stage2_base", "train", 1, odd)
    page.open(report.write(tmp_path))
    assert page.value("episodes.map(it => it.session_id)") == [0, 2]


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
    told = page.shown()
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
    assert sorted(page.listed()) == ["bfcl/multi_turn_base_0", "shop/multi_turn_base_0"]
    page.choose("task", "shop/multi_turn_base_0")
    assert page.listed() == ["shop/multi_turn_base_0"] and page.shown().startswith("shop/multi_turn_base_0")


def test_differences_have_the_columns_that_their_items_have_those_of_bfcl_first(page, tmp_path):
    log_steps(tmp_path, "stage2_base", 1)
    items = [{"table": "orders", "row": EVIL, "expected": "2"}, {"table": "users", "note": "gone"}]
    bfcl = record(load_scenarios("multi_turn_base")[0], step=1, sample=0, answers=[think_xml.render_answer("t", "x")])
    own = judged_as_a_whole({"passed": False, "components": {}}, items)
    store(tmp_path, "stage2_base", "train", 1, [bfcl, {**own, "session_id": 1}])
    page.open(report.write(tmp_path))

    def cells(session, kind):
        page.value(f"show(episodes.findIndex(it => it.session_id === {session}))")
        return page.value(f"[...document.querySelectorAll('#episode .turn {kind}')].map(it => it.textContent)")

    assert cells(0, "th")[:4] == ["class", "attribute", "gold", "here"]
    assert cells(1, "th") == ["gold", "table", "row", "note"]
    assert cells(1, "td") == ["2", "orders", EVIL, "", "", "users", "", "gone"]


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_list_shows_the_chosen_episode(page, run):
    try:
        page.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
        page.open(report.write(run))
        assert page.value("document.documentElement.scrollWidth") <= 390
        assert page.value("document.getElementById('list').scrollTop") == 0, "the first is chosen"
    finally:
        page.call("Emulation.clearDeviceMetricsOverride")


def test_a_stage_that_has_started_but_logged_nothing_is_named(tmp_path):
    config = tmp_path / "stage1_format" / "config" / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("a: 1\n")
    assert "stage1_format has not logged a training step" in report.write(tmp_path).read_text()


def test_the_configuration_is_shown_as_it_was_in_that_start(page, tmp_path, monkeypatch):
    from omegaconf import OmegaConf

    from recipe.stage import manifest

    log_steps(tmp_path / "run", "stage1_format", 1)
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    monkeypatch.setenv("SEED", "7")
    settings = {
        "paths": {"run": str(tmp_path / "run"), "stage": "${paths.run}/stage1_format"},
        "stage": {"name": "stage1_format"},
        "data": {"train_files": str(tmp_path / "rows.parquet"), "val_files": [], "seed": "${oc.env:SEED}"},
        "actor_rollout_ref": {"model": {"path": "m"}, "rollout": {"seed": "${data.seed}"}},
        "reward": {"custom_reward_function": {"path": "pkg://rewards.format"}},
    }
    manifest.write_config(OmegaConf.create(settings))
    manifest.note(OmegaConf.create(settings))
    monkeypatch.setenv("SEED", "8")
    text = report.write(tmp_path / "run").read_text()
    assert "seed: &#39;7&#39;" in text and "oc.env" not in text
    assert '"seed": "7"' in text.replace("&#34;", '"'), "the manifest has it too"
