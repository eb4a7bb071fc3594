"""The layer weights of one arm over its seeds: mean and spread of every cell of the matrix.

Reader n weighs the sources 0..n, source 0 the embedding and source k + 1 the output of layer k; a mixed output is one
more reader, `out`. The spread is the standard deviation over seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev

from layerwise.plan.checks import LAYER_LIMIT
from layerwise.results.rows import Score

OUT = "out"


@dataclass(frozen=True)
class Alpha:
    """Cells (reader, source), readers as numbers from 0 and the mixed output as reader `depth`.

    `values` holds the weight of each seed, by the subject of its row.
    """

    depth: int
    mixes_output: bool
    values: Mapping[tuple[int, int], Mapping[str, float]]

    @classmethod
    def of(cls, rows: Iterable[Score]) -> Alpha:
        """From the rows of one arm; a row whose names are no numbers of layers is not one of them."""
        cells = [row for row in rows if _is_layer(row.metric) and (row.task == OUT or _is_layer(row.task))]
        depth = 1 + max((int(row.task) for row in cells if row.task != OUT), default=-1)
        values: dict[tuple[int, int], dict[str, float]] = defaultdict(dict)
        for row in cells:
            values[depth if row.task == OUT else int(row.task), int(row.metric)][row.subject] = row.value
        kept = {(reader, source): of for (reader, source), of in sorted(values.items()) if source <= reader}
        return cls(depth, any(row.task == OUT for row in cells), kept)

    @cached_property
    def mean(self) -> dict[tuple[int, int], float]:
        """The mean weight of each cell."""
        return {cell: fmean(of.values()) for cell, of in self.values.items()}

    @cached_property
    def spread(self) -> dict[tuple[int, int], float]:
        """The standard deviation over seeds of each cell that has several."""
        return {cell: stdev(of.values()) for cell, of in self.values.items() if len(of) > 1}

    @property
    def seeds(self) -> int:
        """The most seeds that any cell has."""
        return max((len(of) for of in self.values.values()), default=0)

    def reader(self, number: int) -> str:
        """A reader as it is read.

        >>> Alpha(2, True, {}).reader(1), Alpha(2, True, {}).reader(2)
        ('layer 1', 'the output')
        """
        return "the output" if number == self.depth else f"layer {number}"


def source_name(number: int) -> str:
    """A source as it is read.

    >>> source_name(0), source_name(3)
    ('the embedding', 'layer 2')
    """
    return "the embedding" if number == 0 else f"layer {number - 1}"


def _is_layer(name: str) -> bool:
    return name.isdecimal() and int(name) <= LAYER_LIMIT
