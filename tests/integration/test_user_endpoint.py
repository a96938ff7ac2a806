"""A real vLLM server plays the user of an evaluation: the tiny policy on CPU, which says what it likes.

    pytest -m slow tests/integration/test_user_endpoint.py

One start of vLLM: one to three minutes on two cores.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.evaluation import PROTOCOL, serving
from support.phone import write_phone

from recipe import evaluate
from recipe.evaluation.server import serve


@pytest.mark.slow
def test_a_model_plays_the_user_and_its_words_are_played_again(tmp_path: Path) -> None:
    model, phone = tmp_path / "hf", write_phone(tmp_path)
    subprocess.run([sys.executable, "-m", "recipe.cpu.tiny_policy", str(model)], check=True)

    def played(out: Path, *user: str) -> list[list[str]]:
        with serving(lambda _: PROTOCOL.render_answer("done", "done")) as agent:
            given = ["--endpoint", agent.url, "--out", str(out), "--environment", str(phone), "--split", "all"]
            assert evaluate.main([*given, *(word for pair in user for word in ("--user", pair))]) == 0
        lines = [json.loads(line) for line in (out / "episodes.jsonl").read_text().splitlines()]
        assert len(lines) == 12 and all(line["episode"]["stop_reason"] == "user_stop" for line in lines)
        return [line["episode"]["heard"] for line in sorted(lines, key=lambda line: line["task_id"])]

    with serve(model, tmp_path / "server.log", "cpu") as url:
        heard = played(tmp_path / "out", "kind=endpoint", f"url={url}", "max_tokens=12", "temperature=1.0")
        assert all(len(words) == 2 and all(words) for words in heard)
        assert len({words for pair in heard for words in pair}) > 1
    assert played(tmp_path / "again", "kind=replay", f"file={tmp_path / 'out'}") == heard
