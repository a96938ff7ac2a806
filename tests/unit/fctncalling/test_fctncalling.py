"""The command line of train_fctncalling.py: where each flag lands in a composed configuration, and what is refused."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from support import own_data, own_environment

from data_prep.__main__ import main as prepare_data
from recipe.fctncalling import __main__ as command
from recipe.fctncalling import mapping
from recipe.launch.compose import launch_overrides
from recipe.preflight import checks
from recipe.settings import CONFIG_DIR

ROOT = Path(__file__).parents[3]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

FLAGS = {
    # flag: what the document has, another value, and what both make of which settings
    "--seed": ("10", "11", {"data.seed": (10, 11), f"{ROLLOUT}.seed": (10, 11)}),
    "--env_name": ("fctncalling_env", "fctncalling_env", {"stage.name": ("fctncalling", "fctncalling")}),
    "--algorithm_name": (
        "TPPO",
        "APPO",
        {
            "algorithm.adv_estimator": ("gae_bad", "gae_step"),
            f"{ACTOR}.policy_loss.loss_mode": ("vanilla", "appo_step"),
            "critic.enable": (True, True),
        },
    ),
    "--experiment_name": (
        "default",
        "my run",
        {
            "trainer.experiment_name": ("default", "my run"),
            "paths.run": (
                "outputs/fctncalling/default/tiny/mine/TPPO",
                "outputs/fctncalling/my run/Model-7B/more/APPO",
            ),
        },
    ),
    "--num_mini_batch": ("2", "4", {f"{ACTOR}.ppo_mini_batch_size": (8, 6), "critic.ppo_mini_batch_size": (8, 6)}),
    "--ppo_epoch": ("1", "3", {f"{ACTOR}.ppo_epochs": (1, 3), "critic.ppo_epochs": (1, 3)}),
    "--lr": ("1e-7", "2.5e-6", {f"{ACTOR}.optim.lr": (1e-7, 2.5e-6)}),
    "--critic_lr": ("5e-6", "1.25e-5", {"critic.optim.lr": (5e-6, 1.25e-5)}),
    "--dataset_path": (
        "mine.parquet",
        "others/more.parquet",
        {
            "data.train_files": ("mine.parquet", "others/more.parquet"),
            "data.val_files": ("mine.parquet", "others/a_val.parquet"),
        },
    ),
    "--model_name_or_path": (
        "models/tiny",
        "Org/Model-7B",
        {"actor_rollout_ref.model.path": ("models/tiny", "Org/Model-7B")},
    ),
    "--n_rollout_threads": ("16", "24", {"data.train_batch_size": (16, 24), f"{ROLLOUT}.n": (1, 1)}),
    "--gradient_cp_steps": (
        "4",
        "2",
        {
            f"{ACTOR}.ppo_micro_batch_size_per_gpu": (2, 3),
            f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": (2, 3),
            f"{ACTOR}.use_dynamic_bsz": (False, False),
        },
    ),
    "--max_new_tokens": ("128", "256", {"interaction.max_tokens_per_reply": (128, 256)}),
    "--save_interval": ("30", "7", {"trainer.save_freq": (30, 7)}),
}
SIXTEEN = {"--n_rollout_threads": "16", "--dataset_path": "mine.parquet", "--model_name_or_path": "models/tiny"}
"""With which there is something to divide into mini-batches and their parts."""


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
    return [shlex.split(text) for text in capsys.readouterr().out.replace("\\\n", " ").splitlines()]


def composed(overrides: list[str]) -> DictConfig:
    """By Hydra itself."""
    own = [override for override in launch_overrides(overrides) if not override.startswith("hydra/")]
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose("fctncalling", overrides=[*overrides, *own])


def configuration(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> DictConfig:
    assert command.main([*arguments, "--dry-run"]) == 0
    (train,) = printed(capsys)
    assert train[:5] == ["python", "-m", "recipe.train", "--config-name", "fctncalling"]
    return composed(train[5:])


@pytest.mark.parametrize("number", [0, 1], ids=["as documented", "all others"])
def test_each_flag_lands_where_it_is_documented_to(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(capsys, [text for flag in FLAGS for text in (flag, FLAGS[flag][number])])
    for flag, (*_, settings) in FLAGS.items():
        for key, expected in settings.items():
            assert OmegaConf.select(config, key) == expected[number], f"{flag}: {key}"
    checks.check_settings(config)


def test_without_flags_the_values_are_those_of_the_documented_command(capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(capsys, ["--dataset_path", "mine.parquet", "--model_name_or_path", "models/tiny"])
    for flag in set(FLAGS) - {"--num_mini_batch", "--n_rollout_threads", "--gradient_cp_steps"}:
        for key, expected in FLAGS[flag][2].items():
            assert OmegaConf.select(config, key) == expected[0], key
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (2, 1)
    assert config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 1, "one episode is not divided"
    assert (config.trainer.val_before_train, config.trainer.test_freq) == (False, -1)


def test_the_flags_the_table_and_the_document_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    known = set(re.findall(r"^  (--\w+)", capsys.readouterr().out, re.MULTILINE)) - {"--dry"}
    page = (ROOT / "docs/reference/commands.md").read_text()
    rows = re.findall(r"^\| `(--\w+) ?([^`]*)` \|(.*)$", page, re.MULTILINE)
    assert known == set(FLAGS) == {flag for flag, *_ in rows} and len(rows) == 14
    short = {ACTOR: "actor", ROLLOUT: "rollout"}
    for flag, value, text in rows:
        assert not value or flag in SIXTEEN or value == FLAGS[flag][0], "the value of the documented command"
        for key in FLAGS[flag][2]:
            for long, name in short.items():
                key = key.replace(long, name)
            if flag != "--env_name" and not key.startswith("critic.ppo"):
                assert key in text or "algorithm=" in text, (flag, key)


@pytest.mark.parametrize(
    ("hardware", "algorithm"), [("gpu1", "TPPO"), ("gpu8", "APPO"), ("gpu8_24gb", "TPPO"), ("cpu", "APPO")]
)
def test_it_is_a_configuration_of_every_profile(
    hardware: str, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(capsys, [*line(algorithm_name=algorithm), f"hardware={hardware}"])
    checks.check_settings(config)
    cards = config.trainer.n_gpus_per_node
    part = config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu
    checks.check_settings(config)
    assert (8 // cards) % part == 0 and part <= max(1, 8 // cards // 4)


def test_overrides_come_last_and_win(capsys: pytest.CaptureFixture[str]) -> None:
    more = [f"{ACTOR}.optim.lr=1e-5", "+reward.custom_reward_function.reward_kwargs.price=0.5", f"{ROLLOUT}.n=4"]
    config = configuration(capsys, [more[0], *line(lr="1e-7"), *more[1:]])
    assert (config.actor_rollout_ref.actor.optim.lr, config.reward.custom_reward_function.reward_kwargs.price) == (
        1e-5,
        0.5,
    )
    assert config.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu == 8, "a quarter of 8 x 4 episodes"


@pytest.mark.parametrize(
    ("cards", "expected"), [("0", "gpu1 1"), ("0,1,2,3", "gpu8 4"), ("", "cpu 1"), (None, "gpu8 8")]
)
def test_the_cards_that_the_command_names_are_those_that_are_used(
    cards: str | None, expected: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mapping, "detect_hardware", lambda: "gpu8")
    monkeypatch.setattr("recipe.launch.compose.detect_hardware", lambda: "gpu8")
    monkeypatch.delenv("HARDWARE")
    if cards is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards)
    assert command.main([*line(n_rollout_threads="64"), "--dry-run"]) == 0
    overrides = printed(capsys)[0][5:]
    if not any(text.startswith("hardware=") for text in overrides):
        overrides.append("hardware=gpu8")
    config = composed(overrides)
    profile = "cpu" if config.trainer.device == "cpu" else Path(config.paths.data).name
    assert f"{profile} {config.trainer.n_gpus_per_node}" == expected


# What is refused.


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


REFUSED = {
    "another environment": (line(env_name="overcooked"), "invalid choice: 'overcooked'"),
    "another algorithm": (line(algorithm_name="PPO"), "invalid choice: 'PPO'"),
    "a flag of nobody's": ([*line(), "--num_env_steps", "9"], "unrecognized arguments: --num_env_steps"),
    "an abbreviated flag": ([*line(), "--save", "9"], "unrecognized arguments: --save"),
    "no data": (["--model_name_or_path", "m"], "required: --dataset_path"),
    "no model": (["--dataset_path", "mine.parquet"], "required: --model_name_or_path"),
    "no number": (line(seed="ten"), "--seed: 'ten' is not a whole number"),
    "none": (line(ppo_epoch="0"), "--ppo_epoch: '0' is not a whole number, 1 or more"),
    "a part of one": (line(max_new_tokens="1.5"), "--max_new_tokens: '1.5' is not"),
    "too large a number": (line(save_interval="9" * 5000), "--save_interval"),
    "a rate of nothing": (line(lr="0"), "--lr: '0' is no learning rate above 0"),
    "no rate": (line(critic_lr="nan"), "--critic_lr: 'nan' is no learning rate"),
    "episodes that cannot be divided": (line(n_rollout_threads="3"), "--n_rollout_threads 3 --num_mini_batch 2"),
    "an experiment elsewhere": (line(experiment_name="../other"), "'../other' is not the name of a folder"),
    "an experiment without a name": (line(experiment_name=""), "'' is not the name of a folder"),
    "no such file": (line(dataset_path="none.json"), "--dataset_path none.json: there is no such file"),
    "a name no setting can have": (line(dataset_path="my-data.json"), "Rename the file"),
    "no such parquet file": (line(dataset_path="none.parquet"), "expected a JSON file of entries"),
    "a folder with nothing to train on": (line(dataset_path="others"), "It has a_val.parquet, more.parquet: give one"),
    "an override that is none": ([*line(), "trainer.total_epoch=3"], "total_epochs"),
    "a word": ([*line(), "faster"], "faster"),
    "cards that cannot share": ([*line(n_rollout_threads="2"), "hardware=gpu8"], "to a multiple of 16"),
    "a name with a reference": (
        line(experiment_name="${oc.env:HOME}"),
        "--experiment_name ${oc.env:HOME}: a configuration would",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_a_line_and_leaves_nothing(
    case: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "my-data.json").write_text("[]")
    before = tree(folder)
    arguments, said = REFUSED[case]
    try:
        status = command.main(arguments)
    except SystemExit as refused:
        status = refused.code
    assert status in (1, 2)
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error
    assert tree(folder) == before


# What is run.


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[list[str]]:
    """The commands that would train: in place of a training, a run's files are written."""
    commands: list[list[str]] = []

    def run(arguments: list[str], log: Path, watch, note: Path) -> int:
        commands.append(arguments[1:])
        run = log.parents[1]
        (run / "fctncalling" / "tensorboard").mkdir(parents=True, exist_ok=True)
        (run / "fctncalling" / "tensorboard" / "events").write_text("curves")
        watch()
        metrics = run / "fctncalling" / "metrics" / "1.jsonl"
        metrics.parent.mkdir(exist_ok=True)
        metrics.write_text('{"step": 1, "data": {"critic/score/mean": 0.5}}\n')
        return 0

    monkeypatch.setattr(command.processes, "run", run)
    return commands


def test_a_dry_run_writes_nothing_and_a_start_runs_what_it_prints(
    ran: list[list[str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(folder)
    assert command.main([*line(), "--dry-run"]) == 0
    (dry,) = printed(capsys)
    assert tree(folder) == before and not ran
    assert command.main(line()) == 0
    assert ran == [dry[1:]]


def test_the_curves_and_the_report_stand_where_they_are_looked_for(ran: list[list[str]], folder: Path) -> None:
    assert command.main(line()) == 0
    results = folder / "results" / "default" / "tiny" / "mine" / "TPPO"
    assert (results / "tensorboard" / "events").read_text() == "curves"
    assert "<html" in (results / "report.html").read_text()
    for path in results.iterdir():
        assert path.is_symlink() and not path.readlink().is_absolute()
    assert command.main([*line(), "paths.run=outputs/other"]) == 0
    assert (results / "tensorboard").resolve() == folder / "outputs/other/fctncalling/tensorboard", "of the last run"
    (results / "tensorboard").unlink()
    (results / "tensorboard").write_text("mine")
    assert command.main(line()) == 0
    assert (results / "tensorboard").read_text() == "mine", "what is no link is left alone"


@pytest.mark.parametrize("write", [own_environment.write_example, own_data.write_example])
def test_data_of_ones_own_is_made_first_as_the_printed_command_says(
    write: Callable[[Path], Path], ran: list[list[str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = write(folder)
    assert command.main(line(dataset_path=str(own))) == 0
    shown, train = printed(capsys)[:2]
    assert ran == [train[1:]] and shown[:3] == ["python", "-m", "data_prep"]
    config = composed(train[5:])
    assert config.interaction.environments == {own.stem: str(own)}
    made = {Path(path) for path in (config.data.train_files, config.data.val_files)}
    assert {path.name for path in made} == {f"{own.stem}_train.parquet", f"{own.stem}_val.parquet"}
    first = {path.name: path.read_bytes() for path in made}
    for path in made:
        path.unlink()
    assert prepare_data(shown[3:]) == 0
    assert {path.name: path.read_bytes() for path in made} == first


def test_data_that_cannot_be_made_starts_nothing(
    ran: list[list[str]], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text("def load_tasks(): return 1 / 0")
    assert command.main(line(dataset_path="broken.py")) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err and not ran
