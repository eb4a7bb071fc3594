"""Means over tokens, accumulated window by window, with intervals over documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import to_float64_cpu
from layerwise.measure.stats.grid import MIN_UNITS, Strata, resampling_unit
from layerwise.measure.stats.statistics import Numbers, StratumLabels, student_interval
from layerwise.results.rows import Score


class WindowSums:
    """Accumulate ratios of sums over windows for many subjects, such as layers, pairs of layers, or gates.

        value[subject] = sum_w numerator[subject, w] / sum_w denominator[w]

    Intervals are over documents (windows if there are fewer than 8 documents), stratified by task.
    """

    def __init__(self) -> None:
        self._above: list[Numbers] = []
        self._below: list[Numbers] = []
        self._windows: list[Window] = []

    def add(self, numerators: Tensor, denominators: Tensor, windows: Sequence[Window]) -> None:
        """Add a batch of numerators (subjects, windows) and denominators (windows,)."""
        self._above.append(to_float64_cpu(numerators).numpy())
        self._below.append(to_float64_cpu(denominators).numpy())
        self._windows.extend(windows)

    @property
    def documents(self) -> int:
        return len({(window.task, window.document) for window in self._windows})

    @property
    def tokens(self) -> int:
        return round(sum(float(part.sum()) for part in self._below))

    def units(self) -> tuple[Numbers, Numbers]:
        """Return numerators (subjects, units) and denominators (units,) of documents or windows with tokens."""
        above, below, _ = self._by_unit()
        return above, below

    def _by_unit(self) -> tuple[Numbers, Numbers, StratumLabels]:
        above, below = np.concatenate(self._above, axis=1), np.concatenate(self._below)
        owners = [(window.task, window.document) for window in self._windows]
        if resampling_unit(self.documents) == "document":
            index_of = {owner: number for number, owner in enumerate(sorted(set(owners)))}
            member = np.zeros((len(owners), len(index_of)))
            member[np.arange(len(owners)), [index_of[owner] for owner in owners]] = 1.0
            above, below, owners = above @ member, below @ member, list(index_of)
        nonzero = np.flatnonzero(below > 0)
        strata = Strata.label_pieces({(*owners[unit], number): 1 for number, unit in enumerate(nonzero)})
        return above[:, nonzero], below[nonzero], strata

    def scores(self, measure: str, metric: str, about: Sequence[Mapping[str, Any]], **columns: Any) -> list[Score]:
        """Return one row per subject (a row of the numerators), with a Student t interval for at least 8 units.

        Units are documents or windows. `about` has the columns of each row, and `columns` those that all rows share.
        Raises `MeasureError` if there are no tokens.
        """
        above, below, strata = self._by_unit()
        if not below.size:
            raise MeasureError(f"{metric} needs at least one token, got none. Use a longer text.")
        values = above.sum(axis=1) / below.sum()
        bounds: list[tuple[float | None, float | None]] = [(None, None)] * len(values)
        if below.size >= MIN_UNITS:
            estimate = student_interval(above, below, strata=strata)
            bounds = list(zip(estimate.low.tolist(), estimate.high.tolist(), strict=True))
        columns |= {"documents": self.documents, "tokens": self.tokens}
        return [
            Score(measure, metric, float(value), low, high, **subject, **columns)
            for subject, value, (low, high) in zip(about, values, bounds, strict=True)
        ]
