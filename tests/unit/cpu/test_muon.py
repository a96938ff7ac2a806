"""The optimizer and the tokenizer with which a tiny policy learns to copy names."""

import copy

import torch

from recipe.cpu.muon import MuonAdamW
from recipe.cpu.tiny_policy import make_tokenizer

SHAPES = ((50, 16), (16, 32), (32, 16), (16,))
"""An embedding, two matrices and a norm."""


def test_it_makes_the_steps_of_both_optimizers_before_and_after_a_resume() -> None:
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in SHAPES]
    theirs = copy.deepcopy(ours)
    found = MuonAdamW(ours, lr=0.02, weight_decay=0.1)
    muon = torch.optim.Muon(theirs[1:3], lr=0.02, weight_decay=0.1)
    adamw = torch.optim.AdamW([theirs[0], theirs[3]], lr=4e-3, betas=(0.9, 0.98), weight_decay=0.1)
    for step in range(4):
        if step == 2:
            state = copy.deepcopy(found.state_dict())
            found = MuonAdamW(ours, lr=0.02, weight_decay=0.1)
            found.load_state_dict(state)
        for one, other in zip(ours, theirs, strict=True):
            one.grad = other.grad = torch.randn(one.shape)
        for optimizer in (found, muon, adamw):
            for group in optimizer.param_groups:
                group["lr"] *= 0.9  # as a schedule does
            optimizer.step()
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_a_name_has_the_same_tokens_wherever_it_stands() -> None:
    texts = ["rename amber_review12.txt", 'rename "amber_review12.txt"', "mv(source='amber_review12.txt')"]
    tokenizer = make_tokenizer(texts * 9, names=True)
    name = tokenizer.encode("amber_review12.txt", add_special_tokens=False)
    for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]:
        assert tokenizer.decode(ids) in texts
        assert any(ids[at : at + len(name)] == name for at in range(len(ids))), ids
