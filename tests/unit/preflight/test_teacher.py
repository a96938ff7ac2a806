"""The teacher of on-policy distillation: one that cannot score the model's tokens is refused before a start."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from recipe import memory
from recipe.cpu.tiny_policy import CHAT_TEMPLATE, make_tokenizer
from recipe.preflight import model, teacher


def told(name: str, **values: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**content, **values}))

    return change


OTHER: tuple[tuple[Callable[[Path], object], str], ...] = (
    (lambda folder: None, ""),
    (lambda folder: make_tokenizer(["other words"]).save_pretrained(folder), "tokens otherwise"),
    (told("config.json", max_position_embeddings=2048), "2048 positions, the longest episode takes 2049"),
    (told("config.json", vocab_size=99), "vocab_size=99"),
    (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
)


def test_a_teacher_that_cannot_score_the_tokens_of_the_model_is_refused(configured, refusal, policy, tmp_path):
    tokenizer = model.load_tokenizer(str(policy))

    def said(folder: Path, notes: list[str]) -> str:
        config = configured("algorithm=opd", f"{teacher.PATH}={folder}")
        return refusal(teacher.fits(config, tokenizer, {}, notes))

    for number, (change, word) in enumerate(OTHER):
        change(folder := Path(shutil.copytree(policy, tmp_path / str(number))))
        found = said(folder, notes := [])
        assert word in found and bool(found) is bool(word), (number, found)
        assert not notes
    folder = Path(shutil.copytree(policy, tmp_path / "template"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE.replace("message['role']", "message['role'] | upper"))
    assert said(folder, notes := []) == "" and "another one" in notes[0]


def test_memory_counts_the_teacher_on_cards_of_its_own(capsys):
    """Half of the cards train; the teacher's weights, cache and log-probabilities have to fit the others."""
    opd, inference = ["qwen3-4b", "algorithm=opd", f"{teacher.PATH}=qwen3-8b"], f"{memory.TEACHER}.inference"
    for card, more, fits in (
        (80, [], True),
        (24, [], False),
        (80, [f"{inference}.max_num_batched_tokens=16384"], False),
        (80, [f"{inference}.gpu_memory_utilization=0.2"], False),
    ):
        status = memory.main([*opd, "--card", str(card), *more])
        found = capsys.readouterr().out
        assert status == (not fits) and "4 cards" in found, found
        assert ("the teacher" in found) is not fits
