"""Do the algorithms learn? Two turns whose best play is known, and a policy and a critic of a few hundred weights.

    python -m benchmarks.toy_credit --out docs/credit_toy.png

An episode has two steps of `LENGTH` tokens out of four. In each, only the first token decides, as the name of a
function does; the rest is filler. In the first step one token opens the way and pays nothing; a draw that has
nothing to do with it is added. In the second step one token pays 1 if the way is open. The best play earns 1,
chance 1/16. So an algorithm must pass the reward of the second step back to the first one, past the tokens
between, and keep the first one's draw out of the second.

Estimators and losses are those of a training run, taken by name from verl's registries, with the settings of
`recipe/config/algorithm/`. Only learning rates, group size and clip range are the toy's own. `naive` is tppo with
the discount of steps at every token, which is verl's GAE.
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn
from verl.trainer.ppo.core_algos import compute_value_loss, get_adv_estimator_fn, get_policy_loss_fn
from verl.workers.config import FSDPActorConfig

from recipe.credit.policy_loss import StepPolicyLossConfig
from recipe.credit.registry import given

CHOICES, LENGTH = 4, 24
OBSERVATION = 6
"""Tokens of the environment between the steps."""
LUCK = 0.6
"""Standard deviation of the draw in the first step."""
OPENS, PAYS = 1, 2
"""The right tokens of the first and of the second step."""
BATCH, GROUP, EPOCHS = 64, 8, 2
ALGORITHMS = ("grpo", "turn_grpo", "step_grained", "appo", "tppo", "naive")
CONFIG = Path(__file__).parents[1] / "recipe" / "config"


def settings(name: str) -> Any:
    """The settings of an algorithm as a stage has them, of which the toy reads `algorithm` and the policy loss."""
    of_verl = OmegaConf.create({"algorithm": {"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True}})
    base: Any = OmegaConf.load(CONFIG / "base.yaml")
    chosen = OmegaConf.load(CONFIG / "algorithm" / f"{'tppo' if name == 'naive' else name}.yaml")
    config: Any = OmegaConf.merge(of_verl, OmegaConf.masked_copy(base, ["algorithm", "critic"]), chosen)
    if name == "naive":
        credit = config.algorithm.credit
        credit.gamma_token, credit.lam_token = config.algorithm.gamma, config.algorithm.lam
    return config


class Episodes:
    """A batch of episodes played at once: what the policy says does not depend on what it said before."""

    def __init__(self, policy: nn.Module, generator: torch.Generator):
        self.old_log_probs = policy_log_probs(policy).detach()
        shares = self.old_log_probs.exp().view(-1, CHOICES)
        said = torch.multinomial(shares, BATCH, replacement=True, generator=generator)
        self.tokens = said.T.reshape(BATCH, 2, LENGTH)
        first, second = self.tokens[:, 0, 0], self.tokens[:, 1, 0]
        luck = LUCK * torch.randn(BATCH, generator=generator)
        paid = torch.stack([luck, ((first == OPENS) & (second == PAYS)).float()], dim=1)
        self.rewards = in_response(torch.cat([torch.zeros(BATCH, 2, LENGTH - 1), paid[..., None]], dim=2))
        self.ids = in_response(torch.arange(2)[None, :, None].expand(BATCH, 2, LENGTH), gap=-1)
        self.mask = (self.ids >= 0).long()

    def picked(self, log_probs: Tensor) -> Tensor:
        """Log-probabilities of the tokens that were said, (B, T)."""
        return in_response(log_probs.expand(BATCH, -1, -1, -1).gather(-1, self.tokens[..., None]).squeeze(-1))


def in_response(steps: Tensor, gap: int = 0) -> Tensor:
    """(B, 2, LENGTH) to (B, T): the two steps with the environment's tokens between."""
    between = steps.new_full((len(steps), OBSERVATION), gap)
    return torch.cat([steps[:, 0], between, steps[:, 1]], dim=1)


def network(inputs: int, outputs: int) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs))
    for parameter in net[2].parameters():
        nn.init.zeros_(parameter)  # all tokens alike, all values 0
    return net


PLACES = torch.cat(
    [
        torch.eye(2)[:, None].expand(2, LENGTH, 2),
        (torch.arange(LENGTH) == 0).float()[None, :, None].expand(2, LENGTH, 1),
    ],
    dim=-1,
)
"""What the networks see of a place: which step, and whether its token decides. (2, LENGTH, 3)"""


def policy_log_probs(policy: nn.Module) -> Tensor:
    """(2, LENGTH, CHOICES)"""
    return policy(PLACES).log_softmax(-1)


def values_of(critic: nn.Module, episodes: Episodes) -> Tensor:
    """Values before each token, (B, T). Like a real critic's, they see what has been said so far."""
    choice = nn.functional.one_hot(episodes.tokens[:, :, 0], CHOICES).float()
    said = torch.zeros(BATCH, 2, LENGTH, 2 * CHOICES)
    said[:, 0, 1:, :CHOICES] = choice[:, 0, None]
    said[:, 1, :, :CHOICES] = choice[:, 0, None]
    said[:, 1, 1:, CHOICES:] = choice[:, 1, None]
    return in_response(critic(torch.cat([PLACES.expand(BATCH, -1, -1, -1), said], dim=-1)).squeeze(-1))


def expected_return(policy: nn.Module) -> float:
    """Exactly."""
    with torch.no_grad():
        first, second = policy_log_probs(policy)[:, 0].exp()
    return (first[OPENS] * second[PAYS]).item()


def train(name: str, seed: int, updates: int) -> list[float]:
    """Expected return before each update and after the last one."""
    config = settings(name)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    policy, critic = network(3, CHOICES), network(3 + 2 * CHOICES, 1)
    policy_optimizer = torch.optim.Adam(policy.parameters(), lr=7e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1.4e-2)
    loss = OmegaConf.select(config, "actor_rollout_ref.actor.policy_loss") or {"loss_mode": "vanilla"}
    actor = FSDPActorConfig(
        strategy="fsdp2",
        rollout_n=GROUP,
        ppo_micro_batch_size_per_gpu=BATCH,
        policy_loss=StepPolicyLossConfig(**loss),
    )
    curve = []
    for _ in range(updates):
        curve.append(expected_return(policy))
        episodes = Episodes(policy, generator)
        with torch.no_grad():
            old_values = values_of(critic, episodes)
        columns = {"step_ids": episodes.ids, "turn_ids": episodes.ids}
        with given(columns | ({"values": old_values} if config.critic.enable else {}), config.algorithm):
            advantages, returns = get_adv_estimator_fn(config.algorithm.adv_estimator)(
                token_level_rewards=episodes.rewards,
                response_mask=episodes.mask,
                index=[row // GROUP for row in range(BATCH)],
                config=config.algorithm,
            )
        old = episodes.picked(episodes.old_log_probs)
        for _ in range(EPOCHS):
            new = episodes.picked(policy_log_probs(policy))
            loss_of = get_policy_loss_fn(actor.policy_loss.loss_mode)
            policy_loss, _ = loss_of(old, new, advantages, episodes.mask.bool(), "token-mean", actor)
            _step(policy_optimizer, policy_loss)
            if config.critic.enable:
                now = values_of(critic, episodes)
                value_loss, _ = compute_value_loss(now, returns, old_values, episodes.mask, cliprange_value=0.5)
                _step(critic_optimizer, value_loss)
    return [*curve, expected_return(policy)]


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def curves(seeds: Iterable[int], updates: int) -> dict[str, Tensor]:
    """For each algorithm the expected return, (seeds, updates + 1)."""
    chosen = tuple(seeds)
    return {name: torch.tensor([train(name, seed, updates) for seed in chosen]) for name in ALGORITHMS}


def draw(results: dict[str, Tensor], out: Path) -> None:
    """Mean over seeds, with the range from the worst to the best seed, as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    for name, lines in results.items():
        style = "--" if name == "naive" else "-"
        drawn = axes.plot(lines.mean(0), style, label=name)
        worst, best = lines.min(0).values, lines.max(0).values
        axes.fill_between(range(len(worst)), worst, best, color=drawn[0].get_color(), alpha=0.1)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xlabel="updates", ylabel="expected return", ylim=(0, 1.05))
    axes.legend(loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="picture to write; none if left out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=120)
    options = parser.parse_args()
    torch.set_num_threads(1)  # tensors this small only wait for a second one
    began = time.perf_counter()
    results = curves(range(options.seeds), options.updates)
    print(f"{'algorithm':14}{'end: mean':>10}{'worst':>8}{'half the way after':>22}")
    for name, lines in results.items():
        reached = (lines.mean(0) >= 0.5).nonzero()
        after = f"{int(reached[0])} updates" if len(reached) else "never"
        print(f"{name:14}{lines[:, -1].mean():10.3f}{lines[:, -1].min():8.3f}{after:>22}")
    print(f"{options.seeds} seeds, {options.updates} updates, {time.perf_counter() - began:.0f} s")
    if options.out:
        draw(results, options.out)
        print(f"curves: {options.out}")


if __name__ == "__main__":
    main()
