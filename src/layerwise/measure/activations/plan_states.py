"""Compute similarity, variance and zones of states under a plan (Sun et al., arXiv 2407.09298, figure 15).

State 1 follows the first stage of the plan; a group is one stage. Attention sinks are excluded (appendix A.4).
    plan_states   cosine_i,j     mean over tokens of cos(x_i, x_j), interval over documents
                  variance_j     mean over tokens of the variance of x_j over the width, with interval
    zones         zones, p       number of zones (`layerwise.measure.activations.zones`); p of one zone more
                  border_k       first state of zone k + 1, counted from 1
                  contrast_k     at equal distance, the cosine inside the two zones minus that across, with interval
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import check_finite, counted_states
from layerwise.measure.activations.similarity import sink_tokens
from layerwise.measure.activations.zones import FEWEST_STATES, Zones, beyond_walks, contrast_weights, find_zones
from layerwise.measure.contrasts.contrast import Part, Resampled, first
from layerwise.measure.stats.float64 import wide
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.statistics import Numbers, Seed, student_interval
from layerwise.measure.stats.window_sums import WindowSums
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import STATES, ZONES
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

CLAIM = "three_zones"
THREE = 3
RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class PlanStates:
    """Sums over the tokens of every unit: `cosine` (units, states, states), `variance` (units, states), `tokens`."""

    cosine: Numbers
    variance: Numbers
    tokens: Numbers
    documents: int

    @property
    def mean_cosine(self) -> Numbers:
        return np.asarray(self.cosine.sum(axis=0) / self.tokens.sum())

    def part(self, weights: Numbers) -> Part:
        return Part(np.tensordot(self.cosine, weights, 2)[None], self.tokens, self.documents, int(self.tokens.sum()))


def plan_states(stack: Stack, plan: Plan, batches: Iterable[AnyBatch]) -> PlanStates:
    """Sum the states after every stage of `plan` over tokens that are not sinks, by document (by window if under 8).

    Raises `MeasureError` for states that are not finite, and if no tokens are left.
    """
    kept = _ends_of_stages(plan)
    sums = WindowSums()
    with evaluating(stack.model), torch.inference_mode():
        for batch in batches:
            states, counted = counted_states(stack, plan, batch)
            ends = [states[0], *(states[1 + step] for step in kept)]
            check_finite(ends, counted, [window.document for window in batch.windows], under=f" under {plan}")
            chosen = counted & ~sink_tokens(ends, counted)
            read = [(row, window) for row, window in enumerate(batch.windows) if chosen[row].any()]
            if read:
                parts = [_of_row([state[row][chosen[row]] for state in ends[1:]]) for row, _ in read]
                tokens = chosen.sum(dim=1)[[row for row, _ in read]]
                sums.add(torch.stack(parts, dim=1), tokens, [window for _, window in read])
    if not sums.documents:
        raise MeasureError("every token is an attention sink or padding, so that no state is left; give a longer text")
    totals, tokens_of_units = sums.units()
    count = len(kept)
    cosine, variance = totals[: count * count], totals[count * count :]
    return PlanStates(cosine.T.reshape(-1, count, count), variance.T, tokens_of_units, sums.documents)


def plan_state_rows(states: PlanStates, plan: Plan) -> Iterator[Score]:
    count = states.cosine.shape[1]
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    rows, columns = np.array(pairs, dtype=int).reshape(-1, 2).T
    names: list[tuple[str, int, int | None]] = [("cosine", i + 1, j + 1) for i, j in pairs]
    names += [("variance", j + 1, None) for j in range(count)]
    sums = np.concatenate([states.cosine[:, rows, columns], states.variance], axis=1).T
    values = sums.sum(axis=1) / states.tokens.sum()
    estimate = student_interval(sums, states.tokens) if len(states.tokens) >= FEWEST_UNITS else None
    for at, (metric, state, other) in enumerate(names):
        low, high = (None, None) if estimate is None else (float(estimate.low[at]), float(estimate.high[at]))
        yield Score(
            STATES,
            metric,
            float(values[at]),
            low,
            high,
            plan=str(plan),
            state=state,
            to_state=other,
            documents=states.documents,
            tokens=int(states.tokens.sum()),
        )


def zone_rows(states: PlanStates, plan: Plan, *, seed: Seed = 0) -> list[Score]:
    zones = find_zones(states.mean_cosine, seed=seed)
    if zones.states < FEWEST_STATES:
        return []
    behind: dict[str, Any] = {"plan": str(plan), "documents": states.documents, "tokens": int(states.tokens.sum())}
    scores = [Score(ZONES, "zones", float(zones.count), **behind)]
    if zones.p is not None:
        scores.append(Score(ZONES, "p", zones.p, **behind))
    for border, each in zip(zones.borders, _contrasts(states, zones, seed), strict=True):
        scores.append(Score(ZONES, "border", float(border + 1), state=border + 1, **behind))
        scores.append(Score(ZONES, "contrast", each.value, each.low, each.high, state=border + 1, **behind))
    return scores


def three_zones(states: PlanStates, *, seed: Seed = 0) -> list[Score]:
    """Return the contrasts that decide whether the trained order has three zones; none for fewer than 10 states.

    `least` is the smallest contrast at a border of the `zones` found; `beyond_walks` see `zones.beyond_walks`.
    """
    zones = find_zones(states.mean_cosine, seed=seed)
    if zones.states < FEWEST_STATES:
        return []
    behind: dict[str, Any] = {"documents": states.documents, "tokens": int(states.tokens.sum())}
    value, low, high = beyond_walks(states.mean_cosine, THREE, seed=seed)
    scores = [
        Score("contrast", "zones", float(zones.count), claim=CLAIM, **behind),
        Score("contrast", "beyond_walks", value, low, high, claim=CLAIM, **behind),
    ]
    each = _contrasts(states, zones, seed)
    if each:
        least = min(each, key=lambda one: one.value if one.low is None else one.low)
        scores.append(replace(least, mde=None))
    return scores


def _contrasts(states: PlanStates, zones: Zones, seed: Seed) -> list[Score]:
    return [
        Resampled.of([states.part(weights)], seed=seed, resamples=RESAMPLES).row(CLAIM, "least", first)
        for weights in contrast_weights(zones.states, zones.borders)
    ]


def _of_row(states: Sequence[Tensor]) -> Tensor:
    vectors = torch.stack([wide(state.flatten(1)) for state in states])
    sizes = torch.linalg.vector_norm(vectors, dim=2, keepdim=True)
    by_token = (vectors / sizes.clamp_min(torch.finfo(vectors.dtype).tiny)).transpose(0, 1)
    cosines = (by_token @ by_token.transpose(1, 2)).clamp_(-1, 1).sum(dim=0)
    return torch.cat([cosines.flatten(), vectors.var(dim=2, unbiased=False).sum(dim=1)])


def _ends_of_stages(plan: Plan) -> list[int]:
    ends, open_groups = [], 0
    for number, step in enumerate(plan.steps()):
        open_groups += step.opens
        # A close that is not the last of its group hands the state on to the next branch.
        open_groups -= sum(close is not None for close in step.closes)
        if open_groups == 0:
            ends.append(number)
    return ends
