"""How the claims about trainings write shares of accuracy, and what decides nothing."""

from __future__ import annotations

from layerwise.report.claims.claim import Span
from layerwise.report.claims.power import more
from layerwise.results.rows import Score

TOO_FEW = "One training says nothing of others: it takes two seeds, and 8 batches of examples, for an interval."


def points(share: Span) -> str:
    """A share and its interval, in hundredths.

    >>> points(Span(0.25, 0.2, 0.3))
    '25.0 [20.0, 30.0]'
    """
    return str(share.times(100))


def undecided(score: Score, margin: float) -> str:
    """Why nothing is decided, and how many more seeds and images would decide it."""
    return f"The intervals hold both answers.{more(score, margin)}"
