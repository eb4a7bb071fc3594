"""The pictures of the report: each a plotly figure built from evidence, in the light colours, with no page around it.

A figure shown alone (`degradation(evidence, "painters", "all").show()`) looks as it does in the report.
"""

from __future__ import annotations

from layerwise.report.figures.cost import PRICES, cost
from layerwise.report.figures.curves import degradation
from layerwise.report.figures.importance import layer_bars
from layerwise.report.figures.maps import strategy_map, window_map
from layerwise.report.figures.similarity import adjacent, similarity_map
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
