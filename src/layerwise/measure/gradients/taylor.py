"""Taylor importance: how much the loss would change, to first order, if a layer's weights were set to zero one by one.

    taylor[l] = sum over the weights w of layer l of |w dL/dw|        L in nats per scored token

(Molchanov et al. 2017, arXiv 1611.06440; for whole blocks Kim et al. 2024, "Shortened LLaMA", arXiv 2402.02834,
section 3.1.) The gradient is that of the whole text, so it is summed over all documents before its size is taken: a sum
of sizes has no parts that belong to single documents. What other documents would have given is estimated by leaving
some of these out: the text is read in groups of documents, and the value is taken again without each group in turn (the
delete-a-group jackknife; Kott 2001, Journal of Official Statistics 17:4),

    se^2 = (G - 1) / G * sum over groups g of (taylor without g - their mean)^2

with Student's interval at G - 1 degrees of freedom. Keeping every group's gradient would take G times the memory of the
model, so the relative error is that of a sample of each layer's weights, drawn tensor by tensor in proportion to their
sizes. It compares layers of one model: its scale means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from layerwise.measure.stats.estimate import Numbers, student
from layerwise.measure.stats.float64 import exact_on_cpu, widest
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.results.rows import Score
from layerwise.results.vocabulary import PROXIES
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

GROUPS = FEWEST_UNITS
"""Groups of documents, each left out once."""

SAMPLED = 4096
"""Weights of a layer from which the error is estimated."""


class Taylor:
    """The gradient of the whole text's loss by the weights of every layer, fed batch by batch, group by group."""

    def __init__(self, stack: Stack) -> None:
        self._weights = [_differentiable(layer_weights(stack, layer)) for layer in range(stack.depth)]
        self._gradients: list[dict[str, Tensor]] = [{} for _ in self._weights]
        self._samples = [_Sample(weights, layer) for layer, weights in enumerate(self._weights)]
        self._tokens: dict[int, int] = {}

    def add(self, group: int, layer: int, name: str, gradient: Tensor) -> None:
        """Count the gradient of a batch's summed nats by one weight; the batch is from a `group` of the documents.

        The first gradient of a weight is kept and added to: it is no longer the caller's. A weight that none was given
        of has the gradient zero.
        """
        self._samples[layer].add(group, name, gradient)
        totals = self._gradients[layer]
        if name in totals:
            totals[name].add_(gradient)
        else:
            totals[name] = _wide(gradient)

    def count(self, group: int, tokens: int) -> None:
        """Note that a batch of `tokens` scored tokens of a `group` has been read."""
        self._tokens[group] = self._tokens.get(group, 0) + tokens

    def scores(self, documents: int) -> list[Score]:
        """One row a layer, with its interval where there are enough groups; `documents` is how many were read."""
        tokens = sum(self._tokens.values())
        rows = []
        for layer, (weights, gradients) in enumerate(zip(self._weights, self._gradients, strict=True)):
            value = _importance(weights, gradients) / tokens
            reach = self._reach(self._samples[layer])
            low, high = (None, None) if reach is None else (value * max(0.0, 1 - reach), value * (1 + reach))
            row = Score(PROXIES, "taylor", value, low, high, layer=layer, documents=documents, tokens=tokens)
            rows.append(row)
        return rows

    def _reach(self, sample: _Sample) -> float | None:
        """Half of the interval's width, as a share of the value; `None` for fewer groups than an interval needs."""
        if len(self._tokens) < GROUPS:
            return None
        groups = sorted(self._tokens)
        whole = sample.importance(groups) / sum(self._tokens.values())
        if whole == 0:
            return 0.0
        without = [[other for other in groups if other != group] for group in groups]
        left = np.array([sample.importance(some) / sum(self._tokens[group] for group in some) for some in without])
        error = math.sqrt((len(groups) - 1) * float(left.var()))
        return student(0.975, len(groups) - 1.0) * error / whole


class _Sample:
    """Some weights of a layer, of each tensor in proportion to its size, with their gradients by group."""

    def __init__(self, weights: Mapping[str, Tensor], layer: int) -> None:
        total = sum(value.numel() for value in weights.values())
        draw = np.random.default_rng([layer, SAMPLED])
        self._indices: dict[str, Tensor] = {}
        self._slices: dict[str, slice] = {}
        values, shares, start = [np.empty(0)], [np.empty(0)], 0
        for name, value in weights.items():
            count = min(value.numel(), math.ceil(SAMPLED * value.numel() / total))
            chosen = np.sort(draw.choice(value.numel(), size=count, replace=False))
            self._indices[name] = torch.from_numpy(chosen).to(value.device)
            self._slices[name] = slice(start, start := start + count)
            values.append(self._of(name, value))
            shares.append(np.full(count, value.numel() / count))
        self._weights = np.abs(np.concatenate(values)) * np.concatenate(shares)
        self._sums: dict[int, Numbers] = {}

    def add(self, group: int, name: str, gradient: Tensor) -> None:
        """Count a batch's gradient by one weight."""
        sums = self._sums.setdefault(group, np.zeros_like(self._weights))
        sums[self._slices[name]] += self._of(name, gradient)

    def importance(self, groups: Sequence[int]) -> float:
        """Sum of |w g| over the layer's weights, as the sample estimates it, with the gradient of these groups."""
        own = [self._sums.get(group, np.zeros_like(self._weights)) for group in groups]
        return float((self._weights * np.abs(np.sum(own, axis=0))).sum())

    def _of(self, name: str, values: Tensor) -> Numbers:
        return exact_on_cpu(values.detach().flatten()[self._indices[name]]).numpy()


def _differentiable(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those that have a gradient: quantised integers have none."""
    return {name: value for name, value in weights.items() if value.is_floating_point()}


def _importance(weights: Mapping[str, Tensor], gradients: Mapping[str, Tensor]) -> float:
    """Sum of |w g| over all weights, added in double precision where the device has it."""
    sizes = (
        float((_wide(weights[name]) * gradient).abs_().sum(dtype=widest(gradient.device)))
        for name, gradient in gradients.items()
    )
    return math.fsum(sizes)


def _wide(values: Tensor) -> Tensor:
    """At least float32: a sum over batches in half precision would lose the small ones."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
