"""Place the interval of a contrast relative to a *margin*, the smallest contrast that counts, stated beforehand:

within   inside (-margin, +margin): the effect is shown to be negligible; checked first
above    above zero
below    below zero
open     anything else: the interval allows both answers
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from layerwise.page.derived.power import BEYOND_REASON, MOST
from layerwise.page.text.number_format import between, fixed, tidy
from layerwise.page.text.wording import counted
from layerwise.results.rows import Score

Verdict = Literal["supported", "no better than the null", "contradicted", "inconclusive", "not measured"]
SUPPORTED: Verdict = "supported"
BY_NULL: Verdict = "no better than the null"
CONTRADICTED: Verdict = "contradicted"
OPEN: Verdict = "inconclusive"
NOT_MEASURED: Verdict = "not measured"
BADGES: dict[Verdict, str] = {
    "supported": "resolved",
    "no better than the null": "null",
    "contradicted": "contradicted",
    "inconclusive": "unresolved",
    "not measured": "described",
}

Position = Literal["above", "below", "within", "open"]


@dataclass(frozen=True, slots=True)
class Span:
    """A number between two bounds; `mde` is the smallest one that 80 of 100 such runs distinguish from zero."""

    value: float
    low: float
    high: float
    mde: float | None = None

    def above(self, other: Span) -> bool:
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

    def less(self, other: Span, wider: float = 1.0) -> Span:
        """The difference of two numbers, their intervals joined as if independent, and so many times as wide.

        >>> Span(1.0, 0.7, 1.3).less(Span(0.0, -0.4, 0.4)).low
        0.5
        """
        below = math.hypot(self.value - self.low, other.high - other.value)
        above = math.hypot(self.high - self.value, other.value - other.low)
        value = self.value - other.value
        return Span(value, value - wider * below, value + wider * above)

    def times(self, factor: float) -> Span:
        low, high = sorted((factor * self.low, factor * self.high))
        return Span(factor * self.value, low, high, self.mde and abs(factor) * self.mde)

    def __str__(self) -> str:
        return between(self.value, self.low, self.high)

    @property
    def signed(self) -> str:
        return between(self.value, self.low, self.high, signed=True)


def span(score: Score | None) -> Span | None:
    if score is None or score.low is None or score.high is None:
        return None
    return Span(score.value, score.low, score.high, score.mde)


EQUIVALENCE = 1.16
"""(z[.975] + z[.9]) / (z[.975] + z[.8]): how much finer an interval must be to lie inside the margin (80 % power)."""


def seen(score: Score, margin: float, unit: str, scale: float = 1.0, most: float = math.inf) -> str:
    """What could have been seen: the contrast that 80 of 100 such runs find, and no less than counts at all.

    >>> seen(Score("contrast", "core", "all", "excess", 0.1, mde=0.2), 0.05, "nats")
    'Of 100 such runs 80 would see 0.200 nats.'
    >>> seen(Score("contrast", "pruning", "all", "spared", 0.1, mde=0.2), 0.1, "%", scale=100)
    'Of 100 such runs 80 would see 20 %.'
    """
    if score.mde is None:
        return ""
    if score.mde > most:
        return "No possible value would be seen in 80 of 100 such runs."
    return f"Of 100 such runs 80 would see {tidy(round(scale * max(score.mde, margin), 9))} {unit}."


def beside_bound(score: Score, bound: float, unit: str, within: tuple[float, float] = (-1.0, 1.0)) -> str:
    """Say what could have been seen beside a bound on a share, in hundredths, of what is `within` the possible.

    >>> beside_bound(Score("contrast", "any_order", "all", "cost", 0.1, mde=0.04), 0.25, "points")
    'Of 100 such runs 80 would distinguish 21.0 or 29.0 from 25 points.'
    >>> beside_bound(Score("contrast", "any_order", "all", "cost", 0.1, mde=2.04), 0.25, "points")
    'No possible value would be distinguished from 25 points in 80 of 100 such runs.'
    """
    if score.mde is None:
        return ""
    sides = [bound - score.mde, bound + score.mde]
    seen = " or ".join(fixed(100 * side, 1) for side in sides if within[0] <= side <= within[1])
    if not seen:
        return f"No possible value would be distinguished from {tidy(100 * bound)} {unit} in 80 of 100 such runs."
    return f"Of 100 such runs 80 would distinguish {seen} from {tidy(100 * bound)} {unit}."


def needed(score: Score, margin: float) -> str:
    """How much text would decide, as the end of a sentence; empty where the row does not say.

    >>> needed(Score("contrast", "core", "all", "excess", 0.0, mde=0.1, tokens=1000), 0.05)
    '; about 5,400 tokens would decide'
    """
    if score.mde is None or score.tokens is None or margin <= 0.0:
        return ""
    times = (EQUIVALENCE * score.mde / margin) ** 2
    if times > BEYOND_REASON:
        return f"; no text of {BEYOND_REASON:,} times this length would decide"
    # Two digits: it is an estimate.
    rounded = float(f"{max(times * score.tokens, score.tokens + 1):.2g}")
    return f"; about {tidy(rounded)} tokens would decide"


def more(score: Score, margin: float, what: str = "the seeds and images") -> str:
    """How much more would show that nothing is there, as a sentence; empty where more would not help or nobody knows.

    >>> more(Score("contrast", "pruning", "all", "spared", 0.0, mde=0.2), 0.1)
    ' About 5 times the seeds and images would decide.'
    """
    if score.mde is None:
        return ""
    times = (EQUIVALENCE * score.mde / margin) ** 2
    if times > MOST:
        return f" Not even {MOST} times {what} would decide."
    return f" About {tidy(max(2, round(times)))} times {what} would decide." if times > 1.0 else ""


def widest(scores: Iterable[Score]) -> Score:
    return max(scores, key=lambda score: score.mde or 0.0)


def on_tokens(scores: Iterable[Score]) -> str:
    """The tokens behind a figure, as the end of a sentence; empty when the rows do not say.

    >>> on_tokens([Score("ablation", "1", "all", "skip", 0.1, tokens=1200)])
    ' (1,200 tokens)'
    """
    tokens = max((score.tokens for score in scores if score.tokens is not None), default=0)
    return f" ({counted(tokens, 'token')})" if tokens else ""
