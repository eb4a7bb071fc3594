"""Loss increase as a function of the kind and size of a weight change, and of a gain on a layer's update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    """Return a layer's parameters with two or more axes in float64; raise `MeasureError` if they are not finite."""
    weights = {name: to_float64(weight) for name, weight in layer_weights(stack, layer).items() if weight.ndim >= 2}
    for name, weight in weights.items():
        if not weight.isfinite().all():
            raise MeasureError(f"{name} of layer {layer} must be finite, got NaN or infinity. Check the checkpoint.")
    return weights


def relative_size(changed: Weights, weights: Weights) -> float:
    """Return ||changed - weights||_F / ||weights||_F over all tensors, in float64.

    >>> relative_size({"w": torch.tensor([[0.0, 0.0]])}, {"w": torch.tensor([[3.0, 4.0]])})
    1.0
    """
    distance = _norm([to_float64(changed[name]) - to_float64(weight) for name, weight in weights.items()])
    return distance / _norm([to_float64(weight) for weight in weights.values()])


class Perturbations:
    """The matrices of every layer, changed by a strategy so that the size ||dW||_F / ||W||_F has a given value.

    scale        W (1 - size)
    noise        W plus Gaussian noise in proportion to the norm of each matrix
    low_rank     W moves towards its best approximation of rank r, for the highest r that is at least `size` away
    interpolate  W moves towards the mean of the neighboring layers
    copy         W moves towards the previous layer (layer 0: towards layer 1)
    predict      W moves towards a ridge prediction from other layers (`layerwise.measure.weights.predictability`)

    Norm weights and biases are not changed.
    """

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack = stack
        self._seed = seed
        # float64 needs memory: keep a layer only while its neighbors read it, and decompositions of the last layer.
        self._matrices = lru_cache(maxsize=3)(partial(read_matrices, stack))
        self._spectra = lru_cache(maxsize=1)(self._decomposed)
        self._reach = lru_cache(maxsize=None)(self._measured_reach)
        # Predictions are expensive and used twice, by `exists` and `at`.
        self._prediction = lru_cache(maxsize=None)(self._predicted)

    def exists(self, layer: int, strategy: Strategy, size: float) -> bool:
        """Check whether `strategy` can change the layer by `size`. For `low_rank` the size is at most 1."""
        reach = self._reach(layer, strategy)
        return reach is not None and reach >= size

    def at(self, layer: int, strategy: Strategy, size: float) -> dict[str, Tensor]:
        """Return the changed matrices; `exists` must be true for these arguments."""
        weights = self._matrices(layer)
        if strategy == "scale":
            return {name: weight * (1 - size) for name, weight in weights.items()}
        if strategy == "noise":
            return {name: weight + size * noise for (name, weight), noise in self._noise(layer, weights)}
        if strategy == "low_rank":
            return self._low_rank(layer, weights, size)
        end = self._end(layer, strategy)
        assert end is not None, "the strategy reaches the size"
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
        changed = {}
        for name, (left, values, right) in self._spectra(layer).items():
            if not values.any():
                changed[name] = weights[name]
                continue
            # Entry r is the relative distance to the best approximation of rank r; rank 0 is the zero matrix.
            squares = values.square()
            tails = squares.flip(0).cumsum(0).flip(0)
            distances = torch.cat([(tails / tails[0]).sqrt(), torch.zeros_like(values[:1])])
            rank = _highest_rank(distances, size, rows=len(left))
            share = min(1.0, size / float(distances[rank]))
            is_kept = torch.arange(len(values), device=values.device) < rank
            shrunk = torch.where(is_kept, values, values * (1 - share))
            changed[name] = ((left * shrunk) @ right).reshape(weights[name].shape)
        return changed

    def _decomposed(self, layer: int) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        weights = self._matrices(layer).items()
        return {name: tuple(torch.linalg.svd(weight.flatten(0, -2), full_matrices=False)) for name, weight in weights}

    def _predicted(self, layer: int) -> Weights | None:
        try:
            return predict_layer(self._stack, layer)
        except MeasureError:  # no tensor type is shared with the neighbors
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
    """Return the highest rank whose best approximation is at least `size` away, up to rounding.

    `distances` (values + 1,) has the relative distances of the approximations of rank 0, 1, ...

    >>> distances = torch.tensor([1.0, 0.6, 0.0], dtype=torch.float64)
    >>> [_highest_rank(distances, size, rows=2) for size in (1.0, 0.7, 0.6, 0.6 + 1e-16, 0.5)]
    [0, 0, 1, 1, 1]
    """
    rounding = torch.finfo(distances.dtype).eps * max(rows, len(distances)) * math.sqrt(len(distances))
    return int(((distances >= size - rounding) & (distances > 0)).nonzero().max())


def _neighbors(layer: int, depth: int) -> tuple[int, ...]:
    return tuple(other for other in (layer - 1, layer + 1) if 0 <= other < depth)


def _shapes(weights: Weights) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weight.shape) for name, weight in weights.items()}


def _norm(tensors: Sequence[Tensor]) -> float:
    return math.sqrt(math.fsum(float(tensor.square().sum()) for tensor in tensors))


SIZES = (0.05, 0.1, 0.2, 0.5, 1.0)
SMALL = 0.1
"""Size of the published scaling by 0.9."""

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1)

MAX_BATCH_TOKENS = 1024


Point = tuple[Intervention, ConditionLosses]


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
    """Measure the loss change for weight changes of each strategy and size, and for factors (gains) alpha on updates.

    Returns rows of measure `manipulation` in nats/token, with interval, p-value, p-value adjusted over layers, minimum
    detectable effect and null band (see `compute_effects`). The column `condition` is a strategy of `Perturbations`, or
    `gate` for gains, and `strength` is the size or alpha. Gains are applied to layers and to sublayers: 0 skips them, 1
    is the original model. Sizes that a strategy cannot reach are omitted. Hundreds of conditions run on all of `data`.
    Raises `MeasureError` if weights are not finite.
    """
    layers = range(stack.depth) if layers is None else layers
    perturbations = Perturbations(stack, seed)
    points = [
        _perturbed_point(perturbations, layer, strategy, size)
        for layer in layers
        for strategy in STRATEGIES
        for size in sizes
        if perturbations.exists(layer, strategy, size)
    ]
    parts: tuple[Sublayer | None, ...] = (None, *SUBLAYERS)
    groups = [points, *([_gated_point(layer, part, alpha) for layer in layers for alpha in alphas] for part in parts)]
    short = replace(data, batches=minibatches(data, MAX_BATCH_TOKENS))
    losses = intervention_losses(stack, [intervention for group in groups for intervention, _ in group], short, cache)
    scores: list[Score] = []
    for group in groups:
        conditions = [condition for _, condition in group]
        scores += compare_conditions(
            MANIPULATION, losses, str(Plan.identity(stack.depth)), conditions, seed=seed, by_task=False
        )
    return scores


def joint_losses(
    stack: Stack, data: EvalData, layers: Sequence[int], *, seed: int = 0, cache: ResultCache[Loss] | None = None
) -> list[Loss]:
    """Compute the losses when each strategy changes all of `layers` at once.

    A strategy is applied with the largest of the `SIZES` that it reaches on all layers, and with `SMALL` if it reaches
    this size. If `seed` is that of `perturbation_curves`, each layer is changed in the same way.
    """
    perturbations = Perturbations(stack, seed)
    interventions = []
    for strategy in STRATEGIES:
        sizes = [size for size in SIZES if all(perturbations.exists(layer, strategy, size) for layer in layers)]
        for size in sorted({SMALL, max(sizes)} & set(sizes)) if sizes else ():
            parts = tuple(_perturbed_point(perturbations, layer, strategy, size)[0] for layer in layers)
            interventions.append(JointIntervention(f"joint={strategy}:{size:g}", parts))
    losses = intervention_losses(stack, interventions, data, cache)
    return [row for row in losses if row.plan != str(Plan.identity(stack.depth))]


def _perturbed_point(perturbations: Perturbations, layer: int, strategy: Strategy, size: float) -> Point:
    prepare = partial(_with_weights, perturbations, strategy, size)
    return _make_point(Intervention(layer, f"{strategy}:{size:g}", prepare), strategy, size)


def _gated_point(layer: int, part: Sublayer | None, alpha: float) -> Point:
    name = f"{GATE}.{part}:{alpha:g}" if part else f"{GATE}:{alpha:g}"
    return _make_point(Intervention(layer, name, partial(_gate, part, alpha)), GATE, alpha, part)


def _make_point(intervention: Intervention, condition: str, strength: float, part: Sublayer | None = None) -> Point:
    about = {"layer": intervention.layer, "part": part, "condition": condition, "strength": strength}
    return intervention, ConditionLosses(intervention.key, DELTA_NLL, about, family=(condition, strength))


def _with_weights(perturbations: Perturbations, strategy: Strategy, size: float, context: InterventionContext) -> Apply:
    weights = layer_weights(context.stack, context.layer)
    changed = perturbations.at(context.layer, strategy, size)
    # Cast before moving, because not every device has float64.
    return context.with_weights({n: value.to(weights[n].dtype).to(weights[n].device) for n, value in changed.items()})


def _gate(part: Sublayer | None, alpha: float, context: InterventionContext) -> Apply:
    if part is not None:
        return context.with_branch(part, lambda one: lambda output: alpha * output)

    def apply(one: CleanBatch) -> Tensor:
        # lerp is exact at both ends.
        return torch.lerp(one.state, context.stack.apply(context.layer, one.state, one.captured), alpha)

    return apply
