"""What a user can get wrong on the command line, and stored episodes that are judged without a model."""

import json

import pytest
from support.phone import write_phone

from bfcl_env import load_scenarios
from interaction import Conversation, get_protocol
from interaction.record import VERSION
from recipe import evaluate
from recipe.stage.integrity import note_sums

MISTAKES = {
    "--samples 2": "raise --temperature",
    "--category simple": "known: base, miss_func, miss_param, long_context",
    "--environment bfcl_single --category java": "'java' is no category of environment bfcl_single",
    "--api-key-env NO_SUCH": "no such environment variable",
    "--api-key-env HOME --endpoint http://me:secret@x/v1": "--endpoint has a password and --api-key-env names a key",
    "-- --tensor-parallel-size 2": "which only --model starts",
    "--adapter /a": "name the model it belongs to with --model",
    "--limit 0": "is not a whole number, 1 or more",
    "--top-k 20 --leave-out top_k": "--leave-out and the option of the same name contradict each other",
    "--model /m": "not allowed with argument",
    "--max-nodes 5": "give it with --strategy dfsdt",
    "--strategy dfsdt --user kind=endpoint --user url=http://x/v1": "expected a user of kind scripted or replay",
    "--option volume": "'volume' is not KEY=VALUE",
    "--option volume=[a": "no YAML",
    "--option volume=3": "volume",
    "--user kind=ghost": "known: ",
    "--user lines=[a]": "kind=None",
    "--user kind=scripted": "lines",
    "--user kind=scripted --user lines=[1]": "lines.0",
    "--user kind=scripted --user lines=[a] --user seconds=.inf": "seconds",
    "--domain telecom": "has no such categories",
}


def test_a_mistake_on_the_command_line_is_named_before_anything_is_played(tmp_path, capsys):
    phone = str(write_phone(tmp_path))
    for words, said in MISTAKES.items():
        given = words.split()
        given = [*(["--environment", phone] if "--option" in given or "--user" in given else []), *given]
        source = [] if "--model" in given[:1] else ["--endpoint", "http://x/v1"]
        with pytest.raises(SystemExit) as exit_:
            evaluate.main([*source, *given, *(["--endpoint", "x"] if not source else [])])
        assert exit_.value.code == 2
        error = capsys.readouterr().err
        assert said in error and "secret" not in error, words


def test_a_path_that_holds_nothing_is_named(tmp_path, capsys):
    (tmp_path / "config.json").write_text("[]")
    for given, said in (
        (["--records", str(tmp_path / "nothing")], "holds no episodes"),
        (["--records", str(tmp_path)], "holds no episodes"),
        (["--model", str(tmp_path)], "is not a model folder"),
        (["--model", str(tmp_path / "nothing")], "is not a model folder"),
    ):
        assert evaluate.main([*given, "--out", str(tmp_path / "out")]) == 1
        assert said in capsys.readouterr().err and not (tmp_path / "out").exists()


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


def test_a_model_that_has_changed_since_it_was_exported_is_refused(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    note_sums(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"weightz")
    assert evaluate.main(["--model", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "model.safetensors is not what was written" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
