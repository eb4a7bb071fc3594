"""What each layer is, in words and as a table, shared by the page and the Markdown."""

from __future__ import annotations

from layerwise.report.diagnosis import Diagnosis
from layerwise.report.notation import between, probability, tidy
from layerwise.report.tasks import Rows
from layerwise.results.rows import Score

WORDS = {"matters": "matters", "no_effect": "without detectable effect", "harmful": "harmful"}


def in_words(score: Score) -> str:
    """A verdict as it is read, with its limit.

    >>> in_words(Score("verdict", "3", "all", "no_effect", 0.001, resolution=0.02))
    'no effect above 0.0200 nats'
    """
    if score.metric != "no_effect":
        return WORDS.get(score.metric, score.metric)
    return "no effect detectable" if score.resolution is None else f"no effect above {tidy(score.resolution)} nats"


def verdict_rows(found: Diagnosis) -> Rows:
    """A row a layer: the verdict, the effect of skipping it with its interval, the p-value and the tokens read."""
    body = [
        (
            str(layer),
            in_words(score),
            between(score.value, score.low, score.high, signed=True),
            probability(score.p_adjusted),
            "–" if score.tokens is None else f"{score.tokens:,}",
        )
        for layer, score in found.verdicts().items()
    ]
    return Rows(("layer", "verdict", "Δ NLL of skipping", "adjusted p", "tokens"), tuple(body))
