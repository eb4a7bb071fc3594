"""The claim about weights from layer to layer that their differences oscillate."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, span
from layerwise.report.claims.power import seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy

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
    "It needs the correlation of weight differences at lag 1: layerwise diagnose.",
)
LAG = ("oscillating", "smooth", "no_lag_structure", "unresolved")
"""The verdicts on the correlation at lag 1, which name the row that holds it."""


def oscillation(evidence: Evidence) -> Claim:
    """Does the correlation of about -0.50 between successive weight differences mean that weights oscillate?

    Independent layers of equal variance give exactly -0.5: cov(W2 - W1, W3 - W2) = -var(W2), and each difference has
    twice that variance. Layers of other variances give another number, so the null is a random order of the same ones.
    """
    deltas = evidence.diagnosis
    score = next((row for name in LAG if (row := deltas.score("deltas", "1", name)) is not None), None)
    raw = deltas.score("deltas", "1", "correlation")
    if score is None:
        return OSCILLATION.unmeasured()
    excess = span(score)
    at_one = "" if raw is None else f"The correlation at lag 1 is {tidy(raw.value)}; "
    if excess is None:
        return OSCILLATION.undecided(
            f"{at_one}with layers of norm 1 it is {tidy(score.value, signed=True)} beside random orders.",
            "So few layers have too few orders to compare with.",
        )
    position = excess.position(FINE_ENOUGH)
    return OSCILLATION.decided(
        f"{at_one}with layers of norm 1 it is {excess.signed} beside that of random orders.",
        seen(score, FINE_ENOUGH, "of a correlation"),
        (position == "within", BY_NULL, "That is what these layers give in any order: no oscillation."),
        (position == "below", SUPPORTED, "It lies below what any order of these layers gives."),
        (position == "above", CONTRADICTED, "Neighbouring layers are more alike than layers in a random order."),
        otherwise="The interval holds both an oscillation and none.",
    )
