"""verl's trainer for supervised training, with a validation over all that is held out, and no epoch lost at a resume.

verl validates by training batches and drops what fills none: of fewer conversations than a batch the loss is NaN. Here
it is one batch, of which the loss is the mean over the model's tokens.

A checkpoint at the end of an epoch says that the data loader has given out all batches. verl, which resumes with the
next epoch, would be given none there: one epoch less, and the last step is never made.
"""

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from torch.utils.data import ConcatDataset, DataLoader, DistributedSampler
from verl.trainer import sft_trainer
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from recipe.stage import state
from recipe.stage.starts import mask_prints


def filled(rows: Any, multiple: int) -> ConcatDataset:
    """The rows, and as many without a token that counts as they need to be parted evenly."""
    empty = {**rows[0], "loss_mask": rows[0]["loss_mask"] * 0}
    return ConcatDataset([rows, [empty] * (-len(rows) % multiple)])


class WarmStart(SFTTrainer):
    """verl's trainer; after `fit` it stands at `total_training_steps`."""

    def __init__(self, config: DictConfig) -> None:
        super().__init__(config=config)
        if self.resume_global_step and self.resume_global_step % self.steps_per_epoch == 0:
            self._build_dataloader()  # the next epoch's, from its first batch
            self.ckpt_handler.train_dataloader = self.train_dataloader

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        if self.val_dataset is None:
            return
        ranks = self.engine.get_data_parallel_size()
        each = 1 if self.config.data.use_dynamic_bsz else self.config.data.micro_batch_size_per_gpu
        rows = filled(self.val_dataset, ranks * each)
        rank = self.engine.get_data_parallel_rank()
        self.val_dataloader = DataLoader(
            rows,
            batch_size=len(rows) // ranks,
            sampler=DistributedSampler(rows, num_replicas=ranks, rank=rank, shuffle=False),
            collate_fn=self.collate_fn,
        )


def train(config: DictConfig) -> int:
    """Train, in a process group that is made from the environment. Returns the step at which it ends."""
    mask_prints(sft_trainer)
    initialize_global_process_group()
    trainer = WarmStart(config)
    last = int(trainer.total_training_steps)
    if os.environ["RANK"] == "0":
        state.update(Path(config.paths.stage), target=state.Target(last, last))
    if trainer.resume_global_step < last:  # verl would make one more step
        trainer.fit()
    destroy_global_process_group()
    return last
