"""What each setting may be: as verl has it, as the documentation has it, and as a careless command line has it."""

import dataclasses
import importlib
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recipe import preflight as checks
from recipe.curriculum import stages
from recipe.errors import PreflightError
from recipe.launch.compose import compose, parse, quoted
from recipe.settings import CONFIG_DIR, additions, ours, verl
from recipe.settings.additions import unknown
from recipe.settings.reading import TRAINING, WARM_START, check_values
from recipe.stage import checkpoints

STAGES = ("stage1", "stage2", "stage3", "stage4")
PROFILES = sorted(path.stem for path in (CONFIG_DIR / "hardware").glob("*.yaml"))
ALGORITHMS = sorted(path.stem for path in (CONFIG_DIR / "algorithm").glob("*.yaml"))


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "RUN", "SEED", "TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HARDWARE", "tiny")


def refusal(*overrides: str, name: str = "stage1") -> str:
    """The line with which a command line is refused."""
    with pytest.raises(PreflightError) as refused:
        config = compose(name, overrides)
        checks.check_settings(config)
        checkpoints.check(config)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    return str(refused.value)


@pytest.mark.parametrize(
    ("stage", "hardware"), [*((stage, "cpu") for stage in STAGES), *(("stage2", hardware) for hardware in PROFILES)]
)
def test_every_stage_and_every_profile_is_what_its_types_say(stage: str, hardware: str) -> None:
    check_values(compose(stage, [f"hardware={hardware}"]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_so_is_every_algorithm(algorithm: str) -> None:
    check_values(compose("stage2", [f"algorithm={algorithm}"]))


@pytest.mark.parametrize("hardware", PROFILES)
def test_so_is_the_warm_start(hardware: str) -> None:
    check_values(compose("sft", [f"sft_hardware={hardware}"], group="sft_hardware"), WARM_START)


@pytest.mark.parametrize("section", ["interaction.environments", "reward.custom_reward_function.reward_kwargs"])
def test_no_name_is_recommended_below_a_section_that_a_command_has_not(section: str) -> None:
    config = compose("sft", ["sft_hardware=tiny"], group="sft_hardware")
    assert "takes names of yours" not in unknown(config, f"{section}.mine")
    assert "takes names of yours" in unknown(compose("stage2", []), f"{section}.mine")


@pytest.mark.parametrize("preset", sorted(path.stem for path in (CONFIG_DIR / "preset").glob("*.yaml")))
@pytest.mark.parametrize("hardware", PROFILES)
def test_so_is_every_preset_of_it(hardware: str, preset: str) -> None:
    config = compose("sft", [f"sft_hardware={hardware}", f"preset={preset}"], group="sft_hardware")
    check_values(config, WARM_START)


def test_the_preset_of_steptool_says_what_its_scripts_do_on_every_machine() -> None:
    for hardware in PROFILES:
        config = compose("sft", ["preset=steptool", f"sft_hardware={hardware}"], group="sft_hardware")
        data, optim, trainer = config.data, config.optim, config.trainer
        assert (optim.lr, optim.lr_scheduler_type, optim.weight_decay, optim.min_lr_ratio) == (2e-5, "cosine", 0, 0)
        assert (optim.lr_warmup_steps, optim.lr_warmup_steps_ratio) == (-1, 0.04)
        assert (data.train_batch_size, data.micro_batch_size_per_gpu) == (4 * 4, 1) and not data.use_dynamic_bsz
        assert (data.max_length, trainer.total_epochs, trainer.test_freq) == (8192, 5, 400)


# What is written down of verl.

CLASSES = {
    verl.Engine: "workers.config.FSDPEngineConfig",
    verl.Optimizer: "workers.config.FSDPOptimizerConfig",
    verl.Checkpoint: "trainer.config.CheckpointConfig",
    verl.PolicyLoss: "workers.config.PolicyLossConfig",
    verl.Actor: "workers.config.FSDPActorConfig",
    verl.Sampling: "workers.config.SamplingConfig",
    verl.Agent: "workers.config.AgentLoopConfig",
    verl.CheckpointEngine: "workers.config.CheckpointEngineConfig",
    verl.Rollout: "workers.config.RolloutConfig",
    verl.Model: "workers.config.HFModelConfig",
    verl.Critic: "workers.config.FSDPCriticConfig",
    verl.KLControl: "trainer.config.KLControlConfig",
    verl.FilterGroups: "trainer.config.FilterGroupsConfig",
    verl.RolloutCorrection: "trainer.config.RolloutCorrectionConfig",
    verl.Algorithm: "trainer.config.AlgoConfig",
}
NOT_IN_THE_CLASS = {"ratio_norm", "fsdp"}
"""`ratio_norm` is recipe/credit's; `fsdp` is a key of verl's critic that its class calls `engine`."""
KINDS = {bool: "bool", int: "int", float: "float", str: "str"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_setting_of_verls_is_a_field_of_its_class_with_a_default_of_that_type(kind: Any) -> None:
    module, _, name = CLASSES[kind].rpartition(".")
    theirs = getattr(importlib.import_module(f"verl.{module}"), name)
    fields = {field.name: field for field in dataclasses.fields(theirs)}
    for field in dataclasses.fields(kind):
        if field.name in NOT_IN_THE_CLASS:
            continue
        assert field.name in fields, f"verl's {name} has no {field.name}"
        plain = KINDS.get(typing.get_origin(field.type) or field.type)  # type: ignore[call-overload]
        if plain and isinstance(fields[field.name].type, str | type):
            assert plain in str(fields[field.name].type), f"{name}.{field.name}"


def test_the_choices_are_those_of_verl_and_of_vllm() -> None:
    import torch
    from verl.trainer.ppo.core_algos import kl_penalty
    from verl.utils.torch_dtypes import PrecisionType
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY
    from vllm.config.model import LogprobsMode, ModelDType
    from vllm.config.scheduler import SchedulerPolicy

    def choices(kind: Any, field: str) -> set[str]:
        hint = typing.get_type_hints(kind)[field]
        parts = [hint, *typing.get_args(hint)]
        return {name for part in parts if typing.get_origin(part) is typing.Literal for name in typing.get_args(part)}

    assert choices(verl.Rollout, "name") == {name for name, _ in _ROLLOUT_REGISTRY}
    assert choices(verl.Rollout, "dtype") == set(typing.get_args(ModelDType))
    assert choices(verl.Rollout, "logprobs_mode") == set(typing.get_args(LogprobsMode))
    assert choices(verl.Rollout, "scheduling_policy") == set(typing.get_args(SchedulerPolicy))
    one = torch.zeros(1, 1)
    for name in choices(verl.Actor, "kl_loss_type"):
        kl_penalty(one, one, name)
    from recipe.settings.kinds import PRECISIONS

    for precision in PRECISIONS:
        PrecisionType.to_dtype(precision)
    trainer = Path(importlib.import_module("verl.trainer.ppo.v1.trainer_base").__file__ or "").read_text()
    assert set(re.findall(r'resume_mode == "(\w+)"', trainer)) == choices(verl.Trainer, "resume_mode")


def named(kind: Any, where: str) -> Iterator[str]:
    """The names of all settings of a section."""
    for name, hint in typing.get_type_hints(kind).items():
        inner = next((part for part in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(part)), None)
        if inner is None and not name.startswith("_"):
            yield f"{where}.{name}"
        elif inner is not None:
            yield from named(inner, f"{where}.{name}")


def test_every_setting_of_ours_in_the_configurations_has_a_type_and_every_type_a_setting() -> None:
    typed = {key for where, kind in TRAINING.items() if kind.__module__ == ours.__name__ for key in named(kind, where)}
    found: set[str] = set()
    for chosen in [*(["hardware=" + name] for name in PROFILES), ["algorithm=dapo"]]:
        config = compose("stage2", chosen)
        found |= {key for key in typed if additions.has(config, key)}
    for name in ("tau_user", "offline"):
        found |= {key for key in typed if additions.has(compose(name, ["hardware=tiny"]), key)}
    optional = {key for key in typed if key.startswith(("stage.gate.", "interaction.user."))}  # null as they come
    assert typed - found - optional == set()


# What people type.


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["trainer.total_epoch=3"], ["trainer.total_epoch is not known", "trainer.total_epochs meant", "+"]),
        (
            ["epochs=3"],
            ["actor_rollout_ref.actor.ppo_epochs or", "trainer.total_epochs meant", "recipe.options epochs"],
        ),
        (
            ["trainer.total_trainin_steps=1"],
            ["is trainer.total_training_steps meant", "recipe.options total_training_steps`"],
        ),
        (
            ["reward.custom_reward_function.reward_kwargs.price=1"],
            ["is not there yet", "names of yours: +reward.custom_reward_function.reward_kwargs.price=VALUE"],
        ),
        (["interaction.environments.mine=a.py"], ["takes names of yours: +interaction.environments.mine=VALUE"]),
        (["algoritm.lam=1"], ["algoritm.lam is not known", "algorithm.lam meant", "recipe.options lam`"]),
        (["+trainer.total_epoch=3"], ["trainer.total_epochs meant", "Nothing would read it"]),
        (["total_epochs=3"], ["total_epochs is not known", "trainer.total_epochs meant"]),
        (["lr=3"], ["actor_rollout_ref.actor.optim.lr or critic.optim.lr meant"]),
        (["hardware=gpu9"], ["hardware=gpu9", "no such hardware", "cpu, gpu1, gpu8"]),
        (["algorithm=gppo"], ["no such algorithm", "tppo"]),
        (["data.train_batch_size"], ["data.train_batch_size is no KEY=VALUE"]),
        (["data.train_batch_size=["], ["data.train_batch_size=[ is no KEY=VALUE"]),
        (["data.train_files=a,b"], ["data.train_files=a,b is several values", "KEY=[a,b]"]),
        (["data.train_batch_size=abc"], ["data.train_batch_size='abc'; expected a finite number"]),
        (["data.train_batch_size=0"], ["data.train_batch_size=0", "greater than or equal to 1"]),
        (["data.train_batch_size=???"], ["data.train_batch_size"]),
        (["trainer.total_epochs=${nope}"], ["trainer.total_epochs=${nope}", "'nope' not found"]),
        (["trainer.total_epochs=${oc.env:NOT_THERE_AT_ALL}"], ["NOT_THERE_AT_ALL"]),
        (["actor_rollout_ref.rollout.temperature=nan"], ["rollout.temperature=nan; expected a finite number"]),
        (["actor_rollout_ref.rollout.n=0"], ["rollout.n=0", "greater than or equal to 1"]),
        (["actor_rollout_ref.actor.policy_loss.loss_mode=vanila"], ["loss_mode=vanila is not known"]),
        (["algorithm.adv_estimator=gropo"], ["adv_estimator=gropo is not known"]),
        (["trainer.logger=[console,wndb]"], ["trainer.logger has wndb"]),
        (["trainer.resume_mode=disabled"], ["trainer.resume_mode='disabled'", "or disable (start over)"]),
        (["trainer.resume_mode=resume_path"], ["trainer.resume_mode=resume_path is not supported", "start with auto"]),
        (["critic.fsdp.mixed_precision.param_dtype=fp32"], ["mixed_precision='{param_dtype: ...}'"]),
        (["trainer=null"], ["expected the name of one of the configurations in trainer"]),
        (["stage=null"], ["has no value", "stage"]),
        (["trainer.v1=null"], ["trainer.v1"]),
        (["actor_rollout_ref.model.override_config=null"], ["actor_rollout_ref.model.override_config"]),
        (["reward.timeout=1e10"], ["reward.timeout=10000000000.0"]),
        (["interaction.engine_timeout=abc"], ["interaction.engine_timeout='abc'"]),
        (["stage.max_lost_share=abc"], ["stage.max_lost_share='abc'"]),
        (["stage.max_lost_share=25"], ["stage.max_lost_share=25", "less than or equal to 1"]),
        (["stage.gate={kind: leave_at, value: high}"], ["stage.gate.value='high'; expected a valid number"]),
        (["stage.gate={kind: plateau, required: 'no'}"], ["stage.gate.required='no'; expected a valid boolean"]),
        (["interaction.train.max_step_per_turn=3"], ["interaction.train.max_steps_per_turn meant"]),
        (["+interaction.train.max_step_per_turn=3"], ["max_step_per_turn is not known", "max_steps_per_turn meant"]),
        (["interaction.protocol=hermess"], ["hermess"]),
        (["+foo=1"], ["foo is not known. Nothing would read it"]),
        (["+actor_rollout_ref.actor.foo=1"], ["actor_rollout_ref.actor.foo is not known. Nothing would read it"]),
        (["+data.foo=1"], ["data.foo is not known. Nothing would read it"]),
        (["~stage"], ["~stage: this key cannot be taken away"]),
        (["hydra.verbose=true"], ["hydra.verbose=true", "Leave it out"]),
        (["hydra.run.dir=x"], ["hydra.run.dir=x", "Leave it out"]),
        (["paths.run='~/runs'"], ["paths.run='~/runs'", "~ would become a folder"]),
        (["paths.run=''"], ["paths.run=''"]),
        (["launcher.env={1x: 2}"], ["1x"]),
    ],
    ids=lambda value: value[0][:60],
)
def test_a_mistake_is_one_line_that_names_it_and_what_may_be_meant(overrides: list[str], words: list[str]) -> None:
    line = refusal(*overrides)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    "overrides",
    [
        ["actor_rollout_ref.actor.optim.lr=1"],
        ["data.train_files=[a.parquet,b.parquet]"],
        ["trainer.logger=console"],
        ["+actor_rollout_ref.rollout.engine_kwargs.vllm.enable_chunked_prefill=false"],
        ["+data.apply_chat_template_kwargs.enable_thinking=false"],
        ["+reward.custom_reward_function.reward_kwargs.scale=3"],
        ["+launcher.env.MY_VARIABLE=3"],
        ["~launcher.env.MALLOC_ARENA_MAX"],
        ["launcher.env.OMP_NUM_THREADS=2"],
        ["++trainer.total_epochs=3"],
        ["+actor_rollout_ref.rollout.repetition_penalty=1.1"],
        ["+actor_rollout_ref.model.target_parameters=[a]"],
        ["+data.cache_dir=/tmp/x"],
        ["algorithm.rollout_correction.rollout_is_threshold=0.5_5.0"],
        ["actor_rollout_ref.model.target_modules=[q_proj,v_proj]"],
        ["stage.gate=null", "stage.gate={kind:plateau,patience:4,window:1,metric:val_choose/progress}"],
        ["stage.name=polish.v2", "stage.previous=stage2_base"],
        ["actor_rollout_ref.actor.fsdp_config.model_dtype=bf16"],
        ["trainer.max_actor_ckpt_to_keep=null"],
        ["ray_kwargs.ray_init.num_cpus=4"],
        ["trainer.experiment_name='${stage.name}'"],
        ["data.seed=4294967295"],
        ["+custom={x: 1}"],
        ["hydra.run.dir=.", "hydra.job.chdir=false", "hydra.output_subdir=null", "hydra.verbose=false"],
    ],
    ids=lambda value: value[0][:60],
)
def test_what_a_person_may_set_passes(overrides: list[str]) -> None:
    config = compose("stage1", overrides)
    checks.check_settings(config)
    checkpoints.check(config)


@pytest.mark.parametrize("number", ["20260101", "007", "1e3", "-0.50"])
def test_a_number_is_taken_as_a_text_where_one_is_expected(number: str) -> None:
    config = compose("stage1", [f"trainer.experiment_name={number}"])
    checks.check_settings(config)
    assert config.trainer.experiment_name == number


def test_the_name_of_a_configuration_may_be_that_of_its_file() -> None:
    assert compose("stage2.yaml") == compose("stage2")


NAMES = (
    "../../evil",
    ".",
    "..",
    "logs",
    "aside",
    "a/b",
    "",
    " ",
    "a\nb",
    "~",
    "-x",
    "a b",
    "$x",
    "manifest.json",
    "x" * 101,
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", ["stage.name", "stage.previous"])
def test_the_name_of_a_stage_is_that_of_one_folder_of_its_own(key: str, name: str) -> None:
    assert key in refusal(f"{key}='{name}'")


COUNTS = ("TRAIN_BATCH_SIZE", "MINI_BATCH_SIZE", "SEED")


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        *((name, value, ["integer"]) for name in COUNTS for value in ("", "abc", "1.5", "[", "1 2")),
        ("TRAIN_BATCH_SIZE", "0", ["greater than or equal to 1"]),
        ("SEED", "-1", ["integer"]),
        ("SEED", "9" * 30, ["integer"]),
        ("MODEL", "", ["not empty"]),
        ("MODEL", "a\nb", ["control"]),
        ("MODEL", "/m/${x}", ["${"]),
        *(("RUN", value, ["below outputs/"]) for value in ("../x", "/tmp/x", "a/../../b")),
        ("RUN", "~/x", ["~"]),
        ("RUN", "a\nb", ["control"]),
        ("RUN", "${oc.env:HOME}", ["${"]),
        ("HARDWARE", "gpu9", ["cpu, gpu1, gpu8"]),
    ],
)
def test_a_wrong_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: list[str]
) -> None:
    monkeypatch.setenv(variable, value)
    line = refusal()
    for word in (variable, *words):
        assert word in line


def test_an_empty_run_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN", "")
    assert compose("stage1").paths.run == "outputs/default"


@pytest.mark.parametrize("run", ["a/b", "é'ü", "a b", "a,b=c", "#1", "[x]{y}", "50%", "$HOME", "a&b;c", "日本"])
def test_a_run_may_have_any_printable_name(monkeypatch: pytest.MonkeyPatch, run: str) -> None:
    monkeypatch.setenv("RUN", run)
    config = compose("stage1")
    checks.check_settings(config)
    assert config.trainer.default_local_dir == f"outputs/{run}/stage1_format/checkpoints"


def test_text_that_is_no_unicode_is_named() -> None:
    assert "trainer.project_name" in refusal("trainer.project_name='a\udcffb'")


@pytest.mark.parametrize(
    ("name", "words"), [("stage9", ["stage9", "stage1"]), ("../x", ["../x"]), ("x" * 5000, ["xxx"])]
)
def test_a_configuration_that_is_not_there_is_named(name: str, words: list[str]) -> None:
    line = refusal(name=name)
    for word in words:
        assert word in line


STAGES_OF_A_FILE = [
    ("stages: [../evil]", "'../evil'; expected the name of a folder"),
    ("stages: [{name: logs, config: stage1}]", "'logs'; expected another name"),
    ("stages: [{name: a/b, config: stage1}]", "'a/b'; expected the name of a folder"),
    ("stages: [{name: x, config: ../config/stage1}]", "'../config/stage1'; expected the name of a folder"),
    ("stages: stage1", "stages is 'stage1'; expected a list"),
    ("stages: [stage1]\noverrides: a=b", "overrides is 'a=b'; expected a list"),
    ("stages: [{name: stage1, gate: often}]", "gate is 'often'; expected null or"),
    ("stages: [{name: stage1, gate: {kind: leave_at, value: high}}]", "stage.gate.value='high'"),
    ("stages: [{name: stage1, overrides: {a: 1}}]", "expected a list"),
    ("stages: [stage1]\noverrides: [3]", "3 is no KEY=VALUE"),
    ("[" * 3000, "is not YAML"),
    ("stages: [stage1\x00]", "is not YAML"),
    ("stages: [stage\udc80]", "cannot be read"),
]


@pytest.mark.parametrize(("text", "words"), STAGES_OF_A_FILE, ids=lambda value: value[:40])
def test_a_curriculum_file_is_read_as_strictly(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SystemExit) as refused:
        stages.read_stages(stages.read_yaml(path, ("stages", "overrides")), path)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["a b", "é", "it's", "a\\", "\\'", "'", "a,b", "a=b", "#", "[x]", "{y}", "$z", "%s", '"', "a\\'b"]
)
def test_a_quoted_text_is_read_back_as_it_was(text: str) -> None:
    assert parse(f"key={quoted(text)}").value() == text
