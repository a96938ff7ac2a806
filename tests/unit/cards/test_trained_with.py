"""An evaluation that asks a model otherwise than its training did says so, with what would make them equal."""

import json
import shlex
from contextlib import contextmanager

import pytest
import yaml
from omegaconf import OmegaConf
from support.evaluation import gold_player, serving
from support.finished_run import finished_run

from recipe import evaluate
from recipe.cards import trained_with
from recipe.cards.model_card import write_card
from recipe.evaluation.arguments import parse

CONTEXT = 18192
"""Of prompt and response in `finished_run`: 8192 and 10000."""

BY_BFCL = {
    "interaction__train__max_steps_per_turn": 21,
    "interaction__train__environments__bfcl": {"augment": False, "at_step_limit": "official", "withheld": "official"},
}
"""A training by the rules of the evaluation."""

CHANGES = {
    "nothing": ({}, []),
    "protocol": ({"protocol": "hermes"}, ["protocol: trained with hermes, evaluated with think_xml"]),
    "docs": ({"docs": "signature"}, ["docs: trained with signature, evaluated with json"]),
    "tokens of a message": (
        {"max_tokens_per_reply": 96},
        ["tokens of a message: trained with 96, evaluated with whatever is left"],
    ),
    "all that is asked": (
        {"protocol": "python_calls", "docs": "signature", "max_tokens_per_reply": 64},
        ["protocol: trained with python_calls", "docs: trained with signature", "tokens of a message: trained with 64"],
    ),
    "turns": (
        {"train__max_steps_per_turn": 3, "train__max_format_errors_per_turn": 1, "train__max_result_chars": 300},
        ["max_steps_per_turn 20, not 2", "max_format_errors_per_turn 3, not 1", "max_result_chars no limit, not 300"],
    ),
    "an episode's steps and calls": (
        {"train__max_steps": 30, "train__calls_per_message": "first"},
        ["max_steps no limit, not 30", "calls_per_message all, not first"],
    ),
    "hints": ({"train__environments__bfcl__augment": True}, ["augment false, not true (--option augment=true)"]),
    "withheld functions": ({"train__environments__bfcl__withheld": "refused"}, ["withheld official, not refused"]),
    "the limit of steps": (
        {"train__environments__bfcl__at_step_limit": "judge", "train__max_steps_per_turn": 7},
        ["at_step_limit official, not judge", "max_steps_per_turn 20, not 7"],
    ),
    "what no message may have": ({"train__environments__bfcl__empty_gold": "official"}, ["empty_gold state, not"]),
}


def settings_of(model, *more):
    given, flags = parse(["--model", str(model), *more], None)
    settings = evaluate.settings_of(given)
    context = int(flags[flags.index("--max-model-len") + 1]) if flags else CONTEXT
    return trained_with.notes(settings, model, context), [*trained_with.differing(settings, found(model), context)]


def found(model):
    stage = trained_with.trained(model)
    assert stage is not None
    return stage


def trained_run(folder, **change):
    return finished_run(folder, **{**BY_BFCL, **{f"interaction__{key}": value for key, value in change.items()}})


@pytest.mark.parametrize("change", CHANGES)
def test_each_setting_that_differs_is_named_and_the_printed_overrides_make_all_equal(change, tmp_path):
    values, said = CHANGES[change]
    model = trained_run(tmp_path, **values) / "stage2_base" / "hf"
    lines, differing = settings_of(model)
    text = " ".join(" ".join(lines).split())
    assert [words for words in said if words not in text] == []
    assert len(differing) == len(said) and all(item.equal in text for item in differing)
    assert not lines or "stage2_base" in text
    options = [word for item in differing for word in shlex.split(item.equal)]
    assert settings_of(model, *options) == ([], [])
    for item in differing:
        left = {other.name for other in settings_of(model, *shlex.split(item.equal))[1]}
        assert left < {other.name for other in differing} and item.name not in left


RULES = [
    (None, 10, ""),
    ("judge", 10, ""),
    ("judge", 10, "at_step_limit=judge"),
    ("judge", 20, ""),
    ("official", 10, ""),
    ("official", 10, "at_step_limit=judge"),
    ("official", 21, "at_step_limit=judge"),
]


@pytest.mark.parametrize(("limit", "steps", "evaluated"), RULES)
def test_messages_of_a_turn_are_advised_by_the_rule_that_they_were_counted_by(limit, steps, evaluated, tmp_path):
    rules = {"withheld": "official"} | ({"at_step_limit": limit} if limit else {})
    change = {"train__max_steps_per_turn": steps, "train__environments__bfcl": rules}
    model = trained_run(tmp_path, **change) / "stage2_base" / "hf"
    given = ["--option", evaluated] if evaluated else []
    differing = settings_of(model, *given)[1]
    for item in differing:
        left = settings_of(model, *given, *shlex.split(item.equal))[1]
        assert item.name not in [other.name for other in left]
    assert settings_of(model, *given, *(word for item in differing for word in shlex.split(item.equal))) == ([], [])


def test_what_the_evaluation_limits_and_the_training_did_not_is_said_as_well(tmp_path):
    model = trained_run(tmp_path) / "stage2_base" / "hf"
    lines, _ = settings_of(model, "--max-tokens", "50", "--docs", "signature", "--", "--max-model-len", "4096")
    text = " ".join(lines)
    assert "tokens of a message: trained with whatever is left, evaluated with 50; the same: leave out" in text
    assert "docs: trained with json, evaluated with signature; the same: --docs json" in text
    assert f"tokens of an episode 4096, not {CONTEXT} (-- --max-model-len {CONTEXT})" in text
    assert settings_of(model, "--", "--max-model-len", str(CONTEXT)) == ([], [])


def test_a_model_goes_by_the_stage_that_made_it_whatever_folder_of_the_stage_it_is(tmp_path):
    run = trained_run(tmp_path, docs="signature")
    stage = run / "stage2_base"
    for folder in ("hf", "adapter", "checkpoints/global_step_5/actor/huggingface"):
        assert found(stage / folder).name == "stage2_base"
        assert found(stage / folder).setting("interaction.docs") == "signature"
    assert found(run / "stage1_format" / "hf").setting("interaction.docs") == "json"


def test_a_folder_that_was_copied_away_is_known_by_its_card_and_another_not_at_all(tmp_path):
    stage = trained_run(tmp_path, docs="signature", protocol="hermes") / "stage2_base"
    write_card(stage)
    away = (stage / "hf").rename(tmp_path / "away")
    lines, differing = settings_of(away)
    assert [(item.trained, item.equal) for item in differing] == [
        ("hermes", "--protocol hermes"),
        ("signature", "--docs signature"),
    ]
    assert "by its card" in lines[0]
    for card in ("---\ntags: 3\n---\n", "---\ntags: [a, 4, 'docs:']\n---\n", "---\n[\n---\n", "no card"):
        (away / "README.md").write_text(card)
        assert trained_with.trained(away) is None, card
    (away / "README.md").unlink()
    assert trained_with.trained(away) is None
    given, _ = parse(["--model", str(away)], None)
    assert trained_with.notes(evaluate.settings_of(given), away, None) == []


@pytest.mark.parametrize(
    "damage",
    ["", "[]", "interaction: 3", "interaction: {train: 3}", "interaction: {train: {environments: [bfcl]}}", "{"],
)
def test_a_damaged_configuration_is_no_reason_to_fail(damage, tmp_path):
    model = trained_run(tmp_path) / "stage2_base" / "hf"
    (model.parent / "config" / "resolved.yaml").write_text(damage)
    given, _ = parse(["--model", str(model)], None)
    trained_with.notes(evaluate.settings_of(given), model, 100)


HOSTILE = {
    "another's home": {"data.train_files": "~no_such_user/x"},
    "a path that is none": {"data.train_files": "\0x", "actor_rollout_ref.model.path": "\0/hf"},
    "a home that is none": {"data.train_files": "~\0/x"},
    "a long path": {"data.train_files": "a" * 5000},
    "a path without end": {"data.train_files": "/dev/zero"},
    "no paths": {"data.train_files": [{"a": [1]}, None, 3]},
    "a name of two lines": {"stage.name": "a\nNOTE b\x1b[31m"},
    "values of two lines": {"interaction.protocol": "a\nNOTE b", "interaction.docs": ["\x1b[31m"]},
    "rules of two lines": {"interaction.train.max_steps_per_turn": "a\nNOTE b"},
    "no number": {"interaction.max_tokens_per_reply": {"a\n": 1}},
    "rules that are none": {"interaction.train.environments.bfcl": {1: 2}},
}
MANIFESTS = [{"versions": [1]}, {"data": [1]}, {"versions": "x", "data": 3, "seed": "y"}, {"model": ["\0"]}]


def said_of(model):
    given, _ = parse(["--model", str(model)], None)
    lines = trained_with.notes(evaluate.settings_of(given), model, 100)
    assert all(line.isprintable() and len(line) < 1000 for line in lines)
    return lines


@pytest.mark.parametrize("kind", HOSTILE)
def test_whatever_a_configuration_holds_is_said_in_lines_that_can_be_printed(kind, tmp_path):
    model = trained_run(tmp_path) / "stage2_base" / "hf"
    path = model.parent / "config" / "resolved.yaml"
    config = OmegaConf.create(yaml.safe_load(path.read_text()))
    for key, value in HOSTILE[kind].items():
        OmegaConf.update(config, key, value, merge=False)
    path.write_text(yaml.safe_dump(OmegaConf.to_container(config)))
    said_of(model)


@pytest.mark.parametrize("start", MANIFESTS, ids=str)
def test_a_damaged_manifest_takes_nothing_from_what_the_configuration_says(start, tmp_path):
    model = trained_run(tmp_path, docs="signature") / "stage2_base" / "hf"
    before = said_of(model)
    (model.parents[1] / "manifest.json").write_text(json.dumps({"starts": [{"stage": "stage2_base", **start}]}))
    assert said_of(model) == before and "trained with signature" in before[1]


@pytest.mark.parametrize(
    "fault", [RuntimeError("a\nb\x1b"), AttributeError("items"), RecursionError(), OSError(36, "x")]
)
def test_what_cannot_be_read_is_said_in_one_line_and_the_evaluation_goes_on(fault, tmp_path, monkeypatch):
    def lineage(_):
        raise fault

    model = trained_run(tmp_path) / "stage2_base" / "hf"
    monkeypatch.setattr(trained_with, "lineage", lineage)
    (line,) = said_of(model)
    assert line.startswith(f"how it was trained cannot be read: {type(fault).__name__}")


def test_rules_of_tasks_that_were_not_trained_on_are_not_compared(tmp_path):
    run = trained_run(tmp_path, docs="signature", train__max_steps_per_turn=3)
    model = run / "stage2_base" / "hf"
    _, differing = settings_of(model, "--environment", "bfcl_single", "--category", "simple_python")
    assert [item.name for item in differing] == ["docs"]


def test_settings_of_another_environment_change_what_the_model_reads_and_are_named_first(tmp_path):
    tau = {"policy": "workflow", "one_thing_a_message": True, "show_functions": True}
    train = {"max_steps_per_turn": 30, "max_steps": 30, "calls_per_message": "first", "environments": {"tau": tau}}
    model = trained_run(tmp_path, train=train) / "stage2_base" / "hf"
    for path in (tmp_path / "data").iterdir():
        path.unlink()  # then it is not known which tasks were trained on
    lines, differing = settings_of(model, "--environment", "tau", "--category", "telecom_solo_mms")
    assert "  policy: trained with workflow, evaluated with full; the same: --option policy=workflow" in lines
    options = [word for item in differing for word in shlex.split(item.equal)]
    assert settings_of(model, "--environment", "tau", "--category", "telecom_solo_mms", *options) == ([], [])


def test_it_is_printed_before_a_server_is_started_and_kept_with_the_results(tmp_path, monkeypatch, capsys):
    model = trained_run(tmp_path, docs="signature", max_tokens_per_reply=96) / "stage2_base" / "hf"
    said_before = []
    with serving(gold_player("base")) as server:
        server.name = "model"

        @contextmanager
        def serve(*_):
            said_before.append(capsys.readouterr().out)
            yield server.url

        monkeypatch.setattr("recipe.evaluation.server.serve", serve)
        out = tmp_path / "out"
        arguments = ["--model", str(model), "--category", "base", "--limit", "2", "--out", str(out)]
        assert evaluate.main([*arguments, "--docs", "signature"]) == 0
    words = "tokens of a message: trained with 96, evaluated with whatever is left; the same: --max-tokens 96"
    assert words in said_before[0] and "docs" not in said_before[0]
    assert (
        words in (out / "results.txt").read_text() and words in json.loads((out / "results.json").read_text())["note"]
    )


MISTAKES = {
    "max_steps=0": "max_steps: Input should be greater than or equal to 1",
    "max_steps=x": "max_steps: Input should be a valid integer",
    "steps=3": "there is no steps; there are max_steps_per_turn, max_steps, calls_per_message",
    "environments={}": "there is no environments",
    "calls_per_message=none": "calls_per_message: Input should be 'all' or 'first'",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_turn_policy_that_there_is_not_is_named(mistake, capsys):
    with pytest.raises(SystemExit):
        parse(["--endpoint", "http://x/v1", "--turn-policy", mistake], None)
    assert f"argument --turn-policy: {MISTAKES[mistake]}" in capsys.readouterr().err


def test_episodes_go_by_the_turn_policy_and_give_no_score_of_bfcls(tmp_path, capsys):
    def play(_):
        return "malformed"

    for more, errors, official in (((), 4, True), (("--turn-policy", "max_format_errors_per_turn=1"), 2, False)):
        out = tmp_path / str(errors)
        with serving(play) as server:
            arguments = ["--endpoint", server.url, "--limit", "1", "--out", str(out), *more]
            assert evaluate.main(arguments) == 0
            assert len(server.requests) == 4 * errors
        assert (json.loads((out / "results.json").read_text())["multi_turn_official"] is not None) is official
        assert yaml.safe_load((out / "settings.json").read_text())["policy"] == (
            {} if official else {"max_format_errors_per_turn": 1}
        )
