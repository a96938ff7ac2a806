"""An evaluation samples as training's validation does, whatever the server would do by itself, and keeps how."""

import json
import sys

from support.evaluation import PROTOCOL, run, serving

from recipe import evaluate
from recipe.curriculum import compose_stage
from recipe.evaluation.server import server_command

DEFAULTS = {
    "temperature": 0.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
REFUSALS = [
    ("top_k", 400, "Unrecognized request argument supplied: top_k"),
    ("temperature", 400, "Unsupported value: 'temperature' does not support 0.0 with this model."),
    ("repetition_penalty", 422, '[{"type": "extra_forbidden", "loc": ["body", "repetition_penalty"]}]'),
]
"""How OpenAI and servers that validate with pydantic word it."""


def answers(_):
    return PROTOCOL.render_answer("d", "done")


def sampling_of(request):
    return {name: request[name] for name in DEFAULTS if name in request}


def test_every_request_carries_every_sampling_field_and_settings_list_them(tmp_path):
    changed = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
    more = [word for name, value in changed.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    with serving(answers) as server:
        for name, given, sent in (("plain", (), DEFAULTS), ("changed", more, DEFAULTS | changed)):
            assert run(server.url, tmp_path / name, *given, limit=1)[0] == 0
            assert sampling_of(server.requests[-1]) == sent
            kept = json.loads((tmp_path / name / "settings.json").read_text())
            assert {name: kept[name] for name in DEFAULTS} == sent


def test_the_defaults_are_those_of_trainings_validation_and_not_of_the_model_folder(tmp_path):
    rollout = compose_stage("stage3", []).actor_rollout_ref.rollout
    for name in ("temperature", "top_p", "top_k"):
        assert DEFAULTS[name] == rollout.val_kwargs[name]
    assert rollout.get("repetition_penalty", 1.0) == DEFAULTS["repetition_penalty"]
    for hardware in ("cpu", "gpu8"):
        command = server_command(tmp_path, 1234, hardware, ["--max-model-len", "64"])
        assert command[0] == sys.executable and command[command.index("--generation-config") + 1] == "vllm"
        assert command[-2:] == ["--max-model-len", "64"], "a user's flags win"


def test_a_field_that_the_server_refuses_is_named_with_the_option_that_leaves_it_out(tmp_path, capsys):
    for name, status, words in REFUSALS:

        def play(messages, name=name, status=status, words=words):
            refused = name in server.requests[-1]
            return (status, {"error": {"message": words}}) if refused else answers(messages)

        with serving(play) as server:
            assert run(server.url, tmp_path / name, limit=1)[0] == 1
            error = capsys.readouterr().err
            assert f"refuses the sampling field {name}" in error and f"--leave-out {name}" in error
            out = tmp_path / f"without {name}"
            assert run(server.url, out, "--leave-out", name, limit=1)[0] == 0
        assert sampling_of(server.requests[-1]) == {key: value for key, value in DEFAULTS.items() if key != name}
        assert json.loads((out / "settings.json").read_text())[name] is None


def test_other_refusals_are_not_said_to_be_of_a_sampling_field(tmp_path, capsys):
    quoting = "cannot answer 'set the temperature'"  # after it has taken the fields once
    budget = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'."
    for name, taken, words in (("quoting", 1, quoting), ("budget", 0, budget)):

        def play(messages, taken=taken, words=words):
            late = len(server.requests) > taken
            return (400, {"error": {"message": words}}) if late else answers(messages)

        with serving(play) as server:
            assert run(server.url, tmp_path / name, "--max-tokens", "9", limit=1)[0] == evaluate.LOST_STATUS
        assert "leave-out" not in capsys.readouterr().err
