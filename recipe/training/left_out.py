"""What does not train: tasks that gold cannot finish (`FittingRows`), and episodes that a token limit cut.

DAPO masks the loss of truncated samples (arXiv 2503.14476, section 3.4), which would be punished like wrong ones. With
`interaction.overlong.train=false` these are the episodes with the stop reason `max_tokens`. Their score still counts in
the mean of their group, but neither policy loss nor KL, entropy or values see them: both masks of verl's are emptied.
verl's means over episodes still divide by the whole mini-batch, so the losses of the others shrink by that share.
"""

from typing import Any

import torch
from tensordict import TensorDict
from verl.utils.dataset.rl_dataset import RLHFDataset

from interaction.environment import task_key_of, task_name


def leave_out_cut_episodes(queue: Any, batch: Any) -> float:
    """Set the masks of cut episodes to 0 in the queue.

    Args:
        queue: TransferQueue's functions.
        batch: verl's keys and tags of a step, after its advantages were computed.

    Returns:
        Share of the step's episodes that were left out.

    Raises:
        RuntimeError: every episode was cut.
    """
    rows: Any = {"keys": batch.keys, "partition_id": batch.partition_id}
    data = queue.kv_batch_get(**rows, select_fields=["response_mask", "extra_fields"])
    cut = [bool(extra.get("truncated", False)) for extra in data.pop("extra_fields").tolist()]
    real = [not tag.get("is_padding", False) for tag in batch.tags]
    left_out = sum(c and r for c, r in zip(cut, real, strict=True))
    if left_out == sum(real):
        how = "Raise data.max_response_length, interaction.max_tokens_per_reply, or set interaction.overlong.train=true"
        raise RuntimeError(f"a token limit cut all {left_out} episodes of this step: nothing to train on. {how}.")
    if left_out:
        masks = [row * (not c) for row, c in zip(data["response_mask"].unbind(), cut, strict=True)]
        mask = torch.nested.as_nested_tensor(masks, layout=torch.jagged)
        fields = TensorDict({"response_mask": mask, "loss_mask": mask}, batch_size=len(masks))
        queue.kv_batch_put(**rows, fields=fields)
    return left_out / sum(real)


class FittingRows(RLHFDataset):
    """verl's data set without the rows that `data.leave_out` lists (`recipe/preflight/tokens.py` writes the list).

    Named in `data.custom_cls`. verl makes it for the files of training and for those of the validation.
    """

    dataframe: Any

    def _read_files_and_tokenize(self) -> None:
        super()._read_files_and_tokenize()
        left_out = set(self.config.leave_out)
        infos = self.dataframe["extra_info"]
        names = [task_name(*task_key_of(info)) for info in infos]
        stay = [place for place, info in enumerate(infos) if info["split"] != "train" or names[place] not in left_out]
        print(f"{len(infos) - len(stay)} rows left out of {self.original_data_files}, {len(stay)} stay", flush=True)
        self.dataframe = self.dataframe.select(stay)
