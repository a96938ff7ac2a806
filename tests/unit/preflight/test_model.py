"""The start model, its adapter, tokenizer, chat template and teacher: which they are, and whether they can be used."""

import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from peft import LoraConfig, get_peft_model
from support.stages import edited
from transformers import AutoModelForCausalLM

from interaction import get_protocol
from recipe.cpu.tiny_policy import CHAT_TEMPLATE, make_tokenizer
from recipe.files import PreflightError
from recipe.preflight import check, data, machine, model, teacher
from recipe.stage.weights import note_base, note_sums


@pytest.fixture
def checked(configured, refusal, made, tmp_path):
    """A configuration of the tiny data, and what all checks say."""

    def checked(*overrides, **given):
        where = (f"paths.data={made}", f"paths.run={tmp_path}/run", f"paths.tiny_policy={tmp_path}/none")
        config = configured(*where, *("launcher.needs.memory_gb=0", "launcher.needs.disk_gb=0"), *overrides, **given)
        config.actor_rollout_ref.rollout.agent.agent_loop_config_path = "recipe/config/agent_loops.yaml"
        return config, refusal(lambda: check(config, alone=True))

    return checked


def test_a_stage_starts_from_what_the_one_before_it_has_exported(checked, policy, tmp_path, monkeypatch):
    assert "stage1_format" in checked()[1] and "run_sft.sh" in checked(stage="stage1")[1]
    for place, stage in (("none", "stage1"), ("run/stage0_sft/hf", "stage1"), ("run/stage1_format/hf", "stage2")):
        shutil.copytree(policy, tmp_path / place)
        config, said = checked(stage=stage)
        assert said == "" and config.actor_rollout_ref.model.path == f"{tmp_path}/{place}"
    own = shutil.copytree(policy, tmp_path / "run" / "stage0_own" / "hf")
    assert checked("stage.warm_start=own", stage="stage1")[0].actor_rollout_ref.model.path == str(own)
    for room, name in ((machine, "check_attention"), (machine, "gpu_memory"), (data, "own_code"), (data, "reward")):
        with monkeypatch.context() as patch:
            patch.setattr(room, name, Mock(side_effect=PreflightError(name)))
            assert name in checked(stage="stage1")[1], "it is one of the checks"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert model.start_model("~/none") == f"{tmp_path}/none"


def swallowed(folder):
    """A tag of the protocol becomes a special token."""
    tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    for token in tokens:
        token["special"] = token["special"] or token["content"] == "<tool_call>"
    edited("tokenizer.json", added_tokens=tokens)(folder)


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def flipped(folder):
    """One byte of weights whose checksums are noted."""
    content = bytearray((path := folder / "model.safetensors").read_bytes())
    note_sums(folder)
    content[-9] ^= 1
    path.write_bytes(content)


def test_a_model_that_is_not_whole_or_does_not_fit_is_named(checked, policy, tmp_path):
    broken = [
        (edited("config.json", max_position_embeddings=64), "64 positions"),
        (edited("config.json", model_type="nothing-known"), "nothing-known"),
        (edited("config.json", vocab_size=100), "config.json has vocab_size=100"),
        (edited("tokenizer_config.json", eos_token=None), "eos_token"),
        *[(written("config.json", text), "config.json") for text in (b"", b"[]", b"\xff\xfe{")],
        *[(written("tokenizer.json", text), "tokenizer") for text in (b"", b'{"model": {}}')],
        *[(written("chat_template.jinja", text), "chat template") for text in (b"{{", b"x")],
        (lambda folder: (folder / "chat_template.jinja").unlink(), "chat template"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "config.json").rename(folder / "adapter_config.json"), "config.json"),
        (lambda folder: os.truncate(folder / "model.safetensors", 3000), "model.safetensors"),
        (flipped, "model.safetensors"),
        (swallowed, "think_xml"),
    ]
    for number, (harm, word) in enumerate(broken):
        folder = Path(shutil.copytree(policy, tmp_path / str(number)))
        harm(folder)
        _, said = checked(f"actor_rollout_ref.model.path={folder}")
        assert word in said and "Traceback" not in said, (number, word, said)
    path, short = f"actor_rollout_ref.model.path={policy}", "data.max_prompt_length=200"
    assert "max_model_len=1500" in checked(path, "actor_rollout_ref.rollout.max_model_len=1500")[1]
    assert "Set data.max_prompt_length=" in checked(path, short, "data.filter_overlong_prompts=false")[1]
    for number, word in ((2, f"{tmp_path}/2"), (12, f"Set {teacher.PATH}")):
        assert word in checked(path, "algorithm=opd", f"{teacher.PATH}={tmp_path}/{number}")[1]
    for name in ("/no/such/model", "~nobody/m", "a b"):
        with pytest.raises(PreflightError, match="Set MODEL"):
            model.start_model(name)


def test_a_template_that_rollouts_cannot_use_is_refused(refusal):
    tokenizer = make_tokenizer(["made-up rules made-up request Results: [1] an earlier thought"] * 3)
    thinks = CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    content = "message['content']"
    for template, protocol, word in (
        (CHAT_TEMPLATE, "think_xml", ""),
        (thinks, "hermes", ""),
        *[(thinks, name, "interaction.protocol=hermes") for name in ("think_xml", "llama3_json", "python_calls")],
        ("{{ raise_exception('System role not supported') }}", "think_xml", "System role not supported"),
        (CHAT_TEMPLATE.replace("messages %}", "messages if message.role != 'system' %}"), "think_xml", "role system"),
        (CHAT_TEMPLATE.partition("{% if add_generation_prompt %}")[0], "think_xml", "header"),
        ("{{ messages | length }}" + CHAT_TEMPLATE, "think_xml", "changes what it has written"),
        (CHAT_TEMPLATE.replace(content, f"{content} if message['role'] != 'assistant'"), "think_xml", "show"),
    ):
        tokenizer.chat_template = template
        said = refusal(model.template(tokenizer, get_protocol(protocol), {}, []))
        assert word in said and bool(said) is bool(word), (word, said)
    tokenizer.chat_template = thinks
    assert "from_gold" in refusal(model.template(tokenizer, get_protocol("hermes"), {}, [], from_gold=True))
    last = f"({content} if loop.last else {content}.split('</think>')[-1])"
    tokenizer.chat_template, notes = CHAT_TEMPLATE.replace(content, last), list[str]()
    assert refusal(model.template(tokenizer, get_protocol("think_xml"), {}, notes)) == ""
    assert r"messages end with '<|im_end|>\n'; drops earlier thoughts" in notes[0]


def test_an_adapter_that_is_trained_further_decides_rank_alpha_modules_and_base(configured, refusal, policy, tmp_path):
    def started(*overrides):
        config = configured(f"paths.run={tmp_path}", "stage.previous=one", *overrides)
        return config.actor_rollout_ref.model, refusal(model.start(config, []))

    assert "one/adapter" in started("stage.adapter=continue")[1]
    folder, base = tmp_path / "one" / "adapter", AutoModelForCausalLM.from_pretrained(policy)
    lora = LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=24, target_modules=["q_proj", "down_proj"])
    get_peft_model(base, lora).save_pretrained(str(folder), save_embedding_layers=False)
    note_base(folder, str(policy))
    shutil.copytree(policy, tmp_path / "one" / "hf")
    found, said = started("stage.adapter=continue", "actor_rollout_ref.model.lora_rank=8")
    assert said == "" and (found.path, found.lora_adapter_path) == (str(policy), str(folder))
    assert (found.lora_rank, found.lora_alpha, found.target_modules) == (4, 24, ["down_proj", "q_proj"])
    found, said = started("stage.adapter=new")
    assert said == "" and (found.path, found.lora_adapter_path) == (str(tmp_path / "one" / "hf"), None)
    other = AutoModelForCausalLM.from_pretrained(policy)
    with torch.no_grad():
        other.model.norm.weight.mul_(2)
    other.save_pretrained(tmp_path / "other")
    assert "another model's" in started("stage.adapter=continue", f"actor_rollout_ref.model.path={tmp_path}/other")[1]
    (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:900])
    assert "adapter_model.safetensors" in started("stage.adapter=continue")[1]


def more_tokens(folder):
    tokenizer, settings = model.load_tokenizer(str(folder)), model.load_settings(str(folder))
    tokenizer.add_tokens(["one more"])
    tokenizer.save_pretrained(folder)
    edited("config.json", vocab_size=settings.vocab_size + 1)(folder)


def test_a_teacher_that_cannot_score_the_tokens_of_the_model_is_refused(configured, refusal, policy, tmp_path):
    tokenizer, learner = model.load_tokenizer(str(policy)), model.load_settings(str(policy))
    empty = "('<think>' if loop.last and message['role'] == 'assistant' else '') + message['content']"
    teachers = [
        # a change, and words of the problem and of the note
        (lambda folder: None, "", ""),
        (lambda folder: make_tokenizer(["other words"]).save_pretrained(folder), "tokens otherwise", ""),
        (edited("config.json", max_position_embeddings=2048), "2048 positions, the longest episode takes 2049", ""),
        (edited("config.json", vocab_size=99), "vocab_size=99", ""),
        *[
            (written("chat_template.jinja", CHAT_TEMPLATE.replace(*change).encode()), "", "is another")
            for change in (("'role']", "'role'] | upper"), ("message['content']", empty))
        ],
        (more_tokens, f"knows {len(tokenizer) + 1} tokens, the model {len(tokenizer)}", ""),
        (written("chat_template.jinja", b"{{ raise_exception('no') }}"), "", "is another"),
    ]
    for number, (change, word, note) in enumerate(teachers):
        change(folder := Path(shutil.copytree(policy, tmp_path / str(number))))
        config, notes = configured("algorithm=opd_topk", f"{teacher.PATH}={folder}"), list[str]()
        said = refusal(teacher.fits(config, tokenizer, learner, {}, notes))
        assert word in said and bool(said) is bool(word), (number, said)
        assert note in "".join(notes) and bool(notes) is bool(note), (number, notes)
