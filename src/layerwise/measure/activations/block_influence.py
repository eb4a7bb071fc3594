"""Compute Block Influence (arXiv 2403.03853, section 3.1) and angular distance (arXiv 2403.17887, section 3).
block_influence    layer l       1 - mean over tokens of cos(x_l, x_{l+1}), x_l the hidden state before layer l
angular_distance   pair "l,n"    mean over windows of arccos(cos(x_l, x_{l+n})) / pi at the last real token, in 0..1
log_ratio                        log(median influence of the middle half of the depth / median elsewhere)
beyond_twins                     log_ratio - mean log_ratio of at least 5 randomly initialized models, Student's t
                                 (Satterthwaite) with se^2 = se_documents^2 + s_twins^2 (1 + 1 / twins)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from layerwise.data.text.tokens import Window
from layerwise.errors import UnsupportedModel
from layerwise.measure.activations.padding import run_states
from layerwise.measure.contrasts.contrast import Part, Resampled
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.estimate import POWER, SampleEstimate, satterthwaite, student_quantile
from layerwise.measure.stats.float64 import widen
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import PROXIES
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating
from layerwise.stack.weights import random_twin

MIDDLE = "middle"
RANDOM_MODELS = 5
MIN_LAYERS = 8
"""Below this a quarter of the depth is a single layer."""


def block_influence_sums(states: Sequence[Tensor], counted: Tensor) -> Tensor:
    """Sum 1 - cos(x_l, x_{l+1}) over the counted tokens of each window: (layers, batch), 0 for an unchanged state."""
    sums = []
    before = widen(states[0].flatten(2))
    for state in states[1:]:
        after = widen(state.flatten(2))
        squares = torch.linalg.vecdot(before, before) * torch.linalg.vecdot(after, after)
        cosines = torch.linalg.vecdot(before, after) / squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()
        sums.append((1 - cosines).masked_fill(~counted, 0.0).sum(dim=1))
        before = after
    return torch.stack(sums)


def angular_distances(states: Sequence[Tensor], counted: Tensor) -> Tensor:
    """Compute angle / pi between all pairs of states at each window's last counted token: (states, states, batch).

    Uses the chord, 2 arcsin(|u - v| / 2) for unit vectors u and v, which is accurate for small angles.
    """
    positions = torch.arange(counted.shape[1], device=counted.device)
    last = torch.where(counted, positions, -1).amax(dim=1)
    rows = torch.arange(len(last), device=last.device)
    vectors = torch.stack([widen(state[rows, last].flatten(1)) for state in states], dim=1)
    sizes = torch.linalg.vector_norm(vectors, dim=2, keepdim=True)
    units = vectors / sizes.clamp_min(torch.finfo(vectors.dtype).tiny)
    chords = torch.cdist(units, units, compute_mode="donot_use_mm_for_euclid_dist")
    return (2 / math.pi * (chords / 2).clamp(max=1.0).arcsin()).permute(1, 2, 0)


class BlockInfluence:
    """Block Influence and angular distances of all layers, fed batch by batch with the hidden states."""

    def __init__(self, depth: int) -> None:
        self._layers = [{"layer": layer} for layer in range(depth)]
        self._pairs = [(start, width) for start in range(depth) for width in range(1, depth - start + 1)]
        self._influences = WindowSums()
        self._distances = WindowSums()

    def add(self, states: Sequence[Tensor], counted: Tensor, windows: Sequence[Window]) -> None:
        """Count one batch: `states` (batch, seq, ...) before the first layer and after each, `counted` (batch, seq)."""
        self._influences.add(block_influence_sums(states, counted), counted.sum(dim=1), windows)
        between = angular_distances(states, counted)
        chosen = torch.stack([between[start, start + width] for start, width in self._pairs])
        self._distances.add(chosen, torch.ones(len(windows), device="cpu"), windows)

    def scores(self) -> list[Score]:
        windows = [{"layer": start, "distance": width} for start, width in self._pairs]
        return [
            *self._influences.scores(PROXIES, "block_influence", self._layers),
            *self._distances.scores(PROXIES, "angular_distance", windows),
        ]


def middle_contrast(stack: Stack, data: EvalData, short: EvalData, *, seed: int = 0) -> list[Score]:
    """Return the rows of `contrast` about the middle layers; none for fewer than 8 layers.

    The randomly initialized models run on the `short` text. A model without them has `log_ratio` alone.
    """
    if stack.depth < MIN_LAYERS:
        return []
    untrained = []
    try:
        for draw in range(RANDOM_MODELS):
            part = measure_influence(random_twin(stack, (seed + 1) * RANDOM_MODELS + draw), short)
            untrained.append(float(log_ratio(part.effects)))
    except UnsupportedModel:
        untrained = []
    return list(middle_rows(measure_influence(stack, data), untrained, seed=seed))


def middle_rows(part: Part, untrained: Sequence[float], *, seed: Seed = 0) -> Iterator[Score]:
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
        both = SampleEstimate.student(row.value, float(np.sqrt(variances.sum())), freedom)
        reach = student_quantile(0.975, freedom) + student_quantile(POWER, freedom)
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


def measure_influence(stack: Stack, data: EvalData) -> Part:
    sums = WindowSums()
    plan = Plan.identity(stack.depth)
    with evaluating(stack.model), torch.inference_mode():
        for batch in data.batches:
            states, counted = run_states(stack, plan, batch)
            sums.add(block_influence_sums(states, counted), counted.sum(dim=1), batch.windows)
    numerators, denominators = sums.units()
    return Part(numerators, denominators, documents=data.documents, tokens=data.tokens)
