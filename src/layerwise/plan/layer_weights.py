"""Learned layer weights: which earlier hidden states each layer reads, and with what weight.

The input of layer n is x_n = sum_i alpha[n, i] h_i, where h_0 is the embedding output and h_(n+1) the output of layer
n. Layer n is called reader n, and h_i source i. If a model also mixes its output, the output is the last reader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from layerwise.errors import PlanError
from layerwise.plan.checks import LAYER_LIMIT, describe_value
from layerwise.plan.wiring import Matrix

OUTPUT = "out"
"""Name of the last reader of a model that mixes its output, as in `out<-4`."""

MIN_SUM = 1e-3
"""The remaining weights of a row are rescaled only if their sum exceeds this fraction of the original sum."""


class Edge(NamedTuple):
    """One learned layer weight: reader `reader` reads source `source`."""

    reader: int
    source: int

    def name(self, depth: int) -> str:
        """Format the edge for a model of `depth` layers.

        >>> Edge(3, 0).name(12), Edge(12, 4).name(12)
        ('3<-0', 'out<-4')
        """
        return f"{OUTPUT if self.reader == depth else self.reader}<-{self.source}"


Row: TypeAlias = tuple[tuple[int, float], ...]
"""(source, weight) pairs of one reader, in ascending order of the source."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Layer weights of a model of `depth` layers.

    There is one row of (source, weight) pairs per layer, and one more if the model mixes its output. Raises `PlanError`
    if a row is empty, a weight is not finite, or a layer reads its own output or a later one.

    >>> LayerWeights(2, (((0, 1.0),), ((0, 0.25), (1, 0.75)))).matrix()
    ((1.0, 0.0, 0.0), (0.25, 0.75, 0.0))
    """

    depth: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if type(self.depth) is not int or not 1 <= self.depth <= LAYER_LIMIT:
            raise PlanError(f"depth must be from 1 to {LAYER_LIMIT}, got {describe_value(self.depth)}")
        if len(self.rows) not in (self.depth, self.depth + 1):
            raise PlanError(
                f"a wiring of {self.depth} layers must have {self.depth} rows, or one more for the output, got "
                f"{len(self.rows)}"
            )
        for reader, row in enumerate(self.rows):
            _check_row(self.reader_name(reader), reader, row)

    @classmethod
    def of(cls, matrix: Sequence[Sequence[float]], depth: int) -> LayerWeights:
        """Create layer weights from the nonzero entries of a matrix of shape `(readers, depth + 1)`.

        >>> LayerWeights.of([[1.0, 0.0], [0.5, 0.5]], depth=2).rows
        (((0, 1.0),), ((0, 0.5), (1, 0.5)))
        """
        rows = (tuple((source, float(weight)) for source, weight in enumerate(row) if weight) for row in matrix)
        return cls(depth, tuple(rows))

    @classmethod
    def identity(cls, depth: int) -> LayerWeights:
        """Return the weights of an ordinary model, in which each layer reads only the output of the previous one.

        >>> LayerWeights.identity(2).rows
        (((0, 1.0),), ((1, 1.0),))
        """
        return cls(depth, tuple(((reader, 1.0),) for reader in range(depth)))

    # -- what it is ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return sum(map(len, self.rows))

    def __iter__(self) -> Iterator[Edge]:
        return (Edge(reader, source) for reader, row in enumerate(self.rows) for source, _ in row)

    @property
    def mixes_output(self) -> bool:
        return len(self.rows) > self.depth

    def reader_name(self, reader: int) -> str:
        return OUTPUT if reader == self.depth else str(reader)

    def weight(self, edge: Edge) -> float:
        """Return the weight of an edge, or 0 if it does not exist."""
        return dict(self.rows[edge.reader]).get(edge.source, 0.0)

    def matrix(self) -> Matrix:
        """Return the weights as a lower triangular matrix of shape `(readers, depth + 1)`."""
        return tuple(tuple(dict(row).get(source, 0.0) for source in range(self.depth + 1)) for row in self.rows)

    def last_readers(self) -> tuple[int | None, ...]:
        """Return the last reader of each source, or None if nothing reads the source. The output is reader `depth`."""
        last: list[int | None] = [None] * (self.depth + 1)
        for edge in self:
            last[edge.source] = edge.reader
        if not self.mixes_output:
            last[self.depth] = self.depth
        return tuple(last)

    # -- edits --------------------------------------------------------------------------------------------------

    def without(self, *edges: Edge, renormalize: bool = True) -> LayerWeights:
        """Remove `edges`. If `renormalize`, rescale each shortened row to its previous sum.

        Raises `PlanError` if an edge does not exist, or if the remaining weights of a row are empty or sum to nearly 0.

        >>> LayerWeights.of([[1, 0], [0.5, 0.5]], depth=2).without(Edge(1, 0)).rows[1]
        ((1, 1.0),)
        """
        cut = set(edges)
        missing = sorted(cut - set(self))
        if missing:
            raise PlanError(f"the wiring has {len(self)} edges, but no edge {missing[0].name(self.depth)}")
        rows = list(self.rows)
        for reader in sorted({edge.reader for edge in cut}):
            rows[reader] = self._remaining_row(reader, cut, renormalize)
        return replace(self, rows=tuple(rows))

    def without_first(self, order: Iterable[Edge], count: int, *, renormalize: bool) -> LayerWeights:
        """Remove the first `count` edges of `order` that can be removed. Every reader keeps at least one edge.

        >>> wiring = LayerWeights.of([[1, 0], [0.5, 0.5]], depth=2)
        >>> wiring.without_first([Edge(1, 0), Edge(1, 1)], 2, renormalize=True).rows[1]
        ((1, 1.0),)
        """
        left = self
        for edge in order:
            if len(self) - len(left) == count:
                break
            try:
                left = left.without(edge, renormalize=renormalize)
            except PlanError:
                continue  # the last edge of its row, or the rest could not be rescaled
        return left

    def _remaining_row(self, reader: int, cut: Iterable[Edge], renormalize: bool) -> Row:
        row = self.rows[reader]
        left = tuple((source, weight) for source, weight in row if Edge(reader, source) not in cut)
        name = self.reader_name(reader)
        if not left:
            raise PlanError(f"at least one of the edges {name}<-* must remain")
        if not renormalize:
            return left
        before, after = (sum(weight for _, weight in weights) for weights in (row, left))
        if abs(after) <= MIN_SUM * abs(before) or after == 0:
            raise PlanError(
                f"the remaining weights of the edges {name}<-* sum to {after:.3g}, too close to zero to rescale them "
                f"to {before:.3g}; pass renormalize=False"
            )
        return tuple((source, weight * before / after) for source, weight in left)


@dataclass(frozen=True, slots=True)
class EdgeCut:
    """Edges (layer weights) to remove: the fraction `share` with the smallest absolute values, or those in `patterns`.

    A pattern is a (reader, source) pair, in which `*` matches any number.

    >>> wiring = LayerWeights.of([[1, 0, 0], [0.25, 0.75, 0], [0.1, 0.4, 0.5]], depth=2)
    >>> for text in ("20%", "*<-0", "out<-2+1<-1"):
    ...     print(EdgeCut.parse(text).apply(wiring, renormalize=False).rows[1:])
    (((0, 0.25), (1, 0.75)), ((1, 0.4), (2, 0.5)))
    (((1, 0.75),), ((1, 0.4), (2, 0.5)))
    (((0, 0.25),), ((0, 0.1), (1, 0.4)))
    """

    text: str
    share: float | None = None
    patterns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> EdgeCut:
        """Parse a percentage such as `30%`, or edges such as `3<-0+out<-4` or `*<-2`."""
        if (share := _SHARE.fullmatch(text)) and 0 < float(share[1]) < 100:
            return cls(text, share=float(share[1]) / 100)
        patterns = [_EDGES.fullmatch(part) for part in text.split("+")]
        if not all(patterns):
            raise PlanError(
                f"edges to remove must be a percentage between 0 and 100, such as 30%, or edges joined by +, such as "
                f"3<-0+{OUTPUT}<-4 or *<-2, got {describe_value(text)}"
            )
        return cls(text, patterns=tuple((each[1], each[2]) for each in patterns if each))

    def apply(self, wiring: LayerWeights, *, renormalize: bool = True) -> LayerWeights:
        """Remove the edges of this cut from `wiring`. Raise `PlanError` if none can be removed."""
        if self.share is not None:
            order = sorted(wiring, key=lambda edge: abs(wiring.weight(edge)))
            count = round(self.share * len(wiring))
        else:
            order = [edge for edge in wiring if self._names(edge, wiring)]
            count = len(order)
            if not order:
                raise PlanError(f"no edge matches {self.text}; {_readers(wiring)}")
        left = wiring.without_first(order, count, renormalize=renormalize)
        if len(left) == len(wiring):
            raise PlanError(f"{self.text} removes nothing, as every layer keeps at least one edge; {_readers(wiring)}")
        return left

    def _names(self, edge: Edge, wiring: LayerWeights) -> bool:
        own = (wiring.reader_name(edge.reader), str(edge.source))
        return any(reader in ("*", own[0]) and source in ("*", own[1]) for reader, source in self.patterns)


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")
_EDGES = re.compile(rf"(\d{{1,4}}|{OUTPUT}|\*)<-(\d{{1,4}}|\*)")


def _readers(wiring: LayerWeights) -> str:
    output = f" and {OUTPUT}" * wiring.mixes_output
    return (
        f"layers are 0 to {wiring.depth - 1}{output}; sources are 0 (the embedding) to {wiring.depth} (the last layer)"
    )


def _check_row(name: str, reader: int, row: Row) -> None:
    reads = "the output" if name == OUTPUT else f"layer {name}"
    if not row:
        raise PlanError(f"{reads} must read at least one earlier state")
    before = -1
    for source, weight in row:
        if type(source) is not int or not before < source <= reader:
            raise PlanError(
                f"the sources of {reads} must be distinct, ascending and at most {reader}, got {describe_value(source)}"
            )
        if type(weight) is not float or not math.isfinite(weight):
            raise PlanError(
                f"the weight of {name}<-{source} must be a finite number such as 0.5, got {describe_value(weight)}"
            )
        before = source
