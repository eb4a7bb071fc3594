"""What became of the published claims about layers, decided for one model from its rows alone.

The founding paper of this field of claims (arXiv 2603.19348: one model of 30 layers, ten sentences) says that layers
are of different kinds: a critical core, redundant tissue, and layers that do harm. Others say that middle layers are
alike, and that order matters more for reasoning than for text (arXiv 2407.09298). Every claim here has a rule, written
where it is decided, that turns rows, their nulls and their intervals into one of five verdicts:

    supported              the rows show it, and no null measured beside them shows it too
    explained by the null  the published figure is found, and a null gives the same figure
    contradicted           the rows show the opposite, told apart by their intervals
    not resolvable         the intervals of these tokens hold both
    not measured           the rows that the rule reads are not there

Two quantities are *told apart* when their intervals do not meet, which is stricter than a test of their difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from layerwise.report.claims.claim import Claim, Verdict
from layerwise.report.claims.damage import recovery, scaling
from layerwise.report.claims.layers import anti_layers, core
from layerwise.report.claims.order import order
from layerwise.report.claims.states import middle
from layerwise.report.claims.weights import oscillation, predictability
from layerwise.report.data import Evidence, ReportData
from layerwise.report.diagnosis import Diagnosis
from layerwise.results.rows import Score

Rule = Callable[[Diagnosis], Claim]
RULES: tuple[Rule, ...] = (core, anti_layers, oscillation, predictability, recovery, scaling, middle, order)


def claims(scores: Sequence[Score], depth: int, level: float = 0.05) -> tuple[Claim, ...]:
    """Every published claim with what became of it in the model of `depth` layers that the rows describe.

    `level` is the significance level of every decision. Claims whose rows are missing are there too, as not measured.

    >>> claims((), 30)[0].verdict
    'not measured'
    """
    found = Diagnosis.of(scores, depth, level)
    return tuple(rule(found) for rule in RULES)


def claim_lines(data: ReportData) -> tuple[str, ...]:
    """Every claim as one line of text, for a terminal; none for a run that diagnosed nothing."""
    evidence = Evidence.of(data)
    if not evidence.is_diagnosis:
        return ()
    return tuple(claim.line for claim in claims(data.scores, evidence.depth, data.level))


__all__ = ["Claim", "Verdict", "claim_lines", "claims"]
