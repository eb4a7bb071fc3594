"""Taylor importance: how much the loss would change, to first order, if a layer's weights were set to zero one by one.

    taylor[l] = sum over the weights w of layer l of |w dL/dw|        L in nats per scored token

(Molchanov et al. 2017, arXiv 1611.06440; for whole blocks Kim et al. 2024, "Shortened LLaMA", arXiv 2402.02834,
section 3.1.) The gradient is that of the whole text, so it is summed over all batches before its size is taken; a sum
of sizes has no parts that belong to single documents, hence no interval. It compares layers of one model: its scale
means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from layerwise.measure.float64 import widest
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights


class Taylor:
    """The gradient of the whole text's loss by the weights of every layer, fed batch by batch."""

    def __init__(self) -> None:
        self._gradients: list[dict[str, Tensor]] = []

    def add(self, gradients: Sequence[Mapping[str, Tensor]]) -> None:
        """Count one batch: for each layer the gradient of the batch's summed nats by each of its weights.

        Those of the first batch are kept and added to: they are no longer the caller's.
        """
        if not self._gradients:
            self._gradients = [{name: _wide(gradient) for name, gradient in layer.items()} for layer in gradients]
            return
        for total, layer in zip(self._gradients, gradients, strict=True):
            for name, gradient in layer.items():
                total[name].add_(gradient)

    def scores(self, stack: Stack, tokens: int) -> list[Score]:
        """One row a layer; `tokens` is how many were scored in all."""
        return [
            Score(
                "proxies",
                str(layer),
                "all",
                "taylor",
                _importance(layer_weights(stack, layer), own) / tokens,
                tokens=tokens,
            )
            for layer, own in enumerate(self._gradients)
        ]


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
