"""Planted rows at every bar of a rule, a little to either side of it: the verdict of each is exact.

A claim is decided by where intervals lie. `around` has the intervals a little to either side of a margin, by the
position that they must have, and `beside` those of a bound. `varied` takes one row of a claim through all of them while
its other rows stay as they are, so that no bar can move by more than `NEAR` and no position can be misread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from scipy.stats import norm

from layerwise.results.rows import Score
from report.claims.truths import claim_of

NEAR = 1e-6
FAR = 1.0
SUPPORTED, NULL, CONTRADICTED = "supported", "explained by the null", "contradicted"
OPEN, UNMEASURED = "not resolvable", "not measured"

Ends = tuple[float, float]
"""An interval; the number is its middle."""
Rows = Mapping[str, Ends | float]
"""Metric to interval, or to a number without one."""
Where = Mapping[str, Sequence[Ends]]
"""Intervals by the position that they have."""


def around(margin: float) -> Where:
    """The intervals a little to either side of +-`margin` and of zero, by their position."""
    return {
        "above": [(NEAR, margin + NEAR), (NEAR, margin + FAR)],
        "within": [(NEAR, margin - NEAR), (-margin + NEAR, -NEAR), (-margin + NEAR, margin - NEAR)],
        "below": [(-margin - NEAR, -NEAR), (-margin - FAR, -NEAR)],
        "open": [(-NEAR, margin + NEAR), (-margin - NEAR, NEAR), (-margin - NEAR, margin - NEAR)],
    }


def beside(bound: float) -> Where:
    """The intervals a little to either side of a bound."""
    return {
        "above": [(bound + NEAR, bound + FAR)],
        "below": [(bound - FAR, bound - NEAR)],
        "open": [(bound - NEAR, bound + FAR), (bound - FAR, bound + NEAR)],
    }


def wider(tests: int) -> float:
    """By how much the intervals of so many tests grow that hold together at 95 % (Bonferroni), in closed form."""
    return float(norm.ppf(1 - 0.025 / tests) / norm.ppf(0.975))


def planted(
    key: str, rows: Rows, task: str = "all", measure: str = "contrast", **columns: object
) -> tuple[Score, ...]:  # fmt: skip
    """The rows of a claim, or of a measure; `columns` are those that all of them have."""
    return tuple(replace(_row(measure, key, task, metric, ends), **columns) for metric, ends in rows.items())  # type: ignore[arg-type]


def _row(measure: str, subject: str, task: str, metric: str, ends: Ends | float) -> Score:
    if isinstance(ends, tuple):
        low, high = ends
        return Score(measure, subject, task, metric, (low + high) / 2, low, high, mde=0.1, tokens=1_000)
    return Score(measure, subject, task, metric, ends)


@dataclass(frozen=True)
class Case:
    """Rows, what a rule must say of them, and the number of layers of the model."""

    rule: str
    name: str
    rows: tuple[Score, ...]
    verdict: str
    depth: int = 12

    def check(self) -> None:
        claim = claim_of(self.rule, self.rows, self.depth)
        assert claim.verdict == self.verdict, claim.line


def varied(
    key: str, base: Rows, metric: str, where: Where, verdicts: Mapping[str, str], more: Iterable[Score] = ()
) -> Iterable[Case]:
    """The claim with one of its rows at every interval of `where`; `verdicts` has the verdict for each position."""
    yield from each(key, metric, where, verdicts, lambda ends: (*planted(key, {**base, metric: ends}), *more))


def each(
    rule: str, name: str, where: Where, verdicts: Mapping[str, str], rows: Callable[[Ends], tuple[Score, ...]]
) -> Iterable[Case]:
    """A claim of the rows that are made of every interval of `where`."""
    for position, verdict in verdicts.items():
        for number, ends in enumerate(where[position]):
            yield Case(rule, f"{name} {position} {number}", rows(ends), verdict)


def parametrized(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """The cases of a paper as the parameters of one test."""
    return pytest.mark.parametrize(
        "case", [pytest.param(case, id=f"{case.rule}-{case.name}-{case.verdict}") for case in cases]
    )
