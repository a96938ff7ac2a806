"""Every mistake a user can make before the start stops with what was given, what was expected and what to change."""

import json
import re
import shutil
from pathlib import Path

import pyarrow
import pyarrow.parquet as parquet
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from data_prep.__main__ import main as prepare_data
from interaction import get_protocol
from recipe.cpu.tiny_policy import make_tiny_policy
from recipe.errors import PreflightError
from recipe.launch.compose import compose as configuration
from recipe.launch.compose import launch_overrides
from recipe.preflight import checks
from recipe.preflight.machine import check_devices
from recipe.preflight.model import load_tokenizer
from recipe.preflight.template import check_template
from recipe.settings import CONFIG_DIR
from recipe.stage import manifest, starts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    assert prepare_data(["--out", str(folder), "--tiny"]) == 0
    return folder


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch):
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "HARDWARE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def tiny_policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    make_tiny_policy(folder)
    return folder


@pytest.fixture
def model(tmp_path: Path, tiny_policy: Path) -> Path:
    return Path(shutil.copytree(tiny_policy, tmp_path / "model"))


def composed(data: Path, tmp_path: Path, *overrides: str, name: str = "stage2") -> DictConfig:
    given = ["hardware=tiny", f"paths.data={data}", f"paths.run={tmp_path}/run", f"paths.tiny_policy={tmp_path}/none"]
    search = next(item for item in launch_overrides(["hardware=tiny"]) if item.startswith("hydra.searchpath"))
    with initialize_config_dir(str(CONFIG_DIR), version_base=None):
        return compose(name, overrides=[*given, search, *overrides])


def test_a_correct_configuration_passes_and_the_file_of_agent_loops_is_filled_in(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}")
    checks.check(config)
    assert Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).is_file()
    assert str(model) in checks.summary(config)


def test_a_missing_dataset_names_the_command_that_makes_it(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", "data.train_files=nowhere.parquet")
    with pytest.raises(PreflightError, match=r"nowhere\.parquet does not exist.*python -m data_prep"):
        checks.check(config)


def test_data_made_for_another_prompt_is_refused(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", "interaction.docs=json")
    with pytest.raises(PreflightError, match="made for another prompt"):
        checks.check(config)


def test_a_batch_larger_than_the_data_is_refused(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", "data.train_batch_size=8")
    with pytest.raises(PreflightError, match="more than the 4 rows.*TRAIN_BATCH_SIZE"):
        checks.check(config)


def test_without_a_model_the_message_says_how_to_get_one(data, tmp_path):
    with pytest.raises(PreflightError, match="stage1_format.*MODEL="):
        checks.check(composed(data, tmp_path))
    with pytest.raises(PreflightError, match="run_sft.sh"):
        checks.check(composed(data, tmp_path, name="stage1"))


def test_a_path_that_is_no_model_is_refused_at_once(data, tmp_path):
    with pytest.raises(PreflightError, match=r"/no/such/model is not a model folder"):
        checks.check(composed(data, tmp_path, "actor_rollout_ref.model.path=/no/such/model"))


def test_a_model_without_tokenizer_is_refused(data, tmp_path, model):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).unlink()
    with pytest.raises(PreflightError, match="no tokenizer"):
        checks.check(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"))


def test_a_stage_starts_from_what_the_stage_before_it_exported(data, tmp_path, model):
    shutil.copytree(model, tmp_path / "run" / "stage1_format" / "hf")
    config = composed(data, tmp_path)
    checks.check(config)
    assert config.actor_rollout_ref.model.path == f"{tmp_path}/run/stage1_format/hf"


def test_the_first_stage_starts_from_the_warm_start_of_its_run_before_the_tiny_policy(data, tmp_path, model):
    for folder in ("run/stage0_sft/hf", "none"):
        shutil.copytree(model, tmp_path / folder)
    config = composed(data, tmp_path, name="stage1")
    checks.check(config)
    assert config.actor_rollout_ref.model.path == f"{tmp_path}/run/stage0_sft/hf"
    shutil.rmtree(tmp_path / "run" / "stage0_sft")
    config = composed(data, tmp_path, name="stage1")
    checks.check(config)
    assert config.actor_rollout_ref.model.path == f"{tmp_path}/none"


def test_checkpoints_of_another_start_model_are_not_resumed(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}")
    checks.check(config)
    starts.note(config)
    (Path(config.trainer.default_local_dir) / "latest_checkpointed_iteration.txt").write_text("5")
    checks.check(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"))
    other = tmp_path / "other"
    shutil.copytree(model, other)
    with pytest.raises(PreflightError, match="RUN=another-name"):
        checks.check(composed(data, tmp_path, f"actor_rollout_ref.model.path={other}"))


def test_checkpoints_of_another_lora_are_not_resumed(data, tmp_path, model):
    lora = [f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.model.lora_rank=8"]
    config = composed(data, tmp_path, *lora)
    checks.check(config)
    starts.note(config)
    (Path(config.trainer.default_local_dir) / "latest_checkpointed_iteration.txt").write_text("5")
    checks.check(composed(data, tmp_path, *lora))
    for other in (
        lora[:1],
        [*lora[:1], "actor_rollout_ref.model.lora_rank=4"],
        [*lora, "actor_rollout_ref.model.lora_alpha=32"],
    ):
        with pytest.raises(PreflightError, match="RUN=another-name"):
            checks.check(composed(data, tmp_path, *other))


@pytest.mark.parametrize("override", ["actor_rollout_ref.model.lora.rank=8", "actor_rollout_ref.actor.grad_clip=0.5"])
def test_settings_that_verl_would_take_and_not_use_stop_the_start(data, tmp_path, model, override):
    with pytest.raises(PreflightError, match=re.escape(override)):
        checks.check(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", override))


def reward(tmp_path: Path, text: str) -> str:
    path = tmp_path / "reward.py"
    path.write_text(text)
    return f"reward.custom_reward_function.path={path}"


GOOD = "def compute_score(data_source, solution_str, ground_truth, extra_info, scale=1.0):\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def other(): pass\n", "has no function `compute_score`"),
        ("import not_a_module\n", "cannot be imported: ModuleNotFoundError"),
        (
            GOOD + "    return extra_info['nothing']\n",
            r"raised KeyError: .nothing. at reward\.py:2; extra_info has",
        ),
        (GOOD + "    return 'high'\n", "returned 'high'; expected a number"),
        ("def compute_score(solution_str): return 1.0\n", "raised TypeError"),
    ],
)
def test_a_bad_reward_file_is_refused(data, tmp_path, model, text, message):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", reward(tmp_path, text))
    with pytest.raises(PreflightError, match=message):
        checks.check(config)


def test_a_good_reward_file_is_called_with_its_arguments(data, tmp_path, model):
    text = GOOD + "    assert scale == 3 and extra_info['episode']['turns']\n    return {'score': 1.0}\n"
    argument = "+reward.custom_reward_function.reward_kwargs.scale=3"
    checks.check(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", reward(tmp_path, text), argument))


def test_a_missing_reward_file_is_refused(data, tmp_path, model):
    config = composed(
        data, tmp_path, f"actor_rollout_ref.model.path={model}", "reward.custom_reward_function.path=none.py"
    )
    with pytest.raises(PreflightError, match=r"none\.py does not exist"):
        checks.check(config)


def test_the_gpu_profile_without_gpus_says_which_profile_to_take(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PreflightError, match="hardware=cpu"):
        check_devices(configuration("stage1", ["hardware=gpu8"]))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "8 GPUs are asked for, 6 found. Set trainer.n_gpus_per_node=6"),
        (["trainer=separate", "trainer.n_gpus_per_node=4"], "8 GPUs .* 6 found: 4 that train .* and 4 that play"),
        (["trainer=separate", "trainer.n_gpus_per_node=3"], None),
        (["trainer.n_gpus_per_node=6"], None),
    ],
)
def test_more_gpus_than_there_are_are_refused_with_what_they_are_for(monkeypatch, overrides, message):
    monkeypatch.setattr("recipe.preflight.machine.count_gpus", lambda: 6)
    config = configuration("stage1", ["hardware=gpu8", *overrides])
    if message is None:
        check_devices(config)
        return
    with pytest.raises(PreflightError, match=message):
        check_devices(config)


def test_the_manifest_says_what_each_start_was_made_with(data, tmp_path, model):
    config = composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.rollout.seed=7")
    Path(config.paths.run).mkdir(parents=True)
    manifest.note(config)
    path = manifest.note(config)
    starts = json.loads(path.read_text())["starts"]
    assert len(starts) == 2
    assert starts[0]["versions"]["verl"] == checks.VERL_VERSION
    assert (starts[0]["stage"], starts[0]["seed"], starts[0]["model"]) == ("stage2_base", 7, str(model))
    made = json.loads((data / "manifest.json").read_text())["files"]
    assert starts[0]["data"][str(data / "tiny_base.parquet")] == made["tiny_base.parquet"]["sha256"]


def refused(config: DictConfig, message: str) -> None:
    with pytest.raises(PreflightError, match=message):
        checks.check(config)
        checks.check_model(config)


def test_a_tokenizer_that_swallows_the_protocols_tags_is_refused(data, tmp_path, model):
    path = model / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for token in tokenizer["added_tokens"]:
        token["special"] = token["special"] or token["content"] == "<tool_call>"
    path.write_text(json.dumps(tokenizer))
    refused(
        composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"), "think_xml does not survive the tokenizer"
    )


def test_a_model_without_chat_template_is_refused(data, tmp_path, model):
    (model / "chat_template.jinja").unlink()
    refused(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"), "has no chat template.*instruct")


def test_lengths_that_do_not_fit_the_context_are_refused(data, tmp_path, model):
    given = [f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.rollout.max_model_len=1500"]
    refused(composed(data, tmp_path, *given), r"max_prompt_length=768 and .*1280 .*max_model_len=1500")


def test_a_prompt_that_would_be_cut_is_refused_and_one_that_is_left_out_is_told(data, tmp_path, model, capsys):
    given = [f"actor_rollout_ref.model.path={model}", "data.max_prompt_length=200"]
    refused(composed(data, tmp_path, *given), r"has \d+ tokens, more than data.max_prompt_length=200")
    checks.check_model(composed(data, tmp_path, *given, "data.filter_overlong_prompts=true"))
    assert "such rows are left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("+interaction.train.max_stepz=3", "interaction.train.max_stepz is not known"),
        ("interaction.val.max_steps_per_turn=0", "interaction.val.max_steps_per_turn=0; expected a number greater"),
        ("interaction.protocol=xml", "unknown protocol 'xml'; known: hermes"),
    ],
)
def test_a_turn_policy_that_cannot_work_is_refused(data, tmp_path, model, override, message):
    refused(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}", override), message)


def test_rows_for_an_agent_loop_that_is_not_registered_are_refused(data, tmp_path, model):
    table = parquet.read_table(data / "tiny_base.parquet")
    names = pyarrow.array(["other"] * table.num_rows)
    place = table.column_names.index("agent_name")
    path = tmp_path / "rows.parquet"
    parquet.write_table(table.set_column(place, "agent_name", names), path)
    given = [f"actor_rollout_ref.model.path={model}", f"data.train_files={path}"]
    refused(composed(data, tmp_path, *given), r"names the agent loop 'other', which .* does not list \(bfcl\)")


def config_of(model: Path, **changes: object) -> None:
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"max_position_embeddings": 64},
            r"max_model_len=2048 is more than the 64 positions .*Lower actor_rollout_ref",
        ),
        ({"max_position_embeddings": "many"}, "config.json of .* cannot be used: .*many"),
        ({"max_position_embeddings": 0}, "max_position_embeddings=0; expected a number"),
        ({"model_type": "nothing-known"}, "config.json of .* cannot be used: .*nothing-known"),
        ({"hidden_size": "wide"}, "config.json of .* cannot be used: .*wide"),
        ({"num_hidden_layers": 9, "layer_types": None}, "is not whole: .*missing"),
        ({"vocab_size": 100}, "is not whole: .*another shape"),
    ],
)
def test_a_model_that_does_not_fit_the_settings_or_its_own_weights_is_refused(data, tmp_path, model, changes, message):
    config_of(model, **changes)
    refused(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"), message)


def test_without_max_model_len_the_model_must_hold_prompt_and_response(data, tmp_path, model):
    config_of(model, max_position_embeddings=1500)
    given = [f"actor_rollout_ref.model.path={model}", "actor_rollout_ref.rollout.max_model_len=null"]
    refused(composed(data, tmp_path, *given), r"data.max_response_length=2048 is more than the 1500 positions")


def test_the_tokenizer_of_another_model_is_refused(data, tmp_path, model):
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({f"word{number}": len(vocabulary) + number for number in range(500)})
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    refused(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"), "vocab_size=2048: it is another model's")


def test_a_tokenizer_without_end_of_message_is_refused(data, tmp_path, model):
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token": None}))
    refused(composed(data, tmp_path, f"actor_rollout_ref.model.path={model}"), "has no eos_token")


TOKENIZERS = ["", "[]", "{", '{"model": {}}', "[" * 200_000, '{"version": "1.0", "model": null}']


@pytest.mark.parametrize("content", TOKENIZERS, ids=lambda text: text[:20])
def test_a_tokenizer_that_cannot_be_read_is_one_line(model, content):
    (model / "tokenizer.json").write_text(content)
    with pytest.raises(PreflightError, match="the tokenizer of .* cannot be read") as error:
        load_tokenizer(str(model))
    assert "\n" not in str(error.value)


TEMPLATES = ["", "{{", "{% for x in y %}", "{{ 1 / 0 }}", "{{ raise_exception('a\nb') }}", "x", "{{ messages[9].x.y }}"]


@pytest.mark.parametrize("content", TEMPLATES)
def test_a_chat_template_that_cannot_be_rendered_is_one_line(model, content):
    (model / "chat_template.jinja").write_text(content)
    with pytest.raises(PreflightError, match="chat template") as error:
        check_template(load_tokenizer(str(model)), get_protocol("think_xml"), str(model), {})
    assert "\n" not in str(error.value)


def test_a_start_model_below_the_home_folder_is_the_same_for_all_readers(data, tmp_path, model, monkeypatch):
    monkeypatch.setenv("HOME", str(model.parent))
    config = composed(data, tmp_path, "actor_rollout_ref.model.path='~/model'")
    checks.check(config)
    assert config.actor_rollout_ref.model.path == str(model)
    assert starts.start_of(config).model == str(model)
