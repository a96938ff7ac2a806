"""The reward is tried before anything starts: on records of each environment, in the form in which verl calls it."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from interaction.environment import DEFAULT
from recipe.errors import PreflightError
from recipe.reward import RewardError, tried
from recipe.settings.data_files import as_list
from recipe.settings.kinds import LONGEST_WAIT


def environments_of(config: DictConfig) -> list[str]:
    """The environments of the training rows; the default one where there are none yet."""
    import pyarrow.parquet as parquet  # here, because settings are looked at without it

    found: set[str] = set()
    files = OmegaConf.select(config, "data.train_files")
    for name in as_list(files) if files else []:
        if (path := Path(name).expanduser()).is_file():
            rows = parquet.read_table(path, columns=["extra_info"])["extra_info"].to_pylist()
            found |= {(row or {}).get("environment") or DEFAULT for row in rows}
    return sorted(found) or [DEFAULT]


def check_reward(config: DictConfig) -> None:
    """Call the reward on sample records. One that is `async` is only loaded: its server may not be up yet.

    Raises:
        PreflightError: it cannot be loaded, or gave no usable score.
    """
    from recipe.preflight.algorithm import check_reward_steps
    from recipe.preflight.features import check_filter_metric, untried_metric

    seconds = config.reward.timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_WAIT:
        raise PreflightError(
            f"reward.timeout={seconds}; expected the seconds that one call may take, above 0 and at most "
            f"{LONGEST_WAIT:.0f}."
        )
    try:
        results = tried(config, environments_of(config))
    except RewardError as error:
        raise PreflightError(f"{error}. The reward was tried on sample records; see rewards/README.md.") from error
    if not results and (line := untried_metric(config)):
        print(line, flush=True)
    for record, result in results:
        check_reward_steps(result, record, f"the reward {config.reward.custom_reward_function.path}")
        check_filter_metric(config, result)
