"""What docs/algorithms.md offers composes in every stage and for both machines; what cannot work is refused."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.errors import PreflightError
from recipe.preflight import checks
from recipe.preflight import reward as preflight_reward
from recipe.preflight.algorithm import check_algorithm
from recipe.preflight.features import check_features, check_filter_metric, loggers_of, notes
from recipe.settings import CONFIG_DIR, compose

ACTOR = "actor_rollout_ref.actor"
FILES = {
    # what each file is for, as verl reads it
    "dapo": {
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.metric": "acc",
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.use_kl_loss": False,
        "interaction.overlong.penalty": 0.5,
    },
    "dr_grpo": {
        "algorithm.norm_adv_by_std_in_grpo": False,
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-sum-norm",
        f"{ACTOR}.use_kl_loss": False,
    },
    "gspo": {
        f"{ACTOR}.policy_loss.loss_mode": "gspo",
        f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
        f"{ACTOR}.clip_ratio_low": 3e-4,
        f"{ACTOR}.clip_ratio_high": 4e-4,
    },
    "cispo": {
        f"{ACTOR}.policy_loss.loss_mode": "cispo",
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ACTOR}.clip_ratio_low": 10.0,
    },
    "rloo": {"algorithm.adv_estimator": "rloo"},
}


@cache
def composed(stage: str, algorithm: str, hardware: str) -> Any:
    given = [f"algorithm={algorithm}", f"hardware={hardware}"]
    return compose(stage, given)


def configured(*overrides: str, stage: str = "stage2", algorithm: str = "grpo", hardware: str = "tiny") -> Any:
    """As Hydra does it, but with one composition for many overrides: a composition takes a second."""
    return OmegaConf.merge(composed(stage, algorithm, hardware), OmegaConf.from_dotlist(list(overrides)))


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("name", "hardware"), [*((name, "gpu8") for name in FILES), *((n, "tiny") for n in FILES)])
def test_each_file_is_what_its_paper_says_on_every_machine(name: str, hardware: str):
    config = configured(algorithm=name, hardware=hardware)
    assert {key: OmegaConf.select(config, key) for key in FILES[name]} == FILES[name]
    check_algorithm(config)
    check_features(config)


def test_every_file_is_in_the_table_of_the_documentation():
    text = (CONFIG_DIR.parents[1] / "docs" / "algorithms.md").read_text()
    for path in (CONFIG_DIR / "algorithm").glob("*.yaml"):
        assert f"algorithm={path.stem}" in text, f"docs/algorithms.md has no row for {path.name}"


def test_the_scale_of_dr_grpo_follows_the_stage():
    for stage, tokens in (("stage2", 10000), ("stage3", 24576)):
        actor = configured(stage=stage, algorithm="dr_grpo", hardware="gpu8").actor_rollout_ref.actor
        assert actor.loss_scale_factor == tokens


def test_the_default_of_each_machine_stays_where_no_algorithm_is_about_it():
    assert configured().actor_rollout_ref.actor.loss_agg_mode == "token-mean"
    assert configured(hardware="gpu8").actor_rollout_ref.actor.loss_agg_mode == "seq-mean-token-mean"


LONE = ("actor_rollout_ref.rollout.n=1", "algorithm.adv_estimator=reinforce_plus_plus")
REFUSED = [
    (["algorithm.filter_groups.enable=true", *LONE], "compares the rollouts of a task.*n=1"),
    (
        ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_num_gen_batches=7"],
        "max_num_gen_batches=7.*stage.max_gen_batches=7",
    ),
    (["algorithm.filter_groups.enable=true", "stage.max_gen_batches=1"], "stage.max_gen_batches=1; expected"),
    (["algorithm.filter_groups.enable=true", "stage.max_gen_batches=2.5"], "stage.max_gen_batches=2.5; expected"),
    (
        ["algorithm.filter_groups.enable=true", "algorithm.filter_groups.max_inflight_gen_batches=0"],
        "max_inflight_gen_batches=0; expected",
    ),
    (
        [
            "algorithm.filter_groups.enable=true",
            "trainer.v1.sampler.custom_sampler.path=mine.py",
            "trainer.v1.sampler.custom_sampler.name=Mine",
        ],
        "custom_sampler.path=mine.py.*verl hands it no metric.*algorithm.filter_groups.enable=false",
    ),
    (
        [
            "algorithm.rollout_correction.rollout_is=token",
            "actor_rollout_ref.rollout.calculate_log_probs=false",
        ],
        "calculate_log_probs=true",
    ),
    (
        ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=0"],
        "rollout_is_threshold=0; expected",
    ),
    (
        ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=0.5-5"],
        "rollout_is_threshold=0.5-5; expected",
    ),
    (
        ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.rollout_is_threshold=5.0_0.5"],
        "rollout_is_threshold=5.0_0.5; expected",
    ),
    (
        ["algorithm.rollout_correction.rollout_is=token", "algorithm.rollout_correction.bypass_mode=true"],
        "bypass_mode=true takes the engine's probabilities",
    ),
    (
        [f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"],
        "loss_scale_factor=None: verl would divide by the width of each micro-batch",
    ),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED, ids=[" ".join(given) for given, _ in REFUSED])
def test_what_cannot_work_is_refused_with_the_setting_to_change(overrides: list[str], message: str):
    with pytest.raises(PreflightError, match=message):
        checks.check_settings(configured(*overrides))


@pytest.mark.parametrize("threshold", [2.0, 5, "2.0", "0.5_5.0"])
def test_thresholds_that_verl_reads_pass(threshold: Any):
    config = configured("algorithm.rollout_correction.rollout_is=token")
    config.algorithm.rollout_correction.rollout_is_threshold = threshold
    check_features(config)


def test_a_metric_that_the_reward_does_not_return_is_refused_with_those_it_does():
    config = configured("algorithm.filter_groups.enable=true", "algorithm.filter_groups.metric=accuracy")
    with pytest.raises(PreflightError, match="metric=accuracy is no number.*it returns acc, score.*or to reward"):
        check_filter_metric(config, {"score": 1.0, "acc": 1.0, "text": "a"})
    with pytest.raises(PreflightError, match="it returns acc. Set"):
        check_filter_metric(config, 0.5)
    check_filter_metric(config, {"score": 1.0, "accuracy": 0})
    check_filter_metric(configured("algorithm.filter_groups.enable=true"), 0.5)


def test_dapo_compares_by_the_score_where_a_reward_returns_no_acc(capsys):
    config = configured(algorithm="dapo")
    check_filter_metric(config, {"score": 1.0, "acc": 0.0})
    assert config.algorithm.filter_groups.metric == "acc"
    check_filter_metric(config, {"score": 1.0, "malformed": 0})
    assert config.algorithm.filter_groups.metric == "reward" and "NOTE" in capsys.readouterr().out


@pytest.mark.parametrize(("mini", "inert"), [(4, True), (2, False)])
def test_the_summary_names_the_algorithm_and_what_of_it_is_inert(mini: int, inert: bool):
    config = configured(f"{ACTOR}.ppo_mini_batch_size={mini}", algorithm="dapo")
    (line,) = [line for line in checks.summary(config).splitlines() if line.startswith("algorithm ")]
    assert all(part in line for part in ("grpo", "dynamic sampling by acc", "vanilla", "0.2 to 0.28"))
    assert ("inert" in line) is inert


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (["actor_rollout_ref.rollout.n=1", LONE[1]], (4, 4)),  # 4 trajectories
        (["data.train_batch_size=3", f"{ACTOR}.ppo_mini_batch_size=3", "actor_rollout_ref.rollout.n=2"], (3, 6)),
        ([f"{ACTOR}.ppo_micro_batch_size_per_gpu=6"], (4, 8)),
        ([f"{ACTOR}.ppo_micro_batch_size_per_gpu=1000000000"], (64, 8)),
        ([], (4, 8)),
    ],
)
def test_micro_batches_are_made_to_divide_the_trajectories(given: list[str], sizes: tuple[int, int], capsys):
    config = configured(*given)
    checks.check_settings(config)
    policy = config.actor_rollout_ref
    assert (policy.actor.ppo_micro_batch_size_per_gpu, policy.rollout.log_prob_micro_batch_size_per_gpu) == sizes
    assert ("NOTE" in capsys.readouterr().out) is bool(given), "it is said"


def test_validation_is_sampled_or_greedy_and_training_is_sampled():
    val, sampled = "actor_rollout_ref.rollout.val_kwargs", "do_sample=true"
    checks.check_settings(configured(f"{val}.{sampled}", f"{val}.temperature=0.6", f"{val}.n=4"))
    checks.check_settings(configured(f"{val}.temperature=0"))
    with pytest.raises(PreflightError, match="temperature"):
        checks.check_settings(configured(f"{val}.{sampled}"))


def test_the_reward_of_the_stage_is_asked_for_the_metric():
    for metric in ("acc", "progress", "reward"):
        chosen = ["algorithm.filter_groups.enable=true", f"algorithm.filter_groups.metric={metric}"]
        preflight_reward.check_reward(configured(*chosen))
    chosen[-1] = "algorithm.filter_groups.metric=luck"
    with pytest.raises(PreflightError, match="metric=luck is no number that the reward returns"):
        preflight_reward.check_reward(configured(*chosen))


def test_of_a_reward_that_is_not_tried_it_is_said_that_the_metric_is_not_known(tmp_path: Path, capsys):
    path = tmp_path / "mine.py"
    path.write_text("async def compute_score(**kwargs):\n    return 1.0\n")
    chosen = [f"reward.custom_reward_function.path={path}", "algorithm.filter_groups.enable=true"]
    preflight_reward.check_reward(configured(*chosen, "algorithm.filter_groups.metric=luck"))
    assert re.search(r"NOTE .*async.*algorithm.filter_groups.metric=luck", capsys.readouterr().out)
    for override in ("algorithm.filter_groups.metric=reward", "algorithm.filter_groups.enable=false"):
        preflight_reward.check_reward(configured(*chosen, override))
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("name", ["gspo", "cispo", "appo_step"])
def test_a_loss_that_one_update_a_step_makes_plain_is_said(name: str):
    loss = [f"{ACTOR}.policy_loss.loss_mode={name}", f"{ACTOR}.clip_ratio_low=1e-4", f"{ACTOR}.clip_ratio_high=1e-4"]
    plain = configured(*loss, hardware="gpu8")
    assert any("MINI_BATCH_SIZE below 32" in note for note in notes(plain))
    assert any("NOTE" in line and "MINI_BATCH_SIZE" in line for line in checks.summary(plain).splitlines())
    for override in (f"{ACTOR}.ppo_mini_batch_size=8", f"{ACTOR}.ppo_epochs=2"):
        assert notes(configured(*loss, override, hardware="gpu8")) == []


def test_other_settings_that_do_nothing_are_said_and_the_recipe_as_it_is_has_none():
    for stage in ("stage1", "stage2"):
        assert notes(configured(stage=stage)) == []
    unwritten = configured("interaction.record_tokens=true", "interaction.record_dir=null")
    assert any("record_dir=null: no episode is written" in note for note in notes(unwritten))
    wide = configured(f"{ACTOR}.policy_loss.loss_mode=gspo", f"{ACTOR}.ppo_mini_batch_size=2")
    assert any("never clips" in note for note in notes(wide))
    filtering = "algorithm.filter_groups.enable=true"
    assert any(
        "stage.gate reads critic/score/mean" in note
        for note in notes(configured(filtering, stage="stage1", hardware="gpu8"))
    )
    assert notes(configured(filtering, "stage.gate.metric=val_choose/score", stage="stage1", hardware="gpu8")) == []


def test_a_mean_over_episodes_that_counts_those_left_out_is_said():
    without = "interaction.overlong.train=false"
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum"):
        (note,) = notes(configured(without, f"{ACTOR}.loss_agg_mode={mode}"))
        assert f"loss_agg_mode={mode}" in note and "train/overlong_left_out" in note and "token-mean" in note
    for overrides in ([without, f"{ACTOR}.loss_agg_mode=token-mean"], [f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"]):
        assert notes(configured(*overrides)) == []


@pytest.mark.parametrize(
    ("logger", "message"),
    [
        ("[console,wandbb]", "has wandbb, which verl does not know"),
        ("[file,clearml]", "the package clearml is not installed"),
    ],
)
def test_a_logger_that_verl_or_this_environment_does_not_have_is_refused(logger, message):
    with pytest.raises(PreflightError, match=message):
        check_features(configured(f"trainer.logger={logger}"))


@pytest.mark.parametrize(("address", "refused"), [(None, True), ("sqlite:////x.db", True), ("http://mine", False)])
def test_an_mlflow_that_could_not_write_its_database_is_refused(monkeypatch, address, refused):
    config = configured()
    config.trainer.logger = ["console", "mlflow"]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "sqlalchemy" else name)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if address:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    if not refused:
        return check_features(config)
    with pytest.raises(PreflightError, match="cannot write its database.*Install all of it"):
        check_features(config)


def test_a_logger_is_one_or_several():
    assert loggers_of(configured("trainer.logger=console")) == ["console"]
    check_features(configured("trainer.logger=[console,tensorboard]"))
