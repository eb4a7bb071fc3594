"""The marks of which every picture is made: lines, levels, dots, heat, bars and scatter.

A mark is data: which rows it draws, which column is its axis, which its series, which a reader chooses between. It
knows no kind of run; `Mark.picture` makes the figures of a run from its rows.
"""

from layerwise.report.marks.bars import Bars
from layerwise.report.marks.dots import Dots
from layerwise.report.marks.heat import Heat
from layerwise.report.marks.levels import Levels
from layerwise.report.marks.lines import Lines
from layerwise.report.marks.mark import Mark, Slots, in_order
from layerwise.report.marks.scatter import Scatter, Style

__all__ = ["Bars", "Dots", "Heat", "Levels", "Lines", "Mark", "Scatter", "Slots", "Style", "in_order"]
