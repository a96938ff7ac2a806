"""Learning from stored trajectories: what cannot work is refused, and what follows from the data is set and said."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from support.stages import save
from support.stored import line, tokenizer, write_lines, write_rows

from recipe.offline.checks import check_trajectories
from recipe.preflight import check_settings
from recipe.stage import state

ROLLOUT, CORRECTION = "actor_rollout_ref.rollout", "algorithm.rollout_correction"
PAIRS = [line(uid=str(number // 2), session=number % 2) for number in range(16)]


@pytest.fixture
def judged(configured, refusal, tmp_path):
    """The problems, the notes and the configuration of a stage that learns from these lines."""

    def judged(lines, *overrides, algorithm="step_grained"):
        path = write_lines(tmp_path / "1.jsonl", lines) if isinstance(lines, list) else lines
        small = ("data.train_batch_size=8", "actor_rollout_ref.actor.ppo_mini_batch_size=8", f"{ROLLOUT}.n=1")
        limits = ("data.max_prompt_length=64", "data.max_response_length=64", f"{ROLLOUT}.max_model_len=128")
        given = (f"offline.files={path}", f"paths.run={tmp_path}", "actor_rollout_ref.model.path=the model")
        config = configured(*small, *limits, *given, f"algorithm={algorithm}", *overrides)
        model, notes = SimpleNamespace(vocab_size=2048), list[str]()
        trained = check_trajectories(config, tokenizer(), model, notes)  # begins after the settings were filled in
        return refusal(lambda: check_settings(config), trained), "\n".join(notes), config

    return judged


def many(number=16, **other):
    return [line(uid=str(place), **other) for place in range(number)]


def test_every_trajectory_is_trained_on_with_the_rewards_that_were_stored(judged, tmp_path):
    wrong, notes, config = judged(many())
    assert not wrong and "16 of 16 trajectories" in notes and "the model in every step" in notes
    assert (config.data.stored.rows, config.data.stored.grouped) == (16, False)
    limits = {"prompt": 64, "response": 64, "context": 128, "reply": 96, "final_only": False}
    assert config.data.stored.limits == limits
    config = judged(many(), "offline.rewards=final", "interaction.max_tokens_per_reply=9")[2]
    assert config.data.stored.limits == limits | {"reply": 9, "final_only": True}
    rows = [(f"q{number}", [("Will it rain?", "Thought: look", 0.5)]) for number in range(8)]
    assert "8 of 8" in judged(write_rows(tmp_path / "trajectories.parquet", *rows))[1]
    save(config, 3)
    state.update(Path(config.paths.stage), began=state.Start("m", digest=config.data.stored.digest))
    assert judged(many())[0] == "" and "on other data (0 rows, now 17)" in judged(many(17))[0]


def test_what_cannot_be_trained_on_is_refused_or_counted(judged):
    wrong, _, _ = judged([line(uid="1"), *({"tokens": number} for number in range(30))])
    assert "30 mistakes in 31" in wrong and wrong.count("1.jsonl") == 10
    wrong, _, _ = judged([line(uid="1"), line((range(5, 200),), (1.0,), uid="2")])
    assert "1 trajectories" in wrong and "1 too long" in wrong
    wrong, _, _ = judged([*many(8), line(((5, 2047),), (1.0,), uid="x")])  # an id that the tokenizer has not
    assert "1.jsonl" in wrong


def test_groups_are_compared_where_there_are_some(judged):
    assert "n=1" in judged(PAIRS, algorithm="grpo")[0] and not judged(PAIRS)[0], "compared, and not"
    assert "than the 0 groups" in judged([line((range(5, 99),), (1.0,))], f"{ROLLOUT}.n=2", algorithm="grpo")[0]
    assert "largest group" in judged(many(), f"{ROLLOUT}.n=2", algorithm="grpo")[0]
    assert "largest group of offline.files has 2" in judged(PAIRS, f"{ROLLOUT}.n=4", algorithm="grpo")[0]
    wrong, notes, config = judged([*PAIRS, line(uid="alone")], f"{ROLLOUT}.n=2", algorithm="grpo")
    assert not wrong and "1 left out, alone in their group" in notes and config.data.stored.rows == 8
    assert "alone in their group" not in judged([*PAIRS, line(uid="alone")])[1], "nothing is compared"


def test_stored_log_probabilities_are_used_only_where_all_have_some(judged):
    token = f"{CORRECTION}.rollout_is=token"
    _, _, config = judged(many(), token)
    assert config.actor_rollout_ref.rollout.calculate_log_probs and config.data.stored.log_probs
    some = [line(uid=str(number), log_probs=number > 0) for number in range(8)]
    wrong, notes, config = judged(some, token)
    assert not wrong and "rollout_is=token is off" in notes and config.algorithm.rollout_correction.rollout_is is None
    assert not config.actor_rollout_ref.rollout.calculate_log_probs
    assert "bypass_mode=false" in judged(some, "offline.old_log_probs=step", f"{CORRECTION}.bypass_mode=true")[0]
