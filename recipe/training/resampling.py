"""Resampling: between the epochs of a stage, tasks that teach nothing any more give way to spare ones.

A group teaches where its rollouts differ. So a task stays in play while its progress, the mean over the rollouts of the
last time it was played, lies in `stage.resample.keep`. Above `retire` it leaves for good; otherwise outside `keep` it
goes to the end of the pool and gets another chance when the pool comes round to it. Tasks leave in that order, the
farthest from `keep` first, at most a share `replace` of the rows an epoch, and only for a task that comes: an epoch
keeps its length. The ranges are those of RODS (arXiv 2606.19047).

The state is part of verl's checkpoint: its data loader saves a sampler's with its own (`data.pt`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from random import Random
from statistics import fmean
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import ConcatDataset, Sampler
from torchdata.stateful_dataloader import StatefulDataLoader
from verl.trainer.ppo.utils import create_rl_dataset

from interaction.environment import task_key_of, task_name
from recipe.settings import as_list

STANDINGS = ("out_of_reach", "edge", "mastered")
"""Below, in and above the kept range."""


class Resampler(Sampler[int]):
    """The rows of an epoch in their order, by number. It goes on where `load_state_dict` puts it.

    Args:
        tasks: name of each row's task; first of the rows in play, then of spare rows. A spare row whose task is there
            before is left out.
        sources: data source of each row, by which metrics are told apart.
        rows: how many are in play.
        settings: `stage.resample`.
        seed: of the pool's order and of every epoch's.
        shuffle: whether an epoch has an order of its own; else a spare row takes the place of the one that it replaces.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        sources: Sequence[str],
        rows: int,
        settings: Mapping[str, Any],
        seed: int,
        shuffle: bool,
    ) -> None:
        self.tasks, self.sources, self.settings, self.seed, self.shuffle = tasks, sources, settings, seed, shuffle
        first = {task: row for row, task in reversed([*enumerate(tasks)])}
        self.order = list(range(rows))
        self.pool = [row for row in range(rows, len(tasks)) if first[tasks[row]] == row]
        Random(f"{seed} pool").shuffle(self.pool)
        self.position, self.epoch = rows, 0  # before the first epoch
        self.new: list[int] = []
        """Rows that came with this epoch."""
        self.progress: dict[str, float] = {}
        """Of tasks in play, when they were last played."""

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[int]:
        if self.position == len(self.order):
            self._next_epoch()
        while self.position < len(self.order):
            self.position += 1
            yield self.order[self.position - 1]

    def observe(self, played: Mapping[str, Sequence[float]]) -> None:
        """Note the progress of a step's rollouts, by task; of a task that has left meanwhile it is not kept."""
        in_play = {self.tasks[row] for row in self.order}
        self.progress |= {task: fmean(values) for task, values in played.items() if task in in_play}

    def _next_epoch(self) -> None:
        (low, high), retire, share = (self.settings[name] for name in ("keep", "retire", "replace"))
        out = {row: self.progress.get(self.tasks[row], low) for row in self.order}
        out = {row: progress for row, progress in out.items() if not low <= progress <= high}
        leaving = sorted(out, key=lambda row: (out[row] <= retire, min(out[row] - low, high - out[row]), row))
        leaving = leaving[: min(int(share * len(self.order)), len(self.pool))]
        self.new, self.pool = self.pool[: len(leaving)], self.pool[len(leaving) :]
        self.pool += [row for row in leaving if out[row] <= retire]
        for row in leaving:
            self.progress.pop(self.tasks[row], None)
        comes = dict(zip(leaving, self.new, strict=True))
        self.order = [comes.get(row, row) for row in self.order]
        if self.shuffle:
            Random(f"{self.seed} {self.epoch}").shuffle(self.order)
        self.epoch, self.position = self.epoch + 1, 0

    def metrics(self) -> dict[str, float]:
        """Numbers of tasks in play by standing, and of those that came with this epoch: of all, and by data source."""
        low, high = self.settings["keep"]
        kinds = (*STANDINGS, "replaced")
        counts = Counter({name + kind: 0 for name in self._names(self.sources) for kind in kinds})
        for row in self.order:
            progress = self.progress.get(self.tasks[row])
            for name in self._names([self.sources[row]]):
                if progress is not None:
                    counts[name + STANDINGS[(progress >= low) + (progress > high)]] += 1
                counts[f"{name}replaced"] += row in self.new
        return {name: float(count) for name, count in counts.items()} | {"resample/spare": float(len(self.pool))}

    @staticmethod
    def _names(sources: Sequence[str]) -> list[str]:
        return ["resample/", *(f"resample/{source}/" for source in dict.fromkeys(sources))]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, for torchdata."""
        names = ("order", "pool", "position", "epoch", "new", "progress")
        return {name: deepcopy(getattr(self, name)) for name in names}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, in the middle of an epoch too."""
        for name, value in state.items():
            setattr(self, name, value)


def resampled(config: DictConfig, loader: StatefulDataLoader, **processors: Any) -> StatefulDataLoader:
    """verl's data loader of training rows, with those of `stage.resample.pool` to replace them.

    It reads rows in this process: workers would ask for the next epoch's before this one has been played.
    """
    data, settings = config.data, config.stage.resample
    spare = create_rl_dataset(as_list(settings.pool), data, is_train=True, **processors)
    parts = [loader.dataset, spare]
    tasks = [task_name(*task_key_of(info)) for part in parts for info in part.dataframe["extra_info"]]
    sources = [source for part in parts for source in part.dataframe["data_source"]]
    sampler = Resampler(tasks, sources, len(loader.dataset), settings, data.seed, data.shuffle)
    print(f"{len(sampler)} rows in play, {len(sampler.pool)} spare ones of {settings.pool}", flush=True)
    return StatefulDataLoader(
        ConcatDataset(parts),
        batch_size=loader.batch_size,
        drop_last=True,
        collate_fn=loader.collate_fn,
        sampler=sampler,
    )


def progress_of(data: Mapping[str, Any]) -> dict[str, list[float]]:
    """Progress of each rollout by the name of its task, from the columns `extra_info` and `extra_fields` of a step."""
    played: dict[str, list[float]] = {}
    for info, extra in zip(data["extra_info"], data["extra_fields"], strict=True):
        played.setdefault(task_name(*task_key_of(info)), []).append(extra["reward_extra_info"]["progress"])
    return played
