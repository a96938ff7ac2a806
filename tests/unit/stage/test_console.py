"""The console: alarms and gates out of the log, and the known cause of an end."""

import shutil
from types import SimpleNamespace

from support.runs import write_metrics

from recipe.stage import console, state


def test_alarms_and_gates_reach_the_console_and_nothing_else_of_the_log_does(tmp_path, capsys):
    log = tmp_path / "log"
    watch = console.Watch(tmp_path / "stage1_format", log)
    alarm, gate = "ALARM 61% of the messages (step 4)", "GATE left at step 4"
    note = "NOTE the reward compute_score of my.py has no parameter `prize`"
    log.write_text(
        f"alarms: {{malformed: 0.6}}\n\x1b[36m(TaskRunnerV1 pid=4436)\x1b[0m {alarm}\n"
        f"(TaskRunnerV1 pid=4436, ip=10.0.0.1) {gate}\n{note}\n"
        "NOTE       1 training row\nREWARD FAILED on a: b\nALARM cut o"
    )
    watch()
    with log.open("a") as file:
        file.write("ff\n")
    watch()
    shown = (alarm, gate, note, "REWARD FAILED on a: b", "ALARM cut off")
    assert capsys.readouterr().out.splitlines() == [f"stage1_format  {line}" for line in shown]
    for value, shown in ((0.0512, "0.0512"), (float("nan"), "nan"), (123.4, "123")):
        assert f"grad_norm {shown}" in console.step_line({"critic/score/mean": 1.0, "actor/grad_norm": value})
    seconds = {step: {"timing_s/step": 50.0 if step > 2 else 1e4, "timing_s/testing": 10.0} for step in range(1, 8)}
    assert [console.time_left(seconds, last) for last in (10, 8, 7)] == ["3 min left", "60 s left", ""]
    times = {89: "89 s", 90: "2 min", 5340: "89 min", 5400: "1 h 30 min", 12000: "3 h 20 min"}
    assert {seconds: console.duration(seconds) for seconds in times} == times


def test_a_stage_by_itself_shows_its_steps_and_its_log_but_for_what_verl_says_while_it_trains(tmp_path, capsys):
    log, steps = tmp_path / "log", list[int]()
    state.update(tmp_path / "own", target=state.Target(total_steps=12, planned=12))
    watch = console.Watch(tmp_path / "own", log, steps.append, alone=True)
    own = {"critic/score/mean": 0.5, "val/score": 0.25, "timing_s/step": 60.0}
    warm = [(step, {"train/loss": 2.0 / step}) for step in (2, 3)]
    write_metrics(tmp_path, "own", "1.jsonl", [(1, own), *warm, (4, {"train/loss": 1.0, "val/loss": 1.25})])
    for text in ("loads\n", f"{console.BEGINS}\nof verl\nALARM a\n", f"{console.ENDS}\nexports\n", "ends\n"):
        with log.open("a") as file:
            file.write(text)
        watch()
    assert steps == [1, 2, 3, 4] and capsys.readouterr().out.splitlines() == [
        "own    1/12  reward 0.500  60.0 s  validation reward 0.250  11 min left",
        "own    4/12  loss 1.000  validation loss 1.250  8 min left",  # a warm start's others come too fast
        *("loads", "own  ALARM a", "exports", "ends"),
    ]


def test_a_known_cause_in_a_log_is_named(tmp_path, monkeypatch):
    ran_out = "RAY worker A (process 7) was killed by Ray (9GB used / 10GB) because memory ran out\nActorDiedError"
    vllm = (
        "(Worker pid=2) ERROR WorkerProc failed to start.\n(Worker pid=2) ERROR Traceback (most recent call last):\n"
        "(Worker pid=2) ERROR [multiproc_executor.py:898] ModuleNotFoundError: No module named 'flashinfer'\n"
        "Exception: WorkerProc initialization failed\nRAY worker VLLM (process 2) has died\n"
    )
    for text, words in {
        "RuntimeError: [enforce fail] PytorchStreamWriter failed writing file data/1": "the disk is full",
        f"{vllm}{ran_out}\nRuntimeError: Engine core initialization failed": "because memory ran out",
        vllm: "vLLM could not start: ModuleNotFoundError: No module named 'flashinfer'",
    }.items():
        (tmp_path / "log").write_text(f"something\n{text}\n")
        assert words in console.cause(tmp_path / "log")
    (tmp_path / "log").write_text("ValueError: no\n")
    assert console.cause(tmp_path / "log") is None
    (tmp_path / "log").write_text(
        "\n".join([f"line {n}" for n in range(14)] + [f"ValueError: reason {n} of two" for n in "12"])
    )
    said = console.failure("own", tmp_path / "log", "failed", "the same command")
    assert said.startswith("line 1\n") and "own failed. Its last error: reason 2 of two\n" in said
    for free, full in ((31_999_999, True), (32_000_000, False)):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert (console.cause(tmp_path / "log") == console.FULL) is full
