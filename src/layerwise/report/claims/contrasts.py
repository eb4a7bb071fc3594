"""The contrast rows that decide a claim, looked up: their values, their intervals, and the nulls beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from layerwise.report.claims.claim import Position, Span, span
from layerwise.report.claims.power import needed, on_tokens, seen, stretch, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import between, tidy
from layerwise.results.rows import Score

CONTRAST = "contrast"
"""The measure of the rows that were made to decide a claim; their subject is the claim's `key`."""

ALIKE = 0.05
"""Two costs that differ by less than this share of their mean are alike: the margin of relative differences."""

NULLS = {"baseline": "the baseline", "sequential": "the arm trained as long in order"}
"""The arms that were trained in order, and how they are called in a sentence."""

OF_COSTS = "of the mean of both costs"
BARE = "The contrasts carry no intervals: there are fewer than 8 documents, or windows of one."


@dataclass(frozen=True, slots=True)
class Contrasts:
    """The contrast rows of one claim in one run, by metric."""

    scores: Mapping[str, Score]

    def __contains__(self, metric: str) -> bool:
        return metric in self.scores

    def __getitem__(self, metric: str) -> Score:
        return self.scores[metric]

    def value(self, metric: str) -> float:
        """The contrast as a number."""
        return self.scores[metric].value

    def points(self, metric: str) -> str:
        """A share in hundredths, without its interval."""
        return tidy(100 * self.value(metric))

    def span(self, metric: str) -> Span | None:
        """The contrast with its interval; `None` where it was not measured or has none."""
        return span(self.scores.get(metric))

    def spans(self, *metrics: str) -> tuple[Span, ...]:
        """The contrasts that have an interval, in this order."""
        return tuple(bounds for metric in metrics if (bounds := self.span(metric)) is not None)

    def nulls(self, metric: str) -> dict[str, Span]:
        """The metric of every null that has an interval, by the arm: rows `<metric>@<arm>`."""
        return {null: bounds for null in NULLS if (bounds := self.span(f"{metric}@{null}")) is not None}

    def shown(self, metric: str) -> str:
        """The contrast with its sign and its interval."""
        score = self.scores[metric]
        return between(score.value, score.low, score.high, signed=True)

    def position(self, metric: str, margin: float = ALIKE) -> Position:
        """Where the interval lies; a contrast without an interval is `open`."""
        bounds = self.span(metric)
        return "open" if bounds is None else bounds.position(margin)

    def positions(self, *metrics: str, margin: float = ALIKE) -> dict[str, Position]:
        """Where the interval of each metric lies."""
        return {metric: self.position(metric, margin) for metric in metrics}

    def seen(self, *metrics: str, margin: float = ALIKE, unit: str = OF_COSTS, together: int | None = None) -> str:
        """What these contrasts would be found at, in 80 of 100 runs: all of them together, or so many as `together`.

        The widest of them decides: its mde of z[.975] + z[.8] standard errors, stretched so that as many
        contrasts would be found together if each stood by itself.
        """
        score = widest(self.scores[metric] for metric in metrics)
        if score.mde is None:
            return ""
        return seen(replace(score, mde=score.mde * stretch(together or len(metrics))), margin, unit)

    def needed(self, *metrics: str, margin: float = ALIKE) -> str:
        """Why nothing is decided, and how much text would decide."""
        if len(self.spans(*metrics)) < len(metrics):
            return BARE
        return f"An interval holds both answers{needed(widest(self.scores[metric] for metric in metrics), margin)}."

    @property
    def tokens(self) -> str:
        """The tokens behind them, as the end of a sentence."""
        return on_tokens(self.scores.values())


def contrasts(evidence: Evidence, claim: str, *metrics: str, task: str = "all") -> Contrasts | None:
    """The contrasts of a claim; `None` unless every one of `metrics` was measured. Others are there where they were."""
    rows = {
        metric: by_claim[claim]
        for (measure, metric, where), by_claim in evidence.diagnosis.rows.items()
        if measure == CONTRAST and where == task and claim in by_claim
    }
    return Contrasts(rows) if set(metrics) <= set(rows) else None
