"""The headline claims of growth training: 54 % cheaper, 4.7 times lower loss, 13 % faster.

Each names a figure. A rule that asked for that figure to the digit would be decided by the size of the interval, so the
interval decides: it must reach the figure, and must lie above half of it, a ratio of losses above its root. What
lies below the figure as a whole does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from layerwise.report.claims.claim import CONTRADICTED, SUPPORTED, Claim, Published, Span, span, unlearned
from layerwise.report.evidence import Evidence
from layerwise.report.growth.headline import (
    BUDGET,
    LOSS_RATIO,
    TIME_SAVED,
    Bounds,
    headline_arm,
    how_read,
    hundredths,
    nulls_in_words,
    percents,
    row,
    saved,
    saved_in_words,
)
from layerwise.report.growth.lookup import HELD_OUT, TERMS, TEST, UNIFORM, GrowthScores
from layerwise.report.page.number_format import between
from layerwise.results.rows import Score

CHEAPER, LOWER, FASTER = 0.54, 4.7, 0.13
"""The published figures: a share of the cost, a ratio of losses, a share of the time."""

LOWER_AT_HALF = 2.1
"""The published ratio of uniform's loss to that of the half budget."""

_NULL = (
    " Contradicted: the whole interval lies below the figure. Anything else is not resolvable, and so is every figure"
    " where uniform training is not shown to do better than a table of token pairs: what has learned nothing is easily"
    " beaten, and shows nothing of layers either way."
)
_NEEDS = "layerwise study growth"

COST = Published(
    "growth_cost",
    "Growth training costs 54 % less",
    "Budgets by the importance of layers cut the cost of training by about 54 %.",
    "arXiv 2603.19348, Growth Transformer Training, headline",
    "The question is what the schedule needs to reach the loss that uniform training ends with, in floating-point"
    f" operations, seed by seed. Supported: the saving reaches {100 * CHEAPER:g} % and lies above half of that, by its"
    f" interval over seeds; where a loss is not reached, or sooner than can be read, by the bound that is left.{_NULL}",
    f"It needs a schedule beside uniform, with two seeds or more: {_NEEDS}.",
)
LOSS = Published(
    "growth_loss",
    "Growth training has a 4.7 times lower loss",
    "Validation loss is 0.127 in place of 0.599 after as many steps, and 2.1 times lower with 416 of 656 steps.",
    "arXiv 2603.19348, Growth Transformer Training, results",
    "The ratio of uniform's held-out loss to the schedule's, after as many tokens. A ratio of losses depends on the"
    f" text: of one without anything to predict it is near 1. Supported: the ratio reaches {LOWER:g} and lies above the"
    f" root of it ({math.sqrt(LOWER):.2f}), by its interval over seeds.{_NULL}",
    f"It needs a schedule beside uniform at equal tokens, with two seeds or more: {_NEEDS}.",
)
TIME = Published(
    "growth_time",
    "Growth training is 13 % faster",
    "Training with the schedule takes 13 % less time than uniform training.",
    "arXiv 2603.19348, Growth Transformer Training, results",
    "The share of uniform's time that as many steps of the schedule do not take, on this machine; what steps take, and"
    f" not what validating does. Supported: the share reaches {100 * FASTER:g} % and lies above half of that, by its"
    f" interval over seeds.{_NULL}",
    f"It needs a schedule beside uniform with timed steps, with two seeds or more: {_NEEDS}.",
)


def growth_cost(evidence: Evidence) -> Claim:
    """Does the schedule reach uniform's loss for 54 % fewer operations?"""
    figure = _Figure(CHEAPER, f"{100 * CHEAPER:g} %", CHEAPER / 2, "half of that")
    return _decided(evidence, COST, figure, _saving)


def growth_loss(evidence: Evidence) -> Claim:
    """Is the loss 4.7 times lower after as many tokens?"""
    figure = _Figure(LOWER, f"{LOWER:g} times", math.sqrt(LOWER), "the root of that")
    return _decided(evidence, LOSS, figure, _loss_ratio)


def growth_time(evidence: Evidence) -> Claim:
    """Do as many steps take 13 % less time?"""
    figure = _Figure(FASTER, f"{100 * FASTER:g} %", FASTER / 2, "half of that")
    return _decided(evidence, TIME, figure, _time_saved)


@dataclass(frozen=True, slots=True)
class _Figure:
    """A published figure, and the least that an interval may hold which reaches it: both as numbers and in words."""

    value: float
    written: str
    least: float
    least_written: str


Measured = tuple[str, Bounds | None]
"""What an arm was measured to reach, in a sentence, and its interval, which one seed does not have."""


def _decided(
    evidence: Evidence, claim: Published, figure: _Figure, measured: Callable[[GrowthScores, str], Measured | None]
) -> Claim:
    """The claim by where the interval lies: below the figure, or up to it and above the least that counts as it."""
    run = evidence.growth
    arm = headline_arm(run)
    result = None if arm is None else measured(run, arm)
    if result is None:
        return claim.unmeasured()
    sentence, bounds = result
    figures = " ".join(filter(None, (sentence, nulls_in_words(run))))
    if bounds is None:
        return claim.undecided(figures, "One seed has no interval: train with several.")
    reached = bounds.high >= figure.value and bounds.low > figure.least
    return claim.decided(
        figures,
        "",
        unlearned(beyond_pairs(run), "Uniform training", "a table of token pairs"),
        (bounds.high < figure.value, CONTRADICTED, f"The whole interval lies below {figure.written}."),
        (reached, SUPPORTED, f"It reaches {figure.written}, and lies above {figure.least_written}."),
        otherwise=f"The interval holds {figure.written} and much less: more seeds, or further lengths, would decide.",
    )


def beyond_pairs(run: GrowthScores) -> Span | None:
    """How far uniform training ends below a table of token pairs, in nats per token, with the interval of its loss.

    `None` where nobody counted a table.
    """
    own, null = span(run.of_arm(HELD_OUT, "nll", UNIFORM, TEST)), run.null
    if own is None or null is None:
        return None
    return Span(null.value - own.value, null.value - own.high, null.value - own.low)


def _saving(run: GrowthScores, arm: str) -> Measured | None:
    """The saving of operations; the sentence has those of tokens and of seconds beside it."""
    words = {terms: saved_in_words(run, arm, terms) for terms in TERMS}
    if words["flops"] == "–":
        return None
    sentence = (
        f"To reach uniform's loss {arm} saves {words['flops']} of its operations, {words['tokens']} of its tokens and"
        f" {words['seconds']} of its seconds, {how_read(run, arm)}."
    )
    return sentence, saved(run, arm, "flops")


def _loss_ratio(run: GrowthScores, arm: str) -> Measured | None:
    ratio = row(run, arm, "tokens", LOSS_RATIO)
    if ratio is None:
        return None
    times = between(ratio.value, ratio.low, ratio.high)
    sentence = f"After as many tokens uniform's loss is {times} times that of {arm}{_half(run, arm)}."
    return sentence, _bounds(ratio)


def _time_saved(run: GrowthScores, arm: str) -> Measured | None:
    time = row(run, arm, "tokens", TIME_SAVED)
    if time is None:
        return None
    return f"As many steps of {arm} take {percents(time)} % less time than uniform's.", _bounds(time)


def _bounds(score: Score) -> Bounds | None:
    if score.low is None or score.high is None:
        return None
    return Bounds(score.value, score.low, score.high)


def _half(run: GrowthScores, arm: str) -> str:
    """The published half budget, where it was trained: uniform's loss with all of its own over that."""
    clauses = ""
    for name in run.lengths:
        score = row(run, name, BUDGET, LOSS_RATIO)
        if name.startswith(f"{arm}@") and score is not None:
            share, times = name.partition("@")[2], between(score.value, score.low, score.high)
            clauses += (
                f"; with {hundredths(float(share))} % of the steps, {times} times beside uniform's whole budget"
                f" (published: {LOWER_AT_HALF:g})"
            )
    return clauses
