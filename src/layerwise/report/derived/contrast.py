"""The difference between two effects, with an interval that fits how they were measured.

Two plans on one task saw the same documents. With raw losses they are compared document by document: a paired bootstrap
of sum(nll_a - nll_b) / sum(tokens). Without them the two intervals are joined as if independent, which is wider than
the paired interval wherever documents that are hard for one plan are hard for the other. Two tasks share no
documents; there, joining the intervals as independent is right.

A difference is a row in nats per token; its `documents` are those that were compared one by one, `None` where none was.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import NormalDist

import numpy as np

from layerwise.results.rows import Loss, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ALL, CONTRAST

RESAMPLES = 2000
SEED = 0

Documents = Mapping[tuple[str, str], tuple[float, int]]
"""A document, by its task and its name, to its summed nll and its tokens."""
Losses = Mapping[tuple[str, str], Documents]
"""The documents of a plan on a task."""


def by_document(losses: Iterable[Loss]) -> Losses:
    """The losses of every plan on every task; the task "all" holds every document of every task."""
    sums: dict[tuple[str, str], dict[tuple[str, str], tuple[float, int]]] = defaultdict(dict)
    for loss in losses:
        for task in (loss.task, ALL):
            documents = sums[loss.plan, task]
            nll, tokens = documents.get((loss.task, loss.document), (0.0, 0))
            documents[loss.task, loss.document] = (nll + loss.nll, tokens + loss.tokens)
    return dict(sums)


def contrast(treated: Rows, control: Rows, losses: Losses, level: float = 0.05) -> Score | None:
    """The effect of one strategy minus that of another on one task, each a mean beside its draws; `None` without
    intervals to judge it by."""
    first, second = (_mean_documents(rows, losses) for rows in (treated, control))
    if first and second and first.keys() == second.keys() and len(first) > 1:
        return _bootstrapped(first, second, level)
    means = [mean for rows in (treated, control) if (mean := rows.one(seed=None)) is not None]
    return _joined(means[0], means[1]) if len(means) == 2 else None


def independent(first: Score, second: Score, *, pairs: int = 1, level: float = 0.05) -> Score | None:
    """The effect on one task minus the effect on another.

    `pairs` is the number of pairs that these two were picked from as the extreme one; the interval is widened for the
    choice (Bonferroni).
    """
    normal = NormalDist()
    wider = normal.inv_cdf(1 - level / (2 * pairs)) / normal.inv_cdf(1 - level / 2)
    return _joined(first, second, wider)


def _joined(first: Score, second: Score, wider: float = 1.0) -> Score | None:
    if first.low is None or first.high is None or second.low is None or second.high is None:
        return None
    value = first.value - second.value
    below = math.hypot(first.value - first.low, second.high - second.value)
    above = math.hypot(first.high - first.value, second.value - second.low)
    return Score(CONTRAST, "difference", value, value - wider * below, value + wider * above, task=first.task)


def _mean_documents(rows: Rows, losses: Losses) -> dict[tuple[str, str], tuple[float, int]] | None:
    """The documents of a strategy, the nll averaged over its draws; `None` unless every draw has the same documents."""
    by_draw = [losses.get((str(row.plan), row.task)) for row in rows if row.plan is not None]
    draws = [documents for documents in by_draw if documents]
    if not draws or len(draws) != len(by_draw) or any(draw.keys() != draws[0].keys() for draw in draws):
        return None
    return {name: (sum(draw[name][0] for draw in draws) / len(draws), tokens) for name, (_, tokens) in draws[0].items()}


def _bootstrapped(first: Documents, second: Documents, level: float) -> Score:
    names = sorted(first)
    differences = np.array([first[name][0] - second[name][0] for name in names])
    tokens = np.array([first[name][1] for name in names], dtype=float)
    drawn = np.random.default_rng(SEED).multinomial(len(names), [1 / len(names)] * len(names), size=RESAMPLES)
    low, high = np.quantile((drawn @ differences) / (drawn @ tokens), [level / 2, 1 - level / 2])
    value = float(differences.sum() / tokens.sum())
    return Score(CONTRAST, "difference", value, float(low), float(high), documents=len(names))
