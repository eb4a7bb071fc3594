"""A learned wiring, frozen: which earlier states each layer reads, with what weight, as a sparse value.

Source 0 is the embedding output, source `n + 1` the output of layer n. Reader n is layer n and reads sources `0..n`;
reader `L`, where a model mixes its output, reads all of them: x_n = sum_i alpha[n, i] h_i.

A model that learned its wiring (ELC-BERT, DenseFormer) must keep every state until the end. With the small edges cut
(`without`), the rest says which state is needed until when (`last_readers`), how many a runner must hold
(`live_states`) and which layers nothing reads (`unheard`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from layerwise.bounded import parse_json
from layerwise.errors import PlanError
from layerwise.plan.checks import LAYER_LIMIT, shown
from layerwise.plan.wiring import Matrix

OUTPUT = "out"
"""What the reader behind the last layer is called."""

LEAST_SUM = 1e-3
"""The smallest share of a row's sum that may be left when a row is renormalised: the rest grows by its inverse."""


class Edge(NamedTuple):
    """A reader and one source that it reads; `str` is `3<-0`, or `out<-0` with the depth as the reader."""

    reader: int
    source: int

    def name(self, depth: int) -> str:
        """As rows and pictures call it.

        >>> Edge(3, 0).name(12), Edge(12, 4).name(12)
        ('3<-0', 'out<-4')
        """
        return f"{OUTPUT if self.reader == depth else self.reader}<-{self.source}"


Row: TypeAlias = tuple[tuple[int, float], ...]
"""The sources that one reader reads, ascending, each with its weight."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """A frozen wiring of `depth` layers: one row of (source, weight) for each, and one more if the output is mixed.

    Raises `PlanError` for a source that comes after its reader, for a weight that is not finite, for a row that reads
    nothing, and for rows of another number than the layers'.

    >>> wiring = LayerWeights(2, (((0, 1.0),), ((0, 0.25), (1, 0.75))))
    >>> LayerWeights.from_json(wiring.to_json()) == wiring
    True
    """

    depth: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if type(self.depth) is not int or not 1 <= self.depth <= LAYER_LIMIT:
            raise PlanError(f"a wiring is of 1 to {LAYER_LIMIT} layers, not {shown(self.depth)}")
        if len(self.rows) not in (self.depth, self.depth + 1):
            raise PlanError(
                f"a wiring of {self.depth} layers has {self.depth} rows, or one more for the output, not "
                f"{len(self.rows)}"
            )
        for reader, row in enumerate(self.rows):
            _check_row(self.reader_name(reader), reader, row)

    @classmethod
    def of(cls, matrix: Sequence[Sequence[float]], depth: int) -> LayerWeights:
        """The edges of a matrix (readers, depth + 1), or as many columns as there are readers: its nonzero weights.

        >>> LayerWeights.of([[1.0, 0.0], [0.5, 0.5]], depth=2).rows
        (((0, 1.0),), ((0, 0.5), (1, 0.5)))
        """
        rows = (tuple((source, float(weight)) for source, weight in enumerate(row) if weight) for row in matrix)
        return cls(depth, tuple(rows))

    @classmethod
    def identity(cls, depth: int) -> LayerWeights:
        """The wiring of an ordinary model: every layer reads the one before it.

        >>> LayerWeights.identity(3).live_states()
        1
        """
        return cls(depth, tuple(((reader, 1.0),) for reader in range(depth)))

    # -- kept ---------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The wiring as JSON: `{"depth": 2, "rows": [[[0, 1.0]], [[0, 0.25], [1, 0.75]]]}`, a row a line."""
        rows = ",\n  ".join(json.dumps(row) for row in self.rows)
        return f'{{"depth": {self.depth}, "rows": [\n  {rows}\n]}}\n'

    @classmethod
    def from_json(cls, text: str) -> LayerWeights:
        """Read what `to_json` has written; `PlanError` for anything else."""
        try:
            content = parse_json(text)
            rows = tuple(tuple((source, float(weight)) for source, weight in row) for row in content["rows"])
            return cls(content["depth"], rows)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PlanError(
                'a wiring is kept as {"depth": 2, "rows": [[[0, 1.0]], [[0, 0.25], [1, 0.75]]]}; '
                f"this is not ({error})"
            ) from None

    # -- what it is ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many edges there are."""
        return sum(map(len, self.rows))

    def __iter__(self) -> Iterator[Edge]:
        """The edges, reader by reader."""
        return (Edge(reader, source) for reader, row in enumerate(self.rows) for source, _ in row)

    @property
    def mixes_output(self) -> bool:
        """Whether what follows the last layer reads a mix too."""
        return len(self.rows) > self.depth

    def reader_name(self, reader: int) -> str:
        """The reader as rows and pictures call it: its number, or `out`."""
        return OUTPUT if reader == self.depth else str(reader)

    def weight(self, edge: Edge) -> float:
        """The weight of an edge; 0 where there is none."""
        return dict(self.rows[edge.reader]).get(edge.source, 0.0)

    def matrix(self) -> Matrix:
        """The weights as a matrix (readers, depth + 1), lower triangular, with zeros where nothing is read."""
        return tuple(tuple(dict(row).get(source, 0.0) for source in range(self.depth + 1)) for row in self.rows)

    def last_readers(self) -> tuple[int | None, ...]:
        """For each source the last reader that needs it, after which it can be dropped; `None` if nobody does.

        The output of the last layer is read by what follows (reader `depth`), also where that is no mix.
        """
        last: list[int | None] = [None] * (self.depth + 1)
        for edge in self:
            last[edge.source] = edge.reader
        if not self.mixes_output:
            last[self.depth] = self.depth
        return tuple(last)

    def live_states(self) -> int:
        """The most states that a runner holds at once: what a reader, or one after it, still needs.

        >>> LayerWeights.of([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]], depth=3).live_states()
        3
        """
        last = self.last_readers()
        return max(
            sum(until is not None and until >= reader for until in last[: reader + 1])
            for reader in range(self.depth + 1)
        )

    def unheard(self) -> tuple[int, ...]:
        """The layers whose output reaches the model's output by no path: they need not run at all.

        >>> LayerWeights.of([[1, 0, 0], [1, 0, 0], [0, 0, 1]], depth=3).unheard()
        (0,)
        """
        needed = {source for source, _ in self.rows[self.depth]} if self.mixes_output else {self.depth}
        for layer in reversed(range(self.depth)):
            if layer + 1 in needed:
                needed |= {source for source, _ in self.rows[layer]}
        return tuple(layer for layer in range(self.depth) if layer + 1 not in needed)

    # -- edits --------------------------------------------------------------------------------------------------

    def without(self, *edges: Edge, renormalise: bool = True) -> LayerWeights:
        """The wiring with `edges` cut; with `renormalise` each row that lost one is scaled to the sum it had.

        Raises `PlanError` for an edge that is not there, for a reader that is left with nothing, and where what is left
        of a row sums to nearly nothing, so that no factor restores it.

        >>> LayerWeights.of([[1, 0], [0.5, 0.5]], depth=2).without(Edge(1, 0)).rows[1]
        ((1, 1.0),)
        """
        cut = set(edges)
        missing = sorted(cut - set(self))
        if missing:
            raise PlanError(f"there is no edge {missing[0].name(self.depth)} to cut; the wiring has {len(self)} edges")
        rows = list(self.rows)
        for reader in sorted({edge.reader for edge in cut}):
            rows[reader] = self._left(reader, cut, renormalise)
        return replace(self, rows=tuple(rows))

    def _left(self, reader: int, cut: Iterable[Edge], renormalise: bool) -> Row:
        row = self.rows[reader]
        left = tuple((source, weight) for source, weight in row if Edge(reader, source) not in cut)
        name = self.reader_name(reader)
        if not left:
            raise PlanError(f"reader {name} would read nothing: leave it one of its {len(row)} edges")
        if not renormalise:
            return left
        before, after = (sum(weight for _, weight in weights) for weights in (row, left))
        if abs(after) <= LEAST_SUM * abs(before) or after == 0:
            raise PlanError(
                f"what is left for reader {name} sums to {after:.3g} of {before:.3g}, which no factor restores: cut "
                "without renormalising"
            )
        return tuple((source, weight * before / after) for source, weight in left)


def _check_row(name: str, reader: int, row: Row) -> None:
    if not row:
        raise PlanError(f"reader {name} reads nothing; give it at least one source")
    before = -1
    for source, weight in row:
        if type(source) is not int or not before < source <= reader:
            raise PlanError(
                f"reader {name} reads sources 0 to {reader} at most, each once and ascending, not {shown(source)}"
            )
        if type(weight) is not float or not math.isfinite(weight):
            raise PlanError(f"the weight of {name}<-{source} is a finite number such as 0.5, not {shown(weight)}")
        before = source
