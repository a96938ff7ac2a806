"""Evaluation through an endpoint: gold, faults of the server, and what a second start does. The server is real."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from support.evaluation import PROTOCOL, completion, gold_player, run, serving
from support.own_environment import write_example

from bfcl_env import environment, episode, load_scenarios
from recipe import evaluate


def test_gold_passes_by_both_verdicts(tmp_path, capsys):
    for category in ("base", "miss_func", "miss_param", "long_context"):
        with serving(gold_player(category)) as server:
            status, found = run(server.url, tmp_path / category, category=category, limit=6)
        group = found["categories"][f"multi_turn_{category}"]
        assert [group[name]["mean"] for name in ("progress", "acc", "acc_official", "acc_bfcl")] == [1.0] * 4, category
        assert status == 0 and group["stop"]["completed"] == 1.0
        assert found["verdicts"]["agree"] == found["verdicts"]["asked"] == 6
        assert "agrees with acc_official on 6 of 6" in capsys.readouterr().out


FAULTS = [
    429,
    500,
    503,
    408,
    0.6,
    None,
    b"{not json",
    b"",
    {"choices": []},
    {"error": "busy"},
    [],
    completion(None, None),
]
"""Statuses, silence, a closed connection and malformed bodies."""


def test_faults_of_the_server_are_retried_and_cost_the_model_nothing(tmp_path):
    with serving(gold_player("base"), [*FAULTS, *FAULTS]) as server:
        status, found = run(server.url, tmp_path, "--timeout", "0.4", "--attempts", "30", "--backoff", "1e-6", limit=2)
    assert not server.faults
    assert (status, found["lost"], found["overall"]["acc_official"]["mean"]) == (0, [], 1.0)
    lines = [json.loads(line) for line in (tmp_path / "episodes.jsonl").read_text().splitlines()]
    assert [line["attempts"] for line in lines] == [1, 1]


def test_an_episode_that_cannot_be_played_is_lost_and_not_scored_and_played_at_the_next_start(tmp_path, capsys):
    unlucky = load_scenarios("multi_turn_base", split="val")[0]
    gold = gold_player("base")

    def play(messages):
        return (
            (500, {"error": {"message": "broken"}})
            if messages[1]["content"] == unlucky.turns[0].user
            else gold(messages)
        )

    with serving(play) as server:
        status, found = run(server.url, tmp_path, "--attempts", "2")
        assert status == evaluate.LOST_STATUS == 3
        assert [item["task_id"] for item in found["lost"]] == [unlucky.id]
        assert "broken" in found["lost"][0]["reason"]
        assert found["overall"]["episodes"] == 2 and found["overall"]["acc_official"]["mean"] == 1.0
        assert "LOST: 1 episodes could not be played" in capsys.readouterr().out
        server.play = gold
        status, found = run(server.url, tmp_path)
    assert (status, found["lost"], found["overall"]["episodes"]) == (0, [], 3)


def test_an_episode_in_which_the_environment_failed_is_scored_as_in_training(tmp_path, monkeypatch, capsys):
    """What the model wrote may have led there: it must not decide which episodes count."""
    unlucky = load_scenarios("multi_turn_base", split="val")[0]

    class Failing(episode.Episode):
        def execute(self, call):
            if self.scenario.id == unlucky.id:
                raise RuntimeError("our mistake")
            return super().execute(call)

    monkeypatch.setattr(environment, "Episode", Failing)
    with serving(gold_player("base")) as server:
        status, found = run(server.url, tmp_path)
    assert (status, found["lost"], found["overall"]["episodes"]) == (0, [], 3)
    assert found["overall"]["stop"]["environment_error"] == pytest.approx(1 / 3)
    assert found["overall"]["acc"]["mean"] == found["overall"]["acc_bfcl"]["mean"] == pytest.approx(2 / 3)
    assert "environment_error" in capsys.readouterr().out


def test_a_server_that_is_gone_ends_the_evaluation_soon_and_every_episode_counts_as_lost(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    status, found = run(url, tmp_path, "--served-name", "m", "--attempts", "2", limit=100)
    assert (status, len(found["lost"]), found["overall"]) == (3, 100, None)
    assert sum(item["reason"].startswith("not tried") for item in found["lost"]) >= 50


def test_a_wrong_key_or_name_is_said_at_once(tmp_path, capsys):
    for status in (401, 403, 404):
        with serving(gold_player("base"), [status] * 1000) as server:
            assert run(server.url, tmp_path / str(status))[0] == 1
        assert "--api-key-env" in capsys.readouterr().err


def test_a_message_cut_by_its_budget_is_malformed_and_ends_the_episode(tmp_path):
    def play(messages):
        return 200, completion(PROTOCOL.render_answer("a", "looks complete"), "length")

    with serving(play) as server:
        assert run(server.url, tmp_path)[1]["overall"]["stop"]["max_tokens"] == 1.0


def test_a_conversation_longer_than_the_context_ends_as_max_tokens_and_is_scored(tmp_path):
    gold = gold_player("base")
    words = "This model's maximum context length is 2048 tokens. However, your prompt contains 2049 input tokens."

    def play(messages):
        return gold(messages) if len(messages) < 5 else (400, {"error": {"message": words}})

    with serving(play) as server:
        status, found = run(server.url, tmp_path, "--max-tokens", "50")
    assert status == 0
    assert found["overall"]["stop"]["max_tokens"] == 1.0 and found["overall"]["acc_official"]["mean"] == 0.0
    assert found["verdicts"]["reasons"] == {"multi_turn:force_terminated": 3}
    full = [request for request in server.requests if len(request["messages"]) >= 5]
    assert [("max_tokens" in request) for request in full[:2]].count(True) >= 1  # then asked for what was left


def test_requests_carry_settings_and_key(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret")
    more = ("--api-key-env", "MY_KEY", "--temperature", "0.5", "--max-tokens", "64")
    with serving(gold_player("base")) as server:
        run(server.url, tmp_path, *more, limit=1)
    assert set(server.keys) == {"Bearer secret"}
    request = server.requests[0]
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("m", 0.5, 64)
    assert "tools" not in request and [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "secret" not in "".join(path.read_text() for path in tmp_path.iterdir())


def test_several_samples_give_pass_at_k(tmp_path):
    turn, lock, gold = {}, threading.Lock(), gold_player("base")

    def play(messages):
        if len(messages) == 2:  # every second episode of a task says nothing useful
            with lock:
                key = messages[1]["content"]
                turn[key] = turn.get(key, 0) + 1
                if turn[key] % 2:
                    return (200, completion(PROTOCOL.render_answer("no", "no"), "length"))
        return gold(messages)

    more = ("--samples", "4", "--temperature", "1", "--concurrency", "1")
    with serving(play) as server:
        found = run(server.url, tmp_path, *more, limit=2)[1]
    assert found["overall"]["pass_at_k"]["acc_official"] == pytest.approx({"1": 0.5, "2": 1 - 1 / 6, "4": 1.0})
    assert found["overall"]["pass_all_k"]["acc_official"] == pytest.approx({"1": 0.5, "2": 1 / 6, "4": 0.0})
    assert (found["overall"]["tasks"], found["overall"]["episodes"]) == (2, 8)


def test_a_second_start_plays_only_what_is_missing_and_gives_the_same_results(tmp_path):
    with serving(gold_player("base")) as server:
        _, first = run(server.url, tmp_path)
        asked = len(server.requests)
        path = tmp_path / "episodes.jsonl"
        path.write_bytes(path.read_bytes()[:-40])  # killed while it wrote the last episode
        _, second = run(server.url, tmp_path)
        assert 0 < len(server.requests) - asked < asked
        again = len(server.requests)
        assert run(server.url, tmp_path)[1] == second
        assert len(server.requests) == again
    assert first == second


def test_episodes_of_other_settings_or_models_are_never_mixed(tmp_path, capsys):
    with serving(gold_player("base")) as server:
        run(server.url, tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for more, said in (
            (("--temperature", "0.7"), "temperature was 0.0, is 0.7"),
            (("--repetition-penalty", "1.05"), "repetition_penalty was 1.0, is 1.05"),
            (("--protocol", "hermes"), "protocol was 'think_xml', is 'hermes'"),
            (("--max-tokens", "9"), "max_tokens was None, is 9"),
            (("--split", "train"), "split was 'val', is 'train'"),
            (("--strategy", "dfsdt"), "strategy was 'cot', is 'dfsdt'"),
            ((), "model was 'm', is 'other'"),
        ):
            server.name = "m" if more else "other"
            assert run(server.url, tmp_path, *more)[0] == 1
            error = capsys.readouterr().err
            assert said in error and "choose another --out" in error
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_an_evaluation_that_is_interrupted_keeps_what_is_finished_and_goes_on(tmp_path):
    gold, slow = gold_player("base"), threading.Event()
    first = load_scenarios("multi_turn_base", split="val")[0].turns[0].user

    def play(messages):
        if messages[1]["content"] != first:
            slow.wait(30)
        return gold(messages)

    with serving(play) as server:
        given = ["--endpoint", server.url, "--out", str(tmp_path), "--docs", "signature", "--category", "base"]
        command = [sys.executable, "-m", "recipe.evaluate", *given, "--limit", "3"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
            kept, end = tmp_path / "episodes.jsonl", time.monotonic() + 60
            while not (kept.exists() and kept.read_text().endswith("\n")):
                assert started.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            started.send_signal(signal.SIGTERM)
            assert started.wait(timeout=20) == 130
        slow.set()
        assert len(kept.read_text().splitlines()) == 1
        assert run(server.url, tmp_path)[1]["overall"]["episodes"] == 3


def test_an_address_without_a_server_is_named_before_anything_is_written(tmp_path, capsys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}/v1"
    assert run(url, tmp_path / "out", "--attempts", "1")[0] == 1
    assert f"{url} does not say which models it serves" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_split_without_tasks_is_refused_with_what_there_is_and_nothing_is_written(tmp_path, capsys):
    own, out = write_example(tmp_path), tmp_path / "out"
    text = own.read_text()
    assert "parts[number % 4]" in text
    own.write_text(text.replace("parts[number % 4]", "['train', 'choose'][number % 2]"))
    given = ["--environment", str(own), "--endpoint", "http://127.0.0.1:9/v1", "--served-name", "m", "--out", str(out)]
    assert evaluate.main([*given, "--split", "report"]) == 1
    error = capsys.readouterr().err.strip()
    assert "30 train in move, 30 choose in move" in error and "\n" not in error and not out.exists()
