"""The one rule by which an interval becomes a position, from which verdicts follow.

A claim says that some contrast is above zero: layers differ, a plan costs less than another, a correlation is there.
The contrast is measured with an interval, and beforehand a *margin* is stated, the smallest contrast that counts. Then

    within   the interval lies inside (-margin, +margin): nothing that counts is there, which is *shown*
    above    it lies above zero
    below    it lies below zero
    open     anything else: the interval holds both answers

`within` goes first: a contrast known to be smaller than what counts is none, however surely it is not zero. Absence of
significance is never `within`; it is `open`, and the claim says how much text would close it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from layerwise.report.text.number_format import between
from layerwise.results.rows import Score

Verdict = Literal["supported", "explained by the null", "contradicted", "not resolvable", "not measured"]
SUPPORTED: Verdict = "supported"
BY_NULL: Verdict = "explained by the null"
CONTRADICTED: Verdict = "contradicted"
OPEN: Verdict = "not resolvable"
NOT_MEASURED: Verdict = "not measured"
BADGES: dict[Verdict, str] = {
    "supported": "resolved",
    "explained by the null": "null",
    "contradicted": "contradicted",
    "not resolvable": "unresolved",
    "not measured": "described",
}
"""The look of each verdict on a page."""

Position = Literal["above", "below", "within", "open"]
NOT_ABOVE: tuple[Position, ...] = ("within", "below")
"""Where an interval lies that excludes a contrast above zero that counts."""


@dataclass(frozen=True, slots=True)
class Span:
    """A number between two bounds; `mde` is the smallest one that 80 of 100 such runs distinguish from zero."""

    value: float
    low: float
    high: float
    mde: float | None = None

    def above(self, other: Span) -> bool:
        """Whether every value of this one is greater than every value of the other."""
        return self.low > other.high

    def position(self, margin: float = 0.0) -> Position:
        """Where the interval lies, given the smallest contrast that counts.

        >>> Span(0.2, 0.1, 0.3).position(), Span(0.2, 0.1, 0.3).position(0.5), Span(0.2, -0.1, 0.5).position(0.4)
        ('above', 'within', 'open')
        """
        if -margin < self.low and self.high < margin:
            return "within"
        return "above" if self.low > 0.0 else "below" if self.high < 0.0 else "open"

    def against(self, bound: float) -> Position:
        """Which side of `bound` the whole interval lies on.

        >>> Span(0.1, 0.05, 0.15).against(0.25), Span(0.2, 0.1, 0.3).against(0.25)
        ('below', 'open')
        """
        return Span(self.value - bound, self.low - bound, self.high - bound).position()

    def widened(self, factor: float) -> Span:
        """The same number in an interval so many times as wide, to hold for several numbers together.

        >>> Span(0.2, 0.1, 0.4).widened(2.0).low
        0.0
        """
        return Span(
            self.value, self.value - factor * (self.value - self.low), self.value + factor * (self.high - self.value)
        )

    def times(self, factor: float) -> Span:
        """The same number in another unit; a negative factor turns its direction."""
        low, high = sorted((factor * self.low, factor * self.high))
        return Span(factor * self.value, low, high, self.mde and abs(factor) * self.mde)

    def __str__(self) -> str:
        return between(self.value, self.low, self.high)

    @property
    def signed(self) -> str:
        """With its sign, as a difference is written."""
        return between(self.value, self.low, self.high, signed=True)


def span(score: Score | None) -> Span | None:
    """The interval of a score, `None` where there is none: nothing is decided by a number without one."""
    if score is None or score.low is None or score.high is None:
        return None
    return Span(score.value, score.low, score.high, score.mde)
