"""The headline claims of growth training: 54 % cheaper, 4.7 times lower loss, 13 % faster.

The interval decides: it must reach the published figure and lie above half of it (for a ratio of losses, above its
root). An interval below the figure does not show the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from layerwise.page.claims.claim import span
from layerwise.page.claims.contrasts import Fact, Facts, short_of, training_ends
from layerwise.page.data import ReportData
from layerwise.page.derived import growth as run
from layerwise.page.derived.growth import TERMS, Bounds, Training
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BUDGET, FLOPS, LOSS_RATIO, TIME_SAVED, TOKENS, UNIFORM_TRAINING

CHEAPER, LOWER, FASTER = 0.54, 4.7, 0.13
"""The published figures: a share of the cost, a ratio of losses, a share of the time."""
LOWER_AT_HALF = 2.1

Measured = tuple[str, Bounds | None]


def saving(data: ReportData, arm: str) -> Measured | None:
    words = {terms: run.saved_in_words(data, Training(arm), terms) for terms in TERMS}
    if words["flops"] == "–":
        return None
    sentence = (
        f"To reach uniform's loss {arm} saves {words['flops']} of its operations and {words['seconds']} of its"
        f" seconds, {run.how_read(data, arm)}."
    )
    return sentence, run.saved(data, arm, FLOPS)


def ratio_of_losses(data: ReportData, arm: str) -> Measured | None:
    ratio = run.against(data, Training(arm), terms=TOKENS, metric=LOSS_RATIO)
    if ratio is None:
        return None
    half = ""
    for training in run.lengths(data):
        score = run.against(data, training, terms=BUDGET, metric=LOSS_RATIO)
        if training.arm == arm and training.share is not None and score is not None:
            half += (
                f"; with {run.hundredths(training.share)} % of the steps, {Fact(score)} times beside"
                f" uniform's whole budget (published: {LOWER_AT_HALF:g})"
            )
    return f"After as many tokens uniform's loss is {Fact(ratio)} times that of {arm}{half}.", _bounds(ratio)


def saving_of_time(data: ReportData, arm: str) -> Measured | None:
    less = run.against(data, Training(arm), terms=TOKENS, metric=TIME_SAVED)
    if less is None:
        return None
    return f"As many steps of {arm} take {run.percents(less)} % less time than uniform's.", _bounds(less)


def _bounds(score: Score) -> Bounds | None:
    return None if score.low is None or score.high is None else Bounds(score.value, score.low, score.high)


def headline(
    data: ReportData, measured: Callable[[ReportData, str], Measured | None], figure: float, least: float
) -> Facts | None:
    arm = run.headline_arm(data)
    result = None if arm is None else measured(data, arm)
    if arm is None or result is None:
        return None
    sentence, bounds = result
    ends = (0.0, None, None) if bounds is None else (bounds.value, bounds.low, bounds.high)
    beyond = beyond_pairs(data)
    return {
        "figures": " ".join(filter(None, (sentence, run.nulls_in_words(data)))),
        "number": Fact(Score("growth", "reached", *ends)),
        "short": bounds is not None and bounds.high < figure,
        "reached": bounds is not None and bounds.high >= figure and bounds.low > least,
        "skill": None if beyond is None else Fact(beyond, 0.0, 0.0),
        **training_ends(arm)(data),
    }


def beyond_pairs(data: ReportData) -> Score | None:
    """Return how far uniform training ends below the bigram baseline (nats/token), or None if there is no baseline."""
    own, null = run.held_out(data, Training(UNIFORM_TRAINING)), run.token_pairs(data)
    return None if own is None or null is None or span(own) is None else short_of(own, null.value)


cost = partial(headline, measured=saving, figure=CHEAPER, least=CHEAPER / 2)
loss = partial(headline, measured=ratio_of_losses, figure=LOWER, least=math.sqrt(LOWER))
time = partial(headline, measured=saving_of_time, figure=FASTER, least=FASTER / 2)
