"""What a user can get wrong on the command line, and stored episodes that are judged without a model."""

import json

import pytest

from bfcl_env import load_scenarios
from interaction import Conversation, get_protocol
from interaction.record import VERSION
from recipe import evaluate
from recipe.evaluation.server import context_length


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--endpoint", "http://x/v1", "--samples", "2"), "raise --temperature"),
        (("--endpoint", "http://x/v1", "--category", "simple"), "known: base, miss_func, miss_param, long_context"),
        (("--endpoint", "http://x/v1", "--api-key-env", "NO_SUCH"), "no such environment variable"),
        (("--endpoint", "http://x/v1", "--", "--tensor-parallel-size", "2"), "which only --model starts"),
        (("--endpoint", "http://x/v1", "--adapter", "/a"), "name the model it belongs to with --model"),
        (("--endpoint", "http://x/v1", "--limit", "0"), "is not a whole number, 1 or more"),
        ((), "one of the arguments --model --endpoint --records is required"),
    ],
)
def test_a_mistake_on_the_command_line_is_named(arguments, said, capsys):
    with pytest.raises(SystemExit) as exit_:
        evaluate.main(arguments)
    assert exit_.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        ("--records", "nothing", "does not exist"),
        ("--records", "", "holds no episodes"),
        ("--model", "", "is not a model folder"),
    ],
)
def test_a_path_that_holds_nothing_is_named(source, name, said, tmp_path, capsys):
    assert evaluate.main([source, str(tmp_path / name), "--out", str(tmp_path / "out")]) == 1
    assert said in capsys.readouterr().err


def test_stored_episodes_are_judged_without_a_model(tmp_path, capsys):
    protocol, lines = get_protocol("hermes"), []
    for scenario in load_scenarios("multi_turn_miss_func")[:3]:
        with Conversation(scenario, protocol) as played:
            played.start()
            for turn in scenario.turns:
                if turn.gold:
                    played.reply(protocol.render_calls("", turn.gold))
                played.reply("done")
            lines.append(json.dumps({"score": 1.0, "episode": played.record().to_dict()}))
    rollouts = tmp_path / "run" / "stage3_full" / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    old = lines[0].replace(f'"version": {VERSION}', '"version": 0')
    (rollouts / "000001.jsonl").write_text("\n".join([*lines, old, "{cut off"]))
    assert evaluate.main(["--records", str(tmp_path / "run"), "--out", str(tmp_path / "out")]) == 0
    assert "3 episodes in 1 files; 1 lines are no record of this version" in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert found["categories"]["multi_turn_miss_func"]["acc_bfcl"]["mean"] == 1.0
    assert found["verdicts"]["agree"] == 3 and found["multi_turn_official"] is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"[]", b"null", b"[" * 200_000], ids=repr)
def test_a_model_folder_with_a_damaged_configuration_is_one_line(content, tmp_path, capsys):
    (tmp_path / "config.json").write_bytes(content)
    assert evaluate.main(["--model", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.strip()
    assert f"{tmp_path} is not a model folder: its config.json cannot be read" in error and "\n" not in error


@pytest.mark.parametrize("content", [{"max_position_embeddings": "x"}, {"text_config": 3}, {"text_config": None}, {}])
def test_a_context_that_the_configuration_does_not_say_is_not_guessed(content, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert context_length(tmp_path, []) is None
    assert context_length(tmp_path, ["--max-model-len=64"]) == 64


def test_a_model_that_has_changed_since_it_was_exported_is_refused(tmp_path, capsys):
    from recipe.stage.integrity import note_sums

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    note_sums(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weightz")
    assert evaluate.main(["--model", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "model.safetensors is not what was written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
