"""What has been left behind on the way through a stack: the embedding, and what every layer visited so far returned.

A model with learned layer weights feeds each layer a weighted sum of such states. Source 0 is the embedding, source n +
1 the output of layer n; layer n (reader n) has a weight for each of the sources 0..n. A layer that was skipped leaves
no source, one that comes too late is not read, and of one that ran twice its latest output is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from layerwise.stack.history.weighted_sum import shared, weighted_sum

Missing = Literal["renormalise", "keep", "inherit"]
MISSING: tuple[Missing, ...] = get_args(Missing)


@dataclass(frozen=True, slots=True, eq=False)
class DepthHistory:
    """The states of `sources`, which ascend; `then` gives the record with one more and leaves this one as it is.

    In training the states are not the tensors that came in but stand for them
    (`layerwise.stack.history.weighted_sum.shared`).

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
        """The record after a visit of `layer` that returned `state`; of several visits the latest is kept."""
        source = layer + 1
        before = sum(known < source for known in self.sources)
        after = before + (source in self.sources)
        return DepthHistory(
            (*self.sources[:before], source, *self.sources[after:]),
            (*self.states[:before], shared(state), *self.states[after:]),
        )

    def select(self, sources: Collection[int]) -> DepthHistory:
        kept = [pair for pair in zip(self.sources, self.states, strict=True) if pair[0] in sources]
        return DepthHistory(tuple(source for source, _ in kept), tuple(state for _, state in kept))

    def read(self, weights: Tensor, missing: Missing = "renormalise") -> Tensor:
        """What reader n reads, for its n + 1 `weights`: the weighted sum over the sources 0..n that are present.

        Where some are missing, "renormalise" scales the weights of those present so that they sum to what all of them
        summed to (weights of a softmax: to one), "keep" leaves them as they are, and "inherit" gives the weight of each
        missing source to the newest present one before it, which is what a residual stream carries past a layer that is
        skipped. Weights of any sign may sum to nothing, so they are not renormalised but inherited.
        """
        count = sum(source < len(weights) for source in self.sources)
        states = self.states[:count]
        if count == len(weights):
            return weighted_sum(weights, states)
        if missing == "inherit":
            return weighted_sum(self._inherited(weights, count), states)
        present = torch.stack([weights[source] for source in self.sources[:count]])
        if missing == "renormalise":
            present = present * (weights.sum() / present.sum())
        return weighted_sum(present, states)

    def _inherited(self, weights: Tensor, count: int) -> Tensor:
        ends = (*self.sources[1:count], len(weights))
        return torch.stack([weights[first:end].sum() for first, end in zip(self.sources[:count], ends, strict=True)])
