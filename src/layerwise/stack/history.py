"""Keep the states of earlier layers: the embedding, and the output of every layer visited so far.

In models with learned layer weights, the input of each layer is a weighted sum of these states. Source 0 is the
embedding, and source n + 1 the latest output of layer n. A skipped layer has no source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Missing = Literal["renormalize", "keep", "inherit"]
MISSING: tuple[Missing, ...] = get_args(Missing)


@dataclass(frozen=True, slots=True, eq=False)
class DepthHistory:
    """The states of `sources`, in ascending order of the source.

    >>> record = DepthHistory.of(torch.zeros(2)).then(0, torch.ones(2)).then(1, torch.full((2,), 4.0))
    >>> record.sources
    (0, 1, 2)
    >>> record.read(torch.tensor([0.5, 0.25, 0.25]))
    tensor([1.2500, 1.2500])
    >>> DepthHistory.of(torch.zeros(2)).then(1, torch.full((2,), 4.0)).read(torch.tensor([0.5, 0.25, 0.25]))
    tensor([1.3333, 1.3333])
    """

    sources: tuple[int, ...]
    states: tuple[Tensor, ...]

    @classmethod
    def of(cls, embedding: Tensor) -> DepthHistory:
        return cls((0,), (shared(embedding),))

    def then(self, layer: int, state: Tensor) -> DepthHistory:
        """Return the history after `layer` has computed `state`, which replaces an earlier output of the layer."""
        source = layer + 1
        before = sum(each < source for each in self.sources)
        after = before + (source in self.sources)
        return DepthHistory(
            (*self.sources[:before], source, *self.sources[after:]),
            (*self.states[:before], shared(state), *self.states[after:]),
        )

    def select(self, sources: Collection[int]) -> DepthHistory:
        kept = [pair for pair in zip(self.sources, self.states, strict=True) if pair[0] in sources]
        return DepthHistory(tuple(source for source, _ in kept), tuple(state for _, state in kept))

    def read(self, weights: Tensor, missing: Missing = "renormalize") -> Tensor:
        """Return the input of layer n, a weighted sum of the embedding and of the outputs of layers 0 to n - 1.

        If sources are missing, "renormalize" rescales the remaining weights to the sum of all weights, "keep" does not
        change them, and "inherit" adds the weight of each missing source to the previous source that is present.
        """
        count = sum(source < len(weights) for source in self.sources)
        states = self.states[:count]
        if count == len(weights):
            return weighted_sum(weights, states)
        if missing == "inherit":
            return weighted_sum(self._inherited(weights, count), states)
        present = torch.stack([weights[source] for source in self.sources[:count]])
        if missing == "renormalize":
            present = present * (weights.sum() / present.sum())
        return weighted_sum(present, states)

    def _inherited(self, weights: Tensor, count: int) -> Tensor:
        ends = (*self.sources[1:count], len(weights))
        return torch.stack([weights[first:end].sum() for first, end in zip(self.sources[:count], ends, strict=True)])


# Entries of a state per block on a CPU: 256 KB in float32, to fit into a core's cache.
BLOCK = 1 << 16


def weighted_sum(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    """Compute sum_k weights[k] * states[k] for `weights` of shape `(n,)` and n states of one shape.

    Each state is read from memory once. Second derivatives are not supported.

    >>> weighted_sum(torch.tensor([0.25, 0.75]), [torch.zeros(2), torch.ones(2)])
    tensor([0.7500, 0.7500])
    """
    if torch.compiler.is_compiling():
        return reduce(add, (weight * state for weight, state in zip(weights.unbind(), states, strict=True)))
    wide = reduce(torch.promote_types, (state.dtype for state in states))
    apply: Any = _Mix.apply
    mixed: Tensor = apply(weights, *(state.to(wide) for state in states))
    return mixed


def shared(state: Tensor) -> Tensor:
    """Return an alias of `state` for layers to read. Their gradients are summed in one step.

    The gradient of the alias itself is not available.
    """
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and state.requires_grad):
        return state
    apply: Any = _Shared.apply
    alias: Tensor = apply(state)
    return alias


class _Shared(torch.autograd.Function):
    """Identity whose gradient adds the `shares` (backward pass, weight, gradient) of the layers that read it."""

    @staticmethod
    def forward(ctx: Any, state: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.shares = []
        return state.view_as(state)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Tensor | None:
        # Shares of passes that needed only the gradients of weights are stale.
        now = _task()
        shares = [(weight, gradient) for task, weight, gradient in ctx.shares if task == now]
        ctx.shares.clear()
        (direct,) = gradients
        if not shares:
            return direct
        weights, parts = zip(*shares, strict=True)
        total = _weighted_sum(torch.stack(weights), parts)
        return total if direct is None else total.add_(direct)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, *states: Tensor) -> Tensor:
        ctx.save_for_backward(weights, *states)
        # The grad_fn of a shared state is the context of its `_Shared`.
        ctx.shares = [getattr(state.grad_fn, "shares", None) for state in states]
        return _weighted_sum(weights, states)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        weights, *states = ctx.saved_tensors
        (gradient,) = gradients
        weights_needed, *states_needed = ctx.needs_input_grad
        computed: list[Tensor | None] = [_products(gradient, states).to(weights.dtype) if weights_needed else None]
        for weight, shares, needed in zip(weights.unbind(), ctx.shares, states_needed, strict=True):
            if needed and shares is not None:
                shares.append((_task(), weight, gradient))
            computed.append(gradient * weight if needed and shares is None else None)
        return tuple(computed)


def _task() -> int:
    return torch._C._current_graph_task_id()


def _weighted_sum(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    total = torch.empty_like(states[0], memory_format=torch.contiguous_format)
    first, *others = weights.unbind()
    for sublayer, start, *parts in _blocks(total, *states):
        torch.mul(start, first, out=sublayer)
        for state, weight in zip(parts, others, strict=True):
            sublayer.addcmul_(state, weight)
    return total


def _products(gradient: Tensor, states: Sequence[Tensor]) -> Tensor:
    products = [
        torch.stack([torch.dot(sublayer, state) for state in parts]) for sublayer, *parts in _blocks(gradient, *states)
    ]
    return torch.stack(products).sum(0, dtype=torch.promote_types(gradient.dtype, torch.float32))


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    size = BLOCK if tensors[0].device.type == "cpu" else max(1, tensors[0].numel())
    return zip(*(torch.split(tensor.reshape(-1), size) for tensor in tensors), strict=True)
