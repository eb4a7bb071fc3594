"""What claims about trainings share: their contrasts, over seeds and examples, and what could have been seen.

A claim of this kind often has a bound in place of a direction, "no more than 25 points". Then the interval lies below
the bound, or above it, or holds it: `Span.less(bound).position()`.
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.report.claims.claim import CONTRAST, EQUIVALENCE, Position, Span, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import fixed, tidy
from layerwise.results.rows import Score

NULLS = {"baseline": "the baseline", "sequential": "the arm trained as long in order"}
"""The arms that were trained in order, and how they are called in a sentence."""

TOO_FEW = "One training says nothing of others: it takes two seeds, and 8 batches of examples, for an interval."


def contrast(evidence: Evidence, key: str, metric: str, task: str = "all") -> Score | None:
    """The row that decides the claim `key`, or `None` where it was not measured."""
    return evidence.diagnosis.score(CONTRAST, key, metric, task)


def interval(evidence: Evidence, key: str, metric: str, task: str = "all") -> Span | None:
    """The same with its interval, `None` where there is none."""
    return span(contrast(evidence, key, metric, task))


def nulls(evidence: Evidence, key: str, metric: str) -> dict[str, Span]:
    """The metric of every null that has an interval, by the arm: rows `<metric>@<arm>`."""
    found = {null: interval(evidence, key, f"{metric}@{null}") for null in NULLS}
    return {null: of for null, of in found.items() if of is not None}


def against(found: Span, bound: float) -> Position:
    """Which side of `bound` the whole interval lies on.

    >>> against(Span(0.1, 0.05, 0.15), 0.25), against(Span(0.2, 0.1, 0.3), 0.25)
    ('below', 'open')
    """
    return found.less(bound).position()


def hundredths(found: Span) -> str:
    """A share and its interval, as points."""
    return str(Span(100 * found.value, 100 * found.low, 100 * found.high))


def resolved(score: Score, margin: float, unit: str) -> str:
    """What could have been seen of a share, in points (or per cent) like the margin.

    >>> resolved(Score("contrast", "pruning", "all", "spared", 0.1, resolution=0.2), 0.1, "%")
    'Of 100 such runs 80 would see 20 %.'
    """
    if score.resolution is None:
        return ""
    return seen(replace(score, resolution=round(100 * score.resolution, 2)), 100 * margin, unit)


def told_from(score: Score | None, bound: float, unit: str) -> str:
    """What could have been seen beside a bound.

    >>> told_from(Score("contrast", "any_order", "all", "cost", 0.1, resolution=0.04), 0.25, "points")
    'Of 100 such runs 80 would tell 21.0 or 29.0 from 25 points.'
    """
    if score is None or score.resolution is None:
        return ""
    less, more = (fixed(100 * (bound + way * score.resolution), 1) for way in (-1, 1))
    return f"Of 100 such runs 80 would tell {less} or {more} from {tidy(100 * bound)} {unit}."


def more(score: Score | None, margin: float, what: str = "the seeds and images") -> str:
    """How much more would show that nothing is there, as a sentence; empty where more would not help or nobody knows.

    An interval shrinks with the root of what it is taken over, and has to fit inside the margin.

    >>> more(Score("contrast", "pruning", "all", "spared", 0.0, resolution=0.2), 0.1)
    ' About 5 times the seeds and images would tell.'
    """
    if score is None or score.resolution is None:
        return ""
    times = (EQUIVALENCE * score.resolution / margin) ** 2
    return f" About {tidy(max(2, round(times)))} times {what} would tell." if times > 1.0 else ""
