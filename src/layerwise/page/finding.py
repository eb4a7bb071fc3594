"""A finding: a question, its answer, the number behind it, and the verdict. Nothing else concludes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from layerwise.page.text.number_format import between, excludes_zero, is_resolved
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.vocabulary import EQUAL_NATS


class Verdict(StrEnum):
    """What the intervals of a run say about an answer, or about a published statement."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NO_BETTER_THAN_NULL = "no better than the null"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"

    @property
    def style(self) -> str:
        return "null" if self is Verdict.NO_BETTER_THAN_NULL else self.value.replace(" ", "-")


Effect = Literal["better", "worse", "open", "bare"]
"""What an interval says of a difference; `open` is inconclusive, `bare` has neither an interval nor a p."""


@dataclass(frozen=True, slots=True)
class Paper:
    title: str
    citation: str


@dataclass(frozen=True, slots=True)
class Published:
    """What a paper says, where (`section`), and the number it gives, if any."""

    paper: Paper
    statement: str
    number: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer of at most two sentences, and the verdict; None if no interval decides.

    `estimate` is the number that decides, in `unit`, `margin` the smallest one that counts, `rule` how the verdict
    follows from them, and `published` what a paper says.
    """

    question: str
    answer: str
    verdict: Verdict | None = None
    estimate: Estimate | None = None
    unit: str = ""
    margin: float | None = None
    rule: str = ""
    published: Published | None = None

    @property
    def number(self) -> str:
        """Return the number that decides, with its interval and unit; empty if there is none."""
        if self.estimate is None:
            return ""
        return f"{format_estimate(self.estimate)} {self.unit}".rstrip()

    @property
    def summary(self) -> str:
        """Return the answer, followed by the number that decides."""
        return f"{self.answer} Measured: {self.number}." if self.number else self.answer


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of every run, with the rule that decides it; `answer` makes the finding of one run."""

    text: str
    rule: str
    published: Published
    unit: str = ""
    margin: float | None = None

    def answer(self, verdict: Verdict, answer: str, estimate: Estimate | None = None) -> Finding:
        return Finding(self.text, answer, verdict, estimate, self.unit, self.margin, self.rule, self.published)


def format_estimate(estimate: Estimate, *, signed: bool = False) -> str:
    """Return a number with its interval, if it has one.

    >>> format_estimate(Estimate(0.2, 0.1, 0.3), signed=True), format_estimate(Estimate(0.2))
    ('+0.200 [+0.100, +0.300]', '0.200')
    """
    if not estimate.has_interval:
        return between(estimate.value, None, None, signed=signed)
    return between(estimate.value, estimate.low, estimate.high, signed=signed)


def settle(known: bool | None) -> Verdict | None:
    """Return how firm an answer is, by whether its intervals decide it; None if there are none.

    >>> settle(True), settle(False), settle(None)
    (<Verdict.SUPPORTED: 'supported'>, <Verdict.INCONCLUSIVE: 'inconclusive'>, None)
    """
    return None if known is None else Verdict.SUPPORTED if known else Verdict.INCONCLUSIVE


def judged(row: Score, level: float, *, more_is_better: bool = False) -> Effect:
    """What the interval of a difference says: by default less is better, as of a loss.

    >>> row = Score("healing_contrast", "difference", -0.2, -0.3, -0.1)
    >>> judged(row, 0.05), judged(row, 0.05, more_is_better=True)
    ('better', 'worse')
    """
    if row.p is None and row.p_adjusted is None and row.low is None:
        return "bare"
    if not is_resolved(row, level):
        return "open"
    return "better" if (row.value > 0.0) == more_is_better else "worse"


def describe_loss_change(row: Score) -> str:
    """Say what a plan does to the loss; only an interval that excludes zero shows that it costs or gains.

    >>> rows = (Score("search", "delta_nll", value, value - 0.1, value + 0.1) for value in (0.2, -0.2, 0.0))
    >>> list(map(describe_loss_change, rows))
    ['costs +0.200 [+0.100, +0.300]', 'gains 0.200 [0.100, 0.300]', 'changes the loss by 0.000 [−0.100, +0.100]']
    """
    if excludes_zero(row) and row.value < 0.0:
        return f"gains {between(-row.value, -(row.high or 0.0), -(row.low or 0.0))}"
    does = "costs" if excludes_zero(row) else "changes the loss by"
    return f"{does} {between(row.value, row.low, row.high, signed=True)}"


def is_equal(row: Score) -> bool:
    """Whether the interval of a difference of losses lies within the margin of equality.

    >>> is_equal(Score("search", "above_chosen", 0.001, -0.002, 0.004)), is_equal(Score("search", "above_chosen", 0.0))
    (True, False)
    """
    return row.low is not None and row.high is not None and max(-row.low, row.high) <= EQUAL_NATS


def firmness(effect: Effect) -> Verdict | None:
    return settle(None if effect == "bare" else effect != "open")
