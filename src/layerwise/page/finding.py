"""Findings: questions, answers and verdicts, many of them on statements of papers.

Only findings draw conclusions. The functions here read the numbers from which they follow, and compute how much more
data an inconclusive run would need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from layerwise.page.data import ReportData
from layerwise.page.formatting import excludes_zero, format_interval, format_number, is_resolved
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, EQUAL_NATS, TRAINING, VALIDATION_LOSS


class Verdict(StrEnum):
    """Verdict on an answer or a published statement."""

    SUPPORTED = "supported"
    CONTRADICTED = "contradicted"
    NO_BETTER_THAN_NULL = "no better than the null"
    INCONCLUSIVE = "inconclusive"
    NOT_MEASURED = "not measured"

    @property
    def style(self) -> str:
        return "null" if self is Verdict.NO_BETTER_THAN_NULL else self.value.replace(" ", "-")


Effect = Literal["better", "worse", "open", "bare"]
"""Direction of a difference: `open` means inconclusive, `bare` that it has neither an interval nor a p-value."""


@dataclass(frozen=True, slots=True)
class Paper:
    title: str
    citation: str


@dataclass(frozen=True, slots=True)
class Published:
    """A statement of a paper, with the section and the number that the paper reports, if any."""

    paper: Paper
    statement: str
    number: str = ""
    section: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A question, its answer in at most two sentences, and its verdict.

    `verdict` is None if no interval decides the question. `estimate` is the deciding number in units of `unit`,
    `margin` the smallest effect that counts, and `rule` explains how the verdict follows from them. `published` is the
    statement of a paper that the question tests.
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
        if self.estimate is None:
            return ""
        return f"{format_estimate(self.estimate)} {self.unit}".rstrip()

    @property
    def summary(self) -> str:
        """Return the answer, followed by the deciding number."""
        return f"{self.answer}{self._measured}"

    @property
    def statement(self) -> str:
        """Return the question and the answer, with the verdict after the first sentence of the answer.

        >>> Finding("Is B better?", "No, it is worse. All seeds agree.", Verdict.CONTRADICTED).statement
        'Is B better? No, it is worse (contradicted). All seeds agree.'
        """
        first, stop, rest = self.answer.partition(". ")
        first = first.removesuffix(".")
        lowered = first.lower()
        states_verdict = self.verdict is not None and (
            lowered.startswith(self.verdict) or lowered.endswith(f" {self.verdict}") or f"{self.verdict}: " in lowered
        )
        if self.verdict is None or states_verdict:
            return f"{self.question} {self.answer}"
        verdict = f"; verdict: {self.verdict}" if first.endswith(")") else f" ({self.verdict})"
        return f"{self.question} {first}{verdict}{stop or '.'}{rest}"

    @property
    def full_statement(self) -> str:
        """Return the question, the answer and the verdict, followed by the deciding number."""
        return f"{self.statement}{self._measured}"

    @property
    def _measured(self) -> str:
        return f" Measured: {self.number}." if self.number else ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a published statement, with the rule that decides it for every run."""

    text: str
    rule: str
    published: Published
    unit: str = ""
    margin: float | None = None

    def answer(self, verdict: Verdict, answer: str, estimate: Estimate | None = None) -> Finding:
        return Finding(self.text, answer, verdict, estimate, self.unit, self.margin, self.rule, self.published)


def format_estimate(estimate: Estimate, *, signed: bool = False) -> str:
    """Format a number with its interval, if it has one.

    >>> format_estimate(Estimate(0.2, 0.1, 0.3), signed=True), format_estimate(Estimate(0.2))
    ('+0.200 [+0.100, +0.300]', '0.200')
    """
    if not estimate.has_interval:
        return format_interval(estimate.value, None, None, signed=signed)
    return format_interval(estimate.value, estimate.low, estimate.high, signed=signed)


def to_verdict(is_decided: bool | None) -> Verdict | None:
    """Return `supported` for True, `inconclusive` for False, and None for None (there are no intervals).

    >>> to_verdict(True), to_verdict(False), to_verdict(None)
    (<Verdict.SUPPORTED: 'supported'>, <Verdict.INCONCLUSIVE: 'inconclusive'>, None)
    """
    return None if is_decided is None else Verdict.SUPPORTED if is_decided else Verdict.INCONCLUSIVE


def judge_effect(row: Score, level: float, *, more_is_better: bool = False) -> Effect:
    """Return the direction of a difference. By default, smaller values are better, as for a loss.

    >>> row = Score("healing_contrast", "difference", -0.2, -0.3, -0.1)
    >>> judge_effect(row, 0.05), judge_effect(row, 0.05, more_is_better=True)
    ('better', 'worse')
    """
    if row.p is None and row.p_adjusted is None and row.low is None:
        return "bare"
    if not is_resolved(row, level):
        return "open"
    return "better" if (row.value > 0.0) == more_is_better else "worse"


def describe_loss_change(row: Score) -> str:
    """Describe a loss change. It is called a cost or a gain only if its interval excludes zero.

    >>> rows = (Score("search", "delta_nll", value, value - 0.1, value + 0.1) for value in (0.2, -0.2, 0.0))
    >>> list(map(describe_loss_change, rows))
    ['costs 0.200 [0.100, 0.300]', 'gains 0.200 [0.100, 0.300]', 'changes the loss by 0.000 [−0.100, +0.100]']
    """
    if excludes_zero(row) and row.value < 0.0:
        return f"gains {format_interval(-row.value, -(row.high or 0.0), -(row.low or 0.0))}"
    if excludes_zero(row):
        return f"costs {format_interval(row.value, row.low, row.high)}"
    return f"changes the loss by {format_interval(row.value, row.low, row.high, signed=True)}"


def is_equal(row: Score) -> bool:
    """Check whether the interval of a loss difference lies within ±`EQUAL_NATS`.

    >>> is_equal(Score("search", "above_chosen", 0.001, -0.002, 0.004)), is_equal(Score("search", "above_chosen", 0.0))
    (True, False)
    """
    return row.low is not None and row.high is not None and max(-row.low, row.high) <= EQUAL_NATS


def effect_to_verdict(effect: Effect) -> Verdict | None:
    """Return the verdict on the question "Is it better?", or None if there are no intervals.

    >>> effect_to_verdict("better"), effect_to_verdict("worse"), effect_to_verdict("bare")
    (<Verdict.SUPPORTED: 'supported'>, <Verdict.CONTRADICTED: 'contradicted'>, None)
    """
    verdicts = {"better": Verdict.SUPPORTED, "worse": Verdict.CONTRADICTED, "open": Verdict.INCONCLUSIVE}
    return verdicts.get(effect)


EQUIVALENCE = 1.16
"""Smallest margin of equality that a study can confirm, relative to the minimum detectable effect of the study.

It is (z[.975] + z[.9]) / (z[.975] + z[.8]).
"""

MAX_TEXT, MAX_SEEDS = 1_000, 100
"""Maximum multiple of the text, and of the number of seeds or other data, that is recommended."""

NULLS = {"baseline": "the baseline", "sequential": "the variant trained as long in order"}
"""Baselines that were trained with their layers in order, and their names in a sentence."""

MAX_LATE_FALL = 0.02
"""A training run is unfinished if more than this share of the fall of its validation loss is in the last quarter."""

NO_INTERVALS = "The contrasts have no intervals: there are fewer than 8 documents."


def read_contrasts(data: ReportData, claim: str, task: str = "all", **columns: Any) -> dict[str, Score]:
    """Return the contrasts that test a published claim. The keys are metrics.

    By default, these are contrasts of the whole model. Pass `columns` to select those of a layer, of a condition, or
    against a baseline.
    """
    of_whole_model = dict.fromkeys(("layer", "condition", "strategy", "affected", "strength", "against"))
    rows = data.rows.where(measure=CONTRAST, claim=claim, task=task, **{**of_whole_model, **columns})
    return {row.metric: row for row in rows}


def read_estimates(data: ReportData, claim: str, *metrics: str) -> tuple[Estimate, ...] | None:
    rows = read_contrasts(data, claim)
    if not set(metrics) <= set(rows):
        return None
    return tuple(Estimate.read(rows[metric]) for metric in metrics)


def read_nulls(rows: Mapping[str, Score], metric: str) -> dict[str, Estimate]:
    """Return the estimate of `metric` for each baseline in `NULLS`. The keys are the names of the baselines.

    Baselines without an interval are omitted.
    """
    read = {name: Estimate.read_bounded(rows.get(f"{metric}@{variant}")) for variant, name in NULLS.items()}
    return {name: estimate for name, estimate in read.items() if estimate is not None}


def find_unfinished(data: ReportData, *variants: str) -> list[str]:
    """Return the variants with a seed whose validation loss was still falling when its training ended."""
    return [variant for variant in variants if _is_falling(data, variant)]


def _is_falling(data: ReportData, variant: str) -> bool:
    rows = data.rows.where(
        measure=TRAINING, metric=VALIDATION_LOSS, variant=variant, step=PRESENT, share=None, kept=None
    )
    for group in rows.by("seed").values():
        losses = {row.step or 0: row.value for row in group}
        early = [loss for step, loss in losses.items() if step <= 0.75 * max(losses)]
        fall = losses[min(losses)] - min(losses.values())
        if not early or min(early) - min(losses.values()) > MAX_LATE_FALL * fall:
            return True
    return False


def describe_undecided(estimate: Estimate, margin: float) -> str:
    """Explain why an estimate is inconclusive, and how much text should settle the question."""
    if not estimate.has_interval:
        return NO_INTERVALS
    return f"The interval is compatible with both yes and no{describe_text_needed(estimate, margin)}."


def describe_text_needed(estimate: Estimate, margin: float) -> str:
    """Return the end of a sentence that tells how much text should settle a question; empty if unknown.

    >>> describe_text_needed(Estimate(0.0, mde=0.1, tokens=1000), 0.05)
    '; about 5,400 tokens should settle it'
    """
    if estimate.mde is None or estimate.tokens is None or margin <= 0.0:
        return ""
    times = (EQUIVALENCE * estimate.mde / margin) ** 2
    if times > MAX_TEXT:
        return f"; even {MAX_TEXT:,} times as much text would not settle it"
    # Two digits: it is an estimate.
    tokens = float(f"{max(times * estimate.tokens, estimate.tokens + 1):.2g}")
    return f"; about {format_number(tokens)} tokens should settle it"


def describe_data_needed(estimate: Estimate, margin: float, what: str) -> str:
    """Return a sentence that tells how many times as much data should settle a question, if that is known.

    >>> describe_data_needed(Estimate(0.0, mde=0.2), 0.1, "the questions")
    ' About 5 times the questions should settle it.'
    """
    if estimate.mde is None:
        return ""
    times = (EQUIVALENCE * estimate.mde / margin) ** 2
    if times > MAX_SEEDS:
        return f" Even {MAX_SEEDS} times {what} would not settle it."
    return f" About {format_number(max(2, round(times)))} times {what} should settle it." if times > 1.0 else ""


def select_widest(estimates: Iterable[Estimate]) -> Estimate:
    return max(estimates, key=lambda estimate: estimate.mde or 0.0)
