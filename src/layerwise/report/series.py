"""What a figure of a diagnosis draws: lines of scores along an axis, and the bands of their nulls.

Both are maps from a position on the axis (a layer, a lag, a size, a number of layers dropped) to the score measured
there, so that one figure function draws every measure that has an axis.
"""

from __future__ import annotations

from layerwise.plan import Sublayer
from layerwise.report.diagnosis.lookup import NULL, WHOLE, DiagnosisScores
from layerwise.report.figures.axis import Band, Line, Rows
from layerwise.report.page.wording import label

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


__all__ = ["NULL_NAMES", "Band", "Line", "Rows", "layer_bands", "null_name"]
