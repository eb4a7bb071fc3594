"""How the other strategies of manipulating weights compare with scaling, in the words of a claim.

The contrasts of such a claim have a metric for every strategy, `equal:STRATEGY` at the size of scaling and
`unequal:STRATEGY` at its own largest size: what it costs more than scaling.
"""

from __future__ import annotations

from layerwise.report.claims.claim import NOT_ABOVE
from layerwise.report.claims.contrasts import Contrasts
from layerwise.report.page.wording import label, listed


def compared(rows: Contrasts | None) -> tuple[list[str], list[str]]:
    """The metrics of the comparisons at equal and at unequal size; none without rows."""
    metrics = [] if rows is None else sorted(rows.scores)
    equal, unequal = ([metric for metric in metrics if metric.startswith(size)] for size in ("equal:", "unequal:"))
    return equal, unequal


def costs(rows: Contrasts, metrics: list[str]) -> str:
    """Each strategy with what it costs more than scaling."""
    return listed([f"{_strategy(metric)} {rows.shown(metric)}" for metric in metrics])


def as_mild(rows: Contrasts, metrics: list[str], margin: float) -> str:
    """The strategies that are shown to cost at most `margin` more than scaling."""
    positions = rows.positions(*metrics, margin=margin)
    return listed([_strategy(metric) for metric in metrics if positions[metric] in NOT_ABOVE])


def _strategy(metric: str) -> str:
    return label(metric.partition(":")[2])
