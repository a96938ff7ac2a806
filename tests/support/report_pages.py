"""Runs with episodes that were played for real, and a reader's hands on the page that is made of them."""

import json

from interaction import Conversation, get_protocol
from rewards.progress import compute_score

EVIL = "</script><img src=x onerror=\"document.title='broken'\"><b id=injected>bold</b>"
think_xml = get_protocol("think_xml")


def choose(page, control, value):
    event = "input" if control in ("search", "low", "high") else "change"
    page.value(
        f"(() => {{ const it = document.getElementById({control!r}); it.value = {value!r}; "
        f"it.dispatchEvent(new Event({event!r})); }})()"
    )


def listed(page):
    return page.value("[...document.querySelectorAll('#list button span:first-child')].map(it => it.textContent)")


def shown(page):
    return page.value("document.getElementById('episode').textContent")


def record(scenario, *, step, sample, answers=(), solved=False):
    """A stored line, played for real: gold when `solved`, else the answers."""
    with Conversation(scenario, think_xml) as conversation:
        conversation.start()
        for turn in scenario.turns if solved else ():
            if turn.gold:
                conversation.reply(think_xml.render_calls("I do it", turn.gold))
            conversation.reply(think_xml.render_answer("t", "done"))
        for answer in answers:
            conversation.reply(answer)
        conversation.stop("max_tokens")
        episode = conversation.record().to_dict()
    metrics = compute_score("bfcl", "", None, {"episode": episode})
    head = {"step": step, "uid": "u", "session_id": sample, "task_id": scenario.id, "part": "test"}
    task = {"environment": "bfcl", "category": scenario.category, "cluster": scenario.cluster}
    return {**head, **task, "score": metrics["score"], "reward": metrics, "episode": episode}


def store(run, stage, split, step, records):
    path = run / stage / "rollouts" / split / f"{step:06d}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"split": split, **line}) + "\n" for line in records))
