"""The rows of a rehearsal: quality, latency, refusals by arm, replicas and dead nodes; and the arms in pairs.

Of measure `rehearsal`, subject an arm, task `3 of 8 dead, 2 replicas`:

    accuracy            the share of examples right, of those that were answered after the loss
    agreement           the share of the tokens of an answer that are those of the undisturbed answer, place by place
    nll_added           nats per token that the layers left cost on the text, above the whole model
    *_lost              paired with the same arm with no node dead
    *_above@baseline    paired with the baseline, loss by loss
    p50, p95, p99       seconds of a token, or of a pass
    refused, missing, replays, hedged

Intervals are over draws of the nodes that die: each draw counts once, with the mean over the seeds of an arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.rows import Score

MEASURE = "rehearsal"

DRAW = "rehearsal_draw"
"""The measure of what one model did in one draw: subject ARM/SEED, task `3 dead, 2 replicas, draw 0`."""

QUALITY = ("accuracy", "agreement", "nll_added")
BASELINE = "baseline"

Values = Mapping[str, float]
"""What one draw gave, by metric, as the mean over the seeds of an arm."""

Level = tuple[int, int]
"""Replicas, and the nodes that are dead."""


def task_of(dead: int, nodes: int, replicas: int) -> str:
    """How a level is called in rows.

    >>> task_of(3, 8, 1)
    '3 of 8 dead, 1 replica'
    """
    return f"{dead} of {nodes} dead, {replicas} replica{'s' * (replicas != 1)}"


def rows(outcomes: Mapping[str, Mapping[Level, Sequence[Values]]], nodes: int) -> Iterator[Score]:
    """The rows of every arm; `outcomes[arm][level][n]` is the n-th draw, the same loss for every arm."""
    for arm, by_level in outcomes.items():
        for (replicas, dead), drawn in by_level.items():
            task = task_of(dead, nodes, replicas)
            for metric in drawn[0]:
                yield _score(arm, task, metric, [each[metric] for each in drawn if metric in each])
            for metric in (name for name in QUALITY if name in drawn[0]):
                whole = by_level[replicas, 0]
                if dead and len(whole) == len(drawn):
                    lost = _paired(whole, drawn, metric)
                    yield _score(arm, task, f"{metric}_lost", lost if metric != "nll_added" else [-x for x in lost])
                others = outcomes.get(BASELINE, {}).get((replicas, dead))
                if arm != BASELINE and others is not None:
                    yield _score(arm, task, f"{metric}_above@baseline", _paired(drawn, others, metric))


def _paired(drawn: Sequence[Values], others: Sequence[Values], metric: str) -> list[float]:
    pairs = zip(drawn, others, strict=True)
    return [each[metric] - other[metric] for each, other in pairs if metric in each and metric in other]


def _score(arm: str, task: str, metric: str, values: Sequence[float]) -> Score:
    """The mean over draws with Student's interval; where all draws give the same there is none."""
    if not values:
        return Score(MEASURE, arm, task, f"{metric}.absent", 0.0)
    low, high = over_seeds(values, "accuracy" if metric == "agreement" else metric)
    return Score(MEASURE, arm, task, metric, float(np.mean(values)), low, high, documents=len(values))
