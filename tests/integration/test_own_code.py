"""What a user brings, in real trainings: environments, rewards that fail; about twenty minutes on two cores."""

import math
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from safetensors.torch import load_file
from support.own_environment import write_example
from support.phone import write_phone
from support.short_training import STAGE, command, episodes, prepared, start, succeed, train

from data_prep.__main__ import main as prepare_data
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.report.episodes import headers
from recipe.stage.end import read_done
from recipe.stage.metrics_log import read_steps, trained_files

pytestmark = pytest.mark.slow


def test_the_documented_environment_trains_beside_bfcl_and_stands_in_the_report(tmp_path: Path) -> None:
    """In one batch with BFCL's and with one whose user is asked."""
    own = write_example(tmp_path)
    assert prepare_data(["--out", str(tmp_path / "bfcl"), "--tiny"]) == 0
    assert prepare_data(["--environment", str(own), "--out", str(tmp_path / "own"), "--docs", "signature"]) == 0
    phone = write_phone(tmp_path)
    asked = ["--environment", str(phone), "--out", str(tmp_path / "phone"), "--docs", "signature"]
    assert prepare_data([*asked, "--option", "greeting=Be short."]) == 0
    guard = ["bfcl_single/live_multiple=1", "--rows", "1", "--val-rows", "3"]
    assert prepare_data(["--out", str(tmp_path / "guard"), "--docs", "signature", "--mixture", *guard]) == 0
    make_tiny_policy(tmp_path / "model")
    parts = {"own/inventory_train.parquet": 2, "bfcl/tiny_base.parquet": 1, f"phone/{phone.stem}_train.parquet": 1}
    mixed = pa.concat_tables([parquet.read_table(tmp_path / path).slice(0, rows) for path, rows in parts.items()])
    parquet.write_table(mixed, tmp_path / "mixed.parquet")
    stage = train(
        tmp_path,
        *(f"paths.data={tmp_path}/bfcl", f"data.train_files={tmp_path}/mixed.parquet"),
        f"data.val_files={tmp_path}/own/inventory_val.parquet",
        f"environment.guard={tmp_path}/guard/mixture_val.parquet",
        *(f"+interaction.environments.inventory={own}", f"+interaction.environments.{phone.stem}={phone}"),
        f"+interaction.train.environments.{phone.stem}.greeting=Be short.",
        *("interaction.user={kind: scripted, lines: [My line is dead., Goodbye.]}", "stage.max_lost_share=1.0"),
    )
    assert {1, 2} <= {*read_steps(stage)} <= {0, 1, 2}
    lines = episodes(stage)
    assert len(lines) == 2 * 4 * 2
    assert {line["episode"]["environment"] for line in lines} == {"inventory", "bfcl", phone.stem}
    heard = [line["episode"] for line in lines if line["environment"] == phone.stem]
    assert all([turn["user"] for turn in episode["turns"]] == ["My line is dead."] for episode in heard)
    assert all(episode["options"] == {"greeting": "Be short."} for episode in heard)
    assert {line["part"] for line in episodes(stage, "val")} == {"dev", "test", "guard"}
    held_out = {name for name in read_steps(stage)[2] if name.endswith("/acc")}
    assert {"val/acc", "val_dev/acc", "val_guard/bfcl_single/live_multiple/acc"} <= held_out
    succeed("recipe.report", str(tmp_path / "run"))
    assert "move_" in (tmp_path / "run" / "report.html").read_text()


USER = "interaction.user={kind: scripted, lines: [My phone has no data., I have done that., '###STOP###']}"
STAGES = {"tau_format": [], "tau_solo": ["algorithm.filter_groups.enable=false"], "tau_user": [USER]}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data and a policy that has learned nothing."""
    folder = tmp_path_factory.mktemp("tau")
    options = "--protocol python_calls --docs signature --option policy=none --option show_functions=false".split()
    assert prepare_data(["--environment", "tau", "--tiny", "--out", str(folder / "data" / "tau"), *options]) == 0
    make_tiny_policy(folder / "model", conversations=folder / "data" / "tau" / "tau_sft.parquet")
    return folder


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_of_tau_trains_two_steps(stage: str, made: Path) -> None:
    trained = train(
        made,
        *STAGES[stage],
        *("stage.previous=null", "trainer.val_before_train=false", "stage.max_lost_share=1.0"),
        f"data.val_files={made}/data/tau/{'tau_user_val' if stage == 'tau_user' else 'tau_format'}.parquet",
        *("data.max_prompt_length=1024", "actor_rollout_ref.rollout.max_model_len=2048"),
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
        config=stage,
        run=stage,
    )
    lines = episodes(trained)
    assert {line["step"] for line in lines} == {1, 2} and len(lines) >= 2 * 4 * 2  # with training rows of validations
    assert {line["environment"] for line in lines} == {"tau"} and {line["part"] for line in lines} == {"train"}
    assert all("clean" in line["episode"]["facts"] for line in lines)
    if stage == "tau_user":
        assert all(line["episode"]["turns"][0]["user"] == "My phone has no data." for line in lines)


REWARD = """
import math, os, time
calls = []
def compute_score(data_source, solution_str, ground_truth, extra_info):
    calls.append(1)
    score = float(len(solution_str) % 11)
    if "num_turns" not in extra_info:  # the trial before the start
        return score
    {body}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("reward"))


def rewarded(folder: Path, name: str, body: str, *overrides: str) -> tuple[subprocess.CompletedProcess[str], Path]:
    (folder / f"{name}.py").write_text(REWARD.format(body=body))
    given = [f"reward.custom_reward_function.path={folder}/{name}.py", "trainer.test_freq=-1", *overrides]
    done = start(*command(folder, *given, "actor_rollout_ref.rollout.n=4", rows=2, run=name))
    return done, folder / name / STAGE


def test_samples_whose_reward_is_nan_are_lost_and_counted_and_the_others_train(folder: Path) -> None:
    body = "return math.nan if len(calls) % 8 == 3 else score"
    done, stage = rewarded(folder, "part", body, "stage.max_lost_share=0.5")
    assert done.returncode == 0, done.stdout[-5000:]
    assert f"the reward compute_score of {folder}/part.py returned nan; expected a finite" in done.stdout
    steps = read_steps(stage)
    assert sorted(steps) == [1, 2]
    for numbers in steps.values():
        assert numbers["train/lost_samples"] == pytest.approx(1 / 8)
        assert numbers["train/failed_rewards"] > 0
        assert all(map(math.isfinite, numbers.values())), "NaN has reached the metrics"
    weights = load_file(stage / "hf" / "model.safetensors")
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_reward_that_always_fails_stops_training_before_the_update(folder: Path) -> None:
    for name, body, said, given in (
        ("nan", "return math.nan", "returned nan", ()),
        ("hang", "time.sleep(10_000)", "has not returned within 2 s", ("reward.timeout=2",)),
        ("exit", "os._exit(0)", "failed for 2 prompts", ()),
    ):
        done, stage = rewarded(folder, name, body, *given)
        reward = f"the reward compute_score of {folder}/{name}.py"
        assert done.returncode == 1 and said in done.stdout
        assert f"8 of 8 samples of step 1 were lost because {reward} failed for 2 prompts" in done.stdout
        assert read_steps(stage) == {}
        assert read_done(stage) is None and not (stage / "hf").exists()


ROWS, ROLLOUTS, OLDEST = 4, 2, 2


@pytest.mark.parametrize("trainer", ["async", "separate"])
def test_playing_on_trains_each_step_on_own_and_fresh_episodes_and_ends_with_a_failing_reward(tmp_path, trainer):
    folder = prepared(tmp_path)
    given = [f"trainer={trainer}", "trainer.test_freq=-1", f"trainer.v1.sampler.max_off_policy_threshold={OLDEST}"]
    given.append(f"reward.custom_reward_function.path={folder}/my_reward.py")
    train(folder, *given)
    stage = train(folder, *given, "trainer.total_training_steps=4")  # goes on
    steps = read_steps(stage)
    assert list(steps) == [1, 2, 3, 4]
    seen: set[tuple[str, int]] = set()
    for step, numbers in steps.items():
        assert numbers["train/lost_samples"] == 0 and numbers["actor/grad_norm"] > 0
        assert 0 <= numbers["training/off_policy/trajectory_staleness_worst/max"] < OLDEST
        assert numbers["rollout_corr/rollout_is_mean"] > 0
        found = [(place.header, uids) for path, uids in trained_files(stage, step).items() for place in headers(path)]
        trained = [(header["uid"], header["session_id"]) for header, uids in found if header["uid"] in (uids or ())]
        assert len(trained) == len({*trained}) == ROWS * ROLLOUTS, step
        assert not seen & {*trained}
        seen |= {*trained}
    (folder / "my_reward.py").write_text(REWARD.format(body="raise ValueError('it always does in training')"))
    with pytest.raises(AssertionError, match="were lost because the reward compute_score of .*my_reward.py failed"):
        train(folder, *given, run="fails")
