"""Whether a pre-trained model has learned at all: the null of every claim of the ELC-BERT paper."""

from __future__ import annotations

from layerwise.report.claims.claim import Case, span, unlearned
from layerwise.report.pretraining.lookup import PretrainingScores

PAIRS, CHANCE = "pairs", 0.5
NOT_LEARNED = (
    " Not resolvable where {} is not shown to be right on more than half of the minimal pairs: it has not learned."
)
"""The end of the rule of every claim about a pre-training."""


def not_above_chance(rows: PretrainingScores, arm: str) -> Case:
    """The case of an arm that is not shown to be right on more minimal pairs than chance is, over seeds."""
    return unlearned(span(rows.by_arm(PAIRS, "accuracy").get(arm)), arm, "chance on minimal pairs", CHANCE)
