"""A published claim, what became of it, and the arithmetic of intervals that the rules share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from layerwise.report.notation import between
from layerwise.report.wording import counted
from layerwise.results.rows import Score

Verdict = Literal["supported", "explained by the null", "contradicted", "not resolvable", "not measured"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One published claim: what was published, what this model says, the numbers, and the reason for the verdict.

    `figures` is a sentence with the numbers, their intervals and the tokens behind them; empty when nothing was
    measured.
    """

    name: str
    published: str
    verdict: Verdict
    figures: str
    why: str

    @property
    def line(self) -> str:
        """The claim as one line of text."""
        return " ".join(part for part in (f"{self.name}: {self.verdict}.", self.figures, self.why) if part)


@dataclass(frozen=True, slots=True)
class Span:
    """A number between two bounds."""

    value: float
    low: float
    high: float

    def above(self, other: Span) -> bool:
        """Whether every value of this one is greater than every value of the other."""
        return self.low > other.high

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
    return Span(score.value, score.low, score.high)


def mean(spans: Sequence[Span]) -> Span:
    """The mean of several numbers, its bounds the means of theirs.

    That is the widest honest interval: it is exact when all errors are one and the same, as for layers that were
    measured on the same documents, and too wide otherwise.

    >>> mean([Span(1.0, 0.0, 2.0), Span(3.0, 2.0, 4.0)])
    Span(value=2.0, low=1.0, high=3.0)
    """
    return Span(
        fmean(found.value for found in spans), fmean(found.low for found in spans), fmean(found.high for found in spans)
    )


def middlemost(spans: Sequence[Span]) -> Span:
    """The median of several numbers, its bounds the medians of theirs: it holds as `mean` does.

    >>> middlemost([Span(1.0, 0.0, 2.0), Span(3.0, 2.0, 4.0), Span(90.0, 80.0, 99.0)])
    Span(value=3.0, low=2.0, high=4.0)
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
