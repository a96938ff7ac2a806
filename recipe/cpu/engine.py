"""FSDP2 engines for `device="cpu"`; imported in training workers only, by `recipe.cpu.platform`.

One helper of verl's assumes CUDA: the reference worker asks for pinned memory. Two more are slow: `torch.exp` on CPUs
takes ten times as long where its result underflows, which is nearly everywhere for a policy that has learned something,
and log-probabilities and entropy go through `logsumexp`. `log_softmax` has no such cliff.

Three things are left out that change no number:

- What rows have in common at their beginning, a group's prompt above all, is computed once. Sorted rows make a tree:
  each is the beginning of the row before it and tokens of its own. These tokens stand in one row; attention alone
  knows what each of them may see. What is filled up is so to few sizes: with ever new ones malloc's lists grow until
  searching them takes a quarter of the time, and the heap grows by half.
- The vocabulary's logits are computed only where a token of the model follows: most tokens are the prompt's and the
  environment's, whose log-probabilities no loss looks at; they come out as 0.
- Rows whose advantages are all 0 are left out of an update where the policy's loss is the only one and the policy is
  still the one before the update: their loss, its gradients, their KL and what is clipped of them are 0. If all rows
  are such, the shortest is computed: the optimizer makes its step on momentum.
"""

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import verl.utils.torch_functional
import verl.workers.engine.fsdp.transformer_impl as fsdp
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from verl.trainer.distillation import distillation_ppo_loss
from verl.utils import tensordict_utils as tu
from verl.workers.engine.base import EngineRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import no_padding_2_padding

import recipe.gpu.vocabulary  # noqa: F401

WANT_ALL = ("use_fused_kernels", "calculate_sum_pi_squared")
"""What of a batch needs the logits of every token, or never sees logits."""
PROPORTIONAL = ("vanilla", "gspo", "cispo", "appo_step")
"""Policy losses that are, row by row, the advantage times something."""

AT_ONCE = 64
"""Tokens whose probabilities of all words are computed at once."""
LONGEST, TOGETHER = 128, 2048
"""Tokens of a piece of a tree; tokens that some pieces see, one after the other, which attend at once."""

_CPUOffloadPolicy = fsdp.CPUOffloadPolicy
fsdp.CPUOffloadPolicy = lambda **_: _CPUOffloadPolicy(pin_memory=False)


class _LogProbs(torch.autograd.Function):
    """Log-softmax in float32, of some tokens at a time: of all at once it would be most of the memory."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        sums = torch.cat([part.float().logsumexp(-1) for part in logits.split(AT_ONCE)])
        ctx.save_for_backward(logits, labels, sums)
        return logits.gather(-1, labels[:, None])[:, 0].float() - sums

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        logits, labels, sums = ctx.saved_tensors
        found = torch.empty_like(logits)
        columns = (logits, found, labels[:, None], sums[:, None], gradient[:, None])
        for part, target, label, total, of_label in zip(*(column.split(AT_ONCE) for column in columns), strict=True):
            spread = part.float().sub_(total).exp_().mul_(-of_label)
            target.copy_(spread.scatter_add_(-1, label, of_label))
        return found, None


def logprobs_from_logits(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of `labels` (...) under `logits` (..., vocabulary), in float32: bfloat16's are off by .01."""
    return _LogProbs.apply(logits.flatten(0, -2), labels.flatten()).view_as(labels)


def entropy_from_logits(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats (...) of the distributions given by `logits` (..., vocabulary)."""
    log_probs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    return -(torch.softmax(logits, dim=-1, dtype=torch.float32) * log_probs).sum(dim=-1)


verl.utils.torch_functional.logprobs_from_logits_v2 = logprobs_from_logits
verl.utils.torch_functional.entropy_from_logits = entropy_from_logits


@dataclass(frozen=True)
class Tree:
    """Rows of which each is a beginning of the row before it and tokens of its own, cut into pieces where rows part."""

    own: torch.Tensor
    """Places of the tokens in the padded rows, flat, (tokens)."""
    where: torch.Tensor
    """Which token of the tree stands at a place, (rows, length); any behind a row's end."""
    pieces: list[tuple[slice, torch.Tensor, torch.Tensor]]
    """Which pieces (p) of `LONGEST` tokens (n) attend at once, which tokens some of each see (p, m), and what is added
    to attention (p, 1, n, m). The last piece is filled up."""

    @classmethod
    def of(cls, rows: Sequence[torch.Tensor]) -> "Tree":
        """The tree of these rows, in their order."""
        shared, columns = _shared(rows), torch.arange(max(map(len, rows)))
        own = torch.stack([(columns >= size) & (columns < len(row)) for size, row in zip(shared, rows, strict=True)])
        where = (own.flatten().cumsum(0) - 1).view_as(own)
        ends = torch.empty(int(own.sum()), dtype=torch.long)  # what goes on from a token stands before its end
        for number, (size, row, end) in enumerate(zip(shared, rows, own.sum(1).cumsum(0), strict=True)):
            where[number, :size] = where[number - 1, :size]
            ends[where[number, : len(row)]] = end
        size = len(ends) + -len(ends) % LONGEST
        every = torch.arange(size)
        ends = torch.cat([ends, every[len(ends) :] + 1])  # what fills up sees itself alone
        starts = range(0, size, LONGEST)
        seen = [torch.cat([(ends[:at] > at).nonzero()[:, 0], every[at : at + LONGEST]]) for at in starts]
        pieces, first = [], 0
        while first < len(seen):
            last, most = first + 1, len(seen[first])
            while last < len(seen) and (last + 1 - first) * max(most, len(seen[last])) <= TOGETHER:
                last, most = last + 1, max(most, len(seen[last]))
            keys = torch.nn.utils.rnn.pad_sequence(seen[first:last], batch_first=True, padding_value=size)
            keys = torch.nn.functional.pad(keys, (0, -most % AT_ONCE), value=size)
            queries = every.view(-1, LONGEST, 1)[first:last]
            hidden = (keys[:, None] > queries) | (ends[keys % size][:, None] <= queries)
            mask = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]
            pieces.append((slice(first, last), keys % size, mask))
            first = last
        return cls(own.flatten().nonzero()[:, 0], where, pieces)


def _shared(rows: Sequence[torch.Tensor]) -> list[int]:
    """With how many tokens of the row before it each row begins; the first with none."""
    sizes = [0]
    for before, row in itertools.pairwise(rows):
        size = min(len(before), len(row))
        sizes.append(int((row[:size] == before[:size]).long().cumprod(0).sum()))
    return sizes


_sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class _Attention(torch.autograd.Function):
    """Attention of a tree: torch's own forwards, and backwards plain multiplications, which take a third of its time.

    Heads that share a key are one matrix. The gradient needs the weights again: `exp(scores - sums)`. What is taken
    from scores, and from the weights' gradients, is two more columns of the factors of their multiplication, a number
    and the rest of it. So differences are rounded, not what they are of, and less goes through memory.
    """

    @staticmethod
    def _laid(tensor: Any) -> Any:
        """(keys' heads, heads of each, tokens, size) by pieces, (pieces, keys' heads, heads of each x n, size)."""
        return tensor.unflatten(2, (-1, LONGEST)).permute(2, 0, 1, 3, 4).contiguous().flatten(2, 3)

    @staticmethod
    def _in_order(laid: Any) -> Any:
        """The way back."""
        return laid.unflatten(2, (-1, LONGEST)).permute(1, 2, 0, 3, 4).flatten(2, 3)

    @staticmethod
    def _seen(tensor: Any, seen: torch.Tensor) -> Any:
        """Of keys or values (keys' heads, tokens, size) what pieces see, (p, keys' heads, m, size)."""
        found = tensor.index_select(1, seen.flatten()).unflatten(1, seen.shape)
        return found.transpose(0, 1).contiguous()

    @staticmethod
    def _less(factor: Any, other: Any, taken: Any) -> Any:
        """`factor @ other.T - taken`, (p, heads, rows, columns); `taken` (p, heads, rows) is float32."""
        high = taken.to(factor.dtype)
        columns = torch.stack([high, (taken - high).to(factor.dtype)], -1).neg()
        ones = other.new_ones(1).expand(*other.shape[:-1], 2)
        return torch.cat([factor, columns], -1) @ torch.cat([other, ones], -1).transpose(-1, -2)

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, scale: float, tree: Tree) -> Any:
        """What the queries (keys' heads, heads of each, tokens, size) find in keys and values (keys' heads, ...)."""
        ctx.scale, ctx.tree, ctx.heads, query = scale, tree, query.shape[1], _Attention._laid(query)
        result, sums = torch.empty_like(query), torch.empty(query.shape[:-1])
        for these, seen, mask in tree.pieces:
            given = query[these], _Attention._seen(key, seen), _Attention._seen(value, seen)
            rows = mask.to(query.dtype).repeat(1, 1, ctx.heads, 1)
            result[these], sums[these] = _flash(*given, 0.0, False, attn_mask=rows, scale=scale)
        ctx.save_for_backward(query, key, value, result, sums)
        return _Attention._in_order(result)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Gradients of queries, keys and values."""
        query, key, value, result, sums = ctx.saved_tensors
        of_key, of_value = (torch.zeros_like(one, dtype=torch.float32) for one in (key, value))  # many small parts
        gradient, of_query = _Attention._laid(gradient), torch.empty_like(query)
        whole = (gradient * result).sum(-1, dtype=torch.float32)
        for these, seen, mask in ctx.tree.pieces:
            keys, values = _Attention._seen(key, seen), _Attention._seen(value, seen)
            queries, of_answer = query[these] * ctx.scale, gradient[these]
            rows = mask.to(query.dtype).repeat(1, 1, ctx.heads, 1)
            weights = _Attention._less(queries, keys, sums[these]).add_(rows).exp_()
            of_scores = _Attention._less(of_answer, values, whole[these]).mul_(weights)
            of_query[these] = (of_scores @ keys).mul_(ctx.scale)
            for whole_of, left, right in ((of_value, weights, of_answer), (of_key, of_scores, queries)):
                part = (left.transpose(-1, -2) @ right).float().transpose(0, 1).flatten(1, 2)
                whole_of.index_add_(1, seen.flatten(), part)
        return _Attention._in_order(of_query), of_key.to(key.dtype), of_value.to(key.dtype), None, None


def _attend(module: Any, query: Any, key: Any, value: Any, mask: Any, tree: Tree | None = None, **given: Any) -> Any:
    """transformers' attention, or that of a tree."""
    if tree is None:
        return _sdpa(module, query, key, value, mask, **given)
    grouped = query[0].unflatten(0, (key.shape[1], -1))
    found = _Attention.apply(grouped, key[0], value[0], given["scaling"], tree)
    return found.flatten(0, 1).transpose(0, 1).unsqueeze(0), None


ALL_ATTENTION_FUNCTIONS.register("sdpa", _attend)


def _takes_trees(module: Any) -> bool:
    """Whether the function of attention alone decides what a token sees, and that function is ours."""
    config = module.config
    return (
        config._attn_implementation == "sdpa"
        and module._supports_attention_backend
        and not module._is_stateful
        and not getattr(config, "attention_dropout", 0.0)
        and getattr(config, "sliding_window", None) is None
        and {*(getattr(config, "layer_types", None) or ())} <= {"full_attention"}
    )


def _policy_alone(loss: Any) -> bool:
    """Whether a policy's loss is 0 for a row whose advantages are 0."""
    config = loss.keywords["config"]
    other = config.use_kl_loss or config.entropy_coeff or loss.func is not ppo_loss
    return not other and config.policy_loss.get("loss_mode") in PROPORTIONAL


def _at_itself(loss: Any) -> Any:
    """The same with the policy's own probabilities as the old ones: the engine's differ by 3 % in bfloat16."""

    def of(data: Any, model_output: Any = None, **given: Any) -> Any:
        if "log_probs" in (model_output or ()):  # else it is asked for something of the logits, or has no need of them
            data = data.update({"old_log_probs": no_padding_2_padding(model_output["log_probs"].detach(), data)})
        return loss(model_output=model_output, data=data, **given)

    return of


_prepare_micro_batches = fsdp.prepare_micro_batches


def prepare_micro_batches(data: Any, dp_group: Any = None, **given: Any) -> tuple[list[Any], Any]:
    """verl's; with one worker of sorted rows, and `max_token_len_per_gpu` is then the tokens of a tree.

    Rows that are too many are halved, where they have little in common. A row with more tokens is a pass of its own.
    """
    if torch.distributed.get_world_size(dp_group) > 1 or not tu.get_non_tensor_data(data, "trees", False):
        if data["use_dynamic_bsz"]:
            longest = data["input_ids"].offsets().diff().max()  # of all workers: verl wants one limit, and refuses it
            torch.distributed.all_reduce(longest, torch.distributed.ReduceOp.MAX, dp_group)
            tu.assign_non_tensor(data, max_token_len_per_gpu=max(data["max_token_len_per_gpu"], longest.item()))
        return _prepare_micro_batches(data, dp_group=dp_group, **given)
    rows = data["input_ids"].unbind()
    left: Sequence[int] = range(len(rows))
    if tu.get_non_tensor_data(data, "policy_alone", False):  # rows with an advantage, or the shortest if none has
        pairs = zip(data["advantages"].unbind(), data["response_mask"].unbind(), strict=True)
        left = [number for number, (row, mask) in enumerate(pairs) if (row * mask).any()]
        left = left or [min(range(len(rows)), key=lambda number: len(rows[number]))]
    order = sorted(left, key=lambda number: rows[number].tolist())
    shared = _shared([rows[number] for number in order])

    def parts(first: int, end: int) -> list[list[int]]:
        size = sum(len(rows[number]) for number in order[first:end]) - sum(shared[first + 1 : end])
        if end - first == 1 or size <= data["max_token_len_per_gpu"]:
            return [order[first:end]]
        middle = min(range(first + 1, end), key=lambda place: shared[place] + abs(2 * place - first - end))
        return parts(first, middle) + parts(middle, end)

    if data["use_dynamic_bsz"]:
        found = parts(0, len(order))
    else:
        size = data["micro_batch_size_per_gpu"]
        found = [order[first : first + size] for first in range(0, len(order), size)]
    tu.assign_non_tensor(data, use_dynamic_bsz=True)  # verl then puts the answers back into the rows' order
    return [tu.index_select_tensor_dict(data, part) for part in found], found


fsdp.prepare_micro_batches = prepare_micro_batches


class _Trees:
    """An engine that lays the rows of a micro-batch out as a tree, where its model takes one."""

    def save_checkpoint(self, *args: Any, **given: Any) -> None:
        """verl's; its copies and the validation that follows need the room that allocators keep for the next update."""
        ctypes.CDLL(None).malloc_trim(0)
        super().save_checkpoint(*args, **given)  # type: ignore[misc]
        ctypes.CDLL(None).malloc_trim(0)

    def forward_backward_batch(self, data: Any, loss_function: Any, forward_only: bool = False) -> Any:
        """verl's; notes what may be left out."""
        whole = any(tu.get_non_tensor_data(data, name, False) for name in WANT_ALL)
        trees = not whole and _takes_trees(self.module)  # type: ignore[attr-defined]
        of_policy = isinstance(loss_function, partial) and loss_function.func in (ppo_loss, distillation_ppo_loss)
        on_policy = of_policy and not forward_only and tu.get_non_tensor_data(data, "on_policy", False)
        alone = on_policy and not tu.get_non_tensor_data(data, "calculate_entropy", False)
        tu.assign_non_tensor(data, trees=trees, policy_alone=alone and _policy_alone(loss_function))
        if on_policy:
            loss_function = _at_itself(loss_function)
        return super().forward_backward_batch(data, loss_function, forward_only)  # type: ignore[misc]

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """verl's, or the tokens of a tree in one row, each numbered as in its own."""
        inputs, args = super().prepare_model_inputs(micro_batch)  # type: ignore[misc]
        if tu.get_non_tensor_data(micro_batch, "trees", False) and inputs["position_ids"].dim() == 2:
            args["tree"] = tree = Tree.of(micro_batch["input_ids"].unbind())
            for name in ("input_ids", "position_ids"):
                own = inputs[name].flatten()[tree.own]
                inputs[name] = torch.nn.functional.pad(own, (0, -len(own) % LONGEST)).unsqueeze(0)
            inputs["attention_mask"] = tree.where[None, None]  # of four dimensions: transformers makes none itself
            inputs["tree"] = tree
        return inputs, args


@EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPULanguageModelEngine(_Trees, fsdp.FSDPEngineWithLMHead):
    """Policy and reference model."""

    _wanted: torch.Tensor | None = None
    """Which tokens of the tree get logits in the forward pass to come; None: all."""

    def initialize(self) -> None:
        """verl's; the head of the model then sees only the wanted tokens."""
        super().initialize()

        def select(_: Any, given: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
            return None if self._wanted is None else (given[0][0, self._wanted],)

        self.module.get_output_embeddings().register_forward_pre_hook(select)

    def prepare_model_inputs(self, micro_batch: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """As above, and what logits are wanted for."""
        inputs, args = super().prepare_model_inputs(micro_batch)
        self._wanted = None
        if tree := args.get("tree"):
            lengths = micro_batch["input_ids"].offsets().diff()
            masks = zip(micro_batch["loss_mask"].unbind(), lengths.tolist(), strict=True)  # of rows, or of their ends
            padded = [torch.nn.functional.pad(mask, (length - len(mask), 0)) for mask, length in masks]
            args["learned"] = torch.cat(padded).bool().roll(-1)  # whether the token after each is learned
            there = torch.arange(tree.where.shape[1]) < lengths[:, None]
            self._wanted = tree.where[there][args["learned"]]
            self._wanted = torch.nn.functional.pad(self._wanted, (0, -len(self._wanted) % AT_ONCE))
        return inputs, args

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Log-probabilities and, where asked for, entropies as jagged rows; 0 where the next token is not learned."""
        self._wanted = None
        if (learned := output_args.get("learned")) is None:
            return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
        offsets = micro_batch["input_ids"].offsets()
        logits = output.logits[: int(learned.sum())]
        if not output_args["temperature_is_one"]:
            logits = logits / output_args["temperature"].repeat_interleave(offsets.diff())[learned].unsqueeze(-1)
        found = {"log_probs": logprobs_from_logits(logits, output_args["input_ids_rmpad_rolled"][learned])}
        if tu.get_non_tensor_data(micro_batch, "distillation_use_topk", False):  # of the teacher what is beside them
            whole = {name: micro_batch[name].values()[learned] for name in ("teacher_logprobs", "teacher_ids")}
            beside = {name: torch.nested.as_nested_tensor([rows], layout=torch.jagged) for name, rows in whole.items()}
            of_teacher = logits_processor_func(student_logits=logits.float()[None], data=beside)
            found |= {name: row[0].float() for name, row in of_teacher.items()}
        if tu.get_non_tensor_data(micro_batch, "calculate_entropy", False):
            found["entropy"] = entropy_from_logits(logits)
        empty = torch.zeros(len(learned))
        return {
            name: torch.nested.nested_tensor_from_jagged(empty.masked_scatter(learned, values), offsets)
            for name, values in found.items()
        }


@EngineRegistry.register(model_type="value_model", backend=["fsdp", "fsdp2"], device="cpu")
class CPUValueModelEngine(_Trees, fsdp.FSDPEngineWithValueHead):
    """Critic."""

    def prepare_model_outputs(
        self, output: Any, output_args: dict[str, Any], micro_batch: Any, logits_processor_func: Any
    ) -> dict[str, torch.Tensor]:
        """Values as jagged rows."""
        if tree := output_args.get("tree"):
            output.logits = output.logits[0][tree.where]
        return super().prepare_model_outputs(output, output_args, micro_batch, logits_processor_func)
