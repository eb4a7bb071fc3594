"""Descriptions of figures: lines, dots, heat maps, bars and scatter plots."""

from layerwise.page.marks.bars import Bars
from layerwise.page.marks.dots import Dots
from layerwise.page.marks.heat import Heat
from layerwise.page.marks.lines import Lines
from layerwise.page.marks.mark import Mark, Slots, number_series
from layerwise.page.marks.scatter import Scatter, Style

__all__ = ["Bars", "Dots", "Heat", "Lines", "Mark", "Scatter", "Slots", "Style", "number_series"]
