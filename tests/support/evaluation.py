"""An OpenAI-compatible server with faults, a model that plays gold, and an evaluation in this process."""

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

from bfcl_env import load_scenarios
from interaction import get_protocol
from recipe import evaluate
from support.phone import write_phone

PROTOCOL = get_protocol("think_xml", docs="signature")


def gold_player(category):
    """What a model says that makes the gold calls of each turn and then answers."""
    scenarios = load_scenarios(f"multi_turn_{category}")

    def fits(scenario, requests):  # two tasks begin with the same words
        pairs = zip(scenario.turns, requests, strict=False)
        return all(turn.user in ("", text) for turn, text in pairs) and len(requests) <= len(scenario.turns)

    def play(messages):
        said = [message["content"] for message in messages if message["role"] == "user"]
        requests = [text for text in said if not text.startswith("Results:")]
        scenario = next(item for item in scenarios if fits(item, requests))
        gold = scenario.turns[len(requests) - 1].gold
        if said[-1].startswith("Results:") or not gold:
            return PROTOCOL.render_answer("done", "done")
        return PROTOCOL.render_calls("gold", gold)

    return play


def completion(text, finish="stop", **fields):
    about = {"id": "x", "object": "chat.completion", "created": 0, "model": "m"}
    choice = {"index": 0, "message": {"role": "assistant", "content": text} | fields, "finish_reason": finish}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    return {**about, "choices": [choice], "usage": usage}


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible server that says what `play` says, after the faults it was told to have.

    A fault is a status, a body (bytes, or what becomes JSON), seconds to be silent, or None: hang up without a word.
    """

    daemon_threads = True
    name = "m"

    def __init__(self, play, faults=()):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.play, self.faults, self.requests, self.keys = play, list(faults), [], []
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        pass  # a client that has given up waiting

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        model = {"id": self.server.name, "object": "model", "created": 0, "owned_by": "t"}
        self._send(200, {"object": "list", "data": [model]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.requests.append(request)
            self.server.keys.append(self.headers["authorization"])
            fault = self.server.faults.pop(0) if self.server.faults else "none"
        if fault == "none":
            said = self.server.play(request["messages"])
            self._send(*said) if isinstance(said, tuple) else self._send(200, completion(said))
        elif isinstance(fault, int):
            self._send(fault, {"error": {"message": "not now"}})
        elif isinstance(fault, float):
            time.sleep(fault)
        elif fault is not None:
            self._send(200, fault)

    def _send(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(play, faults=()):
    with Server(play, faults) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def run(url, out, *more, category="base", limit=3):
    """Exit status and results of an evaluation in this process."""
    arguments = ["--endpoint", url, "--out", str(out), "--docs", "signature", "--limit", str(limit)]
    arguments += ["--category", category] if category else []
    arguments += ["--backoff", "0.01", "--timeout", "5", *more]
    status = evaluate.main(arguments)
    path = out / "results.json"
    return status, json.loads(path.read_text()) if path.exists() else None


def kept(out):
    path = out / "episodes.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def played(play, out, *more, faults=(), **options):
    """An evaluation of `play`: status, results, stored lines, and what the server was asked."""
    with serving(play, faults) as server:
        status, found = run(server.url, out, *more, **options)
    return SimpleNamespace(status=status, found=found, lines=kept(out), requests=server.requests, server=server)


def phoned(folder, *user, name="out"):
    """The eight tasks of the phone, played by a model that only answers, with such settings of the user."""
    given = ["--environment", str(write_phone(folder)), "--split", "test", "--option", "greeting=Be short."]
    given += [word for pair in user for word in ("--user", pair)]
    return played(lambda _: PROTOCOL.render_answer("done", "done"), folder / name, *given, category=None, limit=99)
