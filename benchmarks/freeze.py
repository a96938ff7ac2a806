"""What must stay the same while code is moved or cut: episodes, rewards, tokens, credit and training.

    python -m benchmarks.freeze write [PART ...]       docs/data/frozen.json
    python -m benchmarks.freeze compare [PART ...]     exit status 1 where anything differs

    gold, mutants  gold of all tasks, 1,000 mutants for each environment: verdicts, steps, messages, all rewards
    episodes       300 episodes of the agent loop: token ids, masks, rewards on tokens, the stored lines
    credit         on these: advantages, returns, loss and gradient of the policy loss of steps
    sft, offline, grpo, live   metrics of five steps, equal to 1e-6; of GRPO that plays, their names

All is made from seeds. The file has a hash for each part, group and view, and two letters for each episode, so that a
difference names the first one. Numbers of trainings hold for one kind of machine.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from interaction import Conversation, get_protocol
from interaction.environment import ENVIRONMENTS, GoldMessage, Task, UserWords, load_tasks
from interaction.protocol import PROTOCOLS
from interaction.users import UserFault

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "data" / "frozen.json"
GO_ON, CUT, CANNOT = "Thank you, please go on.", "Let me th<cut>", GoldMessage(answer="I cannot do that.")
RULES = {f"outcome {rule}": ("outcome", {"rule": rule}) for rule in ("official", "clean", "priced")}
REWARDS: Mapping[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("progress", "format", "step", "all_or_nothing")},
    **{**RULES, "step, bound": ("step", {"alpha": 2.0, "turn_bonus": 0.5, "episode_bonus": 3.0})},
}
UNSTABLE = ("seconds", "generate_seconds", "environment_seconds", "heard_seconds", "version", "options", "launch")
"""Fields that differ from play to play, or say how the record is written."""
COLUMNS = ("prompts", "responses", "response_mask", "rollout_log_probs", "step_ids", "turn_ids", "rm_scores")
MACHINE = ("time", "timing", "perf", "memory", "throughput", "mfu", "seconds", "_gb")

Sample = tuple[Task, list[Any], str, dict[str, Any]]
"""Task; messages, words of the user and plain texts to be played; protocol; settings."""
Views = Iterator[tuple[str, str, dict[str, Any]]]
"""Group and name of an episode, and all that must stay the same of it."""


def digest(value: Any, length: int = 12) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return urlsafe_b64encode(sha256(text.encode()).digest())[:length].decode()


def stable(value: Any) -> Any:
    """Without what differs from play to play."""
    if isinstance(value, Mapping):
        return {str(name): stable(item) for name, item in value.items() if name not in UNSTABLE}
    return [stable(item) for item in value] if isinstance(value, list | tuple) else value


def summary(episodes: Views) -> dict[str, Any]:
    """Group -> a hash of each view over its episodes; their names, and two letters for each."""
    groups: dict[str, dict[str, Any]] = {}
    for group, name, views in episodes:
        found = groups.setdefault(group, {"list": [], "each": ""} | dict.fromkeys(views, ""))
        found["list"].append(name)
        found["each"] += digest(views, 2)
        found |= {view: digest([found[view], value]) for view, value in views.items()}
    return {group: found | {"names": digest(found["list"])} for group, found in groups.items()}


def scores(record: Mapping[str, Any]) -> dict[str, Any]:
    """What every reward returns; of one that does not apply, that."""
    extra = {"split": "train", "environment": record["environment"], "task_id": record["task_id"], "episode": record}
    found: dict[str, Any] = {}
    for name, (module, given) in REWARDS.items():
        try:
            found[name] = import_module(f"rewards.{module}").compute_score("frozen", "", "[]", extra, **given)
        except ValueError:
            found[name] = "does not apply"
    return found


def texts_of(items: Sequence[Any], protocol: Any) -> list[str]:
    """The model's messages. Raises ValueError for what a protocol cannot write."""
    texts = [item for item in items if not isinstance(item, UserWords)]
    for at, item in enumerate(texts):
        if isinstance(item, GoldMessage) and item.calls:
            texts[at] = protocol.render_calls("calls", item.calls)
        elif isinstance(item, GoldMessage):
            texts[at] = protocol.render_answer(item.answer or "done", item.answer or "done")
    return texts


def play(sample: Sample) -> dict[str, Any]:
    """The views of one episode."""
    task, items, name, settings = sample
    protocol = get_protocol(name, docs=settings.pop("docs", "json"))
    words, messages = (item.text for item in items if isinstance(item, UserWords)), []
    with Conversation(task, protocol=protocol, **settings) as talk:
        try:
            reply = talk.begin()
            for text in [*texts_of(items, protocol), *[protocol.render_answer("done", "done")] * 3]:
                messages += reply.messages
                while reply.ask is not None:
                    reply = talk.hear(next(words, GO_ON))
                    messages += reply.messages
                if reply.done:
                    break
                reply = talk.reply(text.removesuffix("<cut>"), truncated=text.endswith("<cut>"))
        except UserFault:
            talk.stop("infrastructure")
        talk.stop("max_tokens")
        record = stable(talk.record().to_dict())
    kept = ("reached", "ended", "passed", "difference", "facts")
    whole = [record["stop_reason"], record["outcome"], record["facts"], record["fault"] is None]
    return {
        "verdicts": whole + [{name: turn[name] for name in kept} for turn in record["turns"]],
        "steps": [[turn["user"], turn["steps"]] for turn in record["turns"]],
        "messages": messages,
        "scores": scores(record),
    }


def gold() -> Iterator[Sample]:
    for environment in ENVIRONMENTS:
        for _, task in sorted(load_tasks(environment).items()):
            yield task, [*task.gold()], "think_xml", {}


def changed(value: Any) -> Any:
    """Another value of about the same kind."""
    if isinstance(value, bool | int | float):
        return not value if isinstance(value, bool) else value + 1
    return f"{value}x" if isinstance(value, str) else [*value, 0] if isinstance(value, list | tuple) else {}


def mutant(items: list[Any], others: Sequence[Any], random: Random) -> list[Any]:
    """Gold with one mistake in it."""
    places = [at for at, item in enumerate(items) if isinstance(item, GoldMessage) and item.calls]
    at = random.choice(places or [at for at, item in enumerate(items) if isinstance(item, GoldMessage)])
    before, item, after = items[:at], items[at], items[at + 1 :]
    edits = "drop change change argument rename swap turn repeat again".split() if places else []
    kind = random.choice([*edits, "early", "foreign", "junk", "cut"])
    if kind in ("drop", "change", "argument", "rename"):
        which = random.randrange(len(item.calls))
        call = item.calls[which]
        name = random.choice(sorted(call.arguments) or ["x"])
        rest = {key: value for key, value in call.arguments.items() if key != name}
        other = {
            "drop": [],
            "change": [replace(call, arguments=rest | {name: changed(call.arguments.get(name))})],
            "argument": [replace(call, arguments=rest)],
            "rename": [replace(call, name=f"{call.name}_x")],
        }[kind]
        calls = (*item.calls[:which], *other, *item.calls[which + 1 :])
        return [*before, *([replace(item, calls=calls)] if calls else []), *after]
    end = next((end for end in range(at, len(items)) if end not in places), len(items))
    other = {"turn": items[end:], "swap": [*after[:1], item, *after[1:]], "repeat": [item, *items[at:]]}
    other |= {"again": [*[item] * 25, *after], "early": [CANNOT, *items[at:]], "cut": [CUT, *items[at:]]}
    other |= {"junk": [*["Let me think about <that> {"] * random.choice((1, 1, 5)), *items[at:]]}
    return [*before, *(other.get(kind) or [GoldMessage(calls=(random.choice(others),)), *items[at:]])]


def mutants(number: int = 1000) -> Iterator[Sample]:
    """Of each environment so many, one in ten of them gold itself, in one protocol after the other."""
    for environment in ENVIRONMENTS:
        tasks, random = load_tasks(environment), Random(f"{number} {environment}")
        some = [item for name in random.sample(sorted(tasks), 200) for item in tasks[name].gold()]
        others = [call for item in some if isinstance(item, GoldMessage) for call in item.calls]
        for position, name in enumerate(random.choices(sorted(tasks), k=number)):
            items: list[Any] = [*tasks[name].gold()]
            if position % 10 and any(isinstance(item, GoldMessage) for item in items):
                items = mutant(items, others, random)
            protocol = sorted(PROTOCOLS)[position % len(PROTOCOLS)]
            try:
                texts_of(items, get_protocol(protocol))
            except ValueError:
                protocol = "think_xml"
            settings: dict[str, Any] = {"docs": random.choice(("json", "signature"))}
            settings["max_result_chars"] = random.choice((None, None, 80))
            settings["calls_per_message"] = random.choice(("all", "all", "first"))
            settings["max_format_errors_per_turn"] = random.choice((1, 3))
            settings["environments"] = {"bfcl": {"augment": random.random() < 0.5}} if environment == "bfcl" else {}
            yield tasks[name], items, protocol, settings


def played(samples: Iterator[Sample]) -> Views:
    for number, sample in enumerate(samples):
        yield f"{sample[0].environment}/{sample[0].category}", f"{sample[0].id} ({number})", play(sample)


class Engine:
    """In place of vLLM: says these texts, then answers."""

    def __init__(self, tokenizer: Any, texts: Sequence[str], answer: str) -> None:
        self.tokenizer, self.texts, self.answer = tokenizer, [*texts], answer

    async def generate(self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        text = self.texts.pop(0) if self.texts else self.answer
        ids = self.tokenizer.encode(text, add_special_tokens=False) + [self.tokenizer.eos_token_id]
        ids = ids[: sampling_params["max_tokens"]]
        log_probs = [-((token * 7919) % 1000) / 500 for token in ids]
        return TokenOutput(token_ids=ids, log_probs=log_probs, stop_reason="completed", extra_fields={})


@cache
def tiny(folder: Path) -> Any:
    """The tokenizer of the tiny policy, which is made there, with a critic whose head is the same each time."""
    import torch
    from transformers import AutoConfig, AutoModelForTokenClassification, AutoTokenizer

    from recipe.cpu.tiny_policy import make_tiny_policy

    make_tiny_policy(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    torch.manual_seed(1)
    config = AutoConfig.from_pretrained(folder / "model", num_labels=1)
    for made in (AutoModelForTokenClassification.from_config(config), tokenizer):
        made.save_pretrained(folder / "critic")
    return tokenizer


def agent_loop(engine: Engine, protocol: str, response: int, folder: Path) -> Any:
    """verl's agent loop of this project, by its entry in recipe/config/agent_loops.yaml."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap

    policy = {"max_steps_per_turn": 8, "max_format_errors_per_turn": 1, "max_result_chars": 300}
    rollout = {"name": "vllm", "prompt_length": 32768, "response_length": response, "max_model_len": None, "n": 1}
    interaction = {
        **{"protocol": protocol, "docs": "signature", "max_tokens_per_reply": None, "engine_timeout": 60},
        **{"record_dir": str(folder / "episodes"), "record_tokens": True, "train": policy, "val": policy},
        **{"user": {"kind": "replay", "file": str(folder / "users.jsonl")}},
        **{"waiting": 64, "overlong": {"train": True, "penalty": 0.5, "window": 0.5}},
    }
    rollout |= {"temperature": 1.0, "val_kwargs": {"n": 1}}
    config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}, "interaction": interaction})
    module, _, name = OmegaConf.load(ROOT / "recipe/config/agent_loops.yaml")[0]._target_.rpartition(".")
    return getattr(import_module(module), name)(
        **{"trainer_config": DictConfigWrap(config), "data_config": DictConfigWrap(config.data)},
        **{"server_manager": engine, "tokenizer": engine.tokenizer, "processor": None, "dataset_cls": SimpleNamespace},
        hf_model_type="qwen2",
    )


@cache
def rows(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """100 episodes of each environment as verl gets them from the agent loop, and the lines of their file."""
    chosen, users = list(mutants(100)), {}
    for task, *_ in chosen:
        users[task.id] = [item.text for item in task.gold() if isinstance(item, UserWords)] + [GO_ON] * 40
    lines = [json.dumps({"task_id": name, "lines": words}) + "\n" for name, words in users.items()]
    (folder / "users.jsonl").write_text("".join(lines))

    async def episode(number: int, task: Task, items: list[Any], name: str) -> dict[str, Any]:
        protocol = get_protocol(name, docs="signature")
        texts = [text.removesuffix("<cut>") for text in texts_of(items, protocol)]
        engine = Engine(tiny(folder), texts, protocol.render_answer("done", "done"))
        loop = agent_loop(engine, name, (40000, 40000, 4000, 400)[number % 4], folder)
        info = {"split": "train", "environment": task.environment, "task_id": task.id}
        place = {"uid": f"u{number // 5}", "session_id": number % 5, "global_steps": number // 100}
        output = await loop.run({"temperature": 1.0}, extra_info=info, **place)
        record = output.extra_fields["episode"]
        found = scores(record)
        result = found["outcome clean"] if found["step"] == "does not apply" else found["step"]
        output.reward_score, output.extra_fields["reward_extra_info"] = result["score"], dict(result)
        return output.as_dict() | {"task": task, "record": stable(record), "scores": found}

    async def all_of_them() -> list[dict[str, Any]]:
        return [await episode(number, *sample[:3]) for number, sample in enumerate(chosen)]

    made = asyncio.run(all_of_them())
    stored = [path.read_text().splitlines() for path in sorted((folder / "episodes").glob("**/*.jsonl"))]
    return made, [json.loads(line) for lines in stored for line in lines]


def episodes(folder: Path) -> Views:
    made, lines = rows(folder)
    for number, (fields, line) in enumerate(zip(made, lines, strict=True)):
        columns = {name: fields[name].tolist() for name in COLUMNS if name in fields}
        views = {**columns, "record": fields["record"], "line": stable(line)}
        yield fields["task"].environment, f"{fields['task'].id} ({number})", views | {"scores": fields["scores"]}


def credit(folder: Path) -> dict[str, list[float]]:
    """Name -> numbers that tell the tensors of 25 episodes: sums, and one with random weights."""
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import FSDPActorConfig

    from recipe.credit.estimators import gae_bad, gae_step, turn_grpo
    from recipe.credit.policy_loss import StepPolicyLossConfig

    torch.set_num_threads(1)
    found: dict[str, list[float]] = {}

    def note(name: str, *tensors: Any) -> None:
        weights = [torch.randn(item.shape, generator=torch.Generator().manual_seed(1)) for item in tensors]
        sums = [[item.sum(), item.abs().sum(), (item * by).sum()] for item, by in zip(tensors, weights, strict=True)]
        found[name] = [float(f"{value.item():.9g}") for values in sums for value in values]

    made, _ = rows(folder)
    for start in range(0, len(made), 25):

        def column(name: str, padding: float, start: int = start) -> Any:
            values = [torch.as_tensor(fields[name]) for fields in made[start : start + 25]]
            return torch.nn.utils.rnn.pad_sequence(values, batch_first=True, padding_value=padding)

        reward, mask = column("rm_scores", 0.0), column("response_mask", 0)
        ids, turns, old = column("step_ids", -1), column("turn_ids", -1), column("rollout_log_probs", 0.0)
        random = torch.Generator().manual_seed(start)
        values = torch.randn(mask.shape, generator=random)
        new = (old + 0.3 * torch.randn(mask.shape, generator=random)).requires_grad_()
        by_step = gae_step(reward, values, mask, ids, gamma=0.95, lam=0.9)
        note(f"gae_step {start}", *by_step)
        bad = gae_bad(reward, values, mask, ids, gamma=0.95, lam=0.9, gamma_token=0.99, lam_token=0.98)
        note(f"gae_bad {start}", *bad)
        groups = [number // 5 for number in range(len(mask))]
        note(f"turn_grpo {start}", turn_grpo(reward, mask, turns, groups, gamma=0.9)[0])
        sizes: dict[str, Any] = {"strategy": "fsdp2", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}
        loss = StepPolicyLossConfig(loss_mode="appo_step", ratio_norm="sum" if start % 50 else "token_mean")
        config = FSDPActorConfig(**sizes, clip_ratio_low=0.2, clip_ratio_high=0.28, policy_loss=loss)
        given = (old, new, by_step[0], mask.bool(), "seq-mean-token-mean", config)
        total, metrics = get_policy_loss_fn("appo_step")(*given)
        note(f"appo_step {start}", total, *torch.autograd.grad(total, new), *map(torch.tensor, metrics.values()))
    return found


def command(*arguments: Any, **variables: str) -> None:
    """Run one from the root, with the profile of the tiny policy."""
    own = {"HARDWARE": "tiny", "PYTHONPATH": str(ROOT), **variables}
    kept = {name: value for name, value in os.environ.items() if name not in ("MODEL", "RUN", "SEED")}
    given = [sys.executable if word == "python" else str(word) for word in arguments]
    done = subprocess.run(given, cwd=ROOT, env=kept | own, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        sys.exit(f"{' '.join(given)} failed: {done.stdout[-3000:]}{done.stderr[-3000:]}")


def trained(run: Path, script: str, *overrides: str, steps: int = 5, **variables: str) -> dict[str, list[float]]:
    """Name -> its value in each step; nothing that measures the machine."""
    tiny(folder := run.parent)
    if not (folder / "data").exists():
        command("python", "-m", "data_prep", "--out", folder / "data", "--tiny")
    own = (f"paths.run={run}", f"paths.data={folder}/data", f"trainer.total_training_steps={steps}")
    command("bash", script, *own, *overrides, **variables)
    found: dict[str, list[float]] = {}
    for line in [line for path in sorted(run.glob("**/metrics/*.jsonl")) for line in path.read_text().splitlines()]:
        for name, value in json.loads(line)["data"].items():
            if isinstance(value, int | float) and name.count("/") < 3 and not any(word in name for word in MACHINE):
                found.setdefault(name, []).append(float(f"{value:.9g}"))
    return {name: values[:1] if len(set(values)) == 1 else values for name, values in found.items()}


def sft(folder: Path) -> dict[str, list[float]]:
    return trained(folder / "sft", "run_sft.sh", f"paths.stage={folder}/sft")


def offline(folder: Path, name: str = "offline", *overrides: str) -> dict[str, list[float]]:
    """On short episodes of the agent loop, in pairs."""
    short = [line for line in rows(folder)[1] if line["prompt_tokens"] <= 700 and line["response_tokens"] <= 600][:40]
    pairs = [line | {"uid": f"u{number // 2}", "session_id": number % 2} for number, line in enumerate(short)]
    stored = folder / "stored.jsonl"
    stored.write_text("".join(json.dumps(line) + "\n" for line in pairs))
    own = (f"offline.files={stored}", f"critic.model.path={folder}/critic")
    return trained(folder / name, "run_offline.sh", *own, *overrides, MODEL=f"{folder}/model")


def grpo(folder: Path) -> dict[str, list[float]]:
    sizes = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=4")
    return offline(folder, "grpo", "algorithm=grpo", "actor_rollout_ref.rollout.n=2", *sizes)


def live(folder: Path) -> dict[str, list[float]]:
    sizes = ("data.train_batch_size=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.test_freq=2")
    more = (*sizes, "trainer.save_freq=2", "actor_rollout_ref.rollout.n=2", "data.max_response_length=300")
    found = trained(folder / "live", "run_stage2.sh", *more, steps=2, MODEL=f"{folder}/model")
    return {name: [] for name in found if name.count("/") < 2}


PARTS: dict[str, Any] = {
    **{"gold": lambda _: summary(played(gold())), "mutants": lambda _: summary(played(mutants()))},
    **{"episodes": lambda folder: summary(episodes(folder)), "credit": credit},
    **{"sft": sft, "offline": offline, "grpo": grpo, "live": live},
}


def differences(part: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """What is not the same, one line each."""
    for name in sorted(before.keys() ^ now.keys()):
        yield f"{part}: {name} is {'new' if name in now else 'gone'}"
    for name in sorted(before.keys() & now.keys()):
        old, new = before[name], now[name]
        if isinstance(old, list):
            size = max(map(abs, old)) if part == "credit" else 0.0  # sums of one vector, one of them its norm
            near = [abs(one - other) <= 1e-6 * max(1.0, size, abs(one)) for one, other in zip(old, new, strict=False)]
            if len(old) != len(new) or not all(near):
                yield f"{part}: {name} was {old}, is {new}"
        elif views := [view for view in old if view != "list" and old[view] != new[view]]:
            letters = [(old["each"][at : at + 2], new["each"][at : at + 2]) for at in range(0, len(new["each"]), 2)]
            other = [task for task, (one, two) in zip(new["list"], letters, strict=True) if one != two]
            yield f"{part}: {name}: {', '.join(views)} differ in {len(other)} of {len(letters)}, first {other[:1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare"))
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all of them by default")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # BFCL writes sets into some error texts
        again = [sys.executable, "-m", "benchmarks.freeze", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    before, found = json.loads(FILE.read_text()) if FILE.exists() else {}, list[str]()
    with tempfile.TemporaryDirectory(prefix="freeze_") as folder:
        for part in given.parts or PARTS:
            now = PARTS[part](Path(folder))
            print(f"{part}: {len(now)} groups or numbers", flush=True)
            if given.what == "compare":
                found += differences(part, before.get(part, {}), now)
                continue
            before[part] = {
                name: {**value, "list": 0} if isinstance(value, dict) else value for name, value in now.items()
            }
            FILE.write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(before[name])}' for name in before) + "\n}\n")
    print("\n".join(found) or ("all is as it was" if given.what == "compare" else FILE))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
