"""Ablation: the loss increase, in nats/token, when one layer or one of its branches is disabled or replaced.

    skip                the layer (or branch) adds nothing
    mean_ablate         it adds its mean over tokens of the other half of the text (cross-fitting)
    neighbour_copy      the layer before runs in its place (for layer 0 the one after)
    neighbour_average   its weights are the mean of its two neighbors' weights (not at the ends)
    random              its matrices are Gaussian noise of the same norm each; gains and biases stay
Only `skip` and `mean_ablate` apply to branches (`12.attn`, `12.mlp`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import (
    Apply,
    CleanBatch,
    Intervention,
    InterventionContext,
    ResultCache,
    intervention_losses,
)
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions, compute_effects
from layerwise.measure.stats.float64 import to_float64, widen
from layerwise.measure.stats.ranks import MIN_LAYERS
from layerwise.plan import Plan, Sublayer
from layerwise.plan.checks import SUBLAYERS, other_sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import ABLATION
from layerwise.stack import Stack
from layerwise.stack.branches import Edit
from layerwise.stack.weights import layer_weights


@dataclass(frozen=True, slots=True)
class _Kind:
    metric: str
    intervention: Intervention
    part: Sublayer | None = None

    @property
    def arm(self) -> ConditionLosses:
        return ConditionLosses(
            self.intervention.key, self.metric, {"layer": self.intervention.layer, "part": self.part}
        )


def ablation(stack: Stack, data: EvalData, *, seed: int = 0, cache: ResultCache[Loss] | None = None) -> list[Score]:
    """Measure every intervention on every layer of `stack`, by task and over all tasks.

    Rows: `<intervention>` by layer and branch in nats/token with interval, p (corrected over the layers or branches of
    one kind), mde and null (`no_effect`); `nll` of the original model.
    """
    return ablation_rows(stack, ablation_losses(stack, data, seed=seed, cache=cache), seed=seed)


def ablation_losses(
    stack: Stack, data: EvalData, *, seed: int = 0, cache: ResultCache[Loss] | None = None
) -> list[Loss]:
    return intervention_losses(stack, list_interventions(stack, seed), data, cache)


def list_interventions(stack: Stack, seed: int = 0) -> list[Intervention]:
    return [kind.intervention for kind in _list_kinds(stack, seed)]


def ablation_rows(stack: Stack, losses: Sequence[Loss], *, seed: int = 0) -> list[Score]:
    baseline = str(Plan.identity(stack.depth))
    scores = original_loss_rows(ABLATION, losses, baseline, seed)
    for part in (None, *SUBLAYERS):
        arms = [kind.arm for kind in _list_kinds(stack, seed) if kind.part == part]
        scores += compare_conditions(ABLATION, losses, baseline, arms, seed=seed)
    return scores


def skip_keys(depth: int) -> dict[int, str]:
    return intervention_keys(depth, "skip")


def intervention_keys(depth: int, name: str) -> dict[int, str]:
    return {layer: Intervention(layer, name, _skip).key for layer in range(depth)}


def skip_interventions(depth: int) -> list[Intervention]:
    return [Intervention(layer, "skip", _skip) for layer in range(depth)]


def original_loss_rows(measure: str, losses: Sequence[Loss], baseline: str, seed: int) -> list[Score]:
    own = [row for row in losses if row.plan == baseline]
    rows = compute_effects(own, baseline, seed=seed)
    if len({score.task for score in rows}) == 1:
        rows = [*rows, *(replace(score, task="all") for score in rows if score.task != "all")]
    return [replace(score, measure=measure, claim=None, plan=None) for score in rows if score.metric == "nll"]


def refuse_shallow(stack: Stack) -> None:
    if stack.depth < MIN_LAYERS:
        raise MeasureError(
            f"{stack.source.name} has {stack.depth} layer{'s' * (stack.depth != 1)}; a diagnosis compares layers with "
            f"their neighbours and needs at least {MIN_LAYERS}. For single plans use layerwise sweep"
        )


def _list_kinds(stack: Stack, seed: int) -> list[_Kind]:
    kinds = []
    for layer in range(stack.depth):
        whole: dict[str, Callable[[InterventionContext], Apply]] = {
            "skip": _skip,
            "mean_ablate": _mean,
            "neighbour_copy": _copy,
            "random": partial(_random, seed),
        }
        if 0 < layer < stack.depth - 1:
            whole["neighbour_average"] = _average
        for metric, prepare in whole.items():
            kinds.append(_Kind(metric, Intervention(layer, metric, prepare)))
        for part in SUBLAYERS:
            kinds.append(_Kind("skip", Intervention(layer, f"skip.{part}", partial(_skip_branch, part)), part))
            kinds.append(
                _Kind("mean_ablate", Intervention(layer, f"mean_ablate.{part}", partial(_mean_branch, part)), part)
            )
    return kinds


def _skip(context: InterventionContext) -> Apply:
    return lambda one: one.state


def _mean(context: InterventionContext) -> Apply:
    def update(one: CleanBatch) -> Tensor:
        return context.stack.apply(context.layer, one.state, one.captured) - one.state

    means = _cross_fitted_means(context, update)
    return lambda one: one.state + means(one).to(one.state.dtype)


def _cross_fitted_means(
    context: InterventionContext, of: Callable[[CleanBatch], Tensor]
) -> Callable[[CleanBatch], Tensor]:
    """Average a (batch, seq, width) quantity over counted tokens of the other half of the text: (batch, 1, width)."""
    sums: dict[bool, list[Tensor]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    for one in context.clean:
        output = of(one)
        for half in counts:
            chosen = one.counted & (one.half == half)[:, None]
            sums[half].append(widen(output[chosen]).sum(dim=0))
            counts[half] += int(chosen.sum())
    if not all(counts.values()):
        raise MeasureError(
            "mean_ablate is left out: a layer's mean is taken over other text than it stands in for, and the text is a "
            "single window; give a longer one, or shorter windows with --max-length"
        )
    means = {half: torch.stack(sums[half]).sum(dim=0) / counts[half] for half in counts}
    return lambda one: torch.where(one.half.view(-1, *[1] * (one.state.ndim - 1)), means[False], means[True])


def _copy(context: InterventionContext) -> Apply:
    neighbour = context.layer - 1 if context.layer else 1
    return lambda one: context.stack.apply(neighbour, one.state, one.captured)


def _average(context: InterventionContext) -> Apply:
    before, after = (layer_weights(context.stack, context.layer + step) for step in (-1, 1))
    own = layer_weights(context.stack, context.layer)
    _refuse_unlike(own, before, after)
    means = {name: (widen(before[name]) + widen(after[name]).to(before[name].device)) / 2 for name in own}
    return context.with_weights({name: value.to(own[name]) for name, value in means.items()})


def _random(seed: int, context: InterventionContext) -> Apply:
    own = layer_weights(context.stack, context.layer)
    drawn = {}
    for index, (name, value) in enumerate(own.items()):
        if value.ndim >= 2:
            generator = np.random.default_rng([seed, context.layer, index])
            noise = torch.from_numpy(generator.standard_normal(tuple(value.shape)))
            scale = to_float64(value).norm().cpu() / noise.norm()
            drawn[name] = (noise * scale).to(value.dtype).to(value.device)
    return context.with_weights(drawn)


def _skip_branch(part: Sublayer, context: InterventionContext) -> Apply:
    left = other_sublayer(part)
    context.stack.branches(context.clean[0].captured)  # refuses here, once, where the model cannot be split
    return lambda one: context.stack.apply(context.layer, one.state, one.captured, left)


def _mean_branch(part: Sublayer, context: InterventionContext) -> Apply:
    outputs: list[Tensor] = []
    recording = context.with_branch(part, lambda one: partial(_recorded, outputs))

    def output(one: CleanBatch) -> Tensor:
        recording(one)
        # Experts return the tokens of all windows on one axis.
        return outputs.pop().reshape(one.state.shape).to(one.state.device)

    means = _cross_fitted_means(context, output)

    def held(one: CleanBatch) -> Edit:
        mean = means(one).expand(one.state.shape)
        return lambda output: mean.reshape(output.shape).to(output)

    return context.with_branch(part, held)


def _recorded(outputs: list[Tensor], output: Tensor) -> Tensor:
    outputs.append(output)
    return output


def _refuse_unlike(*layers: Mapping[str, Tensor]) -> None:
    shapes = [{name: tuple(value.shape) for name, value in layer.items()} for layer in layers]
    if any(other != shapes[0] for other in shapes[1:]):
        raise MeasureError("neighbouring layers have unlike shapes, so there is no average of their weights")
