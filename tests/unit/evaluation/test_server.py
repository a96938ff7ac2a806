"""A real vLLM server for a fresh tiny policy on CPU: started, asked, played through, and gone whatever happens."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from unittest.mock import Mock

import psutil
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from support.evaluation import kept
from transformers import AutoModelForCausalLM

from recipe import evaluate
from recipe.cpu import precision
from recipe.cpu.tiny_policy import CONTEXT
from recipe.evaluation import server
from recipe.evaluation.store import Settings
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


def test_adapters_have_room_in_vllm_are_on_their_own_model_and_are_not_mixed(tiny, tmp_path, capsys, monkeypatch):
    for ranks, room in (((4,), "8"), ((8, 33), "64"), ((300, 16), "512")):
        flags = server.adapter_flags({f"of_{rank}": adapter_of(tiny, tmp_path / str(rank), rank) for rank in ranks})
        assert flags[:5] == ["--enable-lora", "--max-loras", str(len(ranks)), "--max-lora-rank", room]
        assert flags[5:] == ["--lora-modules", *(f"of_{rank}={tmp_path / str(rank)}" for rank in ranks)]
    adapters = [adapter_of(tiny, tmp_path / name, seed=seed) for seed, name in enumerate(("one", "two"))]
    other = shutil.copytree(tiny, tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file(weights | {"model.norm.weight": weights["model.norm.weight"] + 1}, other / "model.safetensors")
    assert evaluate.main(arguments(other, tmp_path / "out", "--adapter", str(adapters[0]))) == 1
    assert "with --adapter its base" in capsys.readouterr().err and not (tmp_path / "out").exists()
    monkeypatch.setattr(evaluate, "_play", lambda *given: given[-1].add({}) or [])
    for adapter, status in ((adapters[0], 0), (adapters[0], 0), (adapters[1], 1), (None, 1)):
        more = ("--adapter", str(adapter)) if adapter else ()
        assert evaluate.main(arguments(tiny, tmp_path / "out", *more)) == status
    assert "model was" in capsys.readouterr().err


def test_the_context_is_that_of_the_flag_or_else_of_the_model_and_scaled_positions_are_not_guessed(tiny, tmp_path):
    for flags, context in (
        ([], CONTEXT),
        (["--max-model-len", "9", "--max-model-len=512"], 512),
        (["--max-model-len", "auto"], None),
        (["--max_model_len", "512"], 512),
    ):
        assert server.context_length(tiny, flags) == context, flags
    for kind, context in (("llama3", 2048), ("yarn", None), (None, 2048)):
        config = {"max_position_embeddings": 2048, "rope_parameters": {"rope_type": kind, "factor": 8.0}}
        (tmp_path / "config.json").write_text(json.dumps({"text_config": config}))
        assert server.context_length(tmp_path, ["--dtype", "float32"]) == context, kind


def test_tasks_whose_gold_does_not_fit_are_counted_before_the_server_starts(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(server, "serve", Mock(side_effect=server.PreflightError("no server")))
    for context, said in (("1000000", False), ("300", True)):
        given = ["--docs", "signature", "--limit", "2", "--out", str(tmp_path / context), "--", "--max-model-len"]
        assert evaluate.main(["--model", str(tiny), *given, context]) == 1
        printed = capsys.readouterr().out
        assert ("over budget: gold of 8 of 8 tasks" in printed) == said and "starting vLLM" in printed
    categories = ("multi_turn_base", "multi_turn_long_context")
    for context, reply, counts in (("1000000", 30, [6]), ("2048", None, range(1, 6)), ("2048", 40, range(2, 7))):
        settings = Settings("m", None, "val", categories, "think_xml", "signature", 1, 0.0, reply, 3)
        note = server.context_note(tiny, ["--max-model-len", context], settings)
        found = re.search(r"of (\d) of 6 .* ([\d.]+) at most", note)
        assert found and int(found[1]) in counts
        assert float(found[2]) == pytest.approx(1 - int(found[1]) / 6, abs=1e-3)
