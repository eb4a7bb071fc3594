"""The contrasts that one claim is decided by, looked up: their intervals, their places, what they could have shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

from layerwise.report.claims.claim import CONTRAST, Position, needed, on_tokens, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import between
from layerwise.results.rows import Score

ALIKE = 0.05
"""Two costs that differ by less than this share of their mean are alike: the margin of relative differences."""

RANKED = "ranking"
"""The claim whose rows hold the mean cost of every strategy."""

OF_COSTS = "of the mean of both costs"
BARE = "The contrasts carry no intervals: there are fewer than 8 documents, or windows of one."


@dataclass(frozen=True, slots=True)
class Contrasts:
    """The contrast rows of one claim in one run, by metric."""

    scores: Mapping[str, Score]

    def __contains__(self, metric: str) -> bool:
        return metric in self.scores

    def value(self, metric: str) -> float:
        """The contrast as a number."""
        return self.scores[metric].value

    def shown(self, metric: str) -> str:
        """The contrast with its sign and its interval."""
        score = self.scores[metric]
        return between(score.value, score.low, score.high, signed=True)

    def place(self, metric: str, margin: float = ALIKE) -> Position:
        """Where the interval lies; a contrast without an interval is `open`."""
        bounds = span(self.scores[metric])
        return "open" if bounds is None else bounds.position(margin)

    def places(self, *metrics: str, margin: float = ALIKE) -> dict[str, Position]:
        """Where the interval of each metric lies."""
        return {metric: self.place(metric, margin) for metric in metrics}

    def seen(self, *metrics: str, margin: float = ALIKE, unit: str = OF_COSTS, together: int | None = None) -> str:
        """What these contrasts would be found at, in 80 of 100 runs: all of them together, or so many as `together`.

        The widest of them decides: its resolution of z[.975] + z[.8] standard errors, stretched so that as many
        contrasts would be found together if each stood by itself.
        """
        widest = self._widest(*metrics)
        if widest.resolution is None:
            return ""
        return seen(replace(widest, resolution=widest.resolution * stretch(together or len(metrics))), margin, unit)

    def needed(self, *metrics: str, margin: float = ALIKE) -> str:
        """Why nothing is decided, and how much text would tell."""
        if any(span(self.scores[metric]) is None for metric in metrics):
            return BARE
        told = needed(self._widest(*metrics), margin)
        return f"An interval holds both answers{f'; {told}' if told else ''}."

    @property
    def tokens(self) -> str:
        """The tokens behind them, as the end of a sentence."""
        return on_tokens(self.scores.values())

    def _widest(self, *metrics: str) -> Score:
        return max((self.scores[metric] for metric in metrics), key=lambda score: score.resolution or 0.0)


def contrasts(evidence: Evidence, claim: str, *metrics: str) -> Contrasts | None:
    """The contrasts of a claim; `None` unless every one of `metrics` was measured. Others are there where they were."""
    found = evidence.diagnosis
    rows = {metric: found.score(CONTRAST, claim, metric) for metric in found.metrics(CONTRAST)}
    measured = {metric: score for metric, score in rows.items() if score is not None}
    return Contrasts(measured) if set(metrics) <= set(measured) else None


def cost(evidence: Evidence, strategy: str) -> str:
    """What a strategy of the Painters costs on average over their windows, in nats per token with its interval."""
    score = evidence.diagnosis.score(CONTRAST, RANKED, strategy)
    return between(score.value, score.low, score.high, signed=True) if score is not None else "an unknown number of"


def stretch(count: int) -> float:
    """By how much more than one contrast's resolution `count` contrasts must be to be found together.

    >>> round(stretch(1), 2), round(stretch(2), 2)
    (1.0, 1.15)
    """
    normal = NormalDist()
    sure = normal.inv_cdf(0.975)
    return (sure + normal.inv_cdf(0.8 ** (1 / count))) / (sure + normal.inv_cdf(0.8))
