"""Names of an earlier release are refused in one line that says the new one; stored runs that have them are read."""

import json
from pathlib import Path

import pytest
from omegaconf import open_dict

from recipe import evaluate, report
from recipe.errors import PreflightError
from recipe.launch.compose import compose
from recipe.preflight.checks import check_settings
from recipe.report import episodes
from recipe.reward import sample_record
from recipe.settings.reading import check_values
from recipe.settings.renamed import POLICY_LOSS, VALUES

OLD_CLASS = "recipe.credit.policy_loss.TurnPolicyLossConfig"


@pytest.mark.parametrize(
    ("override", "new"),
    [
        ("algorithm.adv_estimator=gae_action", "gae_step"),
        (f"{POLICY_LOSS}.loss_mode=appo_turn", "appo_step"),
        (f"{POLICY_LOSS}._target_={OLD_CLASS}", "recipe.credit.policy_loss.StepPolicyLossConfig"),
    ],
)
def test_an_old_value_of_a_setting_is_refused_with_the_new_one(override: str, new: str):
    key, _, old = override.partition("=")
    assert VALUES[key] == {old: new}, "the table and this one list the same names"
    with pytest.raises(PreflightError) as error:
        check_settings(compose("stage2", ["hardware=tiny", override]))
    assert str(error.value) == f"{override} is called {new} now. Set {key}={new}."


def test_old_names_in_a_configuration_of_the_users_own_are_refused_with_a_line_for_each(tmp_path: Path):
    text = (
        "defaults: [stage2, _self_]\nactor_rollout_ref:\n  actor:\n    loss_agg_mode: seq-mean-token-mean\n"
        "    policy_loss:\n"
        f"      _target_: {OLD_CLASS}\n      loss_mode: appo_turn\nalgorithm:\n  adv_estimator: gae_action\n"
    )
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(PreflightError) as error:
        check_settings(compose("mine", ["hardware=tiny", "critic.enable=true"], folder=tmp_path))
    renamed = [(old, new) for names in VALUES.values() for old, new in names.items()]
    for line, (old, new) in zip(str(error.value).splitlines(), renamed, strict=True):
        assert f"={old} is called {new} now" in line
        text = text.replace(old, new)
    (tmp_path / "new.yaml").write_text(text)
    check_settings(compose("new", ["hardware=tiny", "critic.enable=true"], folder=tmp_path))


@pytest.fixture
def old_run(tmp_path: Path) -> Path:
    """A run as the earlier release stored it: one episode, its list of scores under the old name, after the episode."""
    episode = sample_record()
    steps = sum(len(turn["steps"]) for turn in episode["turns"])
    header = {"step": 1, "split": "train", "uid": "u", "session_id": 0, "task_id": episode["task_id"]}
    line = {**header, "score": 0.5 * steps, "reward": {"score": 0.5 * steps, "acc": 1.0}, "episode": episode}
    path = tmp_path / "run" / "stage2_base" / "rollouts" / "train" / "000001.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**line, "turn_scores": [0.5] * steps}) + "\n")
    return tmp_path / "run"


def test_a_stored_line_with_turn_scores_is_in_the_report(old_run: Path):
    (place,) = episodes.choose([old_run / "stage2_base"], 10)
    assert place.header["reward"]["acc"] == 1.0
    (shown,) = episodes.load([place])
    assert shown["episode"]["task_id"] == place.header["task_id"]
    assert report.write(old_run).is_file()


def test_a_stored_line_with_turn_scores_is_judged_again(old_run: Path, capsys):
    assert evaluate.main(["--records", str(old_run)]) == 0
    assert "1 episodes in 1 files; 0 lines are no record" in capsys.readouterr().out


MOVED = {
    "interaction.train.augment=false": "interaction.train.environments.bfcl.augment",
    "interaction.val.withheld=official": "interaction.val.environments.bfcl.withheld",
    "interaction.train.empty_gold=state": "interaction.train.environments.bfcl.empty_gold",
    "+interaction.train.at_step_limit=official": "max_steps_per_turn=21",
}


@pytest.mark.parametrize("override", MOVED)
def test_settings_that_only_one_environment_has_say_where_they_went(override):
    with pytest.raises(PreflightError, match=MOVED[override].replace(".", r"\.")):
        compose("stage2", [override])


def test_a_stage_of_ones_own_with_such_a_setting_is_told_the_same():
    config = compose("stage2", [])
    with open_dict(config):
        config.interaction.train.augment = True
    with pytest.raises(PreflightError, match=r"is now interaction\.train\.environments\.bfcl\.augment"):
        check_values(config)
