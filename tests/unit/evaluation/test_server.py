"""A real vLLM server for a fresh tiny policy on CPU: started, asked, played through, and gone whatever happens."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from support.evaluation import kept, serving
from transformers import AutoModelForCausalLM

from bfcl_env.source import VERSION
from recipe import evaluate
from recipe.cpu import precision
from recipe.cpu.tiny_policy import CONTEXT
from recipe.evaluation import server
from recipe.evaluation.store import Settings
from recipe.stage import state
from recipe.stage.weights import note_base


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "hf"
    subprocess.run([sys.executable, "-m", "recipe.cpu.tiny_policy", str(folder)], check=True)
    return folder


def arguments(model, out, *more):
    small = ["--docs", "signature", "--limit", "1", "--max-tokens", "32", "--hardware", "cpu"]
    return ["--model", str(model), "--out", str(out), *small, *more]


@pytest.mark.slow
def test_a_model_folder_is_served_played_judged_and_the_server_ended(tiny, tmp_path, capsys):
    for _ in range(2):
        assert evaluate.main(arguments(tiny, tmp_path, "--samples", "2", "--temperature", "1")) == 0
        assert psutil.Process().children(recursive=True) == []
        found, lines = json.loads((tmp_path / "results.json").read_text()), kept(tmp_path)
        assert (len(lines), found["overall"]["episodes"], found["verdicts"]["agree"], found["lost"]) == (8, 8, 8, [])
        assert all(line["completion_tokens"] > 0 for line in lines)
    assert capsys.readouterr().out.count("starting vLLM") == 1, "nothing was left to play"
    assert evaluate.main(arguments(tiny, tmp_path / "b", "--", "--no-such-flag")) == 1
    error = capsys.readouterr().err
    assert "vLLM ended with status 2 while starting" in error and "--no-such-flag" in error
    assert psutil.Process().children(recursive=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_an_evaluation_that_is_ended_from_outside(number, tiny, tmp_path):
    command = [sys.executable, "-m", "recipe.evaluate", *arguments(tiny, tmp_path, "--max-tokens", "1000")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as played:
        log, end = tmp_path / "server.log", time.monotonic() + 240
        while not (log.exists() and "Application startup complete" in log.read_text(errors="replace")):
            assert played.poll() is None and time.monotonic() < end
            time.sleep(0.5)
        started = psutil.Process(played.pid).children(recursive=True)
        assert len(started) >= 2  # the server and its engine
        os.kill(played.pid, number)
        played.wait(timeout=60)
    assert psutil.wait_procs(started, timeout=60)[1] == []


def test_profiles_give_the_server_the_training_engines_environment_and_a_share_of_each_card(monkeypatch):
    monkeypatch.delenv("VERL_PLATFORM", raising=False)
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    environment = server.profile_environment("cpu")
    assert environment["VERL_PLATFORM"] == "cpu" and environment["OMP_NUM_THREADS"] == "7"
    for rates, best in (((10.0, 40.0), "bfloat16"), ((10.0, 14.0), "float32")):
        monkeypatch.setattr(precision, "measure", lambda rates=rates: precision.Rates(*rates))
        assert {"--enforce-eager", best} <= {*server.profile_flags("cpu")}
    assert server.profile_flags("gpu8")[:2] == ["--gpu-memory-utilization", "0.8"]
    assert server.profile_flags("gpu8_24gb")[2:] == ["--tensor-parallel-size", "2"]
    assert server.profile_environment("gpu1")["TOKENIZERS_PARALLELISM"] == "true"


def adapter_of(base, folder, rank=4, seed=0):
    torch.manual_seed(seed)
    settings = LoraConfig(r=rank, lora_alpha=rank, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), settings).save_pretrained(str(folder))
    note_base(folder, str(base))
    return folder


def test_adapters_have_room_in_vllm_and_are_on_their_own_model(tiny, tmp_path, capsys):
    for ranks, room in (((4,), "8"), ((8, 33), "64"), ((300, 16), "512")):
        flags = server.adapter_flags({f"of_{rank}": adapter_of(tiny, tmp_path / str(rank), rank) for rank in ranks})
        assert flags[:5] == ["--enable-lora", "--max-loras", str(len(ranks)), "--max-lora-rank", room]
        assert flags[5:] == ["--lora-modules", *(f"of_{rank}={tmp_path / str(rank)}" for rank in ranks)]
    other = shutil.copytree(tiny, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file(weights | {"model.norm.weight": weights["model.norm.weight"] + 1}, other / "model.safetensors")
    assert evaluate.main(arguments(other, tmp_path / "out", "--adapter", str(tmp_path / "4"))) == 1
    assert server.fingerprint(other) != server.fingerprint(tiny)
    assert "with --adapter its base" in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_an_adapter_is_asked_as_in_its_training_and_not_mixed_with_another(tiny, tmp_path, capsys, monkeypatch):
    base, stage, out = Path(shutil.copytree(tiny, tmp_path / "base")), tmp_path / "stage", tmp_path / "out"
    adapter, text = adapter_of(base, stage / "adapter"), (template := base / "chat_template.jinja").read_text()
    (stage / "config").mkdir()
    settings = "interaction: {protocol: hermes, docs: signature, max_tokens_per_reply: 7}"
    (stage / "config" / "resolved.yaml").write_text(settings)
    state.update(stage, chose=({"stage": "it", "setting": "stage.gate.metric", "metric": "val_dev/acc"},))
    given = ["--model", str(base), "--adapter", str(adapter), "--out", str(out), "--docs", "json", "--hardware", "tiny"]
    given += ["--category", "base", "--limit", "1", "--"]
    flags, served = ["--max-model-len", "4096", "--hf-token", "hf_secret"], []
    with serving(lambda _: "done") as fake:
        monkeypatch.setattr(server, "serve", lambda *asked: served.append(asked) or nullcontext(fake.url))
        for change, status in (
            (lambda: None, 0),
            (lambda: None, 0),
            (lambda: template.write_text(f"{text} "), 1),
            (lambda: template.write_text(text), 0),
            (lambda: adapter_of(base, adapter, seed=1), 1),
        ):
            change()
            assert evaluate.main([*given, *flags]) == status
    assert served == [(base, out / "server.log", "tiny", [*server.adapter_flags({"adapter": adapter}), *flags])]
    assert capsys.readouterr().err.count("model was") == 2
    assert (fake.requests[0]["model"], fake.requests[0]["max_tokens"]) == ("adapter", 7)
    found = json.loads((out / "results.json").read_text())
    assert "val_dev/acc (it" in found["note"] and "docs signature, not json" in found["note"]
    assert (found["settings"]["protocol"], found["source"]["bfcl_eval"]) == ("hermes", VERSION)
    made, asked = found["settings"]["made_with"], ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    assert (made["commit"] or "").removesuffix("-dirty") == commit
    assert made["flags"][:2] + made["flags"][-2:] == ["--dtype", "float32", "--max-model-len=4096", "--hf-token=***"]


def test_the_context_is_that_of_the_flag_or_else_of_the_model_and_scaled_positions_are_not_guessed(tiny, tmp_path):
    said = {"": CONTEXT, "--max-model-len 9 --max-model-len=512": 512, "--max-model-len auto": None}
    for flags, context in (said | {"--max_model_len 512": 512}).items():
        assert server.context_length(tiny, flags.split()) == context, flags
    for kind, context in (("llama3", 2048), ("yarn", None), (None, 2048)):
        config = {"max_position_embeddings": 2048, "rope_parameters": {"rope_type": kind, "factor": 8.0}}
        (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
        assert server.context_length(tmp_path, ["--dtype", "float32"]) == context, kind


def test_tasks_whose_gold_does_not_fit_are_counted_before_the_server_starts(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(server, "serve", Mock(side_effect=server.PreflightError("no server")))
    given = ["--docs", "signature", "--limit", "2", "--out", str(tmp_path), "--", "--max-model-len", "300"]
    assert evaluate.main(["--model", str(tiny), *given]) == 1
    assert "over budget: gold of 8 of 8 tasks" in capsys.readouterr().out
    categories = ("multi_turn_base", "multi_turn_long_context")
    for context, reply, counts in (("1000000", 30, [6]), ("2048", None, range(1, 6)), ("2048", 40, range(2, 7))):
        settings = Settings("m", None, "val", categories, "think_xml", "signature", 1, 0.0, reply, 3)
        note = server.context_note(tiny, ["--max-model-len", context], settings)
        found = re.search(r"of (\d) of 6 .* ([\d.]+) at most", note)
        assert found and int(found[1]) in counts
        assert float(found[2]) == pytest.approx(1 - int(found[1]) / 6, abs=1e-3)
