"""What a figure of a diagnosis draws: lines of scores along an axis, and the bands of their nulls.

Both are maps from a position on the axis (a layer, a lag, a size, a number of layers dropped) to the score measured
there, so that one figure function draws every measure that has an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.plan import Sublayer
from layerwise.report.diagnosis.lookup import NULL, WHOLE, DiagnosisScores
from layerwise.report.page.wording import label
from layerwise.results.rows import Score

Rows = Mapping[Any, Score]
"""Position to score. Positions are numbers, whole for layers and counts, real for sizes: a mapping of either does."""

NULL_NAMES = {
    "no_effect": "no effect",
    "random_twin": "random twin",
    "shuffled": "shuffled layers",
    "shuffled_layers": "shuffled layers",
    "permuted_units": "permuted units",
    "independent": "independent layers",
    "same_norm_random": "random error of the same norm",
    "p_over_n": "p/n, what a fit to noise gives",
    "twin": "undamaged twin",
    "uniform": "uniform",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Scores along an axis. `slot` is its colour; `hollow` holds the positions drawn as open markers."""

    name: str
    rows: Rows
    slot: int
    hollow: frozenset[float] = frozenset()


@dataclass(frozen=True, slots=True)
class Band:
    """What a null gives along the same axis: an area where it has an interval, a dashed line where it has none."""

    name: str
    rows: Rows


def null_name(null: str) -> str:
    """A null as it is read.

    >>> null_name("random_twin"), null_name("something_else")
    ('random twin', 'something else')
    """
    return NULL_NAMES.get(null, label(null))


def layer_bands(
    run: DiagnosisScores, measure: str, metric: str, task: str = WHOLE, part: Sublayer | None = None
) -> tuple[Band, ...]:
    """Every null of a metric by depth."""
    nulls = (
        (null, run.layers(measure, f"{metric}{NULL}{null}", task, part)) for null in run.nulls(measure, metric, task)
    )
    return tuple(Band(null_name(null), rows) for null, rows in nulls if rows)
