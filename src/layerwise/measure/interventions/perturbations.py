"""Six ways to move a layer's matrices by one distance ||dW||_F / ||W||_F; gains and biases stay.

scale        W (1 - size)
noise        a Gaussian direction, every matrix in proportion to its own norm
low_rank     each matrix towards its best approximation of the highest rank that is at least so far away
interpolate  towards the mean of the two neighbouring layers (the one neighbour, at an end)
copy         towards the layer before (the first: towards the second)
predict      towards a ridge prediction from other layers, see `layerwise.measure.weights.predictability`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal, get_args

import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import (
    Apply,
    CleanBatch,
    Intervention,
    InterventionContext,
    JointIntervention,
    ResultCache,
    intervention_losses,
)
from layerwise.measure.language.evaluation_data import EvalData, minibatches
from layerwise.measure.recovery.finetuning import seeded_generator
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions
from layerwise.measure.stats.float64 import to_float64
from layerwise.measure.weights.predictability import predict_layer
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, Sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import DELTA_NLL, GATE, MANIPULATION
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

Strategy = Literal["scale", "noise", "low_rank", "interpolate", "copy", "predict"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

Weights = Mapping[str, Tensor]


def read_matrices(stack: Stack, layer: int) -> dict[str, Tensor]:
    """Return a layer's parameters with two or more axes, in float64. Raises `MeasureError` if not finite."""
    weights = {name: to_float64(weight) for name, weight in layer_weights(stack, layer).items() if weight.ndim >= 2}
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
    distance = _norm([to_float64(changed[name]) - to_float64(weight) for name, weight in weights.items()])
    return distance / _norm([to_float64(weight) for weight in weights.values()])


class Perturbations:
    """The moved weights of every layer of one model, by strategy and size; `seed` draws the noise."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._seed = seed
        # float64 is large: keep a layer only while its neighbors read it, and only the last layer's decompositions.
        self._matrices = lru_cache(maxsize=3)(partial(read_matrices, stack))
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
        draw = seeded_generator(self._seed, layer)
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
            return (
                None if end is None else {name: to_float64(end.get(name, weight)) for name, weight in weights.items()}
            )
        sources = _neighbors(layer, self._stack.depth) if strategy == "interpolate" else (layer - 1 if layer else 1,)
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


def _neighbors(layer: int, depth: int) -> tuple[int, ...]:
    """
    >>> _neighbors(0, 12), _neighbors(5, 12), _neighbors(11, 12)
    ((1,), (4, 6), (10,))
    """
    return tuple(other for other in (layer - 1, layer + 1) if 0 <= other < depth)


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(tensor.square().sum()) for tensor in tensors))


SIZES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""From half the published scaling to the loss of every matrix."""

SMALL = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1)

MAX_BATCH_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class _Point:
    intervention: Intervention
    condition: str
    strength: float
    part: Sublayer | None = None

    @property
    def arm(self) -> ConditionLosses:
        about = {
            "layer": self.intervention.layer,
            "part": self.part,
            "condition": self.condition,
            "strength": self.strength,
        }
        return ConditionLosses(self.intervention.key, DELTA_NLL, about, family=(self.condition, self.strength))


def perturbation_curves(
    stack: Stack,
    data: EvalData,
    *,
    sizes: Sequence[float] = SIZES,
    alphas: Sequence[float] = ALPHAS,
    layers: Sequence[int] | None = None,
    seed: int = 0,
    cache: ResultCache[Loss] | None = None,
) -> list[Score]:
    """Measure the loss change for each change of each of `layers` (default: all).

    Each of hundreds of points runs on all of `data`, so pass a `sample` of a long text. Points that do not exist are
    omitted and logged: sizes past the end of a strategy's line, neighbors of another shape, branches that cannot be
    split. `seed` draws the noise and the resamples. Raises `MeasureError` for weights that are not finite.
    """
    chosen = range(stack.depth) if layers is None else layers
    displacements = Perturbations(stack, seed)
    moves = [
        _perturbed_point(displacements, layer, strategy, size)
        for layer in chosen
        for strategy in STRATEGIES
        for size in sizes
        if displacements.exists(layer, strategy, size)
    ]
    parts: tuple[Sublayer | None, ...] = (None, *SUBLAYERS)
    groups = [moves, *([_gated_point(layer, part, alpha) for layer in chosen for alpha in alphas] for part in parts)]
    short = replace(data, batches=minibatches(data, MAX_BATCH_TOKENS))
    losses = intervention_losses(stack, [point.intervention for group in groups for point in group], short, cache)
    scores: list[Score] = []
    for group in groups:
        arms = [point.arm for point in group]
        scores += compare_conditions(
            MANIPULATION, losses, str(Plan.identity(stack.depth)), arms, seed=seed, by_task=False
        )
    return scores


def joint_losses(
    stack: Stack, data: EvalData, layers: Sequence[int], *, seed: int = 0, cache: ResultCache[Loss] | None = None
) -> list[Loss]:
    """Compute the losses with all of `layers` changed by each strategy, at a small and at its largest size.

    With the `seed` of `perturbation_curves` each layer changes as by itself. A strategy that cannot reach the small
    size on all layers has no losses.
    """
    displacements = Perturbations(stack, seed)
    together = []
    for strategy in STRATEGIES:
        there = [size for size in SIZES if all(displacements.exists(layer, strategy, size) for layer in layers)]
        for size in sorted({SMALL, max(there)} & set(there)) if there else ():
            moves = tuple(_perturbed_point(displacements, layer, strategy, size).intervention for layer in layers)
            together.append(JointIntervention(f"joint={strategy}:{size:g}", moves))
    losses = intervention_losses(stack, together, data, cache)
    return [row for row in losses if row.plan != str(Plan.identity(stack.depth))]


def _perturbed_point(displacements: Perturbations, layer: int, strategy: Strategy, size: float) -> _Point:
    prepare = partial(_with_weights, displacements, strategy, size)
    return _Point(Intervention(layer, f"{strategy}:{size:g}", prepare), strategy, size)


def _gated_point(layer: int, part: Sublayer | None, alpha: float) -> _Point:
    name = f"{GATE}.{part}:{alpha:g}" if part else f"{GATE}:{alpha:g}"
    return _Point(Intervention(layer, name, partial(_gate, part, alpha)), GATE, alpha, part)


def _with_weights(displacements: Perturbations, strategy: Strategy, size: float, context: InterventionContext) -> Apply:
    own = layer_weights(context.stack, context.layer)
    moved = displacements.at(context.layer, strategy, size)
    # Narrowed before it moves: not every device has float64.
    stored = {name: value.to(own[name].dtype).to(own[name].device) for name, value in moved.items()}
    return context.with_weights(stored)


def _gate(part: Sublayer | None, alpha: float, context: InterventionContext) -> Apply:
    if part is not None:
        return context.with_branch(part, lambda one: lambda output: alpha * output)

    def apply(one: CleanBatch) -> Tensor:
        # lerp is exact at both ends: alpha 0 is the state, alpha 1 is what the layer returns.
        return torch.lerp(one.state, context.stack.apply(context.layer, one.state, one.captured), alpha)

    return apply
