"""What a configuration may hold: shipped ones pass, mistakes are named, right overrides arrive as Hydra has them."""

import shlex
from pathlib import Path
from typing import Any

import hydra
import pytest
from omegaconf import OmegaConf

from recipe.files import PreflightError
from recipe.preflight import check_settings
from recipe.preflight.teacher import PATH
from recipe.settings import CONFIG_DIR, FREE, OURS, command, compose, quoted, unread


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (CONFIG_DIR / group).glob("*.yaml"))


def line_of(overrides: list[str], name: str = "stage1", folder: Path | None = None) -> str:
    """What is said about a command line; empty if it passes."""
    try:
        check_settings(compose(name, overrides, folder=folder))
    except PreflightError as error:
        return str(error)
    return ""


def test_every_shipped_configuration_passes() -> None:
    stages, teacher = ("stage1", "stage2", "stage3", "stage4", "fctncalling"), f"{PATH}=/t"
    given = [(stage, [f"hardware={profile}"]) for stage in stages for profile in names("hardware")]
    given += [("stage2", [f"algorithm={name}", *[teacher] * name.startswith("opd")]) for name in names("algorithm")]
    assert [(name, one, said) for name, one in given if (said := line_of(one, name))] == []
    for profile in names("sft_hardware"):
        compose("tau_sft", [f"sft_hardware={profile}", "preset=steptool"], group="sft_hardware")


BAD = {
    "trainer.total_epoch=3": "trainer.total_epoch is not known. Nearest: trainer.total_epochs",
    "data.total_epochs=3": "data.total_epochs is not known. Nearest: trainer.total_epochs. A",
    "+interaction.train.max_step=3": "interaction.train.max_step is not known",
    "+stage.alarms.losst=0.1": "stage.alarms has no losst",
    "+algorithm.credit.lam_tokn=0.5": "algorithm.credit has no lam_tokn",
    "~trainer.total_epochs": "trainer.total_epochs is missing",
    "hydra.run.dir=x": "hydra is not known",
    "data.train_files=a,b": "A list is written [a,b]",
    "data.train_files=[a=b.parquet, c(1), d": '\'data.train_files=["a=b.parquet","c(1)",d]\'',
    "trainer.total_epochs": "trainer.total_epochs=VALUE",
    "data.train_batch_size=abc": "data.train_batch_size='abc'; expected a whole number",
    "data.train_batch_size=???": "data.train_batch_size is missing",
    "actor_rollout_ref.rollout.gpu_memory_utilization=7": "expected a number above 0 to 1",
    "actor_rollout_ref.rollout.temperature=nan": "expected a finite number",
    "actor_rollout_ref.rollout.temperature=0": "expected a number above 0",
    "actor_rollout_ref.actor.optim.lr=high": "actor_rollout_ref.actor.optim.lr='high'; expected a number",
    "actor_rollout_ref.actor.checkpoint.save_contents=[hf_model,optimzer]": "expected some of",
    "actor_rollout_ref.rollout.enforce_eager=yes please": "expected true or false",
    "algorithm.rollout_correction.rollout_is_threshold=5.0_0.5": "0.5_5.0",
    "trainer.v1=null": "trainer.v1=None; expected a section",
    "trainer.experiment_name=2026": "a number is one in quotes",
    "trainer.resume_mode=foo": "expected one of auto, disable",
    "interaction.val.from_gold={share: 1, steps: 9}": "interaction.val.from_gold: what is validated",
    "interaction.train.from_gold={share: 2, steps: 9}": "from_gold.share",
    "interaction.user={kind: nobody}": "interaction.user.kind='nobody'",
    "stage.gate=0.5": "stage.gate=0.5; expected a section, {name: value}, or null",
    "stage.name=manifest.json": "none that a run has already",
    "stage.name=logs": "none that a run has already",
    "stage.handover=Best": "one of last, best",
    "stage.adapter=contineu": "one of new, continue",
    "stage.over_budget=leave": "one of keep, leave_out",
    "offline.rewards=finall": "one of steps, final",
    "offline.old_log_probs=stepp": "one of start, step",
    "actor_rollout_ref.rollout.n=0": "expected a whole number of 1 or more",
    "paths.run='~/runs'": "paths.run='~/runs'; expected a path, written without ~",
}


def test_a_mistake_is_named_in_at_most_two_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {override: line_of(["data.seed=7", override]) for override in BAD}
    assert {key: line for key, line in said.items() if BAD[key] not in line or line.count("\n") > 1} == {}
    assert "Cannot find primary config 'stage9'" in line_of([], "stage9")
    monkeypatch.setenv("TRAIN_BATCH_SIZE", "")
    assert "data.train_batch_size" in line_of([])


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
BORDERS = (  # settings of one rule; values that are refused; values at its borders that are taken
    (f"data.max_prompt_length {ACTOR}.ppo_max_token_len_per_gpu trainer.nnodes stage.group_size", "0 1.5 true", "1"),
    (f"{ACTOR}.ppo_epochs {ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", "0 x", "1"),
    (f"{ACTOR}.ppo_micro_batch_size_per_gpu interaction.max_tokens_per_reply", "0 1.5", "1 null"),
    ("actor_rollout_ref.model.lora_rank distillation.nnodes", "-1", "0"),
    ("data.seed", "-1", "0 null"),
    (f"{ROLLOUT}.top_k trainer.save_freq", "-2 never", "-1"),
    (f"stage.max_lost_share {ACTOR}.optim.min_lr_ratio", "-0.5 1.5", "0 1"),
    (f"{ROLLOUT}.gpu_memory_utilization", "0 0.0 1.5", "1"),
    (f"{ACTOR}.optim.lr interaction.overlong.penalty stage.alarms.lost", "-0.5", "0 7"),
    (f"{ROLLOUT}.temperature algorithm.kl_ctrl.target_kl", "0 0.0", "0.5 7"),
    (f"{ACTOR}.clip_ratio_c", "1", "1.5"),
    ("algorithm.rollout_correction.rollout_is_threshold", "0_5.0 0.5_inf x 0 0.5_1.0_2.0", "0.5_5.0 2"),
    (f"{ACTOR}.checkpoint.save_contents", "[all]", "[optimizer,hf_model,extra,model] []"),
)


def test_a_value_at_the_border_of_its_range_is_taken_and_one_beyond_it_is_not() -> None:
    rows = [(key, bad.split(), good.split()) for keys, bad, good in BORDERS for key in keys.split()]
    for number in range(5):
        compose("stage1", [f"{key}={good[number]}" for key, _, good in rows if number < len(good)])
        given = {f"{key}={bad[number]}": key for key, bad, _ in rows if number < len(bad)}
        with pytest.raises(PreflightError) as error:
            compose("stage1", [*given])
        assert {line.partition("=")[0] for line in str(error.value).splitlines()} == {*given.values()}, number


RIGHT = [
    ["+reward.custom_reward_function.reward_kwargs.scale=100", "reward.custom_reward_function.path='a b.py'"],
    ["algorithm=tppo", "trainer.logger=[console,wandb]", "++trainer.total_epochs=5", "+stage.gate.window=3"],
    ["stage.gate=null", "interaction.train.max_result_chars=null", "actor_rollout_ref.actor.optim.betas=[0.9,0.99]"],
    ["+actor_rollout_ref.rollout.engine_kwargs.vllm={seed: 3, a: [1, {b: c}]}", "stage.alarms.lost=1e-2"],
    ["trainer.default_local_dir=${paths.stage}/x", "+custom.mine.x=1", "actor_rollout_ref.model.path=/a/b-c_d.e"],
    ['trainer.experiment_name="a=b, c"', "trainer.project_name='it\\'s'", "data.seed=${oc.decode:'7'}"],
    ["launcher.env.OMP_NUM_THREADS=2", "~launcher.env.MALLOC_ARENA_MAX", "trainer.max_actor_ckpt_to_keep=null"],
    ["algorithm.rollout_correction.rollout_is_threshold=0.5_5.0", "+data.apply_chat_template_kwargs.x=false"],
]


def test_right_overrides_give_what_hydra_composes() -> None:
    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base=None):
        theirs = [hydra.compose("stage2", overrides=["hardware=tiny", *overrides]) for overrides in RIGHT]
    for overrides, config in zip(RIGHT, theirs, strict=True):
        assert OmegaConf.to_yaml(compose("stage2", overrides)) == OmegaConf.to_yaml(config), overrides


def test_an_added_key_that_nothing_may_read_is_a_line() -> None:
    given = ["hardware=tiny", "+custom.mine=1", "+stage.gate.window=3", "++trainer.total_epochs=5"]
    given += ["stage.before=true", "+actor_rollout_ref.rollout.repetition_penalty=1.2"]
    given += ["+reward.custom_reward_function.reward_kwargs.x=1"]
    lines = unread(compose("stage2", given := [*given, "+trainer.max_step=3", "+mine=1"]), given)
    assert [line.partition(": ")[0] for line in lines] == ["+trainer.max_step=3", "+mine=1"]


def test_every_key_of_verls_that_our_files_set_is_one_that_verl_has_and_reads() -> None:
    """verl ignores `algorithm.loss_agg_mode` and `actor.grad_clip` without a word."""

    def leaves(node: Any, path: str = "") -> list[str]:
        inside = isinstance(node, dict) and node
        return [leaf for k, v in node.items() for leaf in leaves(v, f"{path}.{k}".strip("."))] if inside else [path]

    with hydra.initialize_config_dir(str(CONFIG_DIR), version_base=None):
        tree = hydra.compose("ppo_trainer")
    unknown, ours = set(), ("reward.timeout", "preflight_only", "hydra.", "defaults")
    patterns = ("base", "stage?", "hardware/*", "algorithm/*", "trainer/*")
    for file in (path for pattern in patterns for path in CONFIG_DIR.glob(f"{pattern}.yaml")):
        for key in leaves(OmegaConf.to_container(OmegaConf.load(file))):
            section, _, name = key.rpartition(".")
            if key.startswith(ours) or OURS.match(key) or FREE.match(key) or name == "_target_":
                continue
            node = OmegaConf.select(tree, section) or {}
            target = hydra.utils.get_class(node["_target_"]) if "_target_" in node else None
            if name not in node and name not in getattr(target, "__dataclass_fields__", ()):
                unknown.add(key)
    assert unknown == {"actor_rollout_ref.actor.policy_loss.ratio_norm"}, "ours, in a class of ours"


def test_a_users_folder_of_configurations_is_built_on_ours_and_comes_first(tmp_path: Path, monkeypatch, capsys) -> None:
    own = tmp_path / (name := "é ü, it's = #[x]{y} 50% $HOME")
    for file, text in {
        "mine.yaml": "defaults: [stage2, {override algorithm: dapo}, _self_]\nstage: {name: mine}\n",
        "typo.yaml": "defaults: [stage2, _self_]\nstage: {name: mine, max_lost_shar: 0.5}\n",
        "kind.yaml": "defaults: [stage2, _self_]\ntrainer: {critic_warmup: two}\n",
        "hardware/mycpu.yaml": "# @package _global_\ndefaults: [cpu]\nlauncher: {needs: {memory_gb: 1}}\n",
        "algorithm/grpo.yaml": "# @package _global_\nalgorithm: {gamma: 0.5}\n",
    }.items():
        (own / file).parent.mkdir(parents=True, exist_ok=True)
        (own / file).write_text(text)
    monkeypatch.chdir(tmp_path)
    mine = compose("mine", folder=Path(name))
    assert (mine.stage.name, mine.algorithm.filter_groups.enable, mine.trainer.device) == ("mine", True, "cpu")
    config = compose("stage1", ["hardware=mycpu"], folder=own)
    assert (config.launcher.needs.memory_gb, config.algorithm.gamma) == (1, 0.5)
    assert "stage has no max_lost_shar" in line_of([], "typo", own)
    assert "trainer.critic_warmup='two'; expected a whole number" in line_of([], "kind", own)
    words = ["--config-dir", name, "--config-name", "mine", "--cfg", "job", "hardware=mycpu"]  # Hydra answers
    monkeypatch.setattr("sys.argv", ["recipe.train", *words])
    with pytest.raises(SystemExit) as end:
        command(words)
    shown = capsys.readouterr().out
    assert not end.value.code and "name: mine" in shown and "memory_gb: 1" in shown


def test_what_is_said_of_a_text_that_hydra_does_not_read_is_how_to_write_it_and_runs_have_any_name(monkeypatch) -> None:
    for text in ("a=b", "{a}", "f(1)", "~/x", "a,b", "é", "it's", 'a"b', "a#b", "(\\", "x=\\'y", "glob(*)", "a=[b]"):
        line = f"trainer.experiment_name={text}"
        written = shlex.split(line_of([line]).rpartition("quotes: ")[2])
        assert compose("stage1", written).trainer.experiment_name == text
        monkeypatch.setattr("sys.argv", ["recipe.train"])
        with pytest.raises(PreflightError, match="quotes: "):
            command([line, "--cfg", "job"])
    texts = ["a b", "é", "it's", "a\\", "\\'", "a,b", "a=b", "#", "[x]", "{y}", "$z", "%s", '"', "a\\'b", "日本"]
    for text in texts:
        config = compose("stage1", [f"trainer.experiment_name={quoted(text)}"])
        assert config.trainer.experiment_name == text
        monkeypatch.setenv("RUN", text)
        assert compose("stage1").trainer.default_local_dir == f"outputs/{text}/stage1_format/checkpoints"
    monkeypatch.setenv("RUN", "")
    assert compose("stage1").paths.run == "outputs/default"
