"""The rows of a rehearsal: quality, latency, refusals by arm, replicas and dead nodes; and the arms in pairs.

Of measure `rehearsal`: the number of `nodes`, and of an `arm`, with so many nodes dead (`amount`) and each layer on one
or two of them (`condition`):

    accuracy            the share of examples right, of those that were answered after the loss; without an amount,
                        `against` the commonest class: what guessing it scores
    agreement           the share of the tokens of an answer that are those of the undisturbed answer, place by place
    nll_added           nats per token that the layers left cost on the text, above the whole model
    *_lost              paired with the same arm with no node dead
    *_above             paired with the baseline, which it is `against`, loss by loss
    p50, p95, p99       seconds of a token, or of a pass
    refused, missing, replays, hedged

Of measure `rehearsal_draw`: what one model (`arm`, `seed`) did in one draw, which is the `task`.

Intervals are over draws of the nodes that die: each draw counts once, with the mean over the seeds of an arm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.measure.stats.seeds import over_seeds
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BASELINE, NODES, REHEARSAL

QUALITY = ("accuracy", "agreement", "nll_added")

Values = Mapping[str, float]
"""What one draw gave, by metric, as the mean over the seeds of an arm."""

Level = tuple[int, int]
"""Replicas, and the nodes that are dead."""


def columns_of(arm: str, replicas: int, dead: int) -> dict[str, Any]:
    """The columns of an arm at a level.

    >>> columns_of("baseline", 1, 3)
    {'arm': 'baseline', 'condition': '1 replica', 'amount': 3}
    """
    return {"arm": arm, "condition": f"{replicas} replica{'s' * (replicas != 1)}", "amount": dead}


def rows(outcomes: Mapping[str, Mapping[Level, Sequence[Values]]], nodes: int) -> Iterator[Score]:
    """The rows of every arm; `outcomes[arm][level][n]` is the n-th draw, the same loss for every arm."""
    yield Score(REHEARSAL, NODES, float(nodes))
    for arm, by_level in outcomes.items():
        for (replicas, dead), drawn in by_level.items():
            own = columns_of(arm, replicas, dead)
            for metric in drawn[0]:
                yield from _score(metric, [each[metric] for each in drawn if metric in each], **own)
            for metric in (name for name in QUALITY if name in drawn[0]):
                whole = by_level[replicas, 0]
                if dead and len(whole) == len(drawn):
                    lost = _paired(whole, drawn, metric)
                    lost = lost if metric != "nll_added" else [-x for x in lost]
                    yield from _score(f"{metric}_lost", lost, **own)
                others = outcomes.get(BASELINE, {}).get((replicas, dead))
                if arm != BASELINE and others is not None:
                    above = _paired(drawn, others, metric)
                    yield from _score(f"{metric}_above", above, against=BASELINE, **own)


def _paired(drawn: Sequence[Values], others: Sequence[Values], metric: str) -> list[float]:
    pairs = zip(drawn, others, strict=True)
    return [each[metric] - other[metric] for each, other in pairs if metric in each and metric in other]


def _score(metric: str, values: Sequence[float], **columns: Any) -> Iterator[Score]:
    """The mean over draws with Student's interval; no interval where all draws give the same, no row without any."""
    if values:
        low, high = over_seeds(values, "accuracy" if metric == "agreement" else metric)
        yield Score(REHEARSAL, metric, float(np.mean(values)), low, high, documents=len(values), **columns)
