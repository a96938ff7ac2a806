"""The optimizer of tiny policies, against PyTorch's own."""

import copy

import torch

from recipe.cpu.muon import MuonAdamW


def test_it_makes_the_steps_of_both_optimizers_before_and_after_a_resume() -> None:
    torch.manual_seed(0)
    shapes = ((50, 16), (16, 32), (32, 16), (16,))  # an embedding, two matrices and a norm
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
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
