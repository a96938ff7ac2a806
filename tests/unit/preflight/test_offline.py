"""Learning from stored trajectories, before a start: what cannot work is refused with what to set instead, and what
follows from the data is set and said."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf
from support.stored import line, tokenizer, write_lines, write_rows

from recipe.curriculum import stages
from recipe.errors import PreflightError
from recipe.launch.compose import compose
from recipe.preflight.checks import check_settings
from recipe.preflight.trajectories import check_trajectories
from recipe.trajectories import Limits

MODEL = SimpleNamespace(vocab_size=2048)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@cache
def composed(algorithm: str, hardware: str, name: str) -> Any:
    return compose(name, [f"algorithm={algorithm}", f"hardware={hardware}"])


@pytest.fixture
def configured(tmp_path: Path):
    """A configuration with `lines` in its one file, with the settings checked."""
    path = write_lines(tmp_path / "000001.jsonl", [line(uid=str(number)) for number in range(16)])

    def configured(
        *overrides: str,
        algorithm: str = "step_grained",
        hardware: str = "tiny",
        name: str = "offline",
        file: Path = path,
    ) -> Any:
        given = [f"offline.files={file}", f"paths.run={tmp_path}/run", *overrides]
        config = OmegaConf.merge(composed(algorithm, hardware, name), OmegaConf.from_dotlist(given))
        config.actor_rollout_ref.model.path = "the model"
        check_settings(config)
        return config

    return configured


def lines_of(config: Any) -> str:
    return "\n".join(check_trajectories(config, tokenizer(), MODEL))


@pytest.mark.parametrize("hardware", ["cpu", "tiny", "gpu8", "gpu1", "gpu8_24gb"])
@pytest.mark.parametrize("algorithm", ["step_grained", "appo", "tppo"])
def test_it_composes_for_every_profile_and_every_algorithm_with_a_critic(
    configured: Any, algorithm: str, hardware: str
) -> None:
    config = configured(algorithm=algorithm, hardware=hardware)
    assert config.trainer.test_freq == -1 and config.trainer.val_before_train is False and config.data.shuffle
    assert config.trainer.total_epochs == (1 if hardware == "cpu" else 5)
    assert config.actor_rollout_ref.rollout.n == 1
    assert "16 of 16 trajectories" in lines_of(config)


REFUSED = {
    "filter_groups": (["algorithm.filter_groups.enable=true"], "algorithm.filter_groups.enable", "false"),
    "rollouts": (["actor_rollout_ref.rollout.n=4"], "actor_rollout_ref.rollout.n=4", "n=1"),
    "gate": (["stage.gate={kind: minimum, metric: val_choose/acc, value: .5}"], "val_choose/acc", "stage.gate=null"),
    "best": (["stage.handover=best"], "stage.handover=best", "last"),
    "over budget": (["stage.over_budget=leave_out"], "stage.over_budget=leave_out", "keep"),
    "price": (["interaction.overlong.penalty=0.5"], "interaction.overlong.penalty=0.5", "0"),
    "data set": (["data.custom_cls.path=mine.py"], "data.custom_cls.path=mine.py", "Leave it out"),
    "rewards": (["offline.rewards=last"], "offline.rewards", "'final'"),
    "old": (["offline.old_log_probs=first"], "offline.old_log_probs", "'step'"),
    "adapter": (["actor_rollout_ref.model.lora_adapter_path=a"], "offline.old_log_probs=start", "old_log_probs=step"),
    "stage's adapter": (["stage.adapter=continue", "stage.previous=one"], "old_log_probs=start", "old_log_probs=step"),
    "rejection": (["algorithm.rollout_correction.rollout_rs=token_k1"], "old_log_probs=start", "rollout_rs=null"),
    "bypass": (["algorithm.rollout_correction.bypass_mode=true"], "old_log_probs=start", "bypass_mode=false"),
}


@pytest.mark.parametrize(("overrides", "given", "instead"), REFUSED.values(), ids=REFUSED.keys())
def test_what_asks_for_something_to_be_played_is_refused(
    configured: Any, overrides: list[str], given: str, instead: str
) -> None:
    with pytest.raises(PreflightError) as refused:
        configured(*overrides)
    assert given in str(refused.value) and instead in str(refused.value)


def test_a_stage_that_plays_can_be_made_to_learn_from_files(configured: Any) -> None:
    whole = ("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8")
    config = configured("actor_rollout_ref.rollout.n=1", *whole, algorithm="tppo", name="stage2")
    assert "16 of 16 trajectories" in lines_of(config)


def test_the_stage_asks_for_its_files() -> None:
    config = composed("step_grained", "cpu", "offline")
    config.actor_rollout_ref.model.path = "the model"
    with pytest.raises(PreflightError, match="offline.files is missing.*Set it to"):
        check_settings(config)


def test_groups_are_compared_where_there_are_some(configured: Any, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="n=1.*how many stand together"):
        configured(algorithm="grpo")
    with pytest.raises(PreflightError, match="none has a second one.*algorithm=step_grained"):
        lines_of(configured("actor_rollout_ref.rollout.n=2", algorithm="grpo"))
    pairs = [line(uid=str(number // 2), session=number % 2) for number in range(16)]
    path = write_lines(tmp_path / "pairs.jsonl", [*pairs, line(uid="alone")])
    with pytest.raises(PreflightError, match=r"n=4.*has 2 trajectories.*n=2"):
        lines_of(configured("actor_rollout_ref.rollout.n=4", algorithm="grpo", file=path))
    config = configured("actor_rollout_ref.rollout.n=2", algorithm="grpo", file=path)
    assert "8 groups of up to 2 (1 that are alone in their group are left out)" in lines_of(config)
    assert config.data.stored.grouped and config.data.stored.rows == 8


def test_too_few_trajectories_say_so_and_why(configured: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "few.jsonl", [line(uid="1"), line((range(5, 200),), (1.0,), uid="2")])
    with pytest.raises(PreflightError, match="train_batch_size=8.*the 1 trajectories.*1 too long.*TRAIN_BATCH_SIZE"):
        lines_of(configured(file=path))


def test_mistakes_are_listed_and_counted(configured: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bad.jsonl", [line(uid="1"), *({"tokens": number} for number in range(30))])
    with pytest.raises(PreflightError) as refused:
        lines_of(configured(file=path))
    assert "30 mistakes, 31 trajectories read, the first 10 here" in str(refused.value)
    assert str(refused.value).count(str(path)) == 10


def test_that_it_is_off_policy_and_not_validated_is_said(configured: Any) -> None:
    said = lines_of(configured())
    assert "another policy's" in said and "those of the model, in every step" in said and "recipe.evaluate" in said
    assert "beginning of each step" in lines_of(configured("offline.old_log_probs=step"))


@pytest.mark.parametrize(("kl", "kept"), [("false", False), ("true", True)])
def test_a_reference_without_a_kl_is_there_for_the_old_log_probabilities_alone(
    configured: Any, kl: str, kept: bool
) -> None:
    given = [f"algorithm.use_kl_in_reward={kl}", "actor_rollout_ref.actor.use_kl_loss=false"]
    actor = configured(*given).actor_rollout_ref.actor
    assert actor.use_kl_loss is not kept and (kept or actor.kl_loss_coef == 0)
    assert configured(*given, "offline.old_log_probs=step").actor_rollout_ref.actor.use_kl_loss is False


def test_nothing_of_it_is_taken_where_nothing_is_stored(configured: Any) -> None:
    for key, value in (("rewards", "final"), ("old_log_probs", "step")):
        with pytest.raises(PreflightError, match=f"offline.{key}={value} does nothing"):
            configured("offline.files=null", f"offline.{key}={value}", name="stage2")


def test_stored_log_probabilities_are_used_only_where_all_have_some(configured: Any, tmp_path: Path) -> None:
    config = configured("algorithm.rollout_correction.rollout_is=token")
    assert "weight each token by its ratio" in lines_of(config)
    assert config.actor_rollout_ref.rollout.calculate_log_probs and config.data.stored.log_probs
    some = [line(uid=str(number), log_probs=number > 0) for number in range(8)]
    path = write_lines(tmp_path / "some.jsonl", some)
    config = configured("algorithm.rollout_correction.rollout_is=token", file=path)
    assert "rollout_is=token is switched off: 1 of 8" in lines_of(config)
    assert config.algorithm.rollout_correction.rollout_is is None
    assert not config.actor_rollout_ref.rollout.calculate_log_probs and not config.data.stored.log_probs
    with pytest.raises(PreflightError, match="1 of 8 trajectories have none.*bypass_mode=false"):
        bypass = ("algorithm.rollout_correction.bypass_mode=true", "algorithm.rollout_correction.rollout_is=null")
        lines_of(configured("offline.old_log_probs=step", *bypass, file=path))


def test_a_resumed_stage_learns_from_the_same_trajectories(configured: Any, tmp_path: Path) -> None:
    from recipe.stage import starts

    config = configured()
    lines_of(config)
    starts.note(config)
    checkpoints = Path(config.trainer.default_local_dir)
    (checkpoints / "global_step_3").mkdir()
    (checkpoints / starts.TRACKER).write_text("3")
    lines_of(configured())
    other = write_lines(tmp_path / "other.jsonl", [line(uid=str(number)) for number in range(15)])
    with pytest.raises(PreflightError, match="learn from 16 stored rows, this start has 15"):
        lines_of(configured(file=other))


def test_rows_of_steptools_are_trained_on_too(configured: Any, tmp_path: Path) -> None:
    rows = [(f"q{number}", [("Will it rain?", "Thought: look", 0.5)]) for number in range(8)]
    assert "8 of 8 trajectories" in lines_of(configured(file=write_rows(tmp_path / "trajectories.parquet", *rows)))


@pytest.mark.parametrize("hardware", ["gpu8", "gpu1"])
def test_the_ablation_has_steptools_values_and_differs_in_the_rewards_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hardware: str
) -> None:
    monkeypatch.setenv("HARDWARE", hardware)
    file = write_lines(tmp_path / "1.jsonl", [line()])
    path = stages.find("steptool")
    found = {}
    for name, content in stages.read_yaml(path, ("runs",))["runs"].items():
        given = [f"offline.files={file}", f"paths.run={tmp_path}/{name}"]
        (stage,) = stages.read_stages(content, path, given)
        found[name] = stage.composed
    for config in found.values():
        actor, algorithm = config.actor_rollout_ref.actor, config.algorithm
        assert (actor.optim.lr, actor.ppo_mini_batch_size, actor.ppo_epochs) == (1e-5, 8, 4)
        assert (config.critic.optim.lr, config.critic.ppo_mini_batch_size, config.critic.ppo_epochs) == (1e-5, 8, 4)
        assert (config.actor_rollout_ref.model.lora_rank, config.actor_rollout_ref.model.lora_alpha) == (8, 16)
        assert config.paths.tiny_policy is None  # it needs a model: python -m recipe.curriculum refuses a start without
        assert (algorithm.adv_estimator, algorithm.gamma, algorithm.lam) == ("gae_bad", 0.99, 0.95)
        assert (algorithm.kl_ctrl.kl_coef, algorithm.kl_ctrl.target_kl, algorithm.kl_ctrl.horizon) == (0.3, 6.0, 10000)
        assert (config.data.train_batch_size, config.trainer.total_epochs) == (8, 5)
        limits = Limits.of(config)
        assert (limits.context, limits.reply) == (4096, 1024) and min(limits.prompt, limits.response) == 4096
    assert {name: config.offline.rewards for name, config in found.items()} == {
        "ppo_final": "final",
        "steptool": "steps",
    }
    for config in found.values():
        config.offline.rewards, config.paths.run = "", ""
    assert found["ppo_final"] == found["steptool"]
