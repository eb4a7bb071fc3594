"""Six ways to move a layer's matrices by one distance ||dW||_F / ||W||_F; gains and biases stay.

scale        W (1 - size)
noise        a Gaussian direction, every matrix in proportion to its own norm
low_rank     each matrix towards its best approximation of the highest rank that is at least so far away
interpolate  towards the mean of the two neighbouring layers (the one neighbour, at an end)
copy         towards the layer before (the first: towards the second)
predict      towards a ridge prediction from other layers, see `layerwise.measure.weights.prediction`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Literal, get_args

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.recovery.damage import generator
from layerwise.measure.stats.float64 import exact
from layerwise.measure.weights.prediction import predict_layer
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

Strategy = Literal["scale", "noise", "low_rank", "interpolate", "copy", "predict"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Weights = Mapping[str, Tensor]


def matrices(stack: Stack, layer: int) -> dict[str, Tensor]:
    """Return a layer's parameters with two or more axes, in float64. Raises `MeasureError` if not finite."""
    weights = {name: exact(weight) for name, weight in layer_weights(stack, layer).items() if weight.ndim >= 2}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise MeasureError(
                f"{name} of layer {layer} holds values that are not finite, so no change of it has a size; "
                "check the checkpoint"
            )
    return weights


def relative_size(changed: Weights, weights: Weights) -> float:
    """`||changed - weights||_F / ||weights||_F` over all tensors together, in float64.

    >>> relative_size({"w": torch.tensor([[0.0, 0.0]])}, {"w": torch.tensor([[3.0, 4.0]])})
    1.0
    """
    distance = _norm([exact(changed[name]) - exact(weight) for name, weight in weights.items()])
    return distance / _norm([exact(weight) for weight in weights.values()])


class Perturbations:
    """The moved weights of every layer of one model, by strategy and size; `seed` draws the noise."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._seed = seed
        # float64 is large: keep a layer only while its neighbors read it, and only the last layer's decompositions.
        self._matrices = lru_cache(maxsize=3)(partial(matrices, stack))
        self._spectra = lru_cache(maxsize=1)(self._decomposed)
        self._reach = lru_cache(maxsize=None)(self._measured_reach)
        # Predictions are costly, and asked for twice: does the point exist, and where is it?
        self._prediction = lru_cache(maxsize=None)(self._predicted)

    def exists(self, layer: int, strategy: Strategy, size: float) -> bool:
        """Whether `strategy` moves that far: always for scale, noise and low rank up to size 1, never from zeros."""
        reach = self._reach(layer, strategy)
        return reach is not None and reach >= size

    def at(self, layer: int, strategy: Strategy, size: float) -> dict[str, Tensor]:
        """Return the moved matrices; the strategy must move that far (`exists`)."""
        weights = self._matrices(layer)
        if strategy == "scale":
            return {name: weight * (1 - size) for name, weight in weights.items()}
        if strategy == "noise":
            return {name: weight + size * noise for (name, weight), noise in self._noise(layer, weights)}
        if strategy == "low_rank":
            return self._low_rank(layer, weights, size)
        end = self._end(layer, strategy)
        assert end is not None, "the line exists"
        share = size / relative_size(end, weights)
        return {name: weight + share * (end[name] - weight) for name, weight in weights.items()}

    def _measured_reach(self, layer: int, strategy: Strategy) -> float | None:
        weights = self._matrices(layer)
        if not any(weight.any() for weight in weights.values()):
            return None
        if strategy in ("scale", "noise", "low_rank"):
            return 1.0 if strategy == "low_rank" else math.inf
        end = self._end(layer, strategy)
        return None if end is None else relative_size(end, weights)

    def _noise(self, layer: int, weights: Weights) -> list[tuple[tuple[str, Tensor], Tensor]]:
        draw = generator(self._seed, layer)
        pairs = []
        for name, weight in sorted(weights.items()):
            noise = torch.randn(weight.shape, generator=draw, dtype=torch.float64, device="cpu").to(weight.device)
            pairs.append(((name, weight), noise * (weight.norm() / noise.norm())))
        return pairs

    def _low_rank(self, layer: int, weights: Weights, size: float) -> dict[str, Tensor]:
        moved = {}
        for name, (left, values, right) in self._spectra(layer).items():
            if not values.any():
                moved[name] = weights[name]  # every approximation of a matrix of zeros is the matrix
                continue
            # Entry r is the relative distance to the best approximation of rank r; rank 0 is the zero matrix.
            squares = values.square()
            tails = squares.flip(0).cumsum(0).flip(0)
            distances = torch.cat([(tails / tails[0]).sqrt(), torch.zeros_like(values[:1])])
            rank = _highest_rank(distances, size, rows=len(left))
            share = min(1.0, size / float(distances[rank]))
            kept = torch.where(torch.arange(len(values), device=values.device) < rank, values, values * (1 - share))
            moved[name] = ((left * kept) @ right).reshape(weights[name].shape)
        return moved

    def _decomposed(self, layer: int) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        weights = self._matrices(layer).items()
        return {name: tuple(torch.linalg.svd(weight.flatten(0, -2), full_matrices=False)) for name, weight in weights}

    def _predicted(self, layer: int) -> Weights | None:
        try:
            return predict_layer(self._stack, layer)
        except MeasureError:  # this layer has no neighbours to be predicted from
            return None

    def _end(self, layer: int, strategy: Strategy) -> Weights | None:
        weights = self._matrices(layer)
        if strategy == "predict":
            end = self._prediction(layer)
            return None if end is None else {name: exact(end.get(name, weight)) for name, weight in weights.items()}
        sources = _neighbours(layer, self._stack.depth) if strategy == "interpolate" else (layer - 1 if layer else 1,)
        others = [self._matrices(source) for source in sources]
        if any(_shapes(other) != _shapes(weights) for other in others):
            return None
        return {
            name: sum((other[name].to(weight.device) for other in others), torch.zeros_like(weight)) / len(others)
            for name, weight in weights.items()
        }


def _highest_rank(distances: Tensor, size: float, rows: int) -> int:
    """Return the highest rank whose best approximation is at least `size` away (equal up to rounding).

    `distances` (values + 1,) is each rank's relative distance from 0; rounding is one unit of the largest singular
    value for each row or column, whichever are more, times the norm over `len(distances)` values.

    >>> distances = torch.tensor([1.0, 0.6, 0.0], dtype=torch.float64)
    >>> [_highest_rank(distances, size, rows=2) for size in (1.0, 0.7, 0.6, 0.6 + 1e-16, 0.5)]
    [0, 0, 1, 1, 1]
    """
    known = torch.finfo(distances.dtype).eps * max(rows, len(distances)) * math.sqrt(len(distances))
    return int(((distances >= size - known) & (distances > 0)).nonzero().max())


def _neighbours(layer: int, depth: int) -> tuple[int, ...]:
    """
    >>> _neighbours(0, 12), _neighbours(5, 12), _neighbours(11, 12)
    ((1,), (4, 6), (10,))
    """
    return tuple(other for other in (layer - 1, layer + 1) if 0 <= other < depth)


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(tensor.square().sum()) for tensor in tensors))
