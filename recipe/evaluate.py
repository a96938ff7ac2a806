"""Score a model on tasks of BFCL, tau2-bench or your own: both accuracies with intervals, and BFCL's own verdict.

    python -m recipe.evaluate --model outputs/default/stage3_full/hf --split test
    python -m recipe.evaluate --model BASE --adapter outputs/default/stage1_format/adapter
    python -m recipe.evaluate --endpoint http://127.0.0.1:8000/v1 --split test --samples 4 --temperature 0.7
    python -m recipe.evaluate --model outputs/default/stage3_full/hf --split test --strategy dfsdt
    python -m recipe.evaluate --records outputs/default

`--model` starts vLLM and ends it; what follows `--` goes to vLLM. `--endpoint` is any OpenAI-compatible server. `dfsdt`
searches over branches, depth first. `--records` judges episodes that training or another evaluation has stored,
without a model. docs/evaluation.md says what each number means. The same command goes on where it stopped.

Exit status: 0 all episodes were played and the verdicts agree; 1 it could not be done; 3 episodes were lost, and are
in no number; 4 BFCL's verdict differs from ours where nothing explains it; 130 interrupted.
"""

import argparse
import asyncio
import json
import re
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from interaction.endpoint import Endpoint, EndpointRefusal
from interaction.environment import judge_of, known, load_tasks, source_of
from interaction.episode_file import parts_of, played_in
from interaction.masked import masked_text
from interaction.record import EpisodeRecord
from interaction.users import UserFault, require_answer
from recipe.evaluation.arguments import OPTIONS, key_of, parse, settings_of, through
from recipe.evaluation.play import play_all, play_episode
from recipe.evaluation.results import Judged, cost_of, results, text
from recipe.evaluation.server import context_note
from recipe.evaluation.store import EPISODES, Settings, Store, finished_lines, read_episodes
from recipe.files import PreflightError, write_atomic
from recipe.machine.processes import Interruptible
from recipe.stage import choosing
from recipe.stage.export import trained_with
from recipe.votes.search import search_episode

LOST_STATUS, DISAGREE_STATUS = 3, 4


def main(arguments: Sequence[str] | None = None) -> int:
    given, vllm_flags = parse(list(sys.argv[1:] if arguments is None else arguments), __doc__)
    try:
        with Interruptible():
            if given.records:
                return judge_records(given.records, given.out)
            return evaluate(given, vllm_flags)
    except (EndpointRefusal, PreflightError, UserFault, FileNotFoundError) as error:
        print(f"\n{masked_text(str(error))}", file=sys.stderr)
        return 1
    except (OSError, KeyboardInterrupt) as error:  # a full disk, a folder that cannot be written
        what = str(error) or "interrupted"
        print(f"\n{what}; finished episodes are kept, the same command goes on from there", file=sys.stderr)
        return 1 if isinstance(error, OSError) else 130


def evaluate(given: argparse.Namespace, vllm_flags: Sequence[str]) -> int:
    """Play what is not played yet, judge everything, write results.json and results.txt."""
    if given.endpoint and not given.served_name:

        async def only_model() -> str:
            asked = (given.timeout, given.attempts, given.backoff)
            async with Endpoint(given.endpoint, None, key_of(given), *asked, named=OPTIONS) as endpoint:
                return endpoint.model or ""

        given.served_name = asyncio.run(only_model())
    settings = settings_of(given)
    settings.require_tasks()
    settings = replace(settings, user=require_answer(settings.user))
    search = "" if given.strategy == "plain" else f"-{given.strategy}"
    model = given.adapter or given.model or given.served_name
    name = f"{model}-{settings.environment}-{given.split}{search}"
    folder = given.out or Path("outputs") / "evaluation" / re.sub(r"[^\w.-]", "_", name)
    tasks, otherwise = len(settings.tasks()), ""
    if given.model:  # of an endpoint's model nothing is known
        trained = trained_with(given.adapter or given.model)
        now = {"protocol": settings.protocol, "docs": settings.docs, "max_tokens_per_reply": settings.max_tokens}
        other = [f"{key} {trained[key]}, not {value}" for key, value in now.items() if trained.get(key, value) != value]
        otherwise = f"NOTE the model was trained with {'; '.join(other)}. It may do worse here." if other else ""
    if given.guessed:
        otherwise = f"NOTE nothing says in which format {model} was trained: --protocol {settings.protocol} is a guess"
    with closing(Store(folder, settings)) as store:
        print("\n".join(filter(None, [f"{tasks} episodes, kept in {folder}", otherwise])), flush=True)
        lost: list[dict[str, Any]] = []
        if len(store.episodes()) < tasks:  # a server is not started for nothing
            lost = _play(given, vllm_flags, settings, store)
        judged = _judged(list(finished_lines(store.path).values()))
        cost = cost_of([store.path])
    chosen = [item for folder in (given.model, given.adapter) if folder for item in choosing.of_model(folder)]
    note = "\n\n".join(filter(None, [choosing.note(chosen, settings.split), otherwise]))
    found = results(judged, lost, settings.samples, cost, settings.by_bfcl())
    if settings.split.startswith("official"):  # whose test tasks are others
        found["parts"] = {}
    kept = json.loads((folder / "settings.json").read_text("utf-8"))
    return _report(found | {"note": note, "source": settings.source, "settings": kept}, folder)


def _play(given: argparse.Namespace, flags: Sequence[str], settings: Settings, store: Store) -> list[dict[str, Any]]:
    if given.model and (note := context_note(given.model, flags, settings)):
        print(note, flush=True)
    play = search_episode if settings.strategy == "dfsdt" else play_episode
    work = partial(play_all, settings=settings, store=store, concurrency=given.concurrency, play=play)
    return through(given, flags, settings, store.folder / "server.log", work)  # type: ignore[no-any-return]


def judge_records(sources: Sequence[Path], out: Path | None) -> int:
    """Judge stored episodes: JSONL files, or runs with `<stage>/rollouts/{train,val}/<step>.jsonl`."""
    steps: list[list[Path]] = []
    for source in sources:
        found = [[source]] if source.is_file() else [*map(parts_of, played_in(source))]
        steps += found or [[path] for path in sorted(source.glob(f"**/{EPISODES}"))]
    read, paths = [read_episodes(*parts) for parts in steps], [path for parts in steps for path in parts]
    stored, skipped = [item for items, _ in read for item in items], sum(number for _, number in read)
    records = [(at, it) for at, it in stored if it.environment in known() and it.task_id in load_tasks(it.environment)]
    print(f"{len(records)} episodes in {len(paths)} files; {skipped} lines are no record of this version")
    if left_out := len(stored) - len(records):
        print(f"NOTE {left_out} episodes are left out: their tasks are not known here (--environment FILE)")
    if not records:
        raise FileNotFoundError(
            f"{', '.join(map(str, sources))} holds no episodes: expected JSONL files, <stage>/rollouts/<split>/"
            f"<step>.jsonl of a run, or {EPISODES} of an evaluation, whose results.txt says what was lost"
        )
    chosen = [item for source in sources if source.is_dir() for item in choosing.of_run(source)]
    judged = results(_judged(records), [], None, cost_of(paths))
    origins = {name: source_of(name) for name in sorted({record.environment for _, record in records})}
    made_from = origins if len(origins) > 1 else next(iter(origins.values()))
    return _report(judged | {"note": choosing.sentence(chosen), "source": made_from}, out)


def _report(found: dict[str, Any], folder: Path | None) -> int:
    """Print the results and write them into a folder, if there is one; returns the exit status."""
    print(f"\n{text(found)}")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / "results.json", json.dumps(found, indent=2) + "\n")
        write_atomic(folder / "results.txt", text(found) + "\n")
        print(f"\nwritten to {folder}/results.json and results.txt")
    if found["lost"]:
        return LOST_STATUS
    return DISAGREE_STATUS if found["verdicts"] and found["verdicts"]["disagree_without_listed_difference"] else 0


def _judged(lines: Sequence[tuple[dict[str, Any], EpisodeRecord]]) -> list[Judged]:
    """The episodes with the verdict of their environment's source, where that has a checker of its own."""
    judged = []
    for name in known():
        own = [(record, line.get("part")) for line, record in lines if record.environment == name]
        verdicts: Iterable[Any] = [None] * len(own)
        if own and (judge := judge_of(name)) is not None:
            checked = judge([record for record, _ in own])
            verdicts = tqdm(checked, f"{name.upper()}'s checker", len(own), unit="episode", mininterval=1)
        judged += [Judged(record, verdict, part) for (record, part), verdict in zip(own, verdicts, strict=True)]
    return judged


if __name__ == "__main__":
    sys.exit(main())
