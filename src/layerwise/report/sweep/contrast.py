"""The difference between two effects, with an interval that fits how they were measured.

Two plans on one task saw the same documents. With raw losses they are compared document by document: a paired bootstrap
of sum(nll_a - nll_b) / sum(tokens). Without them the two intervals are joined as if independent, which is wider than
the paired interval wherever documents that are hard for one plan are hard for the other. Two tasks share no
documents; there, joining the intervals as independent is right.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from layerwise.report.evidence import ALL_TASKS
from layerwise.report.sweep.curves import Point
from layerwise.results.rows import Loss

RESAMPLES = 2000
SEED = 0
Documents = Mapping[tuple[str, str], tuple[float, int]]


@dataclass(frozen=True, slots=True)
class EffectDifference:
    """A difference in nats per token with its interval; `paired` says that documents were compared one by one."""

    value: float
    low: float
    high: float
    paired: bool

    @property
    def resolved(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0.0 or self.high < 0.0


def by_document(losses: tuple[Loss, ...]) -> dict[tuple[str, str], Documents]:
    """(plan, task) to document to summed nll and tokens; the task "all" holds every document of every task."""
    sums: dict[tuple[str, str], dict[tuple[str, str], tuple[float, int]]] = defaultdict(dict)
    for loss in losses:
        for task in (loss.task, ALL_TASKS):
            documents = sums[loss.plan, task]
            nll, tokens = documents.get((loss.task, loss.document), (0.0, 0))
            documents[loss.task, loss.document] = (nll + loss.nll, tokens + loss.tokens)
    return dict(sums)


def contrast(
    treated: Point,
    control: Point,
    task: str,
    losses: Mapping[tuple[str, str], Documents],
    level: float = 0.05,
) -> EffectDifference | None:
    """The effect of `treated` minus the effect of `control`, or `None` without intervals to judge it by."""
    first, second = (_mean_documents(point, task, losses) for point in (treated, control))
    if first is not None and second is not None and first.keys() == second.keys() and len(first) > 1:
        return _bootstrapped(first, second, level)
    return _joined(
        treated.value - control.value,
        (treated.low, treated.high, treated.value),
        (control.low, control.high, control.value),
    )


def independent(first: Point, second: Point, *, pairs: int = 1, level: float = 0.05) -> EffectDifference | None:
    """The effect on one task minus the effect on another.

    `pairs` is the number of pairs that these two were picked from as the extreme one; the interval is widened for the
    choice (Bonferroni).
    """
    joined = _joined(
        first.value - second.value, (first.low, first.high, first.value), (second.low, second.high, second.value)
    )
    if joined is None:
        return None
    normal = NormalDist()
    wider = normal.inv_cdf(1 - level / (2 * pairs)) / normal.inv_cdf(1 - level / 2)
    return EffectDifference(
        joined.value,
        joined.value - wider * (joined.value - joined.low),
        joined.value + wider * (joined.high - joined.value),
        paired=False,
    )


def _joined(
    value: float,
    first: tuple[float | None, float | None, float],
    second: tuple[float | None, float | None, float],
) -> EffectDifference | None:
    (low_a, high_a, at_a), (low_b, high_b, at_b) = first, second
    if low_a is None or high_a is None or low_b is None or high_b is None:
        return None
    below = math.hypot(at_a - low_a, high_b - at_b)
    above = math.hypot(high_a - at_a, at_b - low_b)
    return EffectDifference(value, value - below, value + above, paired=False)


def _mean_documents(
    point: Point, task: str, losses: Mapping[tuple[str, str], Documents]
) -> dict[tuple[str, str], tuple[float, int]] | None:
    """The documents of a point, the nll averaged over its draws; `None` unless every draw has the same documents."""
    by_draw = [losses.get((record.plan, task)) for record in point.records]
    draws = [documents for documents in by_draw if documents]
    if len(draws) != len(by_draw) or any(draw.keys() != draws[0].keys() for draw in draws):
        return None
    return {name: (sum(draw[name][0] for draw in draws) / len(draws), tokens) for name, (_, tokens) in draws[0].items()}


def _bootstrapped(
    first: Mapping[tuple[str, str], tuple[float, int]],
    second: Mapping[tuple[str, str], tuple[float, int]],
    level: float,
) -> EffectDifference:
    names = sorted(first)
    differences = np.array([first[name][0] - second[name][0] for name in names])
    tokens = np.array([first[name][1] for name in names], dtype=float)
    drawn = np.random.default_rng(SEED).multinomial(len(names), [1 / len(names)] * len(names), size=RESAMPLES)
    means = (drawn @ differences) / (drawn @ tokens)
    low, high = np.quantile(means, [level / 2, 1 - level / 2])
    return EffectDifference(float(differences.sum() / tokens.sum()), float(low), float(high), paired=True)
