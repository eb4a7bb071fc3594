"""A published claim, what became of it, and the one rule by which intervals become verdicts.

A claim says that some contrast is above zero: layers differ, a plan costs less than another, a correlation is there.
The contrast is measured with an interval, and beforehand a *margin* is stated, the smallest contrast that counts. Then

    within   the interval lies inside (-margin, +margin): nothing that counts is there, which is *shown*
    above    it lies above zero
    below    it lies below zero
    open     anything else: the interval holds both answers

`within` goes first: a contrast known to be smaller than what counts is none, however surely it is not zero. Absence of
significance is never `within`; it is `open`, and `Claim.needs` says how much text would close it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from layerwise.report.notation import between, tidy
from layerwise.report.wording import counted
from layerwise.results.rows import Score

Verdict = Literal["supported", "explained by the null", "contradicted", "not resolvable", "not measured"]
Position = Literal["above", "below", "within", "open"]

CONTRAST = "contrast"
"""The measure of the rows that were made to decide a claim; their subject is the claim's `key`."""

EQUIVALENCE = 1.16
"""How much finer an interval must be to show that nothing is there than to find what is at the margin.

(z[.975] + z[.9]) / (z[.975] + z[.8]): both ends of the interval must lie inside the margin, in 80 of 100 runs.
"""


BEYOND_REASON = 1_000
"""How many times the text at hand is no answer any more to the question how much would tell."""


@dataclass(frozen=True, slots=True)
class Published:
    """A claim as it was published, and the rule by which it is decided here.

    `key` names it in rows, `statement` is the published finding in one sentence, `citation` its paper and the section
    or figure, `rule` what each verdict takes.
    """

    key: str
    name: str
    statement: str
    citation: str
    rule: str

    def claim(self, verdict: Verdict, figures: str, why: str, power: str = "") -> Claim:
        """What became of it."""
        return Claim(self, verdict, figures, why, power)

    def unmeasured(self, why: str) -> Claim:
        """The claim where the rows that its rule reads are not there; `why` says what it needs."""
        return Claim(self, "not measured", "", why)


@dataclass(frozen=True, slots=True)
class Claim:
    """What became of one published claim: the numbers, the reason for the verdict, and what could have been seen.

    `figures` is a sentence with the numbers, their intervals and the tokens behind them; `power` one with the smallest
    contrast that 80 of 100 such runs would have found. Both are empty when nothing was measured.
    """

    published: Published
    verdict: Verdict
    figures: str
    why: str
    power: str = ""

    @property
    def name(self) -> str:
        """What the claim is called."""
        return self.published.name

    @property
    def line(self) -> str:
        """The claim as one line of text."""
        told = (f"{self.name}: {self.verdict}.", self.figures, self.why, self.power)
        return " ".join(part for part in told if part)


@dataclass(frozen=True, slots=True)
class Span:
    """A number between two bounds; `resolution` is the smallest one that 80 of 100 such runs tell from zero."""

    value: float
    low: float
    high: float
    resolution: float | None = None

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

    def less(self, amount: float) -> Span:
        """The same number, `amount` taken off."""
        return Span(self.value - amount, self.low - amount, self.high - amount, self.resolution)

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
    return Span(score.value, score.low, score.high, score.resolution)


def seen(score: Score, margin: float, unit: str) -> str:
    """What could have been seen: the contrast that 80 of 100 such runs find, and no less than counts at all.

    >>> seen(Score("contrast", "core", "all", "excess", 0.1, resolution=0.2), 0.05, "nats")
    'Of 100 such runs 80 would see 0.200 nats.'
    """
    if score.resolution is None:
        return ""
    return f"Of 100 such runs 80 would see {tidy(max(score.resolution, margin))} {unit}."


def needed(score: Score, margin: float) -> str:
    """How much text would tell, to be put at the end of a sentence; empty where the row does not say.

    An interval shrinks with the root of the text, and has to fit inside the margin.

    >>> needed(Score("contrast", "core", "all", "excess", 0.0, resolution=0.1, tokens=1000), 0.05)
    'about 5,400 tokens would tell'
    """
    if score.resolution is None or score.tokens is None or margin <= 0.0:
        return ""
    more = (EQUIVALENCE * score.resolution / margin) ** 2
    if more > BEYOND_REASON:
        return f"no text of {BEYOND_REASON:,} times this length would tell"
    # Two digits: it is an estimate.
    rounded = float(f"{max(more * score.tokens, score.tokens + 1):.2g}")
    return f"about {tidy(rounded)} tokens would tell"


def mean(spans: Sequence[Span]) -> Span:
    """The mean of several numbers, its bounds the means of theirs.

    That is the widest honest interval: it is exact when all errors are one and the same, as for layers that were
    measured on the same documents, and too wide otherwise.

    >>> mean([Span(1.0, 0.0, 2.0), Span(3.0, 2.0, 4.0)])
    Span(value=2.0, low=1.0, high=3.0, resolution=None)
    """
    return Span(
        fmean(found.value for found in spans), fmean(found.low for found in spans), fmean(found.high for found in spans)
    )


def middlemost(spans: Sequence[Span]) -> Span:
    """The median of several numbers, its bounds the medians of theirs: it holds as `mean` does.

    >>> middlemost([Span(1.0, 0.0, 2.0), Span(3.0, 2.0, 4.0), Span(90.0, 80.0, 99.0)])
    Span(value=3.0, low=2.0, high=4.0, resolution=None)
    """
    return Span(
        median(found.value for found in spans),
        median(found.low for found in spans),
        median(found.high for found in spans),
    )


def on_tokens(scores: Iterable[Score]) -> str:
    """The tokens behind a figure, as the end of a sentence; empty when the rows do not say.

    >>> on_tokens([Score("ablation", "1", "all", "skip", 0.1, tokens=1200)])
    ' (1,200 tokens)'
    """
    tokens = max((score.tokens for score in scores if score.tokens is not None), default=0)
    return f" ({counted(tokens, 'token')})" if tokens else ""
