"""The command line of train_fctncalling.py: where each flag lands in a composed configuration, and what is refused."""

import shlex
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.preflight import check_settings
from recipe.settings import compose
from recipe.tools import train_fctncalling as command

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

FLAGS = {
    "seed": ("10", "11"),
    "env_name": ("fctncalling_env", "fctncalling_env"),
    "algorithm_name": ("TPPO", "APPO"),
    "experiment_name": ("default", "my run"),
    "num_mini_batch": ("2", "4"),
    "ppo_epoch": ("1", "3"),
    "lr": ("1e-7", "2.5e-6"),
    "critic_lr": ("5e-6", "1.25e-5"),
    "dataset_path": ("mine.parquet", "others/more.parquet"),
    "model_name_or_path": ("models/tiny", "Org/Model-7B"),
    "n_rollout_threads": ("16", "24"),
    "gradient_cp_steps": ("4", "2"),
    "max_new_tokens": ("128", "256"),
    "save_interval": ("30", "7"),
}
"""Flag -> the documented value, and another one. Of 16 episodes there are mini-batches and parts of them."""
SETTINGS = {
    "stage.name": ("fctncalling", "fctncalling"),
    "paths.run": ("outputs/fctncalling/default/tiny/mine/TPPO", "outputs/fctncalling/my run/Model-7B/more/APPO"),
    "trainer.experiment_name": ("default", "my run"),
    "trainer.save_freq": (30, 7),
    "data.seed": (10, 11),
    "data.train_files": ("mine.parquet", "others/more.parquet"),
    "data.val_files": ("mine.parquet", "others/a_val.parquet"),
    "data.train_batch_size": (16, 24),
    "algorithm.adv_estimator": ("gae_bad", "gae_step"),
    "actor_rollout_ref.model.path": ("models/tiny", "Org/Model-7B"),
    f"{ROLLOUT}.seed": (10, 11),
    f"{ROLLOUT}.n": (1, 1),
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": (2, 3),
    f"{ACTOR}.policy_loss.loss_mode": ("vanilla", "appo_step"),
    f"{ACTOR}.ppo_mini_batch_size": (8, 6),
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": (2, 3),
    f"{ACTOR}.use_dynamic_bsz": (False, False),
    f"{ACTOR}.ppo_epochs": (1, 3),
    f"{ACTOR}.optim.lr": (1e-7, 2.5e-6),
    "critic.enable": (True, True),
    "critic.ppo_mini_batch_size": (8, 6),
    "critic.ppo_epochs": (1, 3),
    "critic.optim.lr": (5e-6, 1.25e-5),
    "interaction.max_tokens_per_reply": (128, 256),
}
"""Setting -> its value with the documented flags, and with the others."""
SIXTEEN = {"--n_rollout_threads": "16", "--dataset_path": "mine.parquet", "--model_name_or_path": "models/tiny"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a few files of data."""
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARDWARE", "tiny")
    monkeypatch.chdir(tmp_path)
    for name in ("mine.parquet", "others/more.parquet", "others/a_val.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def line(**changed: str) -> list[str]:
    given = SIXTEEN | {f"--{name}": value for name, value in changed.items()}
    return [text for pair in given.items() for text in pair]


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The commands that were printed, as a shell would read them."""
    said = capsys.readouterr().out.replace("\\\n", " ").splitlines()
    return [shlex.split(text) for text in said if text.startswith("python")]


def composed(overrides: list[str]) -> DictConfig:
    return compose("fctncalling", overrides)


def configuration(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> DictConfig:
    assert command.main([*arguments, "--dry-run"]) == 0
    (train,) = printed(capsys)
    assert train[:5] == ["python", "-m", "recipe.train", "--config-name", "fctncalling"]
    return composed(train[5:])


def test_each_flag_lands_where_it_is_documented_to(capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 1):
        config = configuration(capsys, [text for flag in FLAGS for text in (f"--{flag}", FLAGS[flag][number])])
        found = {key: OmegaConf.select(config, key) for key in SETTINGS}
        assert found == {key: values[number] for key, values in SETTINGS.items()}
        check_settings(config)
    config = configuration(capsys, ["--dataset_path", "mine.parquet", "--model_name_or_path", "models/tiny"])
    few = {"data.train_batch_size": 2, f"{ACTOR}.ppo_mini_batch_size": 1, "critic.ppo_mini_batch_size": 1}
    few |= {key: 1 for key in SETTINGS if "micro_batch" in key}  # one episode is not divided
    assert {key: OmegaConf.select(config, key) for key in SETTINGS} == {key: SETTINGS[key][0] for key in SETTINGS} | few
    assert (config.trainer.val_before_train, config.trainer.test_freq) == (False, -1)


REFUSED = (
    (line(env_name="overcooked"), "--env_name"),
    ([*line(), "--save", "9"], "--save"),
    (line(seed="ten"), "--seed"),
    (line(n_rollout_threads="3"), "multiple of --num_mini_batch"),
    (line(dataset_path="none.parquet"), "--dataset_path"),
    (line(dataset_path="others"), "--dataset_path"),
    ([*line(), "trainer.total_epoch=3"], "total_epoch"),
)


def test_what_cannot_be_is_refused_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    for arguments, said in REFUSED:
        try:
            status = command.main(arguments)
        except SystemExit as refused:
            status = refused.code
        error = capsys.readouterr().err
        assert status in (1, 2) and said in error and "Traceback" not in error, error
    assert sorted(folder.rglob("*")) == before


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[str]]:
    """The commands that would train: in place of a training, a run's files are written."""
    commands: list[list[str]] = []

    def run(arguments: list[str]) -> int:
        commands.append(arguments[1:])
        run = [Path(text.partition("=")[2]) for text in arguments if text.startswith("paths.run=")][-1]
        for name, text in (("tensorboard/events", "curves"), ("metrics/1.jsonl", '{"step": 1, "data": {}}\n')):
            (path := run / "fctncalling" / name).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("{}", '{"critic/score/mean": 0.5}'))
        return 0

    monkeypatch.setattr(command, "_run", run)
    return commands


def test_a_start_runs_what_a_dry_run_prints_and_links_curves_and_report(
    ran: list[list[str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.rglob("*"))
    assert command.main([*line(), "--dry-run"]) == 0
    (dry,) = printed(capsys)
    assert sorted(folder.rglob("*")) == before and not ran
    assert command.main(line()) == 0
    assert ran == [dry[1:]]
    results = folder / "results" / "default" / "tiny" / "mine" / "TPPO"
    assert (results / "tensorboard" / "events").read_text() == "curves"
    assert "<html" in (results / "report.html").read_text()
    assert all(path.is_symlink() and not path.readlink().is_absolute() for path in results.iterdir())
    assert command.main([*line(), "paths.run=outputs/other"]) == 0
    assert (results / "tensorboard").resolve() == folder / "outputs/other/fctncalling/tensorboard", "of the last run"
    (results / "tensorboard").unlink()
    (results / "tensorboard").write_text("mine")
    assert command.main(line()) == 0
    assert (results / "tensorboard").read_text() == "mine", "what is no link is left alone"
