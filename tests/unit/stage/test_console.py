"""The console: one line a step, alarms out of the log, times as a person says them."""

from support.runs import write_metrics

from recipe.stage import console, state


def test_a_step_is_one_line_once(tmp_path, capsys):
    watch = console.Watch(tmp_path / "stage1_format", tmp_path / "log")
    write_metrics(tmp_path, "stage1_format", "1.jsonl", [(3, {"critic/score/mean": 1.25, "timing_s/step": 14.0})])
    state.update(tmp_path / "stage1_format", target=state.Target(80, 80))
    watch()
    watch()
    assert capsys.readouterr().out.split() == "stage1_format 3/80 reward 1.250 14.0 s 18 min left".split()


def test_alarms_and_gates_reach_the_console_and_nothing_else_of_the_log_does(tmp_path, capsys):
    log = tmp_path / "log"
    watch = console.Watch(tmp_path / "stage1_format", log)
    log.write_text(
        "alarms: {malformed: 0.6}\n"
        "\x1b[36m(TaskRunnerV1 pid=4436)\x1b[0m ALARM 61% of the messages (step 4)\n"
        "(TaskRunnerV1 pid=4436, ip=10.0.0.1) GATE left at step 4\n"
        "NOTE the reward compute_score of my.py has no parameter `prize`\n"
        "NOTE       1 training row\n"
        "ALARM cut o"
    )
    watch()
    with log.open("a") as file:
        file.write("ff\n")
    watch()
    assert capsys.readouterr().out.splitlines() == [
        "stage1_format  ALARM 61% of the messages (step 4)",
        "stage1_format  GATE left at step 4",
        "stage1_format  NOTE the reward compute_score of my.py has no parameter `prize`",
        "stage1_format  ALARM cut off",
    ]


def test_a_stage_by_itself_shows_its_own_lines_too_and_none_of_verls(tmp_path, capsys):
    log = tmp_path / "log"
    log.touch()
    watch = console.Watch(tmp_path / "stage1_format", log, alone=True)
    for lines, said in (
        ("needs 6 GB\ntraining begins\nverl says much\nALARM low\n", ["needs 6 GB", "stage1_format  ALARM low"]),
        ("verl ends\ntraining has ended\nmodel exported\n", ["model exported"]),
    ):
        with log.open("a") as file:
            file.write(lines)
        watch()
        assert capsys.readouterr().out.splitlines() == said


def test_a_known_cause_in_a_log_is_named(tmp_path):
    ran_out = "RAY worker A (process 7) was killed by Ray because memory ran out (9GB used / 10GB)\nActorDiedError"
    for text, words in {
        "RuntimeError: [enforce fail] PytorchStreamWriter failed writing file data/1": "the disk is full",
        "RAY its raylet has died. Load 9.0 on 2 cores": "its raylet has died",
        ran_out: "memory",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly": "a worker process died",
        "torch.OutOfMemoryError: CUDA out of memory": "out of memory",
    }.items():
        (tmp_path / "log").write_text(f"something\n{text}\n")
        assert words in console.cause(tmp_path / "log")
    (tmp_path / "log").write_text("ValueError: no\n")
    assert console.cause(tmp_path / "log") is None
