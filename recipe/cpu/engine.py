"""FSDP2 engines for `device="cpu"`; imported in training workers only, by `recipe.cpu.platform`.

The engines themselves need no change. One of their helpers assumes CUDA: the reference worker asks for pinned memory.
(The loader of value models asks for flash attention: `recipe.credit.critic_model`.) Two more are slow: `torch.exp`
on CPUs takes ten times as long where its result underflows, which is nearly everywhere for a policy that has learned
something, and both log-probabilities and entropy go through `logsumexp`. `log_softmax` has no such cliff.

Two things are left out that change no number, where rows are padded and nothing asks for more. Attention needs no mask:
rows are padded on the right, behind everything that a token may look at, and without a mask the half of the scores
above the diagonal is not computed. And the vocabulary's logits are computed only where a token of the model follows:
most tokens are the prompt's and the environment's, whose log-probabilities no loss looks at; they come out as 0.
"""

from typing import Any

import torch
import verl.utils.torch_functional
import verl.workers.engine.fsdp.transformer_impl as fsdp
from verl.utils import tensordict_utils as tu
from verl.workers.engine.base import EngineRegistry

import recipe.vocabulary  # noqa: F401

WANT_ALL = ("use_fused_kernels", "calculate_sum_pi_squared", "distillation_use_topk", "distillation_only")
"""What of a batch needs the logits of every token, or never sees logits."""

_CPUOffloadPolicy = fsdp.CPUOffloadPolicy
fsdp.CPUOffloadPolicy = lambda pin_memory=False: _CPUOffloadPolicy(pin_memory=False)


def logprobs_from_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of `labels` (...) under `logits` (..., vocabulary)."""
    return torch.log_softmax(logits, dim=-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def entropy_from_logits(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats (...) of the distributions given by `logits` (..., vocabulary)."""
    log_probs = torch.log_softmax(logits, dim=-1)
    return -(torch.softmax(logits, dim=-1) * log_probs).sum(dim=-1)


verl.utils.torch_functional.logprobs_from_logits_v2 = logprobs_from_logits
verl.utils.torch_functional.entropy_from_logits = entropy_from_logits


def _learned(mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Whether the token after each of `ids` is learned, (tokens of all rows).

    Args:
        mask: 1 on learned tokens; jagged, of whole rows, or of their ends: the responses.
        ids: jagged rows.
    """
    lengths = ids.offsets().diff().tolist()
    parts = [torch.nn.functional.pad(row, (n - len(row), 0)) for row, n in zip(mask.unbind(), lengths, strict=True)]
    return torch.cat(parts).bool().roll(-1)


class _Causal:
    """An engine whose padded rows get no attention mask."""

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's inputs; padding is numbered on from its row, or it would be taken for further rows."""
        inputs, args = super().prepare_model_inputs(micro_batch)  # type: ignore[misc]
        if (mask := inputs["attention_mask"]) is not None and mask.dim() == 2 and inputs["position_ids"].dim() == 2:
            columns = torch.arange(mask.shape[1]).expand(mask.shape)
            inputs["position_ids"] = torch.where(mask.bool(), inputs["position_ids"], columns)
            inputs["attention_mask"] = None
            args["rows"] = mask.bool()
        return inputs, args


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPULanguageModelEngine(_Causal, fsdp.FSDPEngineWithLMHead):
    """Policy and reference model."""

    _wanted: torch.Tensor | None = None
    """Which places of the padded rows, (rows, tokens), get logits in the forward pass to come; None: all."""

    def initialize(self) -> None:
        """verl's; the head of the model then sees only what it is wanted for."""
        super().initialize()

        def select(_: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
            return None if self._wanted is None else (given[0][self._wanted], *given[1:])

        self.module.get_output_embeddings().register_forward_pre_hook(select)

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As above, and what logits are wanted for."""
        inputs, args = super().prepare_model_inputs(micro_batch)
        self._wanted, rows = None, args.get("rows")
        if rows is not None and not any(tu.get_non_tensor_data(micro_batch, name, False) for name in WANT_ALL):
            args["learned"] = _learned(micro_batch["loss_mask"], micro_batch["input_ids"])
            self._wanted = torch.zeros_like(rows).masked_scatter(rows, args["learned"])
        return inputs, args

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Log-probabilities and, where asked for, entropies as jagged rows; 0 where the next token is not learned."""
        self._wanted = None
        if (learned := output_args.get("learned")) is None:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        offsets = micro_batch["input_ids"].offsets()
        temperature = output_args["temperature"].repeat_interleave(offsets.diff())[learned]
        logits = output.logits / temperature.unsqueeze(-1)
        found = {"log_probs": logprobs_from_logits(logits, output_args["input_ids_rmpad_rolled"][learned])}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", False):
            found["entropy"] = entropy_from_logits(logits)
        empty = logits.new_zeros(len(learned))
        return {
            name: torch.nested.nested_tensor_from_jagged(empty.masked_scatter(learned, values), offsets)
            for name, values in found.items()
        }


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUValueModelEngine(_Causal, fsdp.FSDPEngineWithValueHead):
    """Critic."""
