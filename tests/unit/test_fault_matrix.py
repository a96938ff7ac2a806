"""Every file that a start reads, harmed in every way: a clear line, or no harm at all; never a traceback or a wait.

A kind of file has a room, a folder with all that its reader looks at, and the function of a start that reads it. A cell
of the matrix is one kind and one harm. It must end as the kind says: `line` (refused, or made anew and said, in one
line that names the file), `fine` (read as if nothing had happened), or `either` where a change can be of no
consequence. Whatever happens, nothing that was in the room is lost, and nothing is written but what the kind names.
"""

import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
import pytest
from omegaconf import OmegaConf

from bfcl_env import load_scenarios
from data_prep.__main__ import main as prepare_data
from interaction import Conversation, get_protocol
from recipe.conversations import read_conversations
from recipe.curriculum import stages, state
from recipe.errors import PreflightError
from recipe.evaluation.store import Settings, SettingsError, Store
from recipe.launch import remains
from recipe.preflight.agent_loops import read_loops
from recipe.preflight.data import check_data
from recipe.preflight.model import load_tokenizer
from recipe.preflight.start import resolve_model, start_model
from recipe.report import tables as report
from recipe.rescore import rescore
from recipe.reward import RewardError, load
from recipe.stage import checkpoints, manifest, same_rows, starts
from recipe.stage.adapter import note_base
from recipe.stage.integrity import note_sums
from recipe.stage.metrics_log import read_steps

ROOT = Path(__file__).parents[2]
SECONDS = 30
"""A cell that takes longer waits for something."""
MEMORY = 3 * 2**30
"""What a cell may ask for beyond what the process has."""
REMEDIES = "set make made give take choose run put correct define start write save rename expected meant".split()
REMEDY = re.compile(rf"\b({'|'.join(REMEDIES)}|now says|one of|reward\.custom_reward_function\.path)\b", re.I)
CONTENTS = ["model", "optimizer", "extra", "hf_model"]
STAGE = "stage2_base"
LINE, FINE, EITHER, REMOVED = "line", "fine", "either", "removed"
"""How a cell ends; removed: a line, and the checkpoint that was being written is gone."""


class Late(BaseException):
    """A cell has used up its time. No reader catches this."""


# --- harms: each changes one file ------------------------------------------------------------------------------------


def _replaced(path: Path) -> Path:
    path.unlink()
    return path


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        content = path.read_bytes()
        _replaced(path).write_bytes(change(content))

    return harm


def _flipped(number: int) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        dice, content = random.Random(f"{path.name}{number}"), bytearray(path.read_bytes())
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        _replaced(path).write_bytes(content)

    return harm


def _grown(path: Path) -> None:
    os.truncate(_copied(path), 8 * 2**30)


def _copied(path: Path) -> Path:
    content = path.read_bytes()
    _replaced(path).write_bytes(content)
    return path


def _siblings(path: Path) -> None:
    for name in (f"{path.name}.bak", f"{path.name}_old", f"{path.name}.tar", f".{path.name}", f"{path.name}.aside9"):
        path.with_name(name).write_text("{not what it seems")


def _latin(content: bytes) -> bytes:
    return content[: len(content) // 2] + b"\xe9\xe8" + content[len(content) // 2 :]


HARMS: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": _bytes(lambda content: b""),
    "half": _bytes(lambda content: content[: len(content) // 2]),
    "last byte cut": _bytes(lambda content: content.rstrip()[:-1]),
    **{f"byte {number}": _flipped(number) for number in range(4)},
    "zeros": _bytes(lambda content: bytes(len(content))),
    "a list": _bytes(lambda content: b"[1, 2]\n"),
    "a number": _bytes(lambda content: b"17\n"),
    "null": _bytes(lambda content: b"null\n"),
    "an empty object": _bytes(lambda content: b"{}\n"),
    "a picture": _bytes(lambda content: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 3),
    "folder": lambda path: _replaced(path).mkdir(),
    "utf-16": _bytes(lambda content: content.decode("latin-1").encode("utf-16")),
    "latin-1": _bytes(_latin),
    "bom": _bytes(lambda content: b"\xef\xbb\xbf" + content),
    "siblings": _siblings,
    "link to itself": lambda path: _replaced(path).symlink_to(path.name),
    "link to nothing": lambda path: _replaced(path).symlink_to("nowhere"),
    "pipe": lambda path: os.mkfifo(_replaced(path)),
    "huge": _grown,
    "deep": _bytes(lambda content: b"[" * 200_000),
    "deep object": _bytes(lambda content: b'{"a":' * 200_000),
}
BYTES = {f"byte {number}": EITHER for number in range(4)}


# --- rooms: what the readers look at, made once ----------------------------------------------------------------------


def _json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content) + "\n")


def _zip(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"pickled" * 9)
        file.writestr("archive/data/0", random.Random(seed).randbytes(900))
    content = path.read_bytes()
    for place in (entry.start() for entry in re.finditer(b"PK\x01\x02", content)):  # torch gives no file modes
        content = content[: place + 38] + bytes(4) + content[place + 42 :]
    path.write_bytes(content)


def _model(folder: Path) -> None:
    import numpy
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    _json(folder / "config.json", {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 8})
    _json(folder / "generation_config.json", {"eos_token_id": 1})
    names = {"model.a": numpy.arange(60, dtype=numpy.float32), "model.b": numpy.ones((3, 4), numpy.float32)}
    save_file(names, folder / "model.safetensors", metadata={"format": "pt"})
    words = Tokenizer(WordLevel({"a": 0, "</s>": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>", chat_template="{{ messages }}")
    tokenizer.save_pretrained(folder)


def _adapter(folder: Path, base: Path) -> None:
    import numpy
    from safetensors.numpy import save_file

    plain = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    _json(folder / "adapter_config.json", plain | {"base_model_name_or_path": str(base), "use_dora": False})
    save_file({"q_proj.lora_A.weight": numpy.ones((2, 3), numpy.float32)}, folder / "adapter_model.safetensors")
    note_base(folder, str(base))


def _record() -> dict[str, Any]:
    scenario, protocol = load_scenarios("multi_turn_base")[0], get_protocol("think_xml")
    with Conversation(scenario, protocol=protocol) as conversation:
        conversation.start()
        for turn in scenario.turns:
            conversation.reply(protocol.render_calls("", turn.gold))
            conversation.reply(protocol.render_answer("", "done"))
        return conversation.record().to_dict()


def _run(run: Path, model: Path) -> None:
    stage = run / STAGE
    for step in (1, 2):
        actor = stage / "checkpoints" / f"global_step_{step}" / "actor"
        for part in ("model", "optim", "extra_state"):
            _zip(actor / f"{part}_world_size_1_rank_0.pt", step)
        _json(actor / "fsdp_config.json", {"FSDP_version": 2, "world_size": 1})
        shutil.copytree(model, actor / "huggingface")
        _zip(actor.parent / "data.pt", step)
    (stage / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("2")
    for folder in (stage / "hf", stage / "best" / "global_step_2" / "hf"):
        shutil.copytree(model, folder)
        note_sums(folder)
    best = {"step": 2, "value": 0.5, "metric": "val_choose/reward", "model": str(stage / "best/global_step_2/hf")}
    asked = checkpoints.asked_steps(_config(run))
    _json(stage / "best.json", best)
    _json(stage / "total_steps.json", {"total_steps": 2, "planned": 2, "reason": None, "gate": "None", "asked": asked})
    _json(stage / "done.json", {"global_step": 2, "target": 2, "reason": None, "model": str(stage / "hf")})
    config = _config(run)
    starts.note(config)
    manifest.note(config)
    listed = {"name": "stage2", "config": "stage2", "folder": STAGE, "status": "done", "global_step": 2}
    _json(run / "curriculum.json", {"curriculum": "x", "pid": 1, "time": "now", "stages": [listed]})
    remains.note(run / "launch.json", remains.Launch("f" * 32, 4e9, "/nowhere", str(run / "logs" / "x.log")))
    logged = [{"step": step, "data": {"critic/score/mean": 0.1 * step, "val/reward": 0.2}} for step in (1, 2)]
    for name in ("20260101-000000", "20260102-000000"):
        path = stage / "metrics" / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in logged))
    for split in ("train", "val"):
        for step in (1, 2):
            head = {"step": step, "split": split, "uid": "u", "session_id": 0, "task_id": "multi_turn_base_0"}
            line = {**head, "score": 1.0, "episode": _record()}
            path = stage / "rollouts" / split / f"{step:06d}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(line) + "\n" + json.dumps({**line, "session_id": 1}) + "\n")


def _config(run: Path) -> Any:
    data = run.parent / "data"
    return OmegaConf.create(
        {
            "paths": {"run": str(run), "stage": str(run / STAGE), "data": str(data)},
            "stage": {
                **{"name": STAGE, "handover": "best", "handover_metric": "val_choose/reward", "gate": None},
                "over_budget": "leave_out",
            },
            "trainer": {
                **{"device": "cpu", "resume_mode": "auto", "default_local_dir": str(run / STAGE / "checkpoints")},
                **{"total_epochs": 1, "total_training_steps": None, "max_actor_ckpt_to_keep": 2},
                **{"n_gpus_per_node": 1, "nnodes": 1},
            },
            "interaction": {"protocol": "think_xml", "docs": "signature"},
            "data": {
                **{"train_files": str(data / "tiny_full.parquet"), "val_files": str(data / "tiny_val.parquet")},
                **{"train_batch_size": 2, "leave_out": ["multi_turn_base_9"]},
            },
            "actor_rollout_ref": {
                "model": {"path": "/nowhere/model", "lora_rank": 0, "lora_alpha": 16},
                "actor": {"strategy": "fsdp2", "checkpoint": {"save_contents": CONTENTS}},
                "rollout": {
                    "seed": 1,
                    "agent": {
                        "agent_loop_config_path": str(ROOT / "recipe/config/agent_loops.yaml"),
                        "default_agent_loop": "bfcl",
                    },
                },
            },
            "reward": {"custom_reward_function": {"path": "pkg://rewards.progress", "name": "compute_score"}},
        }
    )


SETTINGS = Settings(
    **{"model": "m", "endpoint": None, "split": "val", "categories": ("multi_turn_base",), "protocol": "think_xml"},
    **{"docs": "json", "samples": 1, "temperature": 0.0, "max_tokens": None, "limit": 1},
)
CHAT = '{"messages": [{"role": "user", "content": "Rain?"}, {"role": "assistant", "content": "No."}]}\n' * 3
REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n    return 1.0\n"
CURRICULUM = "stages:\n  - name: stage1\n    overrides: [trainer.total_epochs=2]\n"


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder with a room of each sort."""
    rooms = tmp_path_factory.mktemp("rooms")
    with contextlib.redirect_stdout(io.StringIO()):
        assert prepare_data(["--out", str(rooms / "data"), "--tiny"]) == 0
    _model(rooms / "model")
    _run(rooms / "run", rooms / "model")
    store = Store(rooms / "evaluation", SETTINGS)
    store.add({"task_id": "multi_turn_base_0", "sample": 0, "episode": _record()})
    store.close()
    (rooms / "user").mkdir()
    (rooms / "user" / "reward.py").write_text(REWARD)
    (rooms / "user" / "chat.jsonl").write_text(CHAT)
    _adapter(rooms / "adapter", rooms / "model")
    shutil.copy(ROOT / "recipe/config/agent_loops.yaml", rooms / "user" / "loops.yaml")
    (rooms / "user" / "curriculum.yaml").write_text(
        "stages:\n  - name: stage1\n    overrides: [trainer.total_epochs=2]\n"
    )
    return rooms


# --- kinds: who reads the file, and how each harm ends ---------------------------------------------------------------

Judge = Callable[[Path], Any]
"""What a start does with a room. Returns lines that it would print; raises what a start ends with."""


def _room_config(room: Path) -> Any:
    return _config(room / "run")


def _read_data(room: Path) -> None:
    check_data(_room_config(room))


def _read_model(room: Path) -> None:
    load_tokenizer(start_model(str(room / "model")))


def _read_adapter(room: Path) -> None:
    config = _room_config(room)
    model = {"path": str(room / "model"), "lora_adapter_path": str(room / "adapter"), "lora_rank": 2, "lora_alpha": 4}
    config.actor_rollout_ref.model = model
    resolve_model(config)


def _repair(room: Path) -> list[str]:
    return checkpoints.repair(_room_config(room))


def _done(room: Path) -> list[str]:
    said = _repair(room)
    done = checkpoints.read_done(room / "run" / STAGE)
    return said + ([] if done else [f"the stage is not done, so it is started again: {STAGE}/hf is made anew"])


def _store(room: Path) -> list[str]:
    store = Store(room / "evaluation", SETTINGS)
    try:
        return [] if store.episodes() else ["the episode in episodes.jsonl is played again: start"]
    finally:
        store.close()


def _conversations(path: Path) -> None:
    read_conversations([str(path)], "make it")


def _curriculum(room: Path) -> None:
    path = room / "user" / "curriculum.yaml"
    stages.read_stages(stages.read_yaml(path, ("stages", "overrides")), path, ["hardware=tiny"])


def _episodes(room: Path) -> list[str]:
    rescore(room / "run", lambda **_: 1.0)
    return report.table([room / "run"]).splitlines()[:0]


def _metrics(room: Path) -> list[str]:
    report.table([room / "run"])
    return [] if len(read_steps(room / "run" / STAGE)) == 2 else ["metrics: made of what is left"]


@dataclass(frozen=True)
class Kind:
    """One sort of file."""

    path: str
    """In the folder of rooms."""
    judge: Judge
    ends: dict[str, str] = field(default_factory=dict)
    """How harms end that do not end in a line."""
    writes: tuple[str, ...] = ()
    """What the judge may write, or replace by something new."""
    skips: tuple[str, ...] = ()
    """Harms that are none: a file of lines may have many gigabytes, and is read line by line."""
    also: tuple[str, ...] = ()
    """Rooms beside its own that the judge reads."""

    @property
    def name(self) -> str:
        return Path(self.path).name


ASIDE = ("*.aside*",)
CHECKPOINT = f"run/{STAGE}/checkpoints/global_step_2"
TRACKER = f"run/{STAGE}/checkpoints/latest_checkpointed_iteration.txt"
NOTE = {**BYTES, "missing": EITHER}
MENDS = (*ASIDE, TRACKER, f"run/{STAGE}/rollouts/train/*", f"run/{STAGE}/best.json")
ANY_END = dict.fromkeys(HARMS, EITHER)
FOREIGN = (
    *("missing", "empty", "zeros", "a list", "a number", "null", "an empty object", "a picture", "folder", "utf-16"),
    *("bom", "link to itself", "link to nothing", "pipe", "deep", "deep object"),
)
"""Harms after which a manifest is no longer known as data_prep's: then it may be another tool's and is not read."""


def _notes() -> list[Kind]:
    stage = f"run/{STAGE}"
    return [
        Kind(f"{stage}/total_steps.json", _repair, NOTE, MENDS),
        Kind(f"{stage}/best.json", _repair, NOTE, MENDS),
        Kind(f"{stage}/done.json", _done, BYTES, MENDS),
        Kind(f"{stage}/checkpoints/started_from.json", lambda room: starts.check_same_start(_room_config(room)), BYTES),
        Kind(
            f"{stage}/checkpoints/left_out.json",
            lambda room: same_rows.check_same_rows(_room_config(room), ["multi_turn_base_9"]),
            BYTES,
        ),
        Kind(
            "run/curriculum.json",
            lambda room: state.State(room / "run", "x", []) and None,
            {**NOTE, "an empty object": FINE},
            (*ASIDE, "run/curriculum.json*"),
        ),
        Kind(
            "run/manifest.json",
            lambda room: manifest.note(_room_config(room)) and None,
            {**NOTE, "an empty object": FINE},
            (*ASIDE, "run/manifest.json*", f"{stage}/config/*"),
            also=("data",),
        ),
        Kind("run/launch.json", lambda room: [remains.foreign(room / "run" / "launch.json") or ""], NOTE),
        Kind("evaluation/settings.json", _store, BYTES),
        Kind(
            "evaluation/episodes.jsonl",
            _store,
            {**BYTES, "latin-1": EITHER, "bom": EITHER},
            ("evaluation/*",),
            ("huge",),
        ),
    ]


def _checkpoint_kinds() -> list[Kind]:
    files = [f"actor/{part}_world_size_1_rank_0.pt" for part in ("model", "optim", "extra_state")]
    files += ["data.pt", "actor/fsdp_config.json", "actor/huggingface/model.safetensors"]
    ends: dict[str, dict[str, str]] = {
        "fsdp_config.json": {**BYTES},
        "data.pt": {"missing": REMOVED},  # verl writes it last
        "model.safetensors": {**BYTES},  # verl wrote it: the format has no checksum
    }
    return [Kind(f"{CHECKPOINT}/{name}", _repair, ends.get(Path(name).name, {}), MENDS) for name in files]


def _model_kinds() -> list[Kind]:
    optional = {**BYTES, "missing": EITHER, "an empty object": FINE}
    ends = {
        "config.json": {**BYTES},
        "generation_config.json": {**optional, "missing": FINE, "link to nothing": LINE},
        "tokenizer_config.json": {**optional, "a list": LINE},
        "tokenizer.json": {**BYTES},
        "model.safetensors": {**BYTES},
        "chat_template.jinja": {
            **dict.fromkeys(("half", "last byte cut", "zeros", "a list", "a number", "null", "bom"), EITHER),
            **dict.fromkeys(
                ("an empty object", "deep", "deep object"), EITHER
            ),  # a text; rendering it is another check
            **BYTES,
        },
    }
    return [Kind(f"model/{name}", _read_model, end) for name, end in ends.items()]


def _adapter_kinds() -> list[Kind]:
    ends = {
        "adapter_config.json": {**BYTES},
        "adapter_model.safetensors": {},
        "base.json": {**BYTES, "missing": EITHER},  # an adapter from elsewhere has none, and this one names the path
        "checksums.json": {**BYTES, "missing": FINE},
    }
    return [Kind(f"adapter/{name}", _read_adapter, end, also=("model",)) for name, end in ends.items()]


KINDS = [
    Kind("data/tiny_full.parquet", _read_data),
    Kind("data/tiny_val.parquet", _read_data),
    Kind("data/manifest.json", _read_data, {**NOTE, **dict.fromkeys(FOREIGN, FINE)}),
    Kind("data/tiny_sft.parquet", lambda room: _conversations(room / "data/tiny_sft.parquet")),
    Kind("user/chat.jsonl", lambda room: _conversations(room / "user/chat.jsonl"), {**BYTES, "bom": FINE}),
    *_model_kinds(),
    *_adapter_kinds(),
    *_checkpoint_kinds(),
    Kind(TRACKER, _repair, {**BYTES}, MENDS),
    Kind(f"run/{STAGE}/hf/model.safetensors", _done, {}, MENDS),
    Kind(f"run/{STAGE}/hf/checksums.json", _done, {**BYTES, "missing": FINE}, MENDS),  # of earlier releases
    *_notes(),
    *[
        Kind(f"run/{STAGE}/rollouts/{split}/000001.jsonl", _episodes, ANY_END, skips=("huge",))
        for split in ("train", "val")
    ],
    Kind(f"run/{STAGE}/metrics/20260102-000000.jsonl", _metrics, ANY_END, skips=("huge",)),
    Kind(
        "user/reward.py",
        lambda room: load(str(room / "user/reward.py"), "compute_score") and None,
        {**BYTES, "bom": FINE, "half": EITHER, "last byte cut": EITHER},
    ),
    Kind("user/loops.yaml", lambda room: read_loops(room / "user/loops.yaml") and None, {**BYTES, "bom": FINE}),
    Kind("user/curriculum.yaml", _curriculum, {**BYTES, "bom": FINE, "half": EITHER}),
]


# --- the matrix ------------------------------------------------------------------------------------------------------

Snapshot = dict[str, tuple[Any, ...]]


def _snapshot(room: Path) -> Snapshot:
    """Path -> what is there, links and pipes included: the file itself, which a rename keeps, and when it changed."""
    found: Snapshot = {}
    for path in sorted(room.rglob("*")):
        state = path.lstat()
        if stat.S_ISDIR(state.st_mode):
            continue
        same: Any = (state.st_ino, state.st_mtime_ns)
        if path.suffix == ".jsonl" and stat.S_ISREG(state.st_mode) and state.st_size < 2**30:  # may be cut at its end
            same = path.read_bytes()
        found[str(path.relative_to(room))] = (stat.S_IFMT(state.st_mode), state.st_size, same)
    return found


def _linked(source: str, target: str) -> None:
    """A second name for what no reader writes to in place, and a copy of the rest."""
    if source.endswith((".jsonl", ".txt")):
        shutil.copy2(source, target)
    else:
        os.link(source, target)


def _disturbed(kind: Kind, before: Snapshot, after: Snapshot) -> list[str]:
    """What was lost or written although the kind does not name it."""
    left = Counter(after.values())
    lost = [path for path, what in before.items() if not left[what] and not _named(kind, path)]
    made = [path for path in after if path not in before and not _named(kind, path)]
    changed = [path for path in after if path in before and after[path] != before[path] and not _named(kind, path)]
    return [*(f"lost {path}" for path in lost), *(f"wrote {path}" for path in [*made, *changed])]


def _named(kind: Kind, path: str) -> bool:
    return any(fnmatch(path, pattern) or fnmatch(path, f"{pattern}/*") for pattern in kind.writes)


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """A cell has so many seconds, and so much memory."""

    def late(*_: Any) -> None:
        raise Late("it waits")

    handler = signal.signal(signal.SIGALRM, late)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MEMORY, hard))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _play(kind: Kind, room: Path) -> tuple[str, str]:
    """How a harmed room is read: `line`, `fine` or a fault, and what was said."""
    printed = io.StringIO()
    try:
        with _limits(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            said = kind.judge(room) or []
    except (PreflightError, SettingsError, RewardError) as error:
        said = [str(error)]
    except SystemExit as error:
        said = [str(error)]
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "wait" if isinstance(error, Late) else "traceback", f"{type(error).__name__}: {error}"
    lines = [
        line for line in [*said, *printed.getvalue().splitlines()] if line and "from the checkpoint of" not in line
    ]
    return (LINE if lines else FINE), " | ".join(lines)


def _vague(kind: Kind, said: str) -> str | None:
    """What a line lacks."""
    if "\n" in said or "Traceback" in said:
        return "more than one line"
    if not any(part in said for part in (kind.name, *Path(kind.path).parts[-3:-1])):
        return f"does not name {kind.name}"
    return None if REMEDY.search(said) else "no remedy"


def _judged(kind: Kind, harm: str, room: Path, rooms: Path) -> tuple[str, str]:
    """How a cell ended, and what is to be said of one that ended wrongly."""
    expected = kind.ends.get(harm, FINE if harm in ("nothing", "siblings") else LINE)
    if harm == "link to nothing" and harm not in kind.ends:
        expected = kind.ends.get("missing", LINE)
    before = _snapshot(room)
    outcome, said = _play(kind, room)
    if outcome not in (LINE, FINE):
        return outcome, said
    disturbed = [] if expected == REMOVED else _disturbed(kind, before, _snapshot(room))
    if outcome == FINE and expected in (LINE, REMOVED) and not _same(room / kind.path, rooms / kind.path):
        return "wrongly passed", ""
    if outcome == LINE and expected == FINE:
        return "wrongly refused", said
    if outcome == LINE and (vague := _vague(kind, said)):
        return "unclear", f"{vague}: {said}"
    return ("something lost or written", f"{disturbed[:4]}") if disturbed else (outcome, said)


@pytest.fixture(scope="module")
def tally() -> Iterator[Counter[str]]:
    """How all cells ended."""
    counts = Counter[str]()
    yield counts
    print(f"\n{counts.total()} cells: {', '.join(f'{number} {name}' for name, number in sorted(counts.items()))}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.path)
def test_every_harm_to_a_file_ends_in_a_clear_line_or_in_none(
    rooms: Path, tally: Counter[str], tmp_path: Path, kind: Kind
) -> None:
    wrong = []
    for number, (harm, change) in enumerate([("nothing", lambda path: None), *HARMS.items()]):
        if harm in kind.skips:
            continue
        room = tmp_path / str(number)
        for name in {Path(kind.path).parts[0], *kind.also}:
            shutil.copytree(rooms / name, room / name, copy_function=_linked)
        change(room / kind.path)
        outcome, said = _judged(kind, harm, room, rooms)
        tally[outcome] += 1
        if outcome not in (LINE, FINE):
            wrong.append(f"{kind.path}, {harm}: {outcome}: {said[:400]}")
        shutil.rmtree(room)
    assert not wrong, "\n" + "\n".join(wrong)


def _same(harmed: Path, whole: Path) -> bool:
    """Whether a zip still holds the same: of its headers not every byte means anything."""
    if harmed.suffix != ".pt":
        return False
    with zipfile.ZipFile(harmed) as one, zipfile.ZipFile(whole) as other:
        return [(name, one.read(name)) for name in one.namelist()] == [
            (name, other.read(name)) for name in other.namelist()
        ]


# --- a few cells through the commands --------------------------------------------------------------------------------

COMMANDS: dict[str, tuple[list[str], str, str]] = {
    "data of a stage": (["recipe.train"], "data/tiny_base.parquet", "half"),
    "a pipe for data": (["recipe.train"], "data/tiny_val.parquet", "pipe"),
    "its manifest": (["recipe.train"], "data/manifest.json", "half"),
    "a model's configuration": (["recipe.train"], "model/config.json", "deep object"),
    "a model's weights": (["recipe.train"], "model/model.safetensors", "last byte cut"),
    "no weights": (["recipe.train"], "model/model.safetensors", "missing"),
    "a tokenizer": (["recipe.train"], "model/tokenizer.json", "half"),
    "a template": (["recipe.train"], "model/chat_template.jinja", "a picture"),
    "agent loops": (["recipe.train"], "user/loops.yaml", "a list"),
    "a reward": (["recipe.train"], "user/reward.py", "latin-1"),
    "a warm start's data": (["recipe.sft"], "data/tiny_sft.parquet", "zeros"),
    "a warm start's model": (["recipe.sft"], "model/model.safetensors", "empty"),
    "a curriculum": (["recipe.curriculum"], "user/curriculum.yaml", "utf-16"),
    "a curriculum that waits": (["recipe.curriculum"], "user/curriculum.yaml", "pipe"),
    "an evaluation's settings": (["recipe.evaluate"], "evaluation/settings.json", "null"),
}
LOOPS = "actor_rollout_ref.rollout.agent.agent_loop_config_path"


def _command(name: str, room: Path) -> list[str]:
    model, data = room / "model", room / "data"
    return {
        "recipe.train": [
            *["--config-name", "stage2", "hardware=tiny", f"paths.data={data}", f"paths.run={room}/run"],
            *[f"actor_rollout_ref.model.path={model}", f"{LOOPS}={room}/user/loops.yaml", "preflight_only=true"],
            f"reward.custom_reward_function.path={room}/user/reward.py",
        ],
        "recipe.sft": ["sft_hardware=tiny", f"paths.data={data}", f"paths.run={room}/run", f"model.path={model}"],
        "recipe.curriculum": ["--curriculum", f"{room}/user/curriculum.yaml", "hardware=tiny", f"paths.run={room}/run"],
        "recipe.evaluate": [
            *[
                "--endpoint",
                "http://127.0.0.1:9/v1",
                "--served-name",
                "m",
                "--out",
                f"{room}/evaluation",
                "--limit",
                "1",
            ],
        ],
    }[name]


@pytest.fixture(scope="module")
def whole(rooms: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rooms with a model that can start, and without a run."""
    from recipe.cpu.tiny_policy import make_tiny_policy

    whole = tmp_path_factory.mktemp("whole")
    for name in ("data", "user", "evaluation"):
        shutil.copytree(rooms / name, whole / name)
    make_tiny_policy(whole / "model")
    return whole


@pytest.mark.slow
@pytest.mark.parametrize("case", COMMANDS)
def test_the_commands_say_it_in_one_line_and_write_nothing(whole: Path, tmp_path: Path, case: str) -> None:
    (command,), path, harm = COMMANDS[case]
    room = Path(shutil.copytree(whole, tmp_path / "room"))
    HARMS[harm](room / path)
    before = _snapshot(room)
    environment = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN", "SEED")}
    answer = subprocess.run(
        [sys.executable, "-m", command, *_command(command, room)],
        **{"cwd": ROOT, "env": {**environment, "PYTHONPATH": str(ROOT)}},
        **{"capture_output": True, "text": True, "timeout": 300, "stdin": subprocess.DEVNULL},
    )
    said = answer.stderr.strip().splitlines()
    print(f"{case}: {said[-1] if said else ''}")
    assert answer.returncode not in (0, None) and "Traceback" not in answer.stdout + answer.stderr, answer.stderr[
        -2000:
    ]
    assert Path(path).name in said[-1] or Path(path).parts[0] in said[-1]
    assert REMEDY.search(said[-1])
    assert _snapshot(room) == before


@pytest.mark.slow
def test_the_commands_pass_what_is_whole(whole: Path) -> None:
    command = [sys.executable, "-m", "recipe.train", *_command("recipe.train", whole)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert "all other checks passed" in answer.stderr or "all checks passed" in answer.stdout, answer.stderr[-2000:]
