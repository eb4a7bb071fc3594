"""The profile of hidden states: how alike neighbours are."""

from __future__ import annotations

from layerwise.report.figures.figure import Figure, Trace, scatter
from layerwise.report.figures.frame import LEGEND, framed
from layerwise.report.page.palette import SERIES, SYMBOLS
from layerwise.report.sweep.similarity import Matrix

MOST_TICKS = 26


def adjacent(named: dict[str, Matrix]) -> Figure:
    """How alike each hidden state is to the next one, a line per measure: zone borders are the dips."""
    ticks = 1 if len(next(iter(named.values()))) <= MOST_TICKS else None
    return framed(
        310,
        [_profile(slot, name, values) for slot, (name, values) in enumerate(named.items())],
        x={"title": "hidden state j, against j + 1", "dtick": ticks},
        y={"title": "similarity", "zeroline": False},
        margin={"l": 48, "r": 12, "t": 28, "b": 40},
        showlegend=True,
        hovermode="x unified",
        legend=LEGEND,
    )


def _profile(slot: int, name: str, values: Matrix) -> Trace:
    steps = range(len(values) - 1)
    return scatter(
        x=list(steps),
        y=[values[step][step + 1] for step in steps],
        name=name,
        mode="lines+markers",
        line={"color": SERIES[slot][0], "width": 2},
        marker={"symbol": SYMBOLS[slot], "size": 6},
        hovertemplate="%{y:.3f}",
    )
