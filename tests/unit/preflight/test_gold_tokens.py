"""Tasks that gold cannot finish are counted as the agent loop counts, said, and left out of training if asked for."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.own_environment import write_namesake

from bfcl_env import load_scenarios
from data_prep.rows import rl_table, write_table
from interaction import Conversation, get_protocol
from interaction.environment import load_tasks, register
from recipe.cpu.tiny_policy import make_tokenizer
from recipe.errors import PreflightError
from recipe.preflight.budget import check_budget
from recipe.preflight.gold_tokens import THOUGHT, Budget, Lengths, over_budget, reply_needed
from recipe.stage import checkpoints, same_rows, starts
from recipe.stage.notes import LEFT_OUT, LEFT_OUT_FILE

think_xml = get_protocol("think_xml", docs="signature")
SHORT = load_scenarios("multi_turn_base", split="train")[:6]
LONG = load_scenarios("multi_turn_long_context", split="train")[:6]
LIMIT = 3_000
"""Tokens of a response that all of SHORT and only some of LONG fit into."""


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer([turn.user for scenario in SHORT for turn in scenario.turns])


@pytest.fixture(scope="module")
def lengths(tokenizer):
    return Lengths(tokenizer)


def opened(scenario, **policy):
    return Conversation(scenario, protocol=think_xml, **policy)


def fits(scenario, lengths, budget, **policy):
    return not over_budget([scenario], lambda item: opened(item, **policy), lengths, budget)


async def length_in_the_agent_loop(scenario, tokenizer, engine, make_loop):
    """Prompt and response tokens of gold's episode, as training would have it."""
    replies = [
        text
        for turn in scenario.turns
        for text in (
            *([think_xml.render_calls(THOUGHT, turn.gold)] if turn.gold else []),
            think_xml.render_answer(THOUGHT, "done"),
        )
    ]
    loop = make_loop(tokenizer, engine(tokenizer, replies), response_length=200_000, policy={"max_result_chars": None})
    info = {"task_id": scenario.id, "split": "train"}
    output = await loop.run({}, extra_info=info, uid="a", session_id=0, global_steps=1)
    assert output.extra_fields["episode"]["stop_reason"] == "completed"
    return len(output.prompt_ids), len(output.response_mask)


@pytest.mark.parametrize("scenario", [*SHORT[:3], *LONG[:3]], ids=lambda scenario: scenario.id)
async def test_a_task_fits_just_where_its_gold_fits_in_the_agent_loop(scenario, lengths, tokenizer, engine, make_loop):
    prompt, response = await length_in_the_agent_loop(scenario, tokenizer, engine, make_loop)
    near = 4 * sum(2 for _ in scenario.turns)  # what a template writes between messages is counted on average
    assert fits(scenario, lengths, Budget(response=response + near))
    assert not fits(scenario, lengths, Budget(response=response - near))
    assert fits(scenario, lengths, Budget(context=prompt + response + near))
    assert not fits(scenario, lengths, Budget(context=prompt + response - near))


def test_results_that_are_cut_make_a_long_task_fit(lengths):
    (longest,) = [scenario for scenario in LONG if not fits(scenario, lengths, Budget(response=LIMIT))][:1]
    assert fits(longest, lengths, Budget(response=LIMIT), max_result_chars=500)


def test_calls_too_long_for_one_message_are_played_in_several_if_the_turn_has_room_for_them(lengths):
    scenario = next(item for item in SHORT if max(len(turn.gold) for turn in item.turns) >= 3)
    turn = max(scenario.turns, key=lambda turn: len(turn.gold))
    reply = lengths.of(think_xml.render_calls(THOUGHT, turn.gold))
    assert fits(scenario, lengths, Budget(reply=reply + 1), max_steps_per_turn=2)
    assert not fits(scenario, lengths, Budget(reply=reply), max_steps_per_turn=2)
    assert fits(scenario, lengths, Budget(reply=reply), max_steps_per_turn=3)
    alone = max(lengths.of(think_xml.render_calls(THOUGHT, [call])) for call in turn.gold)
    assert not fits(scenario, lengths, Budget(reply=alone))


@pytest.mark.parametrize("steps", [2, 3, 20])
@pytest.mark.parametrize("docs", ["json", "signature"])
def test_gold_fits_the_message_length_that_is_said_to_be_needed(docs, steps, lengths):
    def open_short(item):
        return Conversation(item, protocol=get_protocol("think_xml", docs=docs), max_steps_per_turn=steps)

    needed = reply_needed(SHORT, open_short, lengths, Budget())
    assert not over_budget(SHORT, open_short, lengths, Budget(reply=needed))
    assert steps != 20 or over_budget(SHORT, open_short, lengths, Budget(reply=needed - 1)), "it is the least"


# Preflight.


def config_of(tmp_path, train, val, over_budget="keep", **data):
    files = {}
    for key, split, scenarios in (("train_files", "train", train), ("val_files", "val", val)):
        files[key] = str(tmp_path / f"{key}.parquet")
        write_table(rl_table(scenarios, split, think_xml), Path(files[key]))
    data = {**files, "train_batch_size": 2, "max_response_length": LIMIT, "custom_cls": {"path": None}, **data}
    return OmegaConf.create(
        {
            "preflight_only": False,
            "stage": {"name": "stage3_full", "over_budget": over_budget},
            "data": data,
            "interaction": {"train": {}, "val": {}, "max_tokens_per_reply": None},
            "actor_rollout_ref": {"model": {"path": "start", "lora_rank": 0}, "rollout": {"max_model_len": None}},
            "trainer": {
                "default_local_dir": str(tmp_path / "checkpoints"),
                "resume_mode": "auto",
                "total_epochs": 1,
                "total_training_steps": None,
            },
        }
    )


@pytest.fixture(scope="module")
def too_long(lengths):
    """Tasks of LONG that do not fit LIMIT tokens."""
    found = over_budget(LONG, opened, lengths, Budget(response=LIMIT))
    assert 1 <= len(found) < len(LONG)
    return found


def test_what_does_not_fit_is_said_by_file_and_category_and_stays(tmp_path, tokenizer, too_long):
    config = config_of(tmp_path, [*SHORT, *LONG], [*SHORT, *LONG])
    train, val = check_budget(config, tokenizer, think_xml)
    count = len(too_long)
    assert f"gold of {count} of 12 rows of data.train_files=" in train and f"({count} of 6 long_context)" in train
    assert f"max_response_length={LIMIT}" in train and "interaction.train.max_result_chars" in train
    assert f"accuracy can reach {1 - count / 12:.3f} at most" in val and "interaction.val.max_result_chars" in val
    assert "leave_out" not in config.data and not (tmp_path / "checkpoints").exists()


def test_where_everything_fits_nothing_is_said(tmp_path, tokenizer):
    config = config_of(tmp_path, SHORT, SHORT, over_budget="leave_out")
    assert check_budget(config, tokenizer, think_xml) == []
    assert "leave_out" not in config.data and config.data.custom_cls.path is None


def test_rows_are_left_out_of_training_and_never_of_the_validation(tmp_path, tokenizer, too_long):
    from verl.trainer.ppo.utils import create_rl_dataset

    config = config_of(tmp_path, [*SHORT, *LONG], [*SHORT, *LONG], "leave_out", filter_overlong_prompts=False)
    train, _ = check_budget(config, tokenizer, think_xml)
    assert f"{12 - len(too_long)} rows stay" in train
    rows = {}
    for key in ("train_files", "val_files"):
        found = create_rl_dataset(config.data[key], config.data, tokenizer, None)
        rows[key] = [info["task_id"] for info in found.dataframe["extra_info"]]
        assert len(found) == len(rows[key])
    assert rows["val_files"] == [scenario.id for scenario in (*SHORT, *LONG)]
    assert rows["train_files"] == [name for name in rows["val_files"] if name not in too_long]


def read_note(folder: Path) -> list[str]:
    note = LEFT_OUT.read(folder / "checkpoints" / LEFT_OUT_FILE)
    return list(note.tasks) if note else []


def test_a_stage_goes_on_with_the_same_rows_or_not_at_all(tmp_path, tokenizer, too_long):
    tasks = ([*SHORT, *LONG], SHORT)
    first = config_of(tmp_path, *tasks, "leave_out")
    check_budget(first, tokenizer, think_xml)
    starts.note(first)
    assert read_note(tmp_path) == sorted(too_long)
    (tmp_path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("1")
    check_budget(config_of(tmp_path, *tasks, "leave_out"), tokenizer, think_xml)
    for changed in (("keep", LIMIT), ("leave_out", LIMIT // 2)):
        config = config_of(tmp_path, *tasks, changed[0], max_response_length=changed[1])
        with pytest.raises(PreflightError, match=f"trained with {len(too_long)} tasks left out.*RUN=another-name"):
            check_budget(config, tokenizer, think_xml)
    (tmp_path / "checkpoints" / LEFT_OUT_FILE).write_text(json.dumps(sorted(too_long)))  # of an earlier release
    check_budget(config_of(tmp_path, *tasks, "leave_out"), tokenizer, think_xml)
    (tmp_path / "checkpoints" / LEFT_OUT_FILE).write_text(json.dumps(sorted(too_long))[:-3])
    with pytest.raises(PreflightError, match="not known which tasks.*write into that file"):
        check_budget(config_of(tmp_path, *tasks, "leave_out"), tokenizer, think_xml)
    (tmp_path / "checkpoints" / LEFT_OUT_FILE).unlink()
    with pytest.raises(PreflightError, match="trained with 0 tasks left out"):
        check_budget(config_of(tmp_path, *tasks, "leave_out"), tokenizer, think_xml)


@pytest.mark.parametrize(
    ("train", "goes_on"),
    [
        (SHORT, True),
        (SHORT[:-1], False),
        ([*SHORT, *LONG], False),
        ([SHORT[-1], *SHORT[:-1]], False),
        (LONG, False),
    ],
    ids=["the same", "fewer", "more", "another order", "others"],
)
def test_a_stage_goes_on_with_the_tasks_that_it_began_with_wherever_their_files_are(
    tmp_path, tokenizer, train, goes_on
):
    first = config_of(tmp_path, SHORT, SHORT)
    check_budget(first, tokenizer, think_xml)
    starts.note(first)
    checkpoints = tmp_path / "checkpoints"
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("12")
    moved = tmp_path / "moved"
    moved.mkdir()
    config = config_of(moved, train, LONG)
    config.trainer.default_local_dir = str(checkpoints)
    said = (
        f"trained on 6 tasks, this start has {len(train)}, not the same.*RUN=another-name.*MODEL={checkpoints}/global"
    )
    with nullcontext() if goes_on else pytest.raises(PreflightError, match=said):
        check_budget(config, tokenizer, think_xml)
    (checkpoints / "trained_on.json").write_text("{")
    with pytest.raises(PreflightError, match="not known which tasks or trajectories.*RUN=another-name"):
        check_budget(config, tokenizer, think_xml)
    (checkpoints / "trained_on.json").unlink()  # of an earlier release
    check_budget(config, tokenizer, think_xml)


def test_of_two_environments_with_one_id_only_the_task_that_does_not_fit_is_left_out(tmp_path, tokenizer, too_long):
    from verl.trainer.ppo.utils import create_rl_dataset

    register({"inventory": str(write_namesake(tmp_path, LONG))})
    tasks = [*LONG, *load_tasks("inventory").values()]
    config = config_of(tmp_path, tasks, SHORT, "leave_out", filter_overlong_prompts=False)
    (line,) = check_budget(config, tokenizer, think_xml)
    assert f"gold of {len(too_long)} of 12 rows" in line
    assert config.data.leave_out == sorted(too_long)
    found = create_rl_dataset(config.data.train_files, config.data, tokenizer, None)
    stay = [(info["environment"], info["task_id"]) for info in found.dataframe["extra_info"]]
    assert stay == [
        (task.environment, task.id) for task in tasks if task.environment != "bfcl" or task.id not in too_long
    ]
    config.data.leave_out = [f"inventory/{LONG[0].id}"]
    found = create_rl_dataset(config.data.train_files, config.data, tokenizer, None)
    assert len(found) == 11


@pytest.mark.parametrize(
    ("before", "now", "goes_on"),
    [
        (["move_1", "multi_turn_base_0"], ["inventory/move_1", "multi_turn_base_0"], True),
        (["inventory/move_1"], ["inventory/move_1"], True),
        (["move_1"], ["inventory/move_1", "shop/move_1"], False),
        (["multi_turn_base_0"], ["inventory/multi_turn_base_0", "multi_turn_base_0"], False),
        (["move_2"], ["inventory/move_1"], False),
    ],
)
def test_a_note_of_ids_alone_means_bfcl_or_the_one_task_that_has_the_id(tmp_path, before, now, goes_on):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "latest_checkpointed_iteration.txt").write_text("1")
    (folder / LEFT_OUT_FILE).write_text(json.dumps({"version": 1, "tasks": before}))
    with nullcontext() if goes_on else pytest.raises(PreflightError, match="were trained with"):
        same_rows.check_same_rows(config_of(tmp_path, SHORT, SHORT, "leave_out"), now)


def test_what_is_left_out_counts_in_what_decides_the_number_of_steps(tmp_path):
    keep, leave_out = (
        checkpoints.asked_steps(config_of(tmp_path, SHORT, SHORT, name)) for name in ("keep", "leave_out")
    )
    assert keep != leave_out and "over_budget" not in keep  # notes of earlier runs stay valid


@pytest.mark.parametrize(
    ("over_budget", "data", "message"),
    [
        ("leave_out", {"train_batch_size": 12}, "leaves [0-9]+ rows, fewer than data.train_batch_size=12"),
        ("leave_out", {"custom_cls": {"path": "mine.py", "name": "Mine"}}, "custom_cls.path=mine.py names another"),
    ],
)
def test_what_cannot_be_left_out_is_refused(tmp_path, tokenizer, over_budget, data, message):
    with pytest.raises(PreflightError, match=message):
        check_budget(config_of(tmp_path, [*SHORT, *LONG], SHORT, over_budget, **data), tokenizer, think_xml)
