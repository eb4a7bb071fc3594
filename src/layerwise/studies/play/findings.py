"""Findings of a playground, in one or two sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping

from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.statistics import ALPHA
from layerwise.page.derived.power import describe_tokens_needed
from layerwise.page.formatting import SIGNED, is_resolved, name_layers, to_sentence
from layerwise.results import Score
from layerwise.results.estimate import is_extreme
from layerwise.results.vocabulary import MIN_UNITS

MAX_NAMED = 6
"""Maximum number of layers that are named."""


def state_difference(difference: Score, data: EvalData) -> str:
    """State what the change of the loss on a text means; without an interval nothing is concluded."""
    change = f"{SIGNED.text(difference)} nats/token"
    if difference.low is None:
        needed = math.ceil(MIN_UNITS * data.tokens / max(1, data.units))
        return (
            f"The loss changes by {change}, but the text is too short to tell: an interval needs {MIN_UNITS} "
            f"paragraphs (about {needed:,} tokens)."
        )
    if difference.low == difference.high == 0:
        return "The plan computes the same losses."
    if is_resolved(difference, ALPHA):
        return f"The plan {'increases' if difference.value > 0 else 'reduces'} the loss: {change}."
    return f"Inconclusive: {change}{describe_tokens_needed([difference])}."


def state_layers(scores: Mapping[int, Score], *, is_final: bool) -> str:
    """State which layers cost little when skipped and which one costs most, as far as the data show it.

    The p-values are corrected over the layers. They hold when all of the text has been read; before, only estimates are
    compared.
    """
    order = sorted(scores, key=lambda layer: scores[layer].value)
    lowest, highest = scores[order[0]], scores[order[-1]]
    least, most = (f"{SIGNED.text(score)} nats/token" for score in (lowest, highest))
    if not is_final:
        return (
            f"So far, layer {order[0]} has the lowest estimate when skipped: {least}; layer {order[-1]} has the "
            f"highest: {most}."
        )
    undetected = [layer for layer in sorted(scores) if not is_resolved(scores[layer], ALPHA)]
    if is_resolved(lowest, ALPHA) and lowest.value < 0:
        first = f"skipping layer {order[0]} reduces the loss: {least}"
    elif len(undetected) == len(scores):
        first = "no layer makes a detected difference when skipped"
    elif undetected:
        few = len(undetected) <= MAX_NAMED
        named = name_layers(undetected) if few else f"{len(undetected)} of {len(scores)} layers"
        first = f"{named} {'makes' if len(undetected) == 1 else 'make'} no detected difference when skipped"
    else:
        first = f"layer {order[0]} has the lowest estimate when skipped: {least}"
    is_costliest = is_resolved(highest, ALPHA) and is_extreme(highest, (scores[layer] for layer in order[:-1]))
    dearest = "costs most" if is_costliest else "has the highest estimate"
    return to_sentence(f"{first}; layer {order[-1]} {dearest}: {most}")
