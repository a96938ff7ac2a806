"""The README.md of an exported model: metadata that the hub reads, and what a person has to know before using it."""

from pathlib import Path
from typing import Any

import yaml

from interaction import get_protocol
from recipe.cards.lineage import DataFile, Stage, lineage
from recipe.cards.markdown import block, plain, table
from recipe.cards.origin import CARD, is_hub_id, licence_of, licence_text, name_of
from recipe.files import write_atomic
from recipe.report.episodes import headers, validation_files
from recipe.report.validation import Measured, Validation, validation
from recipe.stage import choosing
from recipe.stage.notes import Done
from recipe.typed import one_line

SOURCES = {
    "bfcl": (
        "gorilla-llm/Berkeley-Function-Calling-Leaderboard",
        "Training tasks are multi-turn tasks of BFCL, 100 of its 200 scenarios at most, in whatever category. **BFCL's "
        "multi-turn score of this model is therefore no held-out number any more**: report the held-out scenarios "
        "only, and say so.",
    ),
    "bfcl_single": (
        "gorilla-llm/Berkeley-Function-Calling-Leaderboard",
        "Training tasks are single-turn tasks of BFCL, about half of them: its single-turn score of this model is no "
        "held-out number any more.",
    ),
    "tau": (
        None,
        "Training tasks are tasks of tau2-bench: only its held-out tasks say anything about this model.",
    ),
}
"""Environment -> its data set on the hub, and what training on it means for its score."""

EXAMPLE = {
    "name": "get_weather",
    "description": "Current weather of a city.",
    "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

EFFECTIVE = (
    ("advantage estimator", "algorithm.adv_estimator"),
    ("rollouts a prompt", "actor_rollout_ref.rollout.n"),
    ("prompts a step", "data.train_batch_size"),
    ("learning rate", "actor_rollout_ref.actor.optim.lr"),
    ("KL loss", "actor_rollout_ref.actor.use_kl_loss"),
    ("LoRA rank", "actor_rollout_ref.model.lora_rank"),
    ("prompt tokens", "data.max_prompt_length"),
    ("response tokens", "data.max_response_length"),
    ("steps a turn", "interaction.train.max_steps_per_turn"),
    ("hints", "interaction.train.environments.bfcl.augment"),
)
"""Settings of a stage of reinforcement learning that a card shows."""

EFFECTIVE_SFT = (
    ("conversations an update", "data.train_batch_size"),
    ("learning rate", "optim.lr"),
    ("epochs", "trainer.total_epochs"),
    ("LoRA rank", "model.lora_rank"),
    ("tokens", "data.max_length"),
)


def write_card(stage: Path) -> Path:
    """Write the card of `<stage>/hf`; returns its path. A card that is there is replaced.

    Raises:
        OSError: it cannot be written.
    """
    path = stage / "hf" / CARD
    write_atomic(path, model_card(stage))
    return path


def note_card(stage: Path) -> None:
    """Write the card at the end of a stage. The model is there already: a fault of the card's is said and no more."""
    try:
        write_card(stage)
    except Exception as error:  # notes of a run that a person may have edited, in whatever way
        print(f"NOTE {stage / 'hf' / CARD} was not written: {one_line(error) or type(error).__name__}", flush=True)


def model_card(stage: Path) -> str:
    """The text of a stage's card, metadata first."""
    start, stages = lineage(stage.absolute())
    validated = _validated(stage, stages[-1].done)
    scores = validation(stage.absolute().parent, validated) if validated else []
    head = yaml.safe_dump(_metadata(start, stages, scores), sort_keys=False, allow_unicode=True)
    last = stages[-1]
    parts = [
        f"# {plain(f'{stage.absolute().parent.name}/{last.name}')}",
        f"A model that calls functions over several turns, trained from {name_of(start)} with "
        "[verl](https://github.com/volcengine/verl) and bfcl-grpo.",
        f"## Training\n\n{_training(stages)}",
        f"## Data\n\n{_data(stages)}",
        f"## Scores\n\n{_score_text(stage, validated, scores)}",
        f"## Protocol and serving\n\n{_serving(stages)}",
        f"## Limits\n\n{_limits(stages)}",
        f"## Licence\n\n{licence_text(start)}",
    ]
    return f"---\n{head}---\n\n" + "\n\n".join(parts) + "\n"


def environments(stages: tuple[Stage, ...]) -> list[str]:
    """The environments whose tasks were trained on, as far as the data files still say it."""
    found = [source.partition("/")[0] for stage in stages for file in _trained(stage) for source in file.rows]
    return list(dict.fromkeys(name for name in found if name != "conversations"))


def _trained(stage: Stage) -> list[DataFile]:
    return [file for file in stage.data if not file.held_out]


def _metadata(start: str, stages: tuple[Stage, ...], scores: list[Validation]) -> dict[str, Any]:
    asked = {name: _last(stages, f"interaction.{name}") for name in ("protocol", "docs")}
    data = dict.fromkeys(hub for name in environments(stages) if (hub := SOURCES.get(name, (None, ""))[0]))
    tags = ["function-calling", "tool-use", "multi-turn", "verl", "bfcl-grpo"]
    tags += ["reinforcement-learning"] * any(not stage.warm_start for stage in stages)
    found: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": [*tags, *(f"{name}:{value}" for name, value in asked.items() if isinstance(value, str))],
    }
    if licence := licence_of(start):
        found["license"] = licence
    if is_hub_id(start):
        found |= {"base_model": start, "base_model_relation": "finetune"}
    if data:
        found["datasets"] = list(data)
    if scores:
        found["model-index"] = [{"name": stages[-1].name, "results": [_result(one) for one in scores]}]
    return found


def _result(one: Validation) -> dict[str, Any]:
    named = {"acc": one.acc, "acc_official": one.acc_official, "progress": one.progress}
    kinds = {"acc": "accuracy", "acc_official": "accuracy"}
    return {
        "task": {"type": "text-generation", "name": "multi-turn function calling"},
        "dataset": {
            "type": "held-out",
            "name": f"held-out tasks, {one.category} (n={one.tasks})",
            "split": "validation",
        },
        "metrics": [
            {"type": kinds.get(name, name), "name": name, "value": round(measured.value, 4)}
            for name, measured in named.items()
        ],
    }


def _validated(stage: Path, done: Done | None) -> Path | None:
    """The stored validation of the exported model; None if its step was not validated."""
    if done is None:
        return None
    step = done.model_step if done.model_step is not None else done.global_step
    path = stage / "rollouts" / "val" / f"{step:06d}.jsonl"
    return path if path in validation_files(stage) else None


def _score_text(stage: Path, path: Path | None, scores: list[Validation]) -> str:
    if path is None or not scores:
        return (
            "None: this step of the training was not validated. Measure it with "
            "`python -m recipe.evaluate --model FOLDER --split val`."
        )
    rows = [
        [plain(one.category), str(one.tasks), *map(_measured, (one.acc, one.acc_official, one.progress))]
        for one in scores
    ]
    text = table(["held-out tasks", "episodes", "accuracy", "accuracy by the source's rule", "progress"], rows)
    parts = {place.header.get("part") or choosing.part_of_row(place.header) for place in headers(path)}
    apart = (
        "Training tasks are among them."
        if not parts <= {*choosing.APART}
        else "No training task, in whatever category, is among them."
    )
    decided = choosing.sentence(choosing.of_model(stage / "hf"))
    return (
        f"{text}\n\nFrom the validation in training, at step {scores[0].step}, with 95 % intervals over tasks. {apart} "
        f"{decided}"
    ).rstrip()


def _measured(one: Measured) -> str:
    low, high = one.interval
    return f"{one.value:.3f} [{low:.3f}, {high:.3f}]"


def _training(stages: tuple[Stage, ...]) -> str:
    rows = []
    for number, stage in enumerate(stages, 1):
        steps = f"{stage.done.global_step}" if stage.done else "-"
        why = f" ({plain(stage.done.reason)})" if stage.done and stage.done.reason else ""
        keys = EFFECTIVE_SFT if stage.warm_start else EFFECTIVE
        values = [(name, stage.setting(key)) for name, key in keys]
        listed = ", ".join(f"{name} {plain(value)}" for name, value in values if value not in (None, False))
        rows.append([str(number), plain(stage.name), f"{steps}{why}", plain(stage.reward), listed])
    text = table(["", "stage", "steps", "reward", "settings"], rows)
    last = stages[-1]
    made = ", ".join(f"{plain(name)} {plain(version)}" for name, version in last.versions.items())
    seed = "" if last.seed is None else f" Seed of the last stage: {last.seed}."
    return f"{text}\n\n{f'Made with {made}.' if made else 'Versions were not noted.'}{seed}"


def _data(stages: tuple[Stage, ...]) -> str:
    rows = []
    for stage in stages:
        for file in stage.data:
            counted = (
                ", ".join(f"{plain(source)} {count}" for source, count in sorted(file.rows.items())) or "not known"
            )
            use = "held out" if file.held_out else "training"
            rows.append([plain(stage.name), use, plain(file.name), counted, f"`{file.sha256 or 'not known'}`"])
    return table(["stage", "use", "file", "rows", "SHA-256"], rows) if rows else "Not noted."


def _last(stages: tuple[Stage, ...], key: str) -> Any:
    """A setting in the last stage that has it; None if none has."""
    return next((value for stage in reversed(stages) if (value := stage.setting(key)) is not None), None)


def _serving(stages: tuple[Stage, ...]) -> str:
    length = next(
        (found for stage in reversed(stages) if (found := stage.setting("actor_rollout_ref.rollout.max_model_len"))),
        None,
    )
    limit = f" --max-model-len {length}" if isinstance(length, int) else ""
    text = (
        f"```bash\nvllm serve FOLDER_OR_REPOSITORY --generation-config vllm{limit}\n```\n\n"
        "Without a reasoning parser and without a tool-call parser: calls stand in the message's text, and both would "
        "take parts of it out. The messages that the model reads and writes are those of one protocol"
    )
    name = _last(stages, "interaction.protocol")
    try:
        protocol = get_protocol(str(name), docs=_last(stages, "interaction.docs") or "json")
    except ValueError:
        return f"{text}, which was not noted."
    return (
        f"{text}, `{plain(name)}`; with other prompts it was not trained. Its system prompt, for one function:\n\n"
        f"{block(protocol.system_prompt([EXAMPLE]))}"
    )


def _limits(stages: tuple[Stage, ...]) -> str:
    known = environments(stages)
    texts = [f"- {SOURCES[name][1]}" for name in known if name in SOURCES]
    if not known:
        texts.append("- Which tasks it was trained on is no longer known here: take no benchmark's score as held out.")
    return "\n".join(
        [
            *texts,
            "- It was rewarded for what an environment's tasks ask for, and for nothing else; no measure of safety was "
            "part of its training.",
            "- What it writes are proposals of calls. Check names and arguments before you run any, and never evaluate "
            "its text.",
        ]
    )
