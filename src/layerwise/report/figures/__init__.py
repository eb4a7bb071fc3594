"""The pictures of the report: each a plotly figure built from evidence, in the light colours, with no page around it.

A figure shown alone (`degradation(evidence, ...).show()`) looks as it does in the report.
"""

from __future__ import annotations

from layerwise.report.figures.cost import cost
from layerwise.report.figures.curves import degradation, multiples
from layerwise.report.figures.importance import importance
from layerwise.report.figures.similarity import adjacent, similarity_map
from layerwise.report.figures.tasks import half_depth_effects, order_or_absence
from layerwise.report.figures.windows import window_map

__all__ = [
    "adjacent",
    "cost",
    "degradation",
    "half_depth_effects",
    "importance",
    "multiples",
    "order_or_absence",
    "similarity_map",
    "window_map",
]
