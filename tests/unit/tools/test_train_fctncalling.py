"""The command line of train_fctncalling.py: where each flag lands in a composed configuration, and what is refused."""

import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.runs import write_metrics

from recipe.preflight import check_settings
from recipe.settings import compose
from recipe.tools import train_fctncalling as command

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

SMALL = "--n_rollout_threads 16 --dataset_path mine.parquet --model_name_or_path models/tiny".split()
"""Flags without a default, and so many episodes that there are mini-batches and parts of them."""
OTHERS = shlex.split("""
    --seed 11 --algorithm_name APPO --experiment_name 'my run' --num_mini_batch 4 --ppo_epoch 3 --lr 2.5e-6
    --critic_lr 1.25e-5 --dataset_path others/more.parquet --model_name_or_path Org/Model-7B --n_rollout_threads 24
    --gradient_cp_steps 2 --max_new_tokens 256 --save_interval 7
""")
SETTINGS = {
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
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": (2, 3),
    f"{ACTOR}.policy_loss.loss_mode": ("vanilla", "appo_step"),
    f"{ACTOR}.ppo_mini_batch_size": (8, 6),
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": (2, 3),
    f"{ACTOR}.use_dynamic_bsz": (False, False),
    f"{ACTOR}.ppo_epochs": (1, 3),
    f"{ACTOR}.optim.lr": (1e-7, 2.5e-6),
    "critic.ppo_mini_batch_size": (8, 6),
    "critic.ppo_epochs": (1, 3),
    "critic.optim.lr": (5e-6, 1.25e-5),
    "interaction.max_tokens_per_reply": (128, 256),
}
"""Setting -> its value by default, and with the other flags."""


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


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The training's command that was printed, as a shell would read it."""
    said = capsys.readouterr().out.replace("\\\n", " ").splitlines()
    (command,) = [shlex.split(text) for text in said if text.startswith("python")]
    return command


def test_each_flag_lands_where_it_is_documented_to(capsys: pytest.CaptureFixture[str]) -> None:
    for number, flags in enumerate((SMALL, OTHERS)):
        assert command.main([*flags, "--dry-run"]) == 0
        train = printed(capsys)
        assert train[:5] == ["python", "-m", "recipe.train", "--config-name", "fctncalling"]
        config = compose("fctncalling", train[5:])
        found = {key: OmegaConf.select(config, key) for key in SETTINGS}
        assert found == {key: values[number] for key, values in SETTINGS.items()}
        check_settings(config)
    assert (config.trainer.val_before_train, config.trainer.test_freq) == (False, -1)


def test_what_cannot_be_is_refused_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    for more in (["--env_name", "x"], ["--n_rollout_threads", "3"], ["--dataset_path", "others"], ["trainer.epoch=3"]):
        with suppress(SystemExit):
            assert command.main([*SMALL, *more]) == 1
        assert more[-1].partition("=")[0] in (error := capsys.readouterr().err) or "multiple" in error
    assert sorted(folder.rglob("*")) == before


def test_a_start_runs_what_a_dry_run_prints_and_links_curves_and_report(folder: Path, monkeypatch, capsys) -> None:
    ran: list[list[str]] = []

    def train(arguments: list[str]) -> int:
        ran.append(arguments[1:])
        (run,) = [Path(text.partition("=")[2]) for text in arguments if text.startswith("paths.run=")]
        write_metrics(run, "fctncalling", "1.jsonl", [(1, {"critic/score/mean": 0.5})])
        (run / "fctncalling" / "tensorboard").mkdir(exist_ok=True)
        (run / "fctncalling" / "tensorboard" / "events").write_text("curves")
        return 0

    monkeypatch.setattr(command, "_run", train)
    before = sorted(folder.rglob("*"))
    assert command.main([*SMALL, "--dry-run"]) == 0
    dry = printed(capsys)
    assert sorted(folder.rglob("*")) == before and not ran
    assert command.main(SMALL) == 0 and ran == [dry[1:]]
    results = folder / "results" / "default" / "tiny" / "mine" / "TPPO"
    assert (results / "tensorboard" / "events").read_text() == "curves"
    assert "<html" in (results / "report.html").read_text()
    assert all(path.is_symlink() and not path.readlink().is_absolute() for path in results.iterdir())
    (results / "tensorboard").unlink()
    (results / "tensorboard").write_text("mine")
    assert command.main(SMALL) == 0
    assert (results / "tensorboard").read_text() == "mine", "what is no link is left alone"
