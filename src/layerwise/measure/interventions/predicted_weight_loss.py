"""Loss increase when layers run with predicted weights, one at a time and several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from layerwise.measure.interventions.intervention import (
    Apply,
    Intervention,
    InterventionContext,
    JointIntervention,
    ResultCache,
    intervention_losses,
)
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions
from layerwise.measure.stats.float64 import to_float64
from layerwise.measure.weights.predictability import predict_layer
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import PREDICTABILITY, SAME_NORM_RANDOM
from layerwise.stack import Stack
from layerwise.stack.weights import Weights, layer_weights

METRIC = "predicted_weight_loss"
_PREDICTED = "predicted"

Replacement = Callable[[int], Weights]
"""Returns the replacement weights of a layer."""


def predicted_weight_loss(
    stack: Stack, data: EvalData, *, seed: int = 0, cache: ResultCache[Loss] | None = None
) -> list[Score]:
    """Measure the loss increase when each inner layer, or a set of them, runs with predicted weights.

    Each layer is predicted from its original neighbors (`predict_layer`). The `condition` of a set is `set` for evenly
    spaced layers, `adjacent` for adjacent ones, and `inner` for all layers but the first and last. The baseline
    `same_norm_random` adds a random error E of the same norm to each tensor W, with ||E|| = ||W_predicted - W||.
    Returns rows of measure `predictability` in nats/token, with a null band (see `compute_effects`).
    """
    sets = joint_sets(stack.depth) | neighbor_sets(stack.depth)
    # Cached, because both replacements and all sets with the layer need the prediction.
    predicted = lru_cache(maxsize=None)(partial(predict_layer, stack))
    methods: dict[str, Replacement] = {
        _PREDICTED: predicted,
        SAME_NORM_RANDOM: partial(_random_replacement, stack, seed, predicted),
    }
    inner = range(1, stack.depth - 1)
    singles = {
        name: {layer: Intervention(layer, name, partial(_prepare, method)) for layer in inner}
        for name, method in methods.items()
    }
    joint = [
        JointIntervention(f"{subject}={name}", tuple(singles[name][layer] for layer in layers))
        for subject, layers in sets.items()
        for name in methods
    ]
    losses = intervention_losses(stack, [*(singles[n][layer] for layer in inner for n in methods), *joint], data, cache)
    columns = {str(layer): {"layer": layer} for layer in inner} | {
        name: set_columns(name, layers) for name, layers in sets.items()
    }
    conditions = [
        ConditionLosses(f"{name}={method}", METRIC, {**about, "against": against}, family=method)
        for method, against in ((_PREDICTED, None), (SAME_NORM_RANDOM, SAME_NORM_RANDOM))
        for name, about in columns.items()
    ]
    return compare_conditions(
        PREDICTABILITY, losses, str(Plan.identity(stack.depth)), conditions, seed=seed, by_task=False
    )


def set_columns(name: str, layers: Sequence[int]) -> dict[str, Any]:
    """Return the columns of rows about a set of layers.

    >>> set_columns("set:4", (1, 4, 7, 10)), set_columns("inner", range(1, 11))
    ({'condition': 'set', 'affected': 4}, {'condition': 'inner', 'affected': 10})
    """
    return {"condition": name.partition(":")[0], "affected": len(layers)}


def joint_sets(depth: int) -> dict[str, tuple[int, ...]]:
    """Return evenly spaced sets of 2, 4, 8, ... inner layers, up to half of all inner layers.

    >>> joint_sets(12)
    {'set:2': (1, 10), 'set:4': (1, 4, 7, 10)}
    """
    inner = depth - 2
    sets: dict[str, tuple[int, ...]] = {}
    size = 2
    while size <= max(2, inner // 2):
        sets[f"set:{size}"] = tuple(1 + round(step * (inner - 1) / (size - 1)) for step in range(size))
        size *= 2
    return sets


def neighbor_sets(depth: int) -> dict[str, tuple[int, ...]]:
    """Return two sets: all inner layers, and adjacent middle layers, as many as in the largest of `joint_sets`.

    >>> neighbor_sets(12)
    {'adjacent:4': (4, 5, 6, 7), 'inner': (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)}
    """
    size = max(map(len, joint_sets(depth).values()))
    first = (depth - size) // 2
    return {f"adjacent:{size}": tuple(range(first, first + size)), "inner": tuple(range(1, depth - 1))}


def random_error(prediction: Weights, weights: Weights, seed: int) -> dict[str, Tensor]:
    """Add a random error to each tensor of `weights`. Its norm is that of the error of the tensor's `prediction`."""
    generator = torch.Generator().manual_seed(seed)
    changed = {}
    for name, value in prediction.items():
        weight = to_float64(weights[name])
        direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64, device="cpu").to(weight.device)
        size = (to_float64(value) - weight).norm() / direction.norm()
        changed[name] = (weight + size * direction).to(weights[name].dtype).to(weights[name].device)
    return changed


def _random_replacement(stack: Stack, seed: int, predicted: Replacement, layer: int) -> Weights:
    return random_error(predicted(layer), layer_weights(stack, layer), seed * stack.depth + layer)


def _prepare(method: Replacement, context: InterventionContext) -> Apply:
    return context.with_weights(method(context.layer))
