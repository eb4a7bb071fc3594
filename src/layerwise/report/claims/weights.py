"""Two claims about weights from layer to layer: that their differences oscillate, and that they can be predicted."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published, Span, seen, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, WHOLE, Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.series import null_name
from layerwise.report.wording import listed

FINE_ENOUGH = 0.1  # the smallest excess of a correlation that counts as structure
MOST_OF_THE_VARIANCE = 0.5
HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")


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


PREDICTABILITY = Published(
    "predictability",
    "Weights are predictable",
    "A layer's weights are predicted from its neighbours with R² 0.91.",
    "arXiv 2603.19348, weight predictability (metric 1)",
    "",
)


def predictability(evidence: Evidence) -> Claim:
    """Can a layer's weights be predicted from its neighbours, R2 0.91?

    Read from the row of all tensor types. A fit with p predictors to n rows of pure noise has an in-sample R2 of p/n,
    so only held-out rows and held-out layers count.

    - supported: both held-out R2 are at least one half, each told apart from all its nulls (random twin, permuted
      units, shuffled layers).
    - explained by the null: both are, but a null predicts as much; or the in-sample R2 is at least one half while a
      held-out R2 is told apart from one half, below: the fit explains its own noise.
    - contradicted: not even the in-sample R2 reaches one half, and a held-out R2 is told apart from one half, below.
    - not resolvable: anything else.
    """
    found = evidence.diagnosis
    held = {metric: span(found.score("predictability", WHOLE, metric)) for metric in HELD_OUT}
    known = {metric: bounds for metric, bounds in held.items() if bounds is not None}
    inside = found.score("predictability", WHOLE, "in_sample_r2")
    if not known or inside is None:
        why = "It needs R² inside the sample, on held-out rows and on held-out layers, with intervals."
        return PREDICTABILITY.unmeasured(why)
    noise = found.score("predictability", WHOLE, f"in_sample_r2{NULL}p_over_n")
    line = f" (a fit to noise gives {tidy(noise.value)})" if noise else ""
    shown = {"heldout_rows_r2": "on held-out rows", "heldout_layers_r2": "on held-out layers"}
    figures = (
        f"R² is {span(inside) or tidy(inside.value)} inside the sample{line},"
        f" {' and '.join(f'{bounds} {shown[metric]}' for metric, bounds in known.items())}."
    )
    weak = any(bounds.high < MOST_OF_THE_VARIANCE for bounds in known.values())
    if len(known) == len(HELD_OUT) and all(bounds.low >= MOST_OF_THE_VARIANCE for bounds in known.values()):
        rivals = [null for metric, bounds in known.items() for null in _rivals(found, metric, bounds)]
        if not rivals:
            why = "Most of the variance is predicted where nothing was fitted, and no null predicts as much."
            return PREDICTABILITY.claim("supported", figures, why)
        why = f"{listed(rivals).capitalize()} predict as much."
        return PREDICTABILITY.claim("explained by the null", figures, why)
    if weak and inside.value >= MOST_OF_THE_VARIANCE:
        why = "The high value is the fit's own: where nothing was fitted, most of the variance is not predicted."
        return PREDICTABILITY.claim("explained by the null", figures, why)
    if weak:
        return PREDICTABILITY.claim("contradicted", figures, "Not even the fit itself explains half of the variance.")
    return PREDICTABILITY.claim("not resolvable", figures, "The intervals hold one half, and so both answers.")


def _rivals(found: Diagnosis, metric: str, bounds: Span) -> list[str]:
    """The nulls of a metric that it is not told apart from; a null without an interval counts by its value."""
    nulls = {
        null: found.score("predictability", WHOLE, f"{metric}{NULL}{null}")
        for null in found.nulls("predictability", metric)
    }
    return [
        null_name(null)
        for null, score in nulls.items()
        if score is not None and bounds.low <= (score.value if score.high is None else score.high)
    ]
