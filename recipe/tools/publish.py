"""Upload an exported model with its card to the Hugging Face hub.

    python -m recipe.tools.publish outputs/default --dry-run                     # only list what would be uploaded
    python -m recipe.tools.publish outputs/default --repo-id me/my-model

RUN is a run (its last finished stage is taken), the folder of a stage, or a model folder. First the card gets the
training, data and scores of its stage; your own words in it stay. The token is that of `hf auth login` or HF_TOKEN.
A new repository is private. Files are uploaded by known names only, and links are not followed.
"""

import argparse
import json
import re
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from omegaconf import OmegaConf

from recipe.files import PreflightError, aligned, one_line
from recipe.report.episodes import headers, validation_files
from recipe.report.validation import METRICS, Validation, validation
from recipe.settings import as_list
from recipe.stage import choosing
from recipe.stage.export import CARD, write_card
from recipe.stage.state import look
from recipe.stage.weights import broken_export

UPLOADED = re.compile(
    r"(README|LICENSE|NOTICE)(\.md|\.txt)?|((generation_|adapter_|processor_|preprocessor_)?config|checksums)\.json"
    r"|(model|adapter_model)[\w-]*\.safetensors(\.index\.json)?|tokenizer[\w-]*\.(json|model)|\w+\.tiktoken"
    r"|(special_tokens_map|added_tokens|vocab)\.json|(vocab|merges)\.txt|chat_template\.(jinja|json)|spiece\.model"
)
"""Names of the files that a model consists of."""

SETTINGS = ("algorithm.adv_estimator", "actor_rollout_ref.rollout.n", "actor_rollout_ref.actor.optim.lr", "optim.lr")
"""Settings of a stage that a card shows."""
BFCL = "gorilla-llm/Berkeley-Function-Calling-Leaderboard"


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m recipe.tools.publish", description=__doc__, formatter_class=form)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, of a stage, or of a model")
    parser.add_argument("--repo-id", metavar="NAME/MODEL", help="repository on the hub; made if it is not there")
    parser.add_argument("--dry-run", action="store_true", help="list what would be uploaded, and upload nothing")
    given = parser.parse_args(arguments)
    if not given.dry_run and not given.repo_id:
        parser.error("give --repo-id NAME/MODEL, or --dry-run")
    try:
        folder = model_folder(given.run)
        if fault := broken_export(folder):
            raise PreflightError(f"{fault}\nExport it again: start its stage once more.")
        notes = complete_card(folder)
        plain = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink()]
        files = {path.name: path.stat().st_size for path in plain if UPLOADED.fullmatch(path.name)}
        rows = [[name, f"{size / 1e6:.1f} MB"] for name, size in files.items()]
        print(f"{folder}\n{aligned([*rows, ['total', f'{sum(files.values()) / 1e6:.1f} MB']])}")
        print("\n".join(f"NOTE {note}" for note in notes))
        print("nothing was uploaded" if given.dry_run else f"uploaded to {upload(folder, list(files), given.repo_id)}")
    except (PreflightError, OSError) as error:
        print(f"not published: {error}", file=sys.stderr)
        return 1
    return 0


def model_folder(given: Path) -> Path:
    """The folder itself, the export of a stage, or that of the finished stage of a run that was started last."""
    stages = [given / str(start["stage"]) for start in _read(given / "manifest.json").get("starts", [])]
    ended = [stage / "hf" for stage in reversed(stages) if look(stage).done]
    for folder in (given, given / "hf", *ended):
        if (folder / "config.json").is_file():
            return folder
    raise PreflightError(f"{given} has no exported model.\nGive a run with a finished stage, a stage, or a model.")


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


class Stage:
    """One training in the history of a model, as its own files have it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done = folder, look(folder).done
        self.config = OmegaConf.create(yaml.safe_load((folder / "config" / "resolved.yaml").read_text("utf-8")))
        starts = _read(folder.parent / "manifest.json").get("starts", [])
        start: dict[str, Any] = next((one for one in reversed(starts) if one["stage"] == folder.name), {})
        self.versions, self.data = start.get("versions", {}), start.get("data", {})

    def get(self, key: str) -> Any:
        return OmegaConf.select(self.config, key)

    def training(self) -> str:
        """A line: steps, reward, settings, versions."""
        reward = Path(str(self.get("reward.custom_reward_function.path") or "none (supervised)")).name
        reward = "stored with the trajectories" if self.get("offline.files") else reward
        told = [f"{key}={value}" for key in SETTINGS if (value := self.get(key)) is not None]
        told += [f"{name} {version}" for name, version in self.versions.items()]
        steps = self.done.global_step if self.done else "?"
        return f"- **{self.folder.name}**: {steps} steps, reward `{one_line(reward)}`, {', '.join(told)}"

    def rows(self, name: str) -> Counter[str]:
        """Data source -> rows of a file; empty where it is gone, or another one than was read."""
        path = Path(name).expanduser()
        if path.suffix != ".parquet" or not path.is_file() or sha256(path.read_bytes()).hexdigest() != self.data[name]:
            return Counter()
        return Counter(pq.read_table(path, columns=["data_source"])["data_source"].to_pylist())

    def scores(self) -> tuple[list[Validation], list[str]]:
        """The validation of the exported step, and its lines; that of another step is not this model's score."""
        step = self.done.model_step if self.done else 0
        path = self.folder / "rollouts" / "val" / f"{step:06d}.jsonl"
        if path not in validation_files(self.folder):
            return [], ["This step was not validated: `python -m recipe.evaluate --model FOLDER --split val`."]
        scores = validation(self.folder.parent, path)
        lines = [f"| tasks | episodes | {' | '.join(METRICS)} |", "| --- " * (2 + len(METRICS)) + "|"]
        for one in scores:
            lines.append(f"| {one['category']} | {one['tasks']} | {' | '.join(str(one[name]) for name in METRICS)} |")
        held_out = {place.header.get("part") for place in headers(path)} <= {*choosing.APART}
        apart = "No training task is" if held_out else "**Training tasks are**"
        said = f"Validation at step {step}, with 95 % intervals over tasks. {apart} among them."
        return scores, [*lines, "", f"{said} {choosing.sentence(choosing.of_model(self.folder / 'hf'))}".rstrip()]


def history(folder: Path) -> list[Stage]:
    """The stages that made a model, the first one first."""
    found: list[Stage] = []
    while (folder / "config" / "resolved.yaml").is_file() and folder not in [stage.folder for stage in found]:
        found.insert(0, stage := Stage(folder))
        keys = ("actor_rollout_ref.model.lora_adapter_path", "actor_rollout_ref.model.path", "model.path")
        folder = Path(next((str(name) for key in keys if (name := stage.get(key))), "")).parent
    return found


def complete_card(folder: Path) -> list[str]:
    """Add what the card of a stage's export lacks, and write it; returns what a person should look at first."""
    from huggingface_hub import ModelCard
    from huggingface_hub.repocard_data import EvalResult

    stages, path = history(folder.parent.absolute()) if folder.name == "hf" else [], folder / CARD
    if stages and not path.is_file():
        write_card(stages[-1].config, folder)
    try:
        card: Any = ModelCard.load(path)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise PreflightError(
            f"{path} is no card that the hub takes: {one_line(error)}\nWrite or correct it."
        ) from error
    if stages:
        scores, said = stages[-1].scores()
        rows = [(stage, name, stage.rows(name)) for stage in stages for name in stage.data]
        train = ("data.train_files", "stage.resample.pool")
        trained = [of for stage, name, of in rows if any(name in as_list(stage.get(key)) for key in train)]
        sources = sorted({source for of in trained for source in of})
        sections = {
            "Training": [stage.training() for stage in stages],
            "Data": [
                f"- {stage.folder.name}: `{Path(name).name}`, rows: "
                f"{', '.join(f'{source} {count}' for source, count in sorted(of.items())) or 'not known'}, "
                f"SHA-256 `{stage.data[name]}`"
                for stage, name, of in rows
            ],
            "Scores": said,
            "Limits": [
                f"- It was trained on tasks of {', '.join(sources) or 'an unknown source'}. **Its score on such a "
                "benchmark is not held out**: report the held-out tasks only.",
                "- It was rewarded for these tasks alone. Safety was no part of its training.",
            ],
        }
        for name, lines in sections.items():
            if f"## {name}\n" not in card.text:
                card.text = f"{card.text.rstrip()}\n\n## {name}\n\n" + "\n".join(lines) + "\n"
        if any(source.startswith("bfcl") for source in sources):
            card.data.datasets = card.data.datasets or [BFCL]
        if scores and not card.data.eval_results:
            card.data.model_name = stages[-1].folder.name
            card.data.eval_results = [
                EvalResult(
                    "text-generation", "held-out", f"held-out tasks, {one['category']}", name, value, metric_name=name
                )
                for one in scores
                for name in METRICS
                for value in [round(one[name].value, 4)]
            ]
        card.save(path)
    lacks = {"license": card.data.license, "base_model": card.data.base_model, "scores": card.data.eval_results}
    return [f"{path} has no {name}" for name, value in lacks.items() if not value]


def upload(folder: Path, files: list[str], repo_id: str) -> str:
    """Upload the files to a repository, which is made (private) where there is none; returns its address."""
    from huggingface_hub import HfApi

    try:
        url = HfApi().create_repo(repo_id, private=True, exist_ok=True)
        HfApi().upload_folder(
            repo_id=url.repo_id,
            folder_path=folder,
            allow_patterns=files,
            commit_message="Model trained with bfcl-grpo",
        )
    except Exception as error:  # of httpx and of the hub's library: no network, no token, no right, a full account
        raise PreflightError(f"{repo_id}: {type(error).__name__}: {one_line(error)}") from error
    return str(url)


if __name__ == "__main__":
    sys.exit(main())
