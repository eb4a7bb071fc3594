"""Do the middle layers turn the state less than the others, and less than those of an untrained model do?

With b the Block Influence of a layer (`layerwise.measure.activations.block_influence`) and the middle the half of the
layers from a quarter to three quarters of the depth,

    log_ratio      log (median of b in the middle / median of b elsewhere)
    beyond_twins   log_ratio of the model - mean log_ratio of its untrained twins

Ratios, because a trained model turns the state by another amount everywhere; medians, because a first layer that turns
the embedding around says nothing of zones. One untrained model is no null: at least five are drawn, and their spread is
in the interval,

    se^2 = se_documents^2 + s_twins^2 (1 + 1 / twins)

with Student's quantile at Satterthwaite's degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from layerwise.errors import UnsupportedModel
from layerwise.measure.activations.block_influence import block_influence_sums
from layerwise.measure.activations.padding import counted_states
from layerwise.measure.contrasts.contrast import Part, Resampled
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.estimate import POWER, Estimate, satterthwaite, student
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.weights import random_twin

MIDDLE = "middle"
TWINS = 5
FEWEST_LAYERS = 8
"""Below this a quarter of the depth is a single layer."""


def middle(stack: Stack, data: EvalData, short: EvalData, *, seed: int = 0, twins: int = TWINS) -> list[Score]:
    """The rows of `contrast` about the middle layers of `stack` on `data`; none for fewer than 8 layers.

    The untrained twins are measured on the `short` text, on which they differ little. A model without twins has
    `log_ratio` alone.
    """
    if stack.depth < FEWEST_LAYERS:
        return []
    untrained = []
    try:
        for draw in range(twins):
            part = turned(random_twin(stack, (seed + 1) * twins + draw), short)
            untrained.append(float(log_ratio(part.effects)))
    except UnsupportedModel:
        untrained = []
    return list(middle_rows(turned(stack, data), untrained, seed=seed))


def middle_rows(part: Part, untrained: Sequence[float], *, seed: Seed = 0) -> Iterator[Score]:
    """The rows from the turns of every layer on each unit, and the log ratios of the untrained twins."""
    drawn = Resampled.of([part], seed=seed)
    row = drawn.row(MIDDLE, "log_ratio", log_ratio)
    yield row
    if len(untrained) < 2:
        return
    twins = np.asarray(untrained)
    row = replace(row, metric="beyond_twins", value=row.value - float(twins.mean()))
    own = drawn.estimate(log_ratio)
    if own is not None:
        variances = np.array([own.error**2, float(twins.var(ddof=1)) * (1 + 1 / len(twins))])
        freedoms = np.array([own.freedom, len(twins) - 1])
        freedom = float(satterthwaite(variances.sum(), (variances**2 / freedoms).sum()))
        both = Estimate.student(row.value, float(np.sqrt(variances.sum())), freedom)
        reach = student(0.975, freedom) + student(POWER, freedom)
        row = replace(row, low=float(both.low), high=float(both.high), mde=float(reach * both.error))
    yield row


def log_ratio(turned: Numbers) -> Numbers:
    """log of the middle's median by the others': (..., layers) -> (...).

    >>> log_ratio(np.array([4.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0, 4.0])).round(3).item()
    -1.386
    """
    depth = turned.shape[-1]
    inside = np.zeros(depth, dtype=bool)
    inside[depth // 4 : depth - depth // 4] = True
    tiny = np.finfo(np.float64).tiny
    medians = (np.maximum(np.median(turned[..., mask], axis=-1), tiny) for mask in (inside, ~inside))
    inner, outer = (np.log(median) for median in medians)
    return np.asarray(inner - outer)


def turned(stack: Stack, data: EvalData) -> Part:
    """How far every layer turns the tokens of each unit, as the numerators of its Block Influence."""
    sums = WindowSums()
    plan = Plan.identity(stack.depth)
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            states, counted = counted_states(stack, plan, batch)
            sums.add(block_influence_sums(states, counted), counted.sum(dim=1), batch.windows)
    numerators, denominators = sums.units()
    return Part(numerators, denominators, documents=data.documents, tokens=data.tokens)
