"""Data, environments, users and rewards with which a stage could not play, or would play something else."""

import json
import os
from itertools import product

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from omegaconf import OmegaConf
from support.evaluation import serving
from support.own_environment import example
from support.phone import SAYS, write_phone
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY

from data_prep.__main__ import main as prepare_data
from interaction.environment import register
from recipe.machine import loopback
from recipe.preflight import data, settings


@pytest.fixture
def said(configured, refusal, made):
    """The problems and the notes of a stage with these data."""

    def said(train=None, val=None, **settings):
        config, notes = configured("data.train_batch_size=2"), list[str]()
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = "recipe/config/agent_loops.yaml"
        config.data.train_files = str(made / "tiny_full.parquet") if train is None else train
        config.data.val_files = str(made / "tiny_val.parquet") if val is None else val
        for key, value in settings.items():
            OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
        said.config = config
        return refusal(data.rows(config, notes, {})), "\n".join(notes)

    return said


def rewritten(made, path, change):
    """The path of the tiny training rows after a change."""
    rows = parquet.read_table(made / "tiny_full.parquet").to_pylist()
    parquet.write_table(pa.Table.from_pylist(change(rows) or rows), path)
    return str(path)


def put(number, *keys, value):
    """A change of one value in one row, or of all rows where `number` is -1."""

    def change(rows):
        for place in rows if number < 0 else [rows[number]]:
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value

    return change


def without(column):
    return lambda rows: [{name: row[name] for name in row if name != column} for row in rows]


def test_a_wrong_row_or_column_is_named_with_the_setting(made, tmp_path, said):
    for change, word in (
        (put(3, "extra_info", "task_id", value="nope_7"), "row 3: ValueError: environment bfcl has no task 'nope_7'"),
        (put(1, "extra_info", value=None), "row 1"),
        (put(0, "extra_info", "split", value="test"), "row 0: extra_info.split is 'test'"),
        (put(0, "extra_info", "environment", value="shop"), "set +interaction.environments.shop=FILE"),
        (without("prompt"), "row 0: KeyError: 'prompt'"),
        (without("extra_info"), "extra_info"),
        (put(-1, "extra_info", value={"task_id": "multi_turn_base_1"}), "KeyError: 'split'"),
        (put(-1, "reward_model", value={"style": "rule"}), "KeyError: 'ground_truth'"),
        (put(1, "data_source", value=None), "row 1"),
        (put(-1, "prompt", value="Do it."), "row 0: its prompt"),
        (put(-1, "extra_info", value="multi_turn_base_1"), "row 0"),
        (lambda rows: [*rows[:3], {**rows[3], "prompt": rows[0]["prompt"]}], "row 3: its prompt"),
        (put(3, "agent_name", value="other"), "row 3: its agent loop 'other'"),
        (put(3, "extra_info", "split", value="val"), "1 of 4 rows"),
        (lambda rows: rows[:1], "more than the 1 rows"),
    ):
        name = rewritten(made, tmp_path / "rows.parquet", change)
        line, _ = said(train=name)
        assert word in line and name in line and "data.train_" in line, (word, line)


def test_what_data_prep_made_is_played_and_small_files_count_together(made, tmp_path, said, monkeypatch):
    assert said(val=[str(made / "tiny_val.parquet")] * 2) == ("", "")
    rows = parquet.read_table(made / "tiny_full.parquet")
    names = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for number, name in enumerate(names):
        parquet.write_table(rows.slice(number, min(number, 1)).drop_columns(["agent_name", "ability"]), name)
    assert said(train=names) == ("", "")
    assert "has no rows" in said(train=names[0])[0] and "has no rows" in said(train=[])[0]
    monkeypatch.setenv("HOME", str(made))
    assert said(train="~/tiny_full.parquet") == ("", "")
    assert said.config.data.train_files == str(made / "tiny_full.parquet")


def test_data_for_another_prompt_or_protocol_are_refused_with_the_options_that_make_them(said, tmp_path, monkeypatch):
    line, _ = said(interaction__docs="json")
    assert "its prompt" in line and "--docs json" in line
    assert "does not exist" in said(train=str(tmp_path / "missing.parquet"))[0]
    monkeypatch.setattr(data, "unwritable", lambda task, protocol: "it has no such literal")
    assert "think_xml cannot write" in said()[0]


def test_a_file_that_is_cut_off_or_changed_is_refused_or_has_the_rows_that_it_had(made, tmp_path, said):
    content, path = (made / "tiny_full.parquet").read_bytes(), tmp_path / "tiny_full.parquet"
    whole = [row["prompt"] for row in parquet.read_table(made / "tiny_full.parquet").to_pylist()]
    for harmed in (b"", content[:99], *(content[:at] + b"\x07" + content[at + 1 :] for at in range(5, 6000, 397))):
        path.write_bytes(harmed)
        line, _ = said(train=str(path))
        assert str(path) in line or [row["prompt"] for row in parquet.read_table(path).to_pylist()] == whole
    path.write_bytes(content)
    path.with_name("manifest.json").write_text((made / "manifest.json").read_text())
    assert said(train=str(path)) == ("", "")
    rewritten(made, path, lambda rows: rows[::-1])
    assert "manifest.json" in said(train=str(path))[0]


def test_training_rows_may_be_validated_on_held_out_ones_are_not_trained_on_and_dev_tasks_decide(made, said, tmp_path):
    changes = [put(-1, "extra_info", "part", value=part) for part in ("test", "dev")]
    test, dev = (rewritten(made, tmp_path / str(number), change) for number, change in enumerate(changes))
    assert "needs dev tasks" not in said(val=test)[0] + said(val=[test, dev], stage__handover="best")[0]
    assert "needs dev tasks" in said(val=test, stage__handover="best", environment__guard=dev)[0]
    train, val = str(made / "tiny_full.parquet"), str(made / "tiny_val.parquet")
    assert said(val=[val, train])[1].startswith("4 of 12 rows of data.val_files")
    assert "8 of 8 rows of data.train_files" in said(train=val)[0]
    assert "8 of 8 rows of stage.resample.pool" in said(stage__resample__pool=val)[0]
    assert said(val=[], trainer__test_freq=-1, trainer__val_before_train=False)[0] == ""
    assert "data.val_files" in said(val=[], trainer__test_freq=5)[0]


def test_a_guard_is_validated_on_as_well_and_known_by_its_sources(made, tmp_path, said):
    mixture = ["--mixture", "bfcl_single/multiple=1", "bfcl_single/irrelevance=1", "--rows", "2", "--val-rows", "4"]
    assert prepare_data(["--out", str(tmp_path), "--docs", "signature", *mixture]) == 0
    guard, val = str(tmp_path / "mixture_val.parquet"), str(made / "tiny_val.parquet")
    assert said(environment__guard=guard)[0] == ""
    assert said.config.data.val_files == [val, guard]
    assert said.config.environment.guarded == ["bfcl_single/irrelevance", "bfcl_single/multiple"]
    assert "both have rows of bfcl_single" in said(val=[val, guard], environment__guard=guard)[0]
    assert "2 of 2 rows of environment.guard" in said(environment__guard=str(tmp_path / "mixture_train.parquet"))[0]


def test_a_file_of_agent_loops_that_workers_could_not_read_is_refused(said, tmp_path):
    path = tmp_path / "loops.yaml"
    for content in ("", "name: a", "- {name: conversation}", "- [", "- {name: a, _target_: nowhere.at.Loop}"):
        path.write_text(content)
        line, _ = said(actor_rollout_ref__rollout__agent__agent_loop_config_path=str(path))
        assert "agent_loop_config_path" in line and str(path) in line, content


def test_where_a_user_is_asked_somebody_has_to_play_it(tmp_path, said):
    phone = write_phone(tmp_path)
    assert prepare_data(["--environment", str(phone), "--out", str(tmp_path), "--docs", "signature"]) == 0
    names = [str(tmp_path / f"{phone.stem}_{split}.parquet") for split in ("train", "val")]
    assert "interaction.user" in said(*names)[0]
    assert said(*names, interaction__user={"kind": "scripted", "lines": list(SAYS)})[0] == ""


def test_a_server_that_plays_the_user_is_asked_for_a_word(configured, refusal, tmp_path, monkeypatch):
    config = configured()

    def judged(**settings):
        config.interaction.user = settings
        return refusal(data.user(config))

    calm = {"kind": "endpoint", "timeout": 5.0, "backoff": 0.0, "attempts": 5}
    for fault, word in ((None, ""), (401, "api_key_env"), (404, "user.model"), (b"<html>", "user.url")):
        with serving(lambda _: "hello", [fault] * 9 if fault else []) as server:
            assert word in (line := judged(url=server.url, **calm)) and bool(line) is bool(word)
    asked = []
    monkeypatch.setattr(data, "require_answer", asked.append)
    monkeypatch.setattr(loopback, "cluster", lambda nodes: None)
    away = {"url": "http://10.0.0.7:8001/v1", **calm}
    assert "interaction.user.remote=true" in judged(**away) and not asked
    assert judged(**away, remote=True) == "" and len(asked) == 1
    (tmp_path / "lines.jsonl").write_text(json.dumps({"task_id": "phone_0", "lines": list(SAYS)}))
    monkeypatch.chdir(tmp_path)  # workers run elsewhere
    assert judged(kind="replay", file="lines.jsonl") == "" and os.path.isabs(config.interaction.user.file)


SOLVED = "any(turn['passed'] for turn in extra_info['episode']['turns'])"


def test_a_reward_is_tried_and_has_the_metric_by_which_groups_are_compared(configured, refusal, tmp_path):
    head = "def compute_score(data_source, solution_str, ground_truth, extra_info, **more):\n    return "
    rewards = [
        # what is returned, the metric that groups are compared by, and a word of the problem
        ("{'score': 1.0, 'accuracy': 0}", "accuracy", ""),
        ("{'score': 1.0}", "accuracy", "accuracy"),
        ("0.5", "acc", ""),
        ("{'score': 1.0, 'malformed': 0}", None, ""),  # that of algorithm=dapo, which falls back on the score
        ("{'score': 1.0, 'step_scores': [1.0]}", "reward", "step_scores"),
        ("extra_info['epsiode']", "reward", "epsiode"),
        (f"{{'score': 1.0, str({SOLVED}): 1.0}}", "reward", "returns the keys ['True', 'score'] for one record"),
    ]
    for number, (kind, (result, metric, word)) in enumerate(product(("", "async "), rewards)):
        (path := tmp_path / f"reward{number}.py").write_text(kind + head + result)
        given = [f"algorithm.filter_groups.metric={metric}"] if metric else []
        config = configured("algorithm=dapo", f"reward.custom_reward_function.path={path}", *given)
        line = refusal(data.reward(config, notes := [], {}))
        assert word in line and bool(line) is bool(word), (result, line)
        assert (config.algorithm.filter_groups.metric, bool(notes)) == (metric or "reward", metric is None), result
    source, field = example().replace('"inventory"', '"waits"'), 'category: str = "move"\n'
    (tmp_path / "waits.py").write_text(source.replace(field, f"{field}    WAITS = True\n"))
    register({"waits": str(tmp_path / "waits.py")})
    (path := tmp_path / "unsolved.py").write_text(f"{head}1 / (not {SOLVED})")
    config.reward.custom_reward_function.path = str(path)
    config.data.train_files, read = "rows", {"rows": [{"extra_info": {"environment": "waits"}}]}
    for config.interaction.tried, word in ((False, ""), (True, "ZeroDivisionError")):  # whether gold is played
        assert word in (line := refusal(data.reward(config, [], read))) and bool(line) is bool(word), line


def test_an_estimator_and_a_loss_of_ones_own_are_tried_on_a_small_batch(configured, refusal, monkeypatch):
    monkeypatch.setenv("VERL_USE_EXTERNAL_MODULES", "recipe.training.external")
    monkeypatch.setenv("BFCL_EXTERNAL_MODULES", "my_module")
    config = configured("algorithm.adv_estimator=mine", "actor_rollout_ref.rollout.n=1")
    for grouped, word in ((None, "algorithm.credit.grouped"), (True, "rollout.n=1"), (False, "")):
        config.algorithm.credit.grouped = grouped
        wrong = refusal(settings.algorithm(config))
        assert word in wrong and bool(word) is bool(wrong), grouped
    assert "mine" in refusal(data.own_code(config)), "nothing registers it"
    for estimate, word in (
        (lambda token_level_rewards, **_: (token_level_rewards, token_level_rewards / 0), "not finite"),
        (lambda token_level_rewards, **_: (token_level_rewards.sum(1),) * 2, "(5,)"),
        (lambda token_level_rewards, **_: (token_level_rewards,), "(5, 6)"),
        (lambda values, **_: (values, values), "values"),
    ):
        monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "mine", estimate)
        wrong = refusal(data.own_code(config))
        assert word in wrong and wrong.startswith("VERL_USE_EXTERNAL_MODULES=my_module: "), (word, wrong)

    def estimate(token_level_rewards, response_mask, index, values, turn_ids, step_ids, config, **_):
        """Asserts that episodes have two messages; a rollout is alone only where groups do not count."""
        number = 4 if config.credit.grouped else 5
        assert turn_ids.tolist() == step_ids.tolist() == [[0, 0, -1, 1, 1, -1]] * number
        assert response_mask.tolist() == [[1, 1, 0, 1, 1, 0]] * number and not values.any()
        assert token_level_rewards.tolist() == [[0, 0, 0, 0, last, 0] for last in (1, 0, 0.5, 0.5, 1)[:number]]
        assert "".join(index) == "aabbc"[:number]
        return token_level_rewards, values

    config.critic.enable = True
    monkeypatch.setitem(ADV_ESTIMATOR_REGISTRY, "mine", estimate)
    for config.algorithm.credit.grouped in (True, False):
        assert refusal(data.own_code(config)) == "" and ADV_ESTIMATOR_REGISTRY["mine"] is estimate
    config.actor_rollout_ref.actor.policy_loss.loss_mode = "my_loss"
    assert "my_loss" in refusal(data.own_code(config))

    def good(old_log_prob, log_prob, advantages, response_mask, config, **_):
        assert old_log_prob.tolist() == log_prob.tolist() == [[-1] * 3] * 2
        assert advantages.tolist() == response_mask.tolist() == [[1] * 3] * 2
        return log_prob.mean() * config.clip_ratio_low, {}

    for loss, word in (
        (good, ""),
        (lambda log_prob, **_: (log_prob.mean() / 0, {}), "expected a finite number"),
        (lambda log_prob, **_: (log_prob, {}), "expected a finite number"),
        (lambda turn_ids, **_: (turn_ids, {}), "turn_ids"),
    ):
        monkeypatch.setitem(POLICY_LOSS_REGISTRY, "my_loss", loss)
        wrong = refusal(data.own_code(config))
        assert word in wrong and bool(word) is bool(wrong), (word, wrong)
