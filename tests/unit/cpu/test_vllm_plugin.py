"""Tokens are drawn with the probabilities that are given, and weights that are to come are not drawn at all."""

import pytest
import torch

from recipe.cpu.vllm_plugin import draw, no_weights


@pytest.mark.parametrize("words", [5, 128, 300])
def test_words_come_as_often_as_they_should_and_one_without_probability_never_does(words: int) -> None:
    torch.manual_seed(0)
    logits = torch.randn(words) * 2
    logits[[0, words // 2, words - 1]] = -torch.inf
    probabilities, draws = logits.softmax(-1), 200_000
    found = draw(probabilities.expand(draws, -1), {}).bincount(minlength=words) / draws
    assert not found[probabilities == 0].any()
    assert ((found - probabilities).abs() < 5 * (probabilities / draws).sqrt() + 1e-9).all()


def test_the_ends_of_what_is_random_draw_the_first_and_the_last_word_that_have_a_probability(monkeypatch) -> None:
    probabilities = torch.tensor([[0.0, 0.25, 0.5, 0.25 + 1e-6, 0.0]])
    for number, word in ((0.0, 1), (1 - 2**-24, 3), (0.5, 2)):
        monkeypatch.setattr(torch, "rand", lambda *size, number=number, **_: torch.full(size, number))
        assert draw(probabilities, {}).tolist() == [word]


def test_a_row_with_a_generator_of_its_own_is_drawn_by_that(monkeypatch) -> None:
    probabilities = torch.full((3, 1000), 0.001)
    drawn = [draw(probabilities, {1: torch.Generator().manual_seed(7)}) for _ in range(2)]
    assert drawn[0][1] == drawn[1][1] and not torch.equal(*drawn)


def test_weights_that_the_trainer_will_send_are_zeros_set_once_for_each_module() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Sequential(torch.nn.Linear(2, 1)))
    inner = module[1][0].weight.clone()
    for one in (module, module[1], module[0]):
        no_weights(one, None)
    assert not module[0].weight.any() and torch.equal(module[1][0].weight, inner)
