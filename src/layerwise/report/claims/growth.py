"""The headline claims of growth training: 54 % cheaper, 4.7 times lower loss, 13 % faster.

Each names a figure. A rule that asked for that figure to the digit would be decided by the size of the interval, so the
interval decides: it must reach the figure, and must lie above half of it, a ratio of losses above its root. What
lies below the figure as a whole does not show it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from layerwise.report.claims.claim import span
from layerwise.report.claims.contrasts import Fact, Facts, short_of
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
from layerwise.results.rows import Score

CHEAPER, LOWER, FASTER = 0.54, 4.7, 0.13
"""The published figures: a share of the cost, a ratio of losses, a share of the time."""
LOWER_AT_HALF = 2.1
"""The published ratio of uniform's loss to that of the half budget."""

Measured = tuple[str, Bounds | None]
"""What an arm was measured to reach, in a sentence, and its interval, which one seed does not have."""


def saving(run: GrowthScores, arm: str) -> Measured | None:
    """The saving of operations; the sentence has those of tokens and of seconds beside it."""
    words = {terms: saved_in_words(run, arm, terms) for terms in TERMS}
    if words["flops"] == "–":
        return None
    sentence = (
        f"To reach uniform's loss {arm} saves {words['flops']} of its operations, {words['tokens']} of its tokens and"
        f" {words['seconds']} of its seconds, {how_read(run, arm)}."
    )
    return sentence, saved(run, arm, "flops")


def ratio_of_losses(run: GrowthScores, arm: str) -> Measured | None:
    """Uniform's loss over the arm's after as many tokens, and over that of the half budget where it was trained."""
    ratio = row(run, arm, "tokens", LOSS_RATIO)
    if ratio is None:
        return None
    half = ""
    for name in run.lengths:
        score = row(run, name, BUDGET, LOSS_RATIO)
        if name.startswith(f"{arm}@") and score is not None:
            half += (
                f"; with {hundredths(float(name.partition('@')[2]))} % of the steps, {Fact(score)} times beside"
                f" uniform's whole budget (published: {LOWER_AT_HALF:g})"
            )
    return f"After as many tokens uniform's loss is {Fact(ratio)} times that of {arm}{half}.", _bounds(ratio)


def saving_of_time(run: GrowthScores, arm: str) -> Measured | None:
    """The share of uniform's time that as many steps of the arm do not take."""
    less = row(run, arm, "tokens", TIME_SAVED)
    if less is None:
        return None
    return f"As many steps of {arm} take {percents(less)} % less time than uniform's.", _bounds(less)


def _bounds(score: Score) -> Bounds | None:
    return None if score.low is None or score.high is None else Bounds(score.value, score.low, score.high)


def headline(
    evidence: Evidence, measured: Callable[[GrowthScores, str], Measured | None], figure: float, least: float
) -> Facts | None:
    """What the published schedule reaches, and whether that is the figure, by an interval above `least`."""
    run = evidence.growth
    arm = headline_arm(run)
    result = None if arm is None else measured(run, arm)
    if result is None:
        return None
    sentence, bounds = result
    ends = (0.0, None, None) if bounds is None else (bounds.value, bounds.low, bounds.high)
    beyond = beyond_pairs(run)
    return {
        "figures": " ".join(filter(None, (sentence, nulls_in_words(run)))),
        "number": Fact(Score("growth", "headline", "all", "reached", *ends)),
        "short": bounds is not None and bounds.high < figure,
        "reached": bounds is not None and bounds.high >= figure and bounds.low > least,
        "skill": None if beyond is None else Fact(beyond, 0.0, 0.0),
    }


def beyond_pairs(run: GrowthScores) -> Score | None:
    """How far uniform training ends below a table of token pairs, in nats per token, with the interval of its loss.

    `None` where nobody counted a table.
    """
    own, null = run.of_arm(HELD_OUT, "nll", UNIFORM, TEST), run.null
    return None if own is None or null is None or span(own) is None else short_of(own, null.value)


cost = partial(headline, measured=saving, figure=CHEAPER, least=CHEAPER / 2)
loss = partial(headline, measured=ratio_of_losses, figure=LOWER, least=math.sqrt(LOWER))
time = partial(headline, measured=saving_of_time, figure=FASTER, least=FASTER / 2)
