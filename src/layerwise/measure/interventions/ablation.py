"""Ablation: the loss increase, in nats/token, when a layer or sublayer is skipped or replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from layerwise.measure.stats.correlation import MIN_LAYERS
from layerwise.measure.stats.effects import ConditionLosses, compare_conditions, compute_effects
from layerwise.measure.stats.float64 import to_float64, widen
from layerwise.plan import Plan, Sublayer
from layerwise.plan.checks import SUBLAYERS, other_sublayer
from layerwise.results.rows import Loss, Score
from layerwise.results.vocabulary import ABLATION
from layerwise.stack import Stack
from layerwise.stack.branches import Edit
from layerwise.stack.weights import layer_weights


def ablation(stack: Stack, data: EvalData, *, seed: int = 0, cache: ResultCache[Loss] | None = None) -> list[Score]:
    """Measure the loss increase when each layer or sublayer is ablated, for each task and for all tasks together.

        skip                the layer adds nothing to the residual stream
        mean_ablate         it adds its mean update over the tokens of the other half of the text (cross-fitting)
        neighbor_copy       the previous layer runs in its place (for layer 0, the next layer)
        neighbor_average    its weights are the mean of both neighbors' weights (not for the first and last layer)
        random              its matrices are replaced by Gaussian noise of the same norm

    Only `skip` and `mean_ablate` apply to sublayers. The rows have the loss increase in nats/token with an interval, a
    p-value corrected over the layers with the same ablation, the minimum detectable effect and the null band (see
    `compute_effects`). Rows with the metric `nll` have the loss of the original model.
    """
    return ablation_rows(stack, ablation_losses(stack, data, seed=seed, cache=cache), seed=seed)


def ablation_losses(
    stack: Stack, data: EvalData, *, seed: int = 0, cache: ResultCache[Loss] | None = None
) -> list[Loss]:
    return intervention_losses(stack, list_interventions(stack, seed), data, cache)


def list_interventions(stack: Stack, seed: int = 0) -> list[Intervention]:
    return [intervention for intervention, _ in _list_conditions(stack, seed)]


def ablation_rows(stack: Stack, losses: Sequence[Loss], *, seed: int = 0) -> list[Score]:
    baseline = str(Plan.identity(stack.depth))
    scores = original_loss_rows(ABLATION, losses, baseline, seed)
    for part in (None, *SUBLAYERS):
        conditions = [each for _, each in _list_conditions(stack, seed) if each.columns["part"] == part]
        scores += compare_conditions(ABLATION, losses, baseline, conditions, seed=seed)
    return scores


def skip_keys(depth: int) -> dict[int, str]:
    return intervention_keys(depth, "skip")


def intervention_keys(depth: int, name: str) -> dict[int, str]:
    return {layer: Intervention(layer, name, _skip).key for layer in range(depth)}


def skip_interventions(depth: int) -> list[Intervention]:
    return [Intervention(layer, "skip", _skip) for layer in range(depth)]


def original_loss_rows(measure: str, losses: Sequence[Loss], baseline: str, seed: int) -> list[Score]:
    rows = compute_effects([row for row in losses if row.plan == baseline], baseline, seed=seed)
    if len({score.task for score in rows}) == 1:
        rows = [*rows, *(replace(score, task="all") for score in rows if score.task != "all")]
    return [replace(score, measure=measure, claim=None, plan=None) for score in rows if score.metric == "nll"]


def refuse_shallow(stack: Stack) -> None:
    if stack.depth < MIN_LAYERS:
        raise MeasureError(
            f"A diagnosis needs a model with at least {MIN_LAYERS} layers, got {stack.depth} ({stack.source.name}). "
            "Use `layerwise sweep` for single plans."
        )


def _list_conditions(stack: Stack, seed: int) -> list[tuple[Intervention, ConditionLosses]]:
    conditions = []
    for layer in range(stack.depth):
        changes: dict[tuple[str, Sublayer | None], Callable[[InterventionContext], Apply]] = {
            ("skip", None): _skip,
            ("mean_ablate", None): _mean,
            ("neighbor_copy", None): _copy,
            ("random", None): partial(_random, seed),
        }
        if 0 < layer < stack.depth - 1:
            changes["neighbor_average", None] = _average
        for sublayer in SUBLAYERS:
            changes["skip", sublayer] = partial(_skip_branch, sublayer)
            changes["mean_ablate", sublayer] = partial(_mean_branch, sublayer)
        for (metric, part), prepare in changes.items():
            intervention = Intervention(layer, f"{metric}.{part}" if part else metric, prepare)
            conditions.append((intervention, ConditionLosses(intervention.key, metric, {"layer": layer, "part": part})))
    return conditions


def _skip(context: InterventionContext) -> Apply:
    return lambda one: one.state


def _mean(context: InterventionContext) -> Apply:
    def update(one: CleanBatch) -> Tensor:
        return context.stack.apply(context.layer, one.state, one.captured) - one.state

    means = _cross_fitted_means(context, update)
    return lambda one: one.state + means(one).to(one.state.dtype)


def _cross_fitted_means(
    context: InterventionContext, update: Callable[[CleanBatch], Tensor]
) -> Callable[[CleanBatch], Tensor]:
    """Return the mean of an update over the tokens of the other half of the text, (batch, 1, hidden)."""
    sums: dict[bool, list[Tensor]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    for one in context.clean:
        values = update(one)
        for half in counts:
            mask = one.counted & (one.half == half)[:, None]
            sums[half].append(widen(values[mask]).sum(dim=0))
            counts[half] += int(mask.sum())
    if not all(counts.values()):
        raise MeasureError(
            "mean_ablate needs at least 2 windows, got 1, because means are computed on the other half. Use a longer "
            "text or shorter windows (--max-length)."
        )
    means = {half: torch.stack(sums[half]).sum(dim=0) / counts[half] for half in counts}
    return lambda one: torch.where(one.half.view(-1, *[1] * (one.state.ndim - 1)), means[False], means[True])


def _copy(context: InterventionContext) -> Apply:
    neighbor = context.layer - 1 if context.layer else 1
    return lambda one: context.stack.apply(neighbor, one.state, one.captured)


def _average(context: InterventionContext) -> Apply:
    before, after = (layer_weights(context.stack, context.layer + step) for step in (-1, 1))
    weights = layer_weights(context.stack, context.layer)
    shapes = [{name: value.shape for name, value in layer.items()} for layer in (weights, before, after)]
    if shapes[0] != shapes[1] or shapes[0] != shapes[2]:
        raise MeasureError("neighbor_average is omitted where the neighbors of a layer do not have the same shapes.")
    means = {name: (widen(before[name]) + widen(after[name]).to(before[name].device)) / 2 for name in weights}
    return context.with_weights({name: value.to(weights[name]) for name, value in means.items()})


def _random(seed: int, context: InterventionContext) -> Apply:
    drawn = {}
    for index, (name, value) in enumerate(layer_weights(context.stack, context.layer).items()):
        if value.ndim >= 2:
            generator = np.random.default_rng([seed, context.layer, index])
            noise = torch.from_numpy(generator.standard_normal(tuple(value.shape)))
            scale = to_float64(value).norm().cpu() / noise.norm()
            drawn[name] = (noise * scale).to(value.dtype).to(value.device)
    return context.with_weights(drawn)


def _skip_branch(part: Sublayer, context: InterventionContext) -> Apply:
    remaining = other_sublayer(part)
    context.stack.branches(context.clean[0].captured)  # raises if layers cannot be split
    return lambda one: context.stack.apply(context.layer, one.state, one.captured, remaining)


def _mean_branch(part: Sublayer, context: InterventionContext) -> Apply:
    outputs: list[Tensor] = []

    def record(output: Tensor) -> Tensor:
        outputs.append(output)
        return output

    run = context.with_branch(part, lambda one: record)

    def update(one: CleanBatch) -> Tensor:
        run(one)
        # Experts return the tokens of all windows on one axis.
        return outputs.pop().reshape(one.state.shape).to(one.state.device)

    means = _cross_fitted_means(context, update)

    def replace_output(one: CleanBatch) -> Edit:
        mean = means(one).expand(one.state.shape)
        return lambda output: mean.reshape(output.shape).to(output)

    return context.with_branch(part, replace_output)
