from pathlib import Path

from interaction import get_protocol
from interaction.environment import load_tasks, named
from interaction.gold import check_task, play_gold


def test_gold_passes_every_task_and_an_answer_alone_none():
    for task in load_tasks(named(str(Path(__file__).with_name("library.py")))).values():
        assert play_gold(task, get_protocol("hermes"))[1].outcome.passed
        attempt = task.open()
        attempt.begin()
        while attempt.answer("Done."):
            pass
        assert not attempt.verdicts().passed
        check_task(task)
