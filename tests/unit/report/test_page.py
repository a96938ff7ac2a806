"""The page as it is made: opened from disk in a headless Chromium, without a network, of whatever a run has left."""

import json

from support.report_pages import log_steps, record, shown, store

from bfcl_env import load_scenarios
from recipe import report
from recipe.report import episodes


def test_it_opens_without_a_network_and_without_an_error(page, run):
    page.events.clear()
    page.open(report.write(run))
    requests = [e["params"]["request"]["url"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in requests if not url.startswith("file:")] == []
    assert [e for e in page.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")] == []
    assert page.value("document.title") == "first"


def test_at_most_2000_episodes_failures_of_validation_among_them(page, tmp_path):
    big = tmp_path / "big"
    log_steps(big, "stage2_base", 14)
    line = record(load_scenarios("multi_turn_base")[0], step=1, sample=0, solved=True)
    for step in range(1, 15):
        lines = [{**line, "step": step, "session_id": n, "task_id": f"multi_turn_base_{n % 8}"} for n in range(170)]
        store(big, "stage2_base", "train", step, lines)
    failed = {**line, "step": 14, "reward": {**line["reward"], "acc": 0.0}}
    store(big, "stage2_base", "val", 14, [{**failed, "task_id": f"multi_turn_base_{n}"} for n in range(100)])
    page.open(report.write(big))
    assert page.value("[episodes.length, document.querySelectorAll('#list button').length]") == [2000, 2000]
    assert page.value("episodes.filter(it => it.split === 'val').length") == 100
    assert page.value("new Set(episodes.filter(it => it.split === 'train').map(it => it.step)).size") == 12


def test_long_texts_are_cut_with_a_mark(tmp_path):
    path = tmp_path / "stage" / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    text = "x" * (episodes.LONGEST_TEXT + 7)
    line = {"step": 1, "session_id": 0, "task_id": "multi_turn_base_0", "episode": {"turns": [{"user": text}]}}
    path.write_text(json.dumps(line) + "\n")
    (shown,) = episodes.load(episodes.headers(path))
    assert shown["episode"]["turns"][0]["user"].endswith("... [7 more characters in the stored episode]")


def test_a_run_with_nothing_but_metrics_says_what_is_missing(page, tmp_path):
    log_steps(tmp_path / "bare", "stage1_format", 1)
    path = report.write(tmp_path / "bare")
    page.open(path)
    assert "stage1_format has no stored episodes" in path.read_text()
    assert "stage1_format has no validation so far" in path.read_text()
    assert shown(page) == "No episode is stored."


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
    head = {"step": 1, "session_id": 0, "task_id": "multi_turn_base_0"}
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
