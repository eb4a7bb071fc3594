"""The headline claims of growth training: 54 % cheaper, 4.7 times lower loss, 13 % faster.

Each names a figure. A rule that asked for that figure to the digit would be decided by the size of the interval, so the
interval decides: it must reach the figure, and must lie above half of it. What lies below the figure as a whole does
not show it.
"""

from __future__ import annotations

import math

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published
from layerwise.report.evidence import Evidence
from layerwise.report.growth.headline import (
    BUDGET,
    LOSS_RATIO,
    TIME_SAVED,
    Bounds,
    has_learned,
    headline_arm,
    how_read,
    hundredths,
    nulls_in_words,
    percents,
    row,
    saved,
    saved_in_words,
)
from layerwise.report.growth.lookup import TERMS, GrowthScores
from layerwise.report.page.number_format import between, tidy
from layerwise.results.rows import Score

CHEAPER, LOWER, FASTER = 0.54, 4.7, 0.13
"""The published figures: a share of the cost, a ratio of losses, a share of the time."""

LOWER_AT_HALF = 2.1
"""The published ratio of uniform's loss to that of the half budget."""

_NULL = (
    " Explained by the null: the figure is reached, but uniform training is not shown to do better than a table of"
    " token pairs, and what has learned nothing is easily beaten. Contradicted: the whole interval lies below the"
    " figure. Anything else is not resolvable."
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
    " interval over seeds. Explained by the null: so it is, but uniform training is not shown to do better than a table"
    " of token pairs. Contradicted: the whole interval lies below the figure. Anything else is not resolvable.",
    f"It needs a schedule beside uniform with timed steps, with two seeds or more: {_NEEDS}.",
)


def growth_cost(evidence: Evidence) -> Claim:
    """Does the schedule reach uniform's loss for 54 % fewer operations?"""
    run = evidence.growth
    arm = headline_arm(run)
    words = {} if arm is None else {terms: saved_in_words(run, arm, terms) for terms in TERMS}
    if arm is None or words.get("flops", "–") == "–":
        return COST.unmeasured()
    figures = (
        f"To reach uniform's loss {arm} saves {words['flops']} of its operations, {words['tokens']} of its tokens and"
        f" {words['seconds']} of its seconds, {how_read(run, arm)}. {nulls_in_words(run)}"
    )
    return _decided(COST, run, figures, saved(run, arm, "flops"), CHEAPER, CHEAPER / 2, f"{100 * CHEAPER:g} %")


def growth_loss(evidence: Evidence) -> Claim:
    """Is the loss 4.7 times lower after as many tokens?"""
    run = evidence.growth
    arm = headline_arm(run)
    ratio = None if arm is None else row(run, arm, "tokens", LOSS_RATIO)
    if arm is None or ratio is None:
        return LOSS.unmeasured()
    figures = f"After as many tokens uniform's loss is {_shown(ratio)} times that of {arm}{_half(run, arm)}."
    found = _bounds(ratio)
    least = math.sqrt(LOWER)
    return _decided(LOSS, run, f"{figures} {nulls_in_words(run)}", found, LOWER, least, f"{LOWER:g} times")


def growth_time(evidence: Evidence) -> Claim:
    """Do as many steps take 13 % less time?"""
    run = evidence.growth
    arm = headline_arm(run)
    time = None if arm is None else row(run, arm, "tokens", TIME_SAVED)
    if arm is None or time is None:
        return TIME.unmeasured()
    figures = f"As many steps of {arm} take {percents(time)} % less time than uniform's. {nulls_in_words(run)}"
    return _decided(TIME, run, figures, _bounds(time), FASTER, FASTER / 2, f"{100 * FASTER:g} %")


def _decided(
    claim: Published, run: GrowthScores, figures: str, found: Bounds | None, figure: float, least: float, words: str
) -> Claim:
    """The claim by where the interval lies: below the figure, or up to it and above the least that counts as it."""
    if found is None:
        return claim.undecided(figures, "One seed has no interval: train with several.")
    reached = found.high >= figure and found.low > least
    return claim.decided(
        figures,
        "",
        (found.high < figure, CONTRADICTED, f"The whole interval lies below {words}."),
        (reached and has_learned(run), SUPPORTED, f"It reaches {words}, and lies above half of that."),
        (reached, BY_NULL, "But uniform training is not shown to learn what needs layers."),
        otherwise=f"The interval holds {words} and much less: more seeds, or further lengths, would decide.",
    )


def _bounds(score: Score) -> Bounds | None:
    if score.low is None or score.high is None:
        return None
    return Bounds(score.value, score.low, score.high)


def _half(run: GrowthScores, arm: str) -> str:
    """The published half budget, where it was trained: uniform's loss with all of its own over that."""
    halves = {
        name: score
        for name in run.lengths
        if name.startswith(f"{arm}@") and (score := row(run, name, BUDGET, LOSS_RATIO)) is not None
    }
    clauses = (
        f"; with {hundredths(float(name.partition('@')[2]))} % of the steps, {_shown(score)} times beside uniform's"
        f" whole budget (published: {LOWER_AT_HALF:g})"
        for name, score in halves.items()
    )
    return "".join(clauses)


def _shown(score: Score) -> str:
    return tidy(score.value) if score.low is None else between(score.value, score.low, score.high)
