"""Manipulation: the loss increase by kind and size of a weight change, and by the gain of a layer's update.

Sizes are ||dW|| / ||W||; a gate multiplies the update of a layer or branch by alpha. Rows of measure `manipulation`, in
nats/token, with interval, p, Holm's p over layers, mde, and the band `@no_effect`:
    <strategy>:<size>   subject `12`; strategies scale, noise, low_rank, interpolate, copy, predict
    gate:<alpha>        subjects `12`, `12.attn`, `12.mlp`; alpha 0 skips, alpha 1 is the original model
    joint=<strategy>:<size>   losses of the largest set of layers that cost little one by one (`joint_manipulation`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from layerwise.measure.interventions.intervention import (
    Apply,
    CleanBatch,
    Intervention,
    InterventionContext,
    JointIntervention,
    ResultCache,
    intervention_losses,
)
from layerwise.measure.interventions.perturbations import STRATEGIES, Perturbations, Strategy
from layerwise.measure.language.evaluation_data import EvalData, minibatches
from layerwise.measure.stats.effects import ArmLosses, differences
from layerwise.plan import Plan
from layerwise.plan.checks import SUBLAYERS, Sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import DELTA_NLL, GATE, MANIPULATION
from layerwise.stack import Stack
from layerwise.stack.weights import layer_weights

SIZES = (0.05, 0.1, 0.2, 0.5, 1.0)
"""From half the published scaling to the loss of every matrix."""

SMALL = 0.1
"""Scaling by 0.9 changes the weights by a tenth of their norm."""

ALPHAS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1)

LARGEST_BATCH = 1024


@dataclass(frozen=True, slots=True)
class _Point:
    intervention: Intervention
    condition: str
    strength: float
    part: Sublayer | None = None

    @property
    def arm(self) -> ArmLosses:
        about = {
            "layer": self.intervention.layer,
            "part": self.part,
            "condition": self.condition,
            "strength": self.strength,
        }
        return ArmLosses(self.intervention.key, DELTA_NLL, about, family=(self.condition, self.strength))


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
        _moved(displacements, layer, strategy, size)
        for layer in chosen
        for strategy in STRATEGIES
        for size in sizes
        if displacements.exists(layer, strategy, size)
    ]
    parts: tuple[Sublayer | None, ...] = (None, *SUBLAYERS)
    groups = [moves, *([_gated(layer, part, alpha) for layer in chosen for alpha in alphas] for part in parts)]
    short = replace(data, batches=minibatches(data, LARGEST_BATCH))
    losses = intervention_losses(stack, [point.intervention for group in groups for point in group], short, cache)
    scores: list[Score] = []
    for group in groups:
        arms = [point.arm for point in group]
        scores += differences(MANIPULATION, losses, str(Plan.identity(stack.depth)), arms, seed=seed, by_task=False)
    return scores


def joint_manipulation(
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
            moves = tuple(_moved(displacements, layer, strategy, size).intervention for layer in layers)
            together.append(JointIntervention(f"joint={strategy}:{size:g}", moves))
    losses = intervention_losses(stack, together, data, cache)
    return [row for row in losses if row.plan != str(Plan.identity(stack.depth))]


def _moved(displacements: Perturbations, layer: int, strategy: Strategy, size: float) -> _Point:
    prepare = partial(_with_weights, displacements, strategy, size)
    return _Point(Intervention(layer, f"{strategy}:{size:g}", prepare), strategy, size)


def _gated(layer: int, part: Sublayer | None, alpha: float) -> _Point:
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
