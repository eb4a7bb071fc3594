"""The claim about weights from layer to layer that their differences oscillate."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published, seen, span
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy

FINE_ENOUGH = 0.1  # the smallest excess of a correlation that counts as structure


OSCILLATION = Published(
    "oscillation",
    "Weights oscillate",
    "Successive weight differences correlate at −0.50 everywhere: weights oscillate from layer to layer.",
    "arXiv 2603.19348, abstract; weight differences (metric 1)",
    "The contrast is the correlation of successive differences, layers divided by their norms, less what the same"
    " layers give in random orders. Explained by the null: its interval lies inside ±0.1, so the order of the layers"
    " makes no difference that counts. Supported: it lies below zero. Contradicted: it lies above zero, neighbours are"
    " more alike than layers in a random order.",
)
LAG = ("oscillating", "smooth", "no_lag_structure", "unresolved")
"""The verdicts on the correlation at lag 1, which name the row that holds it."""


def oscillation(evidence: Evidence) -> Claim:
    """Does the correlation of about -0.50 between successive weight differences mean that weights oscillate?

    Independent layers of equal variance give exactly -0.5: cov(W2 - W1, W3 - W2) = -var(W2), and each difference has
    twice that variance. Layers of other variances give another number, so the null is a random order of the same ones.

    - supported: the correlation is below that of random orders.
    - explained by the null: it is that of random orders, within 0.1.
    - contradicted: it is above: neighbours are more alike than layers in a random order.
    - not resolvable: no interval, or one that holds both.
    """
    found = evidence.diagnosis
    score = next((row for name in LAG if (row := found.score("deltas", "1", name)) is not None), None)
    raw = found.score("deltas", "1", "correlation")
    if score is None:
        return OSCILLATION.unmeasured("It needs the correlation of weight differences at lag 1: layerwise diagnose.")
    excess = span(score)
    told = "" if raw is None else f"The correlation at lag 1 is {tidy(raw.value)}; "
    if excess is None:
        figures = f"{told}with layers of norm 1 it is {tidy(score.value, signed=True)} beside random orders."
        return OSCILLATION.claim("not resolvable", figures, "So few layers have too few orders to compare with.")
    figures = f"{told}with layers of norm 1 it is {excess.signed} beside that of random orders."
    power = seen(score, FINE_ENOUGH, "of a correlation")
    position = excess.position(FINE_ENOUGH)
    if position == "within":
        why = "That is what these layers give in any order: no oscillation."
        return OSCILLATION.claim("explained by the null", figures, why, power)
    if position == "below":
        return OSCILLATION.claim("supported", figures, "It lies below what any order of these layers gives.", power)
    if position == "above":
        why = "Neighbouring layers are more alike than layers in a random order."
        return OSCILLATION.claim("contradicted", figures, why, power)
    return OSCILLATION.claim("not resolvable", figures, "The interval holds both an oscillation and none.", power)
