"""What an evaluation is played with, and what is kept: no two are mixed, and a damaged line costs no other."""

import json
import shutil
import sys
from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.evaluation import PROTOCOL, gold_player, kept, played, run, serving
from support.finished_run import finished_run
from support.own_environment import write_example
from support.phone import write_phone
from transformers import AutoTokenizer

from bfcl_env import load_scenarios
from interaction.record import VERSION, EpisodeRecord
from recipe import evaluate
from recipe.cpu.tiny_policy import CHAT_TEMPLATE, make_tiny_policy
from recipe.evaluation import server
from recipe.evaluation.arguments import parse, settings_of
from recipe.evaluation.store import Settings, Store, read_episodes
from recipe.files import PreflightError
from recipe.reward import sample_record
from recipe.settings import compose as compose_stage
from recipe.stage import state
from recipe.tools.policies import POLICIES, play

GOLD = gold_player("base")
DEFAULTS = {"temperature": 0.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
DEFAULTS |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
SETTINGS = Settings("m", None, "val", ("multi_turn_base",), "think_xml", "json", 1, 0.0, None, 2)


def answers(_):
    return PROTOCOL.render_answer("d", "done")


def sampling_of(request):
    return {name: request[name] for name in DEFAULTS if name in request}


def test_every_request_carries_every_sampling_field_as_validation_has_them(tmp_path):
    changed = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05}
    more = [word for name, value in changed.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    for name, given, sent in (("plain", (), DEFAULTS), ("changed", more, DEFAULTS | changed)):
        done = played(answers, tmp_path / name, *given, limit=1)
        assert done.status == 0 and sampling_of(done.requests[-1]) == sent
        assert sampling_of(json.loads((tmp_path / name / "settings.json").read_text())) == sent
    rollout = compose_stage("stage3", []).actor_rollout_ref.rollout
    assert {name: rollout.val_kwargs[name] for name in ("temperature", "top_p", "top_k")}.items() <= DEFAULTS.items()
    for hardware in ("cpu", "gpu8"):
        command = server.server_command(tmp_path, 1234, hardware, ["--max-model-len", "64"])
        assert command[0] == sys.executable and command[command.index("--generation-config") + 1] == "vllm"
        assert command[-2:] == ["--max-model-len", "64"], "a user's flags win"


def test_a_message_ends_with_the_token_of_the_chat_template_or_as_the_endpoint_is_told(tmp_path, monkeypatch):
    make_tiny_policy(folder := tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.save_pretrained(folder)
    (tmp_path / "other.jinja").write_text(CHAT_TEMPLATE.replace("<|im_end|>", "</answer>"))
    other = ["--", "--chat-template", str(tmp_path / "other.jinja")]
    plain = ["--", "--chat-template", CHAT_TEMPLATE.replace("<|im_end|>", "")]
    with serving(answers) as it:
        monkeypatch.setattr(server, "serve", lambda *_: nullcontext(it.url))
        for number, (flags, ends) in enumerate((([], ["<|im_end|>"]), (other, ["</answer>"]), (plain, []))):
            given = ["--model", str(folder), "--limit", "1", "--category", "base", "--out", str(tmp_path / str(number))]
            assert evaluate.main([*given, *flags]) == 0
            assert it.requests[-1]["stop_token_ids"] == tokenizer.convert_tokens_to_ids(ends)
    request = played(answers, tmp_path / "told", "--stop", "<|im_end|>", "--stop", "7", limit=1).requests[-1]
    assert (request["stop"], request["stop_token_ids"]) == (["<|im_end|>"], [7])


def test_a_field_that_the_server_refuses_is_named_and_can_be_left_out(tmp_path, capsys):
    for name, status, words in (
        ("max_tokens", 400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
        ("temperature", 400, "Unsupported value: 'temperature' does not support 0 with this model."),
        ("top_k", 400, "Unrecognized request argument supplied: top_k"),  # OpenAI's words, then pydantic's
        ("repetition_penalty", 422, '[{"type": "extra_forbidden", "loc": ["body", "repetition_penalty"]}]'),
    ):
        refusal = (status, {"error": {"message": words}})
        with serving(lambda it, no=refusal, name=name: no if name in server.requests[-1] else answers(it)) as server:
            given = ("--max-tokens", "50") if name == "max_tokens" else ()
            assert run(server.url, tmp_path / name, *given, limit=1)[0] == 1
            assert f"--leave-out {name}" in capsys.readouterr().err
            assert run(server.url, tmp_path / f"no {name}", "--leave-out", name, limit=1)[0] == 0
        assert sampling_of(server.requests[-1]) == {key: value for key, value in DEFAULTS.items() if key != name}
        assert json.loads((tmp_path / f"no {name}" / "settings.json").read_text())[name] is None


def test_episodes_of_other_settings_or_models_are_never_mixed_and_settings_hold_no_password(tmp_path, capsys):
    with serving(GOLD) as server:
        run(server.url, tmp_path)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        for more, said in {
            "--temperature 0.7": "temperature was 0.0, is 0.7",
            "--max-tokens 9": "max_tokens was None, is 9",
            "--strategy dfsdt": "strategy was 'plain', is 'dfsdt'",
            "": "model was 'm', is 'other'",
        }.items():
            server.name = "m" if more else "other"
            assert run(server.url, tmp_path, *more.split())[0] == 1
            assert said in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for content in (b"", b"{", b"\xff", b"[]", b'{"version": 9}'):
        (tmp_path / "settings.json").write_bytes(content)
        with pytest.raises(PreflightError, match=r"settings\.json.*choose another --out"):
            Store(tmp_path, SETTINGS)
        assert (tmp_path / "settings.json").read_bytes() == content
    once = before["episodes.jsonl"].splitlines()
    (tmp_path / "episodes.jsonl").write_bytes(b"\n".join([*once, once[0], b""]))  # a lost one, played again
    assert evaluate.main(["--records", str(tmp_path)]) == 0
    assert f"{len(once)} episodes in 1 files" in capsys.readouterr().out
    (tmp_path / "episodes.jsonl").write_bytes(b"")  # none is there: settings are written anew, without a password
    user = {"kind": "endpoint", "url": "http://me:secret@x/v1", "api_key": "sk-secret"}
    Store(tmp_path, replace(SETTINGS, endpoint="http://me:secret@x/v1", user=user)).close()
    text = (tmp_path / "settings.json").read_text()
    assert json.loads(text)["split"] == "val" and "secret" not in text


HERE = ["--endpoint", "http://127.0.0.1:9/v1", "--served-name", "m"]


def test_only_bfcls_own_rules_give_bfcls_score(tmp_path):
    for words, expected in {
        "": True,
        "--option augment=false --option withheld=official": True,
        "--turn-policy max_steps_per_turn=21 --turn-policy max_steps=null": True,
        "--turn-policy max_steps_per_turn=20": False,
        "--option at_step_limit=judge --turn-policy max_steps_per_turn=21": False,
        "--option augment=true": False,
        "--environment bfcl_single": False,
    }.items():
        given, _ = parse([*HERE, *words.split()], None)
        assert settings_of(given).by_bfcl() is expected, words
    assert (given.protocol, given.docs) == ("think_xml", "json")
    usual = {"samples": 1, "concurrency": 32, "timeout": 600.0, "attempts": 5, "backoff": 1.0, "max_nodes": None}
    assert usual.items() <= vars(given).items() and parse([*HERE, "--strategy", "dfsdt"], None)[0].max_nodes == 60
    for more, errors, official in (((), 4, True), (("--turn-policy", "max_format_errors_per_turn=1"), 2, False)):
        done = played(lambda _: "malformed", tmp_path / str(errors), *more, category=None, limit=1)
        assert done.status == 0 and len(done.requests) == 4 * errors
        assert (done.found["multi_turn_official"] is not None) is official


def test_a_mistake_on_the_command_line_is_named_before_anything_is_played(tmp_path, capsys):
    phone, asked = str(write_phone(tmp_path)), "--user kind=endpoint --user url=http://x/v1"
    for words in (
        *("--samples 2", "--category simple", "--environment bfcl_single --category java", "--api-key-env NO_SUCH"),
        *("-- --tensor-parallel-size 2", "--adapter /a", "--limit 0", "--top-k 20 --leave-out top_k", "--model /m"),
        *("--max-nodes 5", f"--strategy dfsdt {asked}", "--option volume"),
        *("--option volume=[a", "--option volume=3", "--user kind=ghost", "--turn-policy steps=3", "--domain telecom"),
        *(f"--samples 2 {asked} --user {word}" for word in ("temperature=0", "seed=1")),
    ):
        own = ["--environment", phone] if "--option" in words or "--user" in words else []
        with pytest.raises(SystemExit, match="2"):
            evaluate.main([*HERE, *own, *words.split()])
        assert "error: " in capsys.readouterr().err.splitlines()[-1], words
    with pytest.raises(SystemExit, match="2"):
        evaluate.main(["--records", str(tmp_path), "--split", "test"])
    assert "leave out --split" in capsys.readouterr().err


def test_the_official_splits_are_what_tau2_bench_publishes_or_are_refused(capsys):
    tau, named = "--environment tau", "--user kind=endpoint --user url=http://x/v1 --user model=m --user temperature=0"
    for domain, sizes in {"telecom": (114, 40), "retail": (114, 40), "airline": (50, 20)}.items():
        for split, size in zip(("official", "official_test"), sizes, strict=True):
            given, _ = parse([*HERE, *f"{tau} {named} --domain {domain} --split {split}".split()], None)
            tasks = [task for task, _ in settings_of(given).tasks()]
            assert len(tasks) == size and all(task.mode == "user" for task in tasks), (domain, split)
    assert settings_of(parse([*HERE, *f"{tau} --turn-policy max_steps=9".split()], None)[0]).policy["max_steps"] == 9
    for words, remedy in {
        named: "Give --environment tau",
        tau: "Give --user",
        f"{tau} {named.replace('--user model=m', '')}": "Give --user",
        f"{tau} {named.replace('=0', '=null')}": "Give --user",
        f"{tau} --user kind=scripted --user lines=[Hello.]": "Give --user",
        f"{tau} {named} --mode solo": "Give --user",
        f"{tau} {named} --option split=size": "Leave out --option split",
        f"{tau} {named} --option split=faults": "Leave out --option split",
        f"{tau} {named} --turn-policy max_steps=30": "Leave out --option split",
    }.items():
        for split in ("official", "official_test"):
            with pytest.raises(SystemExit, match="2"):
                evaluate.main([*HERE, *words.split(), "--split", split])
            problem, change = capsys.readouterr().err.splitlines()[-2:]
            assert f"error: --split {split} " in problem and remedy in change, words


def test_what_cannot_be_evaluated_writes_nothing(tmp_path, capsys):
    out, own, changed = tmp_path / "out", write_example(tmp_path), finished_run(tmp_path) / "stage2_base" / "hf"
    own.write_text(own.read_text().replace("parts[number % 4]", "['train', 'dev'][number % 2]"))
    (changed / "model.safetensors").write_bytes(b"weights")
    for given, said in (
        (["--records", str(tmp_path)], "holds no episodes"),
        (["--model", str(tmp_path / "nothing")], "cannot be served"),
        (["--model", str(changed)], "model.safetensors is not what was written"),
        ([*HERE, "--environment", str(own), "--split", "test"], "30 train in move, 30 dev in move"),
    ):
        assert evaluate.main([*given, "--out", str(out)]) == 1
        assert said in capsys.readouterr().err and not out.exists(), given
    (tmp_path / "file").write_text("mine")
    assert evaluate.main([*HERE, "--out", str(tmp_path / "file"), "--limit", "1"]) == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_stored_episodes_are_judged_without_a_model(tmp_path, capsys):
    tasks = dict(zip(("dev", "test", "guard"), load_scenarios("multi_turn_miss_func"), strict=False))
    records = {part: play(task, PROTOCOL, POLICIES["gold"]).to_dict() for part, task in tasks.items()}
    lines = [json.dumps({"score": 1.0, "part": part, "episode": record}) for part, record in records.items()]
    rollouts = tmp_path / "run" / "stage3_full" / "rollouts" / "train"
    rollouts.mkdir(parents=True)
    old = lines[0].replace(f'"version": {VERSION}', '"version": 0')
    again = [json.dumps({**json.loads(lines[0]), "launch": launch}) for launch in "abb"]  # resumed; played twice in b
    (rollouts / "000001.jsonl").write_text("\n".join([*again, *lines[1:], old, "{cut off"]))
    for launch, line in zip("ab", again, strict=False):  # two machines: a step has a part of each launch
        (rollouts / f"000002.{launch}.jsonl").write_text(line + "\n")
    shutil.copytree(tmp_path / "run" / "stage3_full", tmp_path / "run" / "aside" / "stage3_full")
    state.update(rollouts.parents[1], chose=({"stage": "s", "setting": "stage.gate.metric", "metric": "val_dev/acc"},))
    assert evaluate.main(["--records", str(tmp_path / "run"), "--out", str(out := tmp_path / "new" / "out")]) == 0
    assert "5 episodes in 3 files; 1 lines are no record of this version" in capsys.readouterr().out
    found = json.loads((out / "results.json").read_text())
    assert found["categories"]["multi_turn_miss_func"]["acc_bfcl"]["mean"] == 1.0
    assert found["verdicts"]["agree"] == 5 and found["multi_turn_official"] is None and not kept(out)
    assert "by val_dev/acc (s, stage.gate.metric)" in found["note"]
    assert {part: group["tasks"] for part, group in found["parts"].items()} == {"dev": 1, "test": 1}


def stored(folder, *more):
    """The finished episodes, once some more are added."""
    store = Store(folder, SETTINGS)
    for line in more:
        store.add(line)
    with pytest.raises(PreflightError, match="another evaluation"):
        Store(folder, SETTINGS)
    store.close()
    return store.episodes()


def test_a_cut_off_line_is_taken_away_and_damaged_lines_cost_no_other(tmp_path):
    record, path = sample_record(), tmp_path / "episodes.jsonl"
    line = {"task_id": "multi_turn_base_0", "sample": 0, "attempts": 1, "episode": record, "note": "über"}
    second = json.dumps({**line, "sample": 1}, ensure_ascii=False).encode()
    first = {("multi_turn_base_0", 0): EpisodeRecord.from_dict(record)}
    assert stored(tmp_path, line) == first
    whole = path.read_bytes()
    assert "über".encode() in whole, "a reader's own letters, and no escapes"
    for cut in (1, 40, len(second) - 6, len(second)):
        path.write_bytes(whole + second[:cut])
        assert stored(tmp_path) == first and path.read_bytes() == whole
    assert [*stored(tmp_path, {**line, "sample": 2})] == [*first, ("multi_turn_base_0", 2)]
    broken = [None, {name: record[name] for name in ("version", "turns")}]
    broken += [record | changed for changed in ({"version": 1}, {"turns": [None]}, {"stop_reason": "bored"})]
    damaged = [b"", b"{", b"null", b"\xff\xfe{}", b"[" * 200_000, b'{"task_id": "multi_turn_base_0", "sample": 1}']
    damaged += [json.dumps({**line, "sample": 1, "episode": episode}).encode() for episode in broken]
    path.write_bytes(b"\n".join(damaged) + b"\n" + whole)
    assert stored(tmp_path) == first
    records, skipped = read_episodes(path)
    assert ([record for _, record in records], skipped) == ([*first.values()], len(damaged))
