"""A tab of a headless Chromium, driven through its DevTools protocol."""

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync", "--remote-debugging-port=0"]
SECONDS = 60  # the longest wait for an answer


class Tab:
    """One tab; `events` are those of the protocol since the last look."""

    def __init__(self, socket: Any) -> None:
        self.socket = socket
        self.numbers = itertools.count()
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=SECONDS))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self.events.append(message)

    def value(self, expression: str) -> Any:
        """Of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, page: Path) -> None:
        """Waits until the episodes of the page can be read."""
        end = time.monotonic() + SECONDS
        self.call("Page.navigate", url=page.absolute().as_uri())
        while not self.value("document.body?.dataset.ready === 'true'"):
            assert time.monotonic() < end, self.events
            time.sleep(0.02)

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, **(text if kind == "keyDown" else {}))


@contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """A browser with one tab, whose profile is in an empty folder; it ends with the block."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port, path = _address(folder / "DevToolsActivePort")
        with connect(f"ws://127.0.0.1:{port}{path}") as browser:
            browser.send(json.dumps({"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}))
            while "result" not in (answer := json.loads(browser.recv(timeout=SECONDS))):
                continue
        target = f"ws://127.0.0.1:{port}/devtools/page/{answer['result']['targetId']}"
        with connect(target, max_size=None) as socket:
            yield Tab(socket)
    finally:
        helpers = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
        for process in (child, *helpers):  # which would write into the folder while that is removed
            with suppress(psutil.NoSuchProcess):
                process.kill()
        child.wait()


def _address(file: Path) -> list[str]:
    end = time.monotonic() + SECONDS
    while not file.exists() or not file.read_text().count("\n"):
        assert time.monotonic() < end, "Chromium did not start"
        time.sleep(0.05)
    return file.read_text().split("\n")[:2]
