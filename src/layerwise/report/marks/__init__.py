"""Marks, the data that describes a picture: lines, levels, dots, heat, bars and scatter (see `Mark.picture`)."""

from layerwise.report.marks.bars import Bars
from layerwise.report.marks.dots import Dots
from layerwise.report.marks.heat import Heat
from layerwise.report.marks.levels import Levels
from layerwise.report.marks.lines import Lines
from layerwise.report.marks.mark import Mark, Slots, in_order
from layerwise.report.marks.scatter import Scatter, Style

__all__ = ["Bars", "Dots", "Heat", "Levels", "Lines", "Mark", "Scatter", "Slots", "Style", "in_order"]
