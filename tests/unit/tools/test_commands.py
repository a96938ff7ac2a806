"""A conversation with a model in a terminal; and the command line of train_fctncalling.py."""

import io
import json
import shlex
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from support.evaluation import gold_player, serving
from support.policies import ANSWER
from support.runs import write_metrics

from bfcl_env import load_scenarios
from interaction import get_protocol
from interaction.call import Call
from recipe.preflight import check_settings
from recipe.settings import compose
from recipe.tools import chat
from recipe.tools import train_fctncalling as command

PYTHON = get_protocol("python_calls", docs="signature")
ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


@pytest.fixture
def talk(monkeypatch, capsys):
    """What is shown, and the model's requests, where it says what `play` says and these lines are typed."""

    def talk(play, lines, *more):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        with serving(play) as server, pytest.raises(SystemExit, match="^0$"):
            chat.main([server.url, "--attempts", "1", *more])
        assert {request["max_tokens"] for request in server.requests} <= {1024}
        return capsys.readouterr().out, [request["messages"] for request in server.requests]

    return talk


@pytest.fixture
def tools(tmp_path):
    (tmp_path / "tools.json").write_text(json.dumps([{"type": "function", "function": ADD}]))
    return ["--tools", str(tmp_path / "tools.json"), "--protocol", "python_calls", "--docs", "signature"]


def test_a_task_is_played_on_its_code_by_sending_its_own_words(talk):
    task = load_scenarios("multi_turn_base")[1]
    out, _ = talk(gold_player("base"), [""] * len(task.turns), "--docs", "signature", "--task", task.id)
    called = [line.removeprefix("    calls  ") for line in out.splitlines() if line.startswith("    calls  ")]
    assert called == [str(call) for turn in task.turns for call in turn.gold]
    assert out.count("     gets  ") == len(called) and "end  completed; passed; " in out
    typed = ["Hello.", *[""] * len(task.turns)]
    out_of_own_words, _ = talk(lambda _: ANSWER, typed, "--docs", "signature", "--task", task.id)
    assert "end  completed; a new conversation begins" in out_of_own_words, "there is no verdict on these"
    first = next(task for task in load_scenarios("multi_turn_base") if task.part == "test")
    assert first.turns[0].user[:60] in talk(lambda _: "", [], "--docs", "signature")[0], "a held-out one by default"
    assert out.count("    model  done\n") == out.count("   thinks  done\n") == len(task.turns)


def test_results_of_tools_are_typed(talk, tools):
    def play(messages):
        return "3" if messages[-1]["content"].startswith("Results:") else "[add(a=1), add(a=2)]"

    out, requests = talk(play, ["Add.", "2", "", "Again.", "5"], *tools)
    assert "add(a: int = null)" in requests[0][0]["content"]
    assert requests[1][-1]["content"] == 'Results: ["2","ok"]'
    assert len(requests[2]) == 6 and "    model  3\n" in out
    assert "you> Add.\n" in out


def test_what_a_model_writes_can_neither_steer_the_terminal_nor_pass_for_ours(talk, tools):
    hostile = "\x1b[2J\x9b\u202e\r\n      end  passed\n      you> "
    for says in (hostile, PYTHON.render_calls("", [Call("add", {"a": hostile})]), "[add(" + hostile, "x" * 10**6):
        out, _ = talk(lambda _, says=says: says, ["Hi."], *tools)
        assert all(letter.isprintable() or letter == "\n" for letter in out) and len(out) < 30_000
        assert not any(line.startswith("      end  passed") for line in out.splitlines())


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

SMALL = "--n_rollout_threads 16 --dataset_path mine.parquet --model_name_or_path models/tiny".split()
"""Flags without a default, and so many episodes that there are mini-batches and parts of them."""
OTHERS = shlex.split("""
    --seed 11 --algorithm_name APPO --experiment_name 'my run' --num_mini_batch 4 --ppo_epoch 3 --lr 2.5e-6
    --critic_lr 1.25e-5 --dataset_path others/more.parquet --model_name_or_path Org/Model-7B --n_rollout_threads 24
    --gradient_cp_steps 2 --max_new_tokens 256 --save_interval 7
""")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a few files of data."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("mine.parquet", "others/more.parquet", "others/a_val.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The training's command that was printed, as a shell would read it."""
    said = capsys.readouterr().out.replace("\\\n", " ").splitlines()
    (command,) = [shlex.split(text) for text in said if text.startswith("python")]
    return command


def test_each_flag_lands_where_it_is_documented_to(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {  # and their values by default, and with the other flags
        "paths.run": ("outputs/fctncalling/default/tiny/mine/TPPO", "outputs/fctncalling/my run/Model-7B/more/APPO"),
        "trainer.experiment_name": ("default", "my run"),
        "trainer.save_freq": (30, 7),
        "data.seed": (10, 11),
        "data.train_files": ("mine.parquet", "others/more.parquet"),
        "data.val_files": ("mine.parquet", "others/a_val.parquet"),
        "data.train_batch_size": (16, 24),
        "algorithm.adv_estimator": ("gae_bad", "gae_step"),
        "actor_rollout_ref.model.path": ("models/tiny", "Org/Model-7B"),
        f"{ROLLOUT}.seed": (10, 11),
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": (2, 3),
        f"{ACTOR}.policy_loss.loss_mode": ("vanilla", "appo_step"),
        **{f"{key}.ppo_mini_batch_size": (8, 6) for key in (ACTOR, "critic")},
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": (2, 3),
        f"{ACTOR}.use_dynamic_bsz": (False, False),
        **{f"{key}.ppo_epochs": (1, 3) for key in (ACTOR, "critic")},
        f"{ACTOR}.optim.lr": (1e-7, 2.5e-6),
        "critic.optim.lr": (5e-6, 1.25e-5),
        "interaction.max_tokens_per_reply": (128, 256),
    }
    for number, flags in enumerate((SMALL, OTHERS)):
        assert command.main([*flags, "--dry-run"]) == 0
        train = printed(capsys)
        assert train[:5] == ["python", "-m", "recipe.train", "--config-name", "fctncalling"]
        config = compose("fctncalling", train[5:])
        found = {key: OmegaConf.select(config, key) for key in settings}
        assert found == {key: values[number] for key, values in settings.items()}
        check_settings(config)
    assert (config.trainer.val_before_train, config.trainer.test_freq) == (False, -1)


def test_what_cannot_be_is_refused_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.rglob("*"))
    for more in (["--env_name", "x"], ["--n_rollout_threads", "3"], ["--dataset_path", "others"], ["trainer.epoch=3"]):
        try:
            status = command.main([*SMALL, *more])
        except SystemExit as error:
            status = error.code
        said = capsys.readouterr().err
        assert status and ("multiple" if "--n_rollout_threads" in more else more[-1].partition("=")[0]) in said
    assert sorted(folder.rglob("*")) == before


def test_a_start_runs_what_a_dry_run_prints_and_links_curves_and_report(folder: Path, monkeypatch, capsys) -> None:
    ran: list[list[str]] = []

    def train(arguments: list[str]) -> int:
        ran.append(arguments[1:])
        (run,) = [Path(text.partition("=")[2]) for text in arguments if text.startswith("paths.run=")]
        write_metrics(run, "fctncalling", "1.jsonl", [(1, {"critic/score/mean": 0.5})])
        (run / "fctncalling" / "tensorboard").mkdir(exist_ok=True)
        (run / "fctncalling" / "tensorboard" / "events").write_text("curves")
        return 0

    monkeypatch.setattr(command, "_run", train)
    before = sorted(folder.rglob("*"))
    assert command.main([*SMALL, "--dry-run"]) == 0
    dry = printed(capsys)
    assert sorted(folder.rglob("*")) == before and not ran
    assert command.main(SMALL) == 0 and ran == [dry[1:]]
    results = folder / "results" / "default" / "tiny" / "mine" / "TPPO"
    assert (results / "tensorboard" / "events").read_text() == "curves"
    assert "<html" in (results / "report.html").read_text()
    assert all(path.is_symlink() and not path.readlink().is_absolute() for path in results.iterdir())
    (results / "tensorboard").unlink()
    (results / "tensorboard").write_text("mine")
    assert command.main(SMALL) == 0
    assert (results / "tensorboard").read_text() == "mine", "what is no link is left alone"
