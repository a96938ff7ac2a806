"""An evaluation samples as training's validation does, whatever the server would do by itself, and keeps how."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from recipe import evaluate
from recipe.curriculum import compose_stage
from recipe.evaluation.server import server_command

DEFAULTS = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class Server(ThreadingHTTPServer):
    """Answers "done" and keeps the requests; `refuse` gives status and words for one that it does not take."""

    daemon_threads = True

    def __init__(self, refuse):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.refuse, self.requests = refuse, []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._send(200, {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "t"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(request)
        refusal = self.server.refuse(request, len(self.server.requests))
        message = {"role": "assistant", "content": "<think>d</think>\n<answer>done</answer>"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        self._send(*(refusal or (200, reply)))

    def _send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(refuse=lambda request, number: None):
    with Server(refuse) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def run(server, out, *more):
    given = ["--endpoint", server.url, "--out", str(out), "--docs", "signature", "--category", "base", "--limit", "1"]
    return evaluate.main([*given, "--attempts", "2", "--backoff", "0.01", *more])


def sampling_of(request):
    return {name: request[name] for name in DEFAULTS if name in request}


def test_every_request_carries_every_sampling_field_and_settings_list_them(tmp_path):
    with serving() as server:
        assert run(server, tmp_path) == 0
    assert server.requests and all(sampling_of(request) == DEFAULTS for request in server.requests)
    kept = json.loads((tmp_path / "settings.json").read_text())
    assert {name: kept[name] for name in DEFAULTS} == DEFAULTS


def test_the_defaults_are_those_of_trainings_validation():
    rollout = compose_stage("stage3", []).actor_rollout_ref.rollout
    for name in ("temperature", "top_p", "top_k"):
        assert DEFAULTS[name] == rollout.val_kwargs[name]
    assert rollout.get("repetition_penalty", 1.0) == DEFAULTS["repetition_penalty"]


def test_options_reach_the_server_and_a_changed_one_is_not_resumed(tmp_path, capsys):
    more = ("--temperature", "0.7", "--top-p", "0.8", "--top-k", "20", "--repetition-penalty", "1.05")
    with serving() as server:
        assert run(server, tmp_path, *more) == 0
        changed = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
        assert sampling_of(server.requests[0]) == DEFAULTS | changed
        assert run(server, tmp_path, *more[:-2]) == 1
    assert "repetition_penalty was 1.05, is 1.0" in capsys.readouterr().err


REFUSALS = [
    ("top_k", 400, "Unrecognized request argument supplied: top_k"),
    ("temperature", 400, "Unsupported value: 'temperature' does not support 0.0 with this model."),
    ("min_p", 400, "property 'min_p' is unsupported"),
    ("repetition_penalty", 422, '[{"type": "extra_forbidden", "loc": ["body", "repetition_penalty"]}]'),
]
"""How OpenAI, Groq and servers that validate with pydantic word it."""


@pytest.mark.parametrize(("name", "status", "words"), REFUSALS)
def test_a_field_that_the_server_refuses_is_named_with_the_option_that_leaves_it_out(
    name, status, words, tmp_path, capsys
):
    def refuse(request, number):
        return (status, {"error": {"message": words}}) if name in request else None

    with serving(refuse) as server:
        assert run(server, tmp_path) == 1
        error = capsys.readouterr().err
        assert f"refuses the sampling field {name}" in error and f"--leave-out {name}" in error
        assert run(server, tmp_path / "second", "--leave-out", name) == 0
    assert sampling_of(server.requests[-1]) == {key: value for key, value in DEFAULTS.items() if key != name}
    assert json.loads((tmp_path / "second" / "settings.json").read_text())[name] is None


def test_a_server_that_has_taken_the_fields_is_not_said_to_refuse_them(tmp_path, capsys):
    def refuse(request, number):  # some servers quote the conversation they cannot answer
        return (400, {"error": {"message": "cannot answer 'set the temperature'"}}) if number > 1 else None

    with serving(refuse) as server:
        assert run(server, tmp_path) == evaluate.LOST_STATUS
    assert "leave-out" not in capsys.readouterr().err


def test_a_value_and_its_omission_together_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        evaluate.main(["--endpoint", "http://x/v1", "--top-k", "20", "--leave-out", "top_k"])
    assert "--leave-out top_k" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [("--top-p", "0"), ("--top-p", "1.5"), ("--top-k", "-2"), ("--repetition-penalty", "0"), ("--temperature", "-1")],
)
def test_a_value_that_no_server_takes_is_refused_at_once(option, capsys):
    with pytest.raises(SystemExit):
        evaluate.main(["--endpoint", "http://x/v1", *option])
    assert option[0] in capsys.readouterr().err


def test_episodes_of_a_version_that_left_sampling_to_the_server_are_not_gone_on_with(tmp_path, capsys):
    with serving() as server:
        assert run(server, tmp_path) == 0
        path = tmp_path / "settings.json"
        old = {name: value for name, value in json.loads(path.read_text()).items() if name not in DEFAULTS}
        path.write_text(json.dumps(old | {"temperature": 0.0}))
        assert run(server, tmp_path) == 1
    error = capsys.readouterr().err
    assert "does not say top_p, top_k" in error and f"--records {tmp_path}" in error and "--out" in error
    assert evaluate.main(["--records", str(tmp_path)]) == 0


@pytest.mark.parametrize("hardware", ["cpu", "gpu8"])
def test_vllm_is_told_not_to_take_sampling_from_the_model_folder(hardware, tmp_path):
    command = server_command(tmp_path, 1234, hardware, ["--max-model-len", "64"])
    assert command[0] == sys.executable
    assert command[command.index("--generation-config") + 1] == "vllm"
    assert command[-2:] == ["--max-model-len", "64"], "a user's flags win"


def test_a_refused_budget_is_no_sampling_field(tmp_path, capsys):
    def refuse(request, number):
        return 400, {"error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."}}

    with serving(refuse) as server:
        assert run(server, tmp_path, "--max-tokens", "9") == evaluate.LOST_STATUS
    assert "leave-out" not in capsys.readouterr().err
