"""What a figure draws along an axis: lines of scores, and the bands of their nulls.

Both are maps from a position on the axis (a layer, a lag, a size, a number of layers dropped) to the score measured
there, so that one figure function draws every measure that has an axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layerwise.results.rows import Score

Rows = Mapping[Any, Score]
"""Position to score. Positions are numbers, whole for layers and counts, real for sizes: a mapping of either does."""


@dataclass(frozen=True, slots=True)
class Line:
    """Scores along an axis. `slot` is its colour; `hollow` holds the positions drawn as open markers;
    `draws` are positions and values of single draws, faint dots behind the line."""

    name: str
    rows: Rows
    slot: int
    hollow: frozenset[float] = frozenset()
    draws: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Band:
    """What a null gives along the same axis: an area where it has an interval, a dashed line where it has none."""

    name: str
    rows: Rows
