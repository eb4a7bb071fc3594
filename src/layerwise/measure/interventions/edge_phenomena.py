"""Which edge of a learned wiring carries which phenomenon: each edge is cut alone, and every phenomenon asked again.

A unit is a minimal pair, or a labelled sentence; the model's `margin` on it is by how many nats it prefers the better
text, or the right label. Cutting an edge changes it, and

    effect[edge, phenomenon] = mean over paradigms of the mean over units of (margin - margin without the edge)

is above 0 where the edge serves the phenomenon. Paradigms are what they are, their units are a sample: the error is put
together from the paradigms, with Student's quantile at Satterthwaite's degrees of freedom. Half of the units of each
paradigm choose: there the p are corrected over edges and phenomena together (Holm). The other half, which chose
nothing, confirms what was chosen: there they are corrected over the chosen ones. Only what is confirmed counts, so that
in 100 wirings without an effect at most 5 have an edge that does; and only the confirmed effects are free of selection.

Rows of measure `edge_phenomena`, the condition the suite, the task the phenomenon, of an edge (a reader, `layer`, and a
source, `other`) or of the whole wiring:

    effect, accuracy    on the half that chooses: nats with interval, p, Holm's p and mde; the share of units that are
                        right, with less without the edge
    confirmed           of those below .05: the effect on the other half, with interval, p and Holm's p
    margin, right       the whole wiring: mean margin and share of units that are right, over all units
    linguistic          1 for a linguistic feature, 0 for a surface one, where tasks of both kinds are there

and where they are, of the task `all`, over all units,

    contrast            the mean effect on linguistic features less that on surface ones, each as a share of the root
                        mean square of the feature's margins; interval, p, Holm over edges
    rank_correlation    of the reader's depth with the mean contrast of its edges: does depth turn to structure?

Of several models the rows have the `arm` and the `seed` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from layerwise.errors import MeasureError
from layerwise.measure.interventions.edge_pruning import edge_columns
from layerwise.measure.stats.estimate import Estimate, satterthwaite
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.measure.stats.ranks import rank_correlation
from layerwise.measure.stats.statistics import Numbers, holm, holm_by_key
from layerwise.plan import Edge
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EDGE_PHENOMENA

LEVEL = 0.05


@dataclass(frozen=True, slots=True)
class Phenomenon:
    """Units that are asked about one thing: the paradigm of each, and the kind of feature, where that is known."""

    name: str
    paradigms: tuple[str, ...]
    linguistic: bool | None = None

    def __post_init__(self) -> None:
        if len(self.paradigms) < 2 * FEWEST_UNITS:
            raise MeasureError(
                f"{self.name} has {len(self.paradigms)} pairs or sentences; one half chooses edges, the other confirms "
                f"them, and an interval needs {FEWEST_UNITS} in each: give {2 * FEWEST_UNITS} or more (--limit)"
            )

    def halves(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which units choose and which confirm: every other one of each paradigm."""
        seen: dict[str, int] = {}
        first = np.zeros(len(self.paradigms), dtype=bool)
        for index, paradigm in enumerate(self.paradigms):
            count = seen.get(paradigm, 0)
            first[index] = count % 2 == 0
            seen[paradigm] = count + 1
        return first, ~first


MarginEvaluation = Callable[[], Numbers]
"""Asks the model, wired as it is now, for its margins on units that are always the same, (units,)."""


@dataclass(frozen=True, slots=True, eq=False)
class EdgeMargins:
    """The margins of one phenomenon: of the whole wiring, (units,), and without each edge, (edges, units)."""

    phenomenon: Phenomenon
    whole: Numbers
    without: Numbers

    @property
    def changes(self) -> Numbers:
        """What each edge adds to the margins, (edges, units)."""
        return self.whole - self.without


def measured(
    edges: Sequence[Edge],
    phenomena: Sequence[tuple[Phenomenon, MarginEvaluation]],
    without: Callable[[Edge], AbstractContextManager[None]],
    progress: Callable[[int, int], None] | None = None,
) -> list[EdgeMargins]:
    """The margins of every phenomenon, with the whole wiring and within the context `without` of every edge."""
    results = []
    total = len(phenomena) * (len(edges) + 1)
    for number, (phenomenon, evaluate) in enumerate(phenomena):
        whole = evaluate()
        rows = []
        for edge in edges:
            with without(edge):
                rows.append(evaluate())
            if progress is not None:
                progress(number * (len(edges) + 1) + len(rows) + 1, total)
        results.append(EdgeMargins(phenomenon, whole, np.stack(rows)))
    return results


def estimates(changes: Numbers, paradigms: Sequence[str]) -> Estimate[Numbers]:
    """Means over paradigms of the means over units, of (rows, units), with their errors put together.

    A paradigm with a single unit has no spread of its own and takes the mean of the others'.
    """
    names = np.array(paradigms)
    groups = [changes[:, names == name] for name in dict.fromkeys(paradigms)]
    means = np.stack([group.mean(axis=1) for group in groups])
    spreads = [group.var(axis=1, ddof=1) if group.shape[1] > 1 else None for group in groups]
    known = [spread for spread in spreads if spread is not None]
    usual = np.mean(known, axis=0) if known else changes.var(axis=1, ddof=1)
    parts = np.stack(
        [(usual if spread is None else spread) / group.shape[1] for spread, group in zip(spreads, groups, strict=True)]
    )
    variance = parts.sum(axis=0) / len(groups) ** 2
    counts = np.array([max(1, group.shape[1] - 1) for group in groups])
    squares = (np.square(parts) / counts[:, None]).sum(axis=0) / len(groups) ** 4
    return Estimate.student(means.mean(axis=0), np.sqrt(variance), satterthwaite(variance, squares))


def phenomenon_rows(suite: str, edges: Sequence[Edge], margins: Sequence[EdgeMargins], depth: int) -> list[Score]:
    """The rows of a suite: `edges` are those that were cut, of a wiring of so many layers."""
    columns = [edge_columns(edge, depth) for edge in edges]
    parts = [each.phenomenon.halves() for each in margins]
    chosen = [_part(each, halves[0]) for each, halves in zip(margins, parts, strict=True)]
    confirming = [_part(each, halves[1]) for each, halves in zip(margins, parts, strict=True)]
    adjusted = holm(np.concatenate([each.p() for each in chosen])).reshape(len(margins), len(edges))
    selected = [(at, int(edge)) for at, of in enumerate(adjusted) for edge in np.flatnonzero(of < LEVEL)]
    fresh = {key: float(confirming[key[0]].p()[key[1]]) for key in selected}
    confirmed = holm_by_key(fresh)
    rows: list[Score] = []
    for at, each in enumerate(margins):
        of = {"condition": suite, "task": each.phenomenon.name}
        rows += _whole(of, each)
        named = [of | own for own in columns]
        rows += _effects(named, each, chosen[at], adjusted[at], parts[at][0], adjusted.size)
        units, of_edges = int(parts[at][1].sum()), confirming[at].each()
        rows += [
            Score(
                EDGE_PHENOMENA,
                "confirmed",
                *of_edges[edge].row(),
                fresh[at, edge],
                p_adjusted=confirmed[at, edge],
                documents=units,
                **named[edge],
            )
            for where, edge in selected
            if where == at
        ]
    return [*rows, *_contrast_rows(suite, edges, columns, margins)]


def _part(margins: EdgeMargins, units: NDArray[np.bool_]) -> Estimate[Numbers]:
    names = [name for name, kept in zip(margins.phenomenon.paradigms, units, strict=True) if kept]
    return estimates(margins.changes[:, units], names)


def _right(margins: Numbers) -> Numbers:
    """1 for a unit that is right, 1/2 where neither is preferred, else 0."""
    return 0.5 + 0.5 * np.sign(margins)


def _whole(of: dict[str, Any], margins: EdgeMargins) -> Iterator[Score]:
    names, units = margins.phenomenon.paradigms, len(margins.whole)
    for metric, values in (("margin", margins.whole), ("right", _right(margins.whole))):
        value, low, high = estimates(values[None], names).row()
        if metric == "right":
            low, high = max(0.0, low), min(1.0, high)
        yield Score(EDGE_PHENOMENA, metric, value, low, high, documents=units, **of)
    if margins.phenomenon.linguistic is not None:
        yield Score(EDGE_PHENOMENA, "linguistic", float(margins.phenomenon.linguistic), **of)


def _effects(
    edges: Sequence[dict[str, Any]],
    margins: EdgeMargins,
    chosen: Estimate[Numbers],
    adjusted: Numbers,
    units: NDArray[np.bool_],
    comparisons: int,
) -> Iterator[Score]:
    names = [name for name, kept in zip(margins.phenomenon.paradigms, units, strict=True) if kept]
    right = estimates((_right(margins.whole) - _right(margins.without))[:, units], names)
    tests = zip(chosen.p().tolist(), adjusted.tolist(), chosen.detectable(comparisons).tolist(), strict=True)
    count = int(units.sum())
    for of, effect, accuracy, test in zip(edges, chosen.each(), right.each(), tests, strict=True):
        yield Score(EDGE_PHENOMENA, "effect", *effect.row(), *test, documents=count, **of)
        yield Score(EDGE_PHENOMENA, "accuracy", *accuracy.row(), documents=count, **of)


def _contrast_rows(
    suite: str, edges: Sequence[Edge], columns: Sequence[dict[str, Any]], margins: Sequence[EdgeMargins]
) -> Iterator[Score]:
    kinds = {kind: [each for each in margins if each.phenomenon.linguistic is kind] for kind in (True, False)}
    if not all(kinds.values()):
        return
    value, variance, squares = (np.zeros(len(edges)) for _ in range(3))
    for kind, sign in ((True, 1.0), (False, -1.0)):
        for each in kinds[kind]:
            scale = float(np.sqrt(np.square(each.whole).mean())) * len(kinds[kind])
            own = estimates(each.changes, each.phenomenon.paradigms)
            part = np.square(own.error / scale)
            value += sign * own.value / scale
            variance += part
            squares += np.square(part) / own.freedom
    contrast = Estimate.student(value, np.sqrt(variance), satterthwaite(variance, squares))
    p = contrast.p()
    for single, of, *tests in zip(contrast.each(), columns, p.tolist(), holm(p).tolist(), strict=True):
        yield Score(EDGE_PHENOMENA, "contrast", *single.row(), *tests, condition=suite, **of)
    yield from _by_depth(suite, edges, value)


def _by_depth(suite: str, edges: Sequence[Edge], contrast: Numbers) -> Iterator[Score]:
    """Does the contrast rise with the depth of the reader?"""
    readers: dict[int, list[float]] = {}
    for edge, value in zip(edges, contrast.tolist(), strict=True):
        readers.setdefault(edge.reader, []).append(value)
    means = [float(np.mean(of)) for of in readers.values()]
    agreed = rank_correlation(np.arange(len(means), dtype=float), np.array(means), seed=0)
    if agreed is not None:
        bounds = (agreed.low, agreed.high, agreed.p)
        yield Score(EDGE_PHENOMENA, "rank_correlation", agreed.value, *bounds, condition=suite)


def confirmed_edges(rows: Iterable[Score]) -> list[Score]:
    """The rows of the edges that are confirmed to carry a phenomenon, the largest effect first."""
    kept = [row for row in rows if row.metric == "confirmed" and row.p_adjusted is not None and row.p_adjusted < LEVEL]
    return sorted(kept, key=lambda row: -abs(row.value))
