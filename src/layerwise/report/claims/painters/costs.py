"""What the strategies of the Painters cost on average over the published windows."""

from __future__ import annotations

from layerwise.report.claims.contrasts import CONTRAST
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between

RANKED = "ranking"
"""The claim whose rows hold the mean cost of every strategy."""

SWEEP = "It needs windows of several sizes, of a model of 5 layers and more: layerwise sweep MODEL --families painters."
NOTHING = 0.01  # nats per token, one percent of perplexity


def cost(evidence: Evidence, strategy: str) -> str:
    """The mean cost of a strategy over the windows, in nats per token with its interval."""
    score = evidence.diagnosis.score(CONTRAST, RANKED, strategy)
    return between(score.value, score.low, score.high, signed=True) if score is not None else "an unknown number of"
