"""How the claims about trainings write shares of accuracy, and what decides nothing."""

from __future__ import annotations

from layerwise.report.claims.claim import Case, Span, unlearned
from layerwise.report.claims.contrasts import contrasts
from layerwise.report.claims.power import more
from layerwise.report.evidence import Evidence
from layerwise.results.rows import Score

TOO_FEW = "One training says nothing of others: it takes two seeds, and 8 batches of examples, for an interval."


NEAR_CHANCE = 0.05
"""How far above chance an accuracy must be shown to be for its model to have learned."""

NOT_LEARNED = " Not resolvable where {} is not shown to be more than 5 points above chance: it has not learned."
"""The end of the rule of every claim about a training."""


def not_above_chance(skill: Span | None, who: str) -> Case:
    """The case of a model whose accuracy is not shown to be above chance by what counts."""
    return unlearned(skill, who, f"chance by {100 * NEAR_CHANCE:g} points", NEAR_CHANCE)


def skill_in_order(evidence: Evidence) -> Span | None:
    """How far the baseline is above chance in order."""
    rows = contrasts(evidence, "collapse")
    return None if rows is None else rows.span("in_order")


def skill_in_random_order(evidence: Evidence) -> Span | None:
    """How far layershuffle is above chance in random order."""
    rows = contrasts(evidence, "position_informed")
    return None if rows is None else rows.span("random_order")


def points(share: Span) -> str:
    """A share and its interval, in hundredths.

    >>> points(Span(0.25, 0.2, 0.3))
    '25.0 [20.0, 30.0]'
    """
    return str(share.times(100))


def undecided(score: Score, margin: float) -> str:
    """Why nothing is decided, and how many more seeds and images would decide it."""
    return f"The intervals hold both answers.{more(score, margin)}"
