"""The pictures of the report: each built from evidence as plain data, in the light colours, with no page around it.

`plotly.graph_objects.Figure(degradation(evidence, "painters", "all").payload()).show()` shows one as the report does,
with Plotly's Python package, which layerwise itself does without.
"""

from __future__ import annotations

from layerwise.report.figures.bars import layer_bars
from layerwise.report.figures.cost import PRICES, cost
from layerwise.report.figures.curves import degradation
from layerwise.report.figures.heatmaps import similarity_map, strategy_map, window_map
from layerwise.report.figures.similarity import adjacent
from layerwise.report.figures.tasks import order_or_absence, ranking

__all__ = [
    "PRICES",
    "adjacent",
    "cost",
    "degradation",
    "layer_bars",
    "order_or_absence",
    "ranking",
    "similarity_map",
    "strategy_map",
    "window_map",
]
