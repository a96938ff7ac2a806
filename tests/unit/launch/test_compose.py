"""Overrides are applied here, one by one, so that a mistake in one is told by name: the result is Hydra's own."""

from pathlib import Path

import hydra
import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.launch import command
from recipe.launch.compose import compose, searched, verl_config_dir
from recipe.settings import CONFIG_DIR

RIGHT = [
    ["trainer.total_epochs=3", "actor_rollout_ref.rollout.n=4", "data.train_files=[a.parquet,b.parquet]"],
    ["+reward.custom_reward_function.reward_kwargs.scale=100", "reward.custom_reward_function.path='a b.py'"],
    ["algorithm=tppo", "trainer.logger=[console,wandb]", "++trainer.total_epochs=5"],
    ["stage.gate={kind: leave_at, value: 1.0}", "interaction.overlong={train: false}", "+stage.gate.window=3"],
    ["stage.gate=null", "interaction.train.max_result_chars=null", "actor_rollout_ref.actor.optim.betas=[0.9,0.99]"],
    ["+actor_rollout_ref.rollout.engine_kwargs.vllm={seed: 3, a: [1, {b: c}]}", "stage.alarms.lost=1e-2"],
    ["trainer.default_local_dir=${paths.stage}/x", "+custom.mine.x=1", "actor_rollout_ref.model.path=/a/b-c_d.e"],
    ['trainer.experiment_name="a=b, c"', "trainer.experiment_name='it\\'s'", "data.seed=${oc.decode:'7'}"],
    ["+trainer.total_training_steps=7", "+actor_rollout_ref.model.tokenizer_path=/a"],
]


@pytest.mark.parametrize("overrides", RIGHT, ids=lambda overrides: overrides[0])
def test_right_overrides_give_what_hydra_composes(overrides: list[str]) -> None:
    ours = compose("stage2", ["hardware=tiny", *overrides])
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        theirs = hydra.compose("stage2", overrides=["hardware=tiny", *overrides, searched([verl_config_dir()])])
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(theirs)


@pytest.mark.parametrize("hardware", ["cpu", "gpu1", "gpu8", "gpu8_24gb"])
def test_profiles_are_those_that_hydra_composes(hardware: str) -> None:
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        theirs = hydra.compose("stage3", overrides=[f"hardware={hardware}", searched([verl_config_dir()])])
    assert OmegaConf.to_yaml(compose("stage3", [f"hardware={hardware}"])) == OmegaConf.to_yaml(theirs)


OWN = {
    "mine.yaml": "defaults: [stage2, {override algorithm: dapo}, _self_]\nstage: {name: mine}\n",
    "from_base.yaml": "defaults: [base, _self_, algorithm: grpo, hardware: gpu8]\nstage: {name: from_base}\n"
    "data: {train_files: x.parquet}\n",
    "hardware/mycpu.yaml": "# @package _global_\ndefaults: [cpu]\nlauncher: {needs: {memory_gb: 1}}\n",
    "algorithm/myalg.yaml": "# @package _global_\nalgorithm: {gamma: 0.5}\n",
}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder of configurations, in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARDWARE", "tiny")
    for name, text in OWN.items():
        (path := tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "own"


def test_a_stage_of_a_users_own_folder_is_built_on_those_here(own: Path) -> None:
    mine = compose("mine", folder=own)
    assert (mine.stage.name, mine.algorithm.filter_groups.enable, mine.trainer.device) == ("mine", True, "cpu")
    assert compose("from_base", folder=own).stage.name == "from_base"
    assert compose("mine", ["stage.name=other"], folder=Path("own")).stage.name == "other"


def test_so_are_its_hardware_and_its_algorithm(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose("stage1", ["hardware=mycpu", "algorithm=myalg"], folder=own)
    assert (config.launcher.needs.memory_gb, config.algorithm.gamma) == (1, 0.5)
    monkeypatch.setenv("HARDWARE", "mycpu")
    assert compose("mine", folder=own).launcher.needs.memory_gb == 1
    with pytest.raises(PreflightError, match="myalg meant.*myalg, rloo"):
        compose("mine", ["algorithm=myal"], folder=own)


@pytest.mark.parametrize(("name", "words"), [("nowhere", "no such folder"), ("a${b}", "no configuration can hold")])
def test_a_folder_that_cannot_be_one_of_configurations_is_named(own: Path, name: str, words: str) -> None:
    with pytest.raises(PreflightError, match=words):
        compose("stage1", folder=Path(name))


def test_a_file_of_the_same_name_is_not_silently_left_unread(own: Path) -> None:
    (own / "stage2.yaml").write_bytes((CONFIG_DIR / "stage2.yaml").read_bytes())
    assert compose("stage2", folder=own).stage.name == "stage2_base"
    (own / "stage2.yaml").write_text("defaults: [base]\n")
    with pytest.raises(PreflightError, match="recipe/config has stage2.yaml too"):
        compose("mine", folder=own)
    assert compose("stage2", folder=CONFIG_DIR).stage.name == "stage2_base"


@pytest.mark.parametrize("option", [["--cfg", "job"], ["--help"]], ids=lambda option: option[0])
def test_what_only_shows_something_takes_the_folder_too(
    own: Path, option: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config-dir", "own", "--config-name", "mine", *option, "algorithm=myalg", "hardware=mycpu"]
    monkeypatch.setattr("sys.argv", ["recipe.train", *words])
    try:
        assert command.read(words) is None
    except SystemExit as end:
        assert not end.code
    shown = capsys.readouterr().out
    assert "name: mine" in shown and "gamma: 0.5" in shown
