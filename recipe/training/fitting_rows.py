"""verl's data set without the rows that `data.leave_out` lists (`recipe/preflight/tokens.py` writes the list)."""

from typing import Any

from verl.utils.dataset.rl_dataset import RLHFDataset

from interaction.environment import task_key_of, task_name


class FittingRows(RLHFDataset):
    """Named in `data.custom_cls`. verl makes it for the files of training and for those of the validation."""

    dataframe: Any

    def _read_files_and_tokenize(self) -> None:
        super()._read_files_and_tokenize()
        left_out = set(self.config.leave_out)
        infos = self.dataframe["extra_info"]
        names = [task_name(*task_key_of(info)) for info in infos]
        stay = [place for place, info in enumerate(infos) if info["split"] != "train" or names[place] not in left_out]
        print(f"{len(infos) - len(stay)} rows left out of {self.original_data_files}, {len(stay)} stay", flush=True)
        self.dataframe = self.dataframe.select(stay)
