"""Tasks that gold cannot finish are counted as the agent loop counts, said, and left out of training if asked for."""

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf
from support.own_environment import example, write_namesake
from support.stages import save
from tokenizers.processors import TemplateProcessing
from verl.trainer.ppo.utils import create_rl_dataset

from bfcl_env import load_scenarios
from data_prep.rows import rl_table, write_table
from interaction import get_protocol
from interaction.environment import load_tasks, register
from interaction.gold import play_gold
from recipe.cpu.tiny_policy import make_tokenizer
from recipe.preflight.data import parquet_rows
from recipe.preflight.tokens import Budget, Lengths, check_budget, over_budget
from recipe.stage import state

think_xml = get_protocol("think_xml", docs="signature")
SHORT = load_scenarios("multi_turn_base", split="train")[:6]
LONG = load_scenarios("multi_turn_long_context", split="train")[:6]
LIMIT = 3_000
"""Tokens of a response that all of SHORT and only some of LONG fit into."""

TOKENIZER = make_tokenizer([turn.user for scenario in SHORT for turn in scenario.turns])
LENGTHS = Lengths(TOKENIZER)


def fits(scenario, budget, lengths=LENGTHS, **policy):
    return not over_budget([scenario], think_xml, policy, lengths, budget)


async def test_a_task_fits_just_where_its_gold_fits_in_the_agent_loop(engine, make_loop):
    for scenario in (*SHORT[:2], *LONG[:2]):
        messages = play_gold(scenario, think_xml)[0]
        replies = [said["content"] for said in messages if said["role"] == "assistant"]
        policy = {"max_result_chars": None}
        loop = make_loop(TOKENIZER, engine(TOKENIZER, replies), response_length=200_000, policy=policy)
        info = {"task_id": scenario.id, "split": "train"}
        output = await loop.run({}, extra_info=info, uid="a", session_id=0, global_steps=1)
        assert output.extra_fields["episode"]["stop_reason"] == "completed"
        prompt, response = len(output.prompt_ids), len(output.response_mask)
        assert LENGTHS.prompt(messages[:2]) == prompt
        near = 8 * len(scenario.turns)  # what a template writes between messages is counted on average
        assert fits(scenario, Budget(response=response + near))
        assert not fits(scenario, Budget(response=response - near))
        assert fits(scenario, Budget(context=prompt + response + near))
        assert not fits(scenario, Budget(context=prompt + response - near))


def test_gold_has_the_limits_of_message_turn_and_result_to_the_token(tmp_path, monkeypatch):
    around, talk = LENGTHS.most([""]), [{"role": role, "content": "x"} for role in ("user", "assistant")] * 3
    assert LENGTHS.most(["é", "", ""]) == 3 * around + 2
    assert len(TOKENIZER.apply_chat_template(talk)["input_ids"]) == 6 * (around + 1)
    monkeypatch.setattr("recipe.cpu.tiny_policy.TAGS", ())
    by_byte = Lengths(make_tokenizer([]))
    uneven = make_tokenizer([])  # two tokens around a user's message and one around the model's, and one at the start
    uneven.chat_template = "{% for said in messages %}{{ said.content }}<|im_end|>{% if loop.index0 % 2 == 0 %}"
    uneven.chat_template += "<|im_end|>{% endif %}{% endfor %}"
    begin = ("<|im_start|>", uneven.convert_tokens_to_ids("<|im_start|>"))
    uneven.backend_tokenizer.post_processor = TemplateProcessing(single=f"{begin[0]} $A", special_tokens=[begin])
    assert (Lengths(uneven).most([""]), Lengths(uneven).of("x")) == (2, 1)
    for scenario, words in ((SHORT[0], LENGTHS), (LONG[3], LENGTHS), (SHORT[0], by_byte)):
        messages = play_gold(scenario, think_xml)[0]
        first = next(place for place, said in enumerate(messages) if said["role"] == "assistant")
        texts, around = [said["content"] for said in messages[first:]], words.most([""])
        response = around * len(texts) + sum(map(words.of, texts))
        reply = around + max(words.of(said["content"]) for said in messages if said["role"] == "assistant")
        context = words.prompt(messages[:first]) + response
        for name, least in (("response", response), ("reply", reply), ("context", context)):
            assert fits(scenario, Budget(**{name: least}), words), (scenario.id, name)
            assert not fits(scenario, Budget(**{name: least - 1}), words), (scenario.id, name)
    long = next(scenario for scenario in LONG if not fits(scenario, Budget(response=LIMIT)))
    assert fits(SHORT[0], Budget(), max_steps_per_turn=2) and not fits(SHORT[0], Budget(), max_steps_per_turn=1)
    assert fits(long, Budget(response=LIMIT), max_result_chars=500)
    (tmp_path / "inventory.py").write_text(example().replace("return [GoldMessage", "return [] and [GoldMessage"))
    register({"inventory": str(tmp_path / "inventory.py")})
    for task in (load_tasks("inventory")["move_0"], SimpleNamespace(id="w", environment="bfcl", waits=True)):
        assert fits(task, Budget(1, 1, 1)), "nothing is known of it"
    assert "gold" not in str(play_gold(load_tasks("inventory")["move_0"], think_xml)[1].fault), "it has none that ends"


@pytest.fixture
def judged(configured, refusal, tmp_path):
    """The problems, the notes and the configuration of a stage with these tasks."""

    def judged(train, val, over_budget="keep", from_gold=None, held_out="val", pool=(), prompts=(), shown=None, **data):
        config, notes = configured(f"stage.over_budget={over_budget}", f"paths.run={tmp_path}"), list[str]()
        for key, split, scenarios in (("train_files", "train", train), ("val_files", held_out, val)):
            config.data[key] = str(tmp_path / f"{key}.parquet")
            write_table(rl_table(scenarios, split, think_xml), Path(config.data[key]))
        names = [str(tmp_path / f"pool{number}.parquet") for number in range(len(pool))]
        for name, scenarios in zip(names, pool, strict=True):
            write_table(rl_table(scenarios, "train", think_xml), Path(name))
        config.stage.resample.pool = names or None
        policy = {"max_steps_per_turn": 20}
        reply = data.pop("reply", None)
        config.interaction.update(max_tokens_per_reply=reply, train={**policy, "from_gold": from_gold})
        config.interaction.val = {**policy, "max_result_chars": shown}
        config.actor_rollout_ref.rollout.max_model_len = None
        config.data.update({"train_batch_size": 2, "max_prompt_length": 8192, "max_response_length": LIMIT, **data})
        read = {str(path): parquet_rows(path) for path in tmp_path.glob("*.parquet")}
        for row, text in zip(read[config.data.train_files], prompts, strict=False):
            row["prompt"] = [{"role": "user", "content": text}]
        return refusal(check_budget(config, TOKENIZER, think_xml, read, notes)), notes, config

    return judged


@pytest.fixture(scope="module")
def too_long():
    found = over_budget(LONG, think_xml, {}, LENGTHS, Budget(response=LIMIT))
    assert 1 <= len(found) < len(LONG)
    return found


def test_what_does_not_fit_is_said_by_file_and_category_and_stays(judged, too_long):
    assert len(judged(SHORT, SHORT, "leave_out", reply=1, train_batch_size=0)[2].data.leave_out) == len(SHORT)
    tasks, count = [*SHORT, *LONG], len(too_long)
    wrong, (train, val, prompt), config = judged(tasks, tasks)
    limits = f"does not fit max_model_len=None, max_response_length={LIMIT}, max_tokens_per_reply=None: "
    names = config.data.train_files, config.data.val_files
    said = [f"over budget: gold of {count} of 12 rows of {name} ({count} long_context) {limits}" for name in names]
    assert train == f"{said[0]}nobody can finish them; stage.over_budget=leave_out leaves them out of training"
    assert val == f"{said[1]}accuracy can reach {1 - count / 12:.3f} at most" and "leave_out" not in config.data
    longest = int(prompt.split()[2])
    assert not wrong and prompt == f"longest prompt {longest} tokens ({config.data.val_files})"
    digest = sha256("\n".join(task.id for task in tasks).encode()).hexdigest()
    assert config.data.tasks == {"rows": 12, "digest": digest}
    for most, kept, problem, note in (
        *((longest, False, "", ""), (longest, True, "", "")),
        (longest - 1, False, f"has {longest} tokens. Set data.max_prompt_length={longest}.", ""),
        (longest - 1, True, "", f"more than data.max_prompt_length={longest - 1}: such rows are left out"),
    ):
        wrong, notes, _ = judged(tasks, tasks, max_prompt_length=most, filter_overlong_prompts=kept)
        assert problem in wrong and bool(wrong) is bool(problem) and notes[-1].endswith(note)
        assert (notes[-1] == prompt) is not bool(note)
    fitting = [task.id for task in tasks if task.id not in too_long]
    wrong, notes, config = judged(SHORT, SHORT, "leave_out", pool=(SHORT, LONG), train_batch_size=6)
    assert not wrong and config.data.leave_out == sorted(too_long) and len(notes) == 2
    assert notes[0].endswith(f"left out of training, {6 - count} rows stay")
    digest = sha256("\n".join([*(task.id for task in SHORT), *fitting]).encode()).hexdigest()
    assert config.data.tasks == {"rows": 6, "digest": digest}
    single, stay = [*load_tasks("bfcl_single").values()][:2], f"gold may begin {12 - count} of {14 - count} rows"
    for trained, over, split, steps, word, note in (
        (tasks, "keep", "val", 9, "stage.over_budget=leave_out", ""),
        (tasks, "leave_out", "train", 9, "data.val_files", ""),
        ((*tasks, *single), "leave_out", "val", 1, "", stay),
        ((*tasks, *single), "leave_out", "val", 10**6, "", f"{stay}; it still does at the end"),
        (single, "keep", "val", 9, "from_gold=null", ""),
    ):
        wrong, notes, _ = judged(trained, SHORT, over, {"share": 0.5, "steps": steps}, split)
        assert word in wrong and bool(wrong) is bool(word)
        assert not note or (notes[-2].startswith(f"from_gold: {note}") and (";" in notes[-2]) is (";" in note))
    _, (train, *others), _ = judged(LONG, LONG, shown=500)
    assert f" {count} of 6 rows" in train and f" {count} of 6 rows" not in others[0], "validation has its own limits"
    save(config, 3)
    state.update(Path(config.paths.stage), began=state.Start("m", digest=digest))
    assert "on other data" in judged(SHORT, SHORT, "leave_out", pool=(SHORT,), train_batch_size=6)[0]


def test_the_eight_prompts_with_the_most_characters_are_counted(judged):
    said = [*[" file" * 4000] * 7, "é" * 19_999, "€" * 19_998]
    _, notes, _ = judged([*SHORT, *LONG], SHORT, prompts=said)
    longest = LENGTHS.prompt([{"role": "user", "content": said[7]}])
    assert notes[-1].startswith(f"longest prompt {longest} tokens")


def test_rows_are_left_out_of_training_and_never_of_the_validation(judged, too_long, capsys):
    wrong, _, config = judged([*SHORT, *LONG], [*SHORT, *LONG], "leave_out", filter_overlong_prompts=False)
    rows = {}
    for key in ("train_files", "val_files"):
        found = create_rl_dataset(config.data[key], config.data, TOKENIZER, None)
        rows[key] = [info["task_id"] for info in found.dataframe["extra_info"]]
        gone = 12 - len(rows[key])
        assert f"{gone} rows left out of ['{config.data[key]}'], {12 - gone} stay" in capsys.readouterr().out
    assert not wrong and rows["val_files"] == [scenario.id for scenario in (*SHORT, *LONG)]
    assert rows["train_files"] == [name for name in rows["val_files"] if name not in too_long]


def test_of_two_tasks_with_one_id_the_long_one_is_left_out_and_what_cannot_be_is_refused(judged, tmp_path, too_long):
    register({"inventory": str(write_namesake(tmp_path, LONG))})
    _, _, config = judged([*LONG, *load_tasks("inventory").values()], SHORT, "leave_out")
    assert config.data.leave_out == sorted(too_long)
    tasks, stay = ([*SHORT, *LONG], SHORT, "leave_out"), 12 - len(too_long)
    assert f"leaves {stay} rows" in judged(*tasks, train_batch_size=stay + 1)[0]
    assert judged(*tasks, train_batch_size=stay)[0] == ""
    assert "mine.py" in judged(*tasks, custom_cls=OmegaConf.create({"path": "mine.py", "name": "Mine"}))[0]
