"""The claim that a layer's weights are predicted by its neighbours'."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, Span, span
from layerwise.report.diagnosis.lookup import NULL, WHOLE, DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import listed
from layerwise.report.series import null_name

MOST_OF_THE_VARIANCE = 0.5
MARGIN = 0.1
HELD_OUT = {"heldout_rows_r2": "on held-out rows", "heldout_layers_r2": "on held-out layers"}
SHARED = 3**0.5
"""Every layer stands in three fits, so as little as a third of the positions may be independent."""
SEEN = 1.65
"""How much further than its reach to one side a number must lie for both to be told in 80 of 100 runs:
(z[.975] + z[.9]) / z[.975]."""

PREDICTABILITY = Published(
    "predictability",
    "Weights are predictable",
    "A layer's weights are predicted from its neighbours with R² 0.91.",
    "arXiv 2603.19348, weight predictability (metric 1)",
    "A fit with p predictors to n rows of noise has an R² of p/n in sample, so only held-out rows and held-out layers"
    " count; predicted is at least half of the variance. Intervals over layers are widened by √3, as each layer"
    " stands in three fits. Supported: both held-out R² are shown to be above one half,"
    " and above every null (random twin, permuted units, shuffled layers), by intervals that do not meet. Explained by"
    f" the null: they are above one half, and a null is shown to come within {MARGIN:g} of one of them; or R² in sample"
    " is above one half and a held-out one is shown to be below it: the fit explains its own noise. Contradicted: R² in"
    " sample and a held-out one are shown to be below one half. Anything else is not resolvable.",
    "It needs R² inside the sample, on held-out rows and on held-out layers, with intervals.",
)


def predictability(evidence: Evidence) -> Claim:
    """Can a layer's weights be predicted from its neighbours, R2 0.91?

    The row of all tensor types decides; its intervals are over layers.
    """
    rows = evidence.diagnosis
    held = {metric: bounds for metric in HELD_OUT if (bounds := _over_layers(rows, metric)) is not None}
    inside = _over_layers(rows, "in_sample_r2")
    if not held or inside is None:
        return PREDICTABILITY.unmeasured()
    noise = rows.score("predictability", WHOLE, f"in_sample_r2{NULL}p_over_n")
    line = f" (a fit to noise gives {tidy(noise.value)})" if noise else ""
    shown = " and ".join(f"{bounds} {HELD_OUT[metric]}" for metric, bounds in held.items())
    reach = max((bounds.high - bounds.low) / 2 for bounds in held.values())
    weak = any(bounds.high < MOST_OF_THE_VARIANCE for bounds in held.values())
    strong = len(held) == len(HELD_OUT) and all(bounds.low > MOST_OF_THE_VARIANCE for bounds in held.values())
    rivals = [
        (null_name(null), bounds, chance)
        for metric, bounds in held.items()
        for null in rows.nulls("predictability", metric)
        if (chance := _null(rows, metric, null)) is not None
    ]
    as_good = list(dict.fromkeys(name for name, bounds, chance in rivals if bounds.high - chance.low < MARGIN))
    beyond = all(bounds.above(chance) for _, bounds, chance in rivals)
    return PREDICTABILITY.decided(
        f"R² is {inside} inside the sample{line}, {shown}.",
        f"Of 100 such runs 80 would distinguish an R² that lies {tidy(SEEN * reach)} from one half.",
        (strong and bool(as_good), BY_NULL, f"{listed(as_good).capitalize()} predict as much."),
        (
            strong and beyond,
            SUPPORTED,
            "Most of the variance is predicted where nothing was fitted, and no null predicts as much.",
        ),
        (
            weak and inside.low > MOST_OF_THE_VARIANCE,
            BY_NULL,
            "The high value is the fit's own: where nothing was fitted, most of the variance is not predicted.",
        ),
        (
            weak and inside.high < MOST_OF_THE_VARIANCE,
            CONTRADICTED,
            "Not even the fit itself explains half of the variance.",
        ),
        otherwise="A null is not distinguishable from it."
        if strong
        else "The intervals hold one half, and so both answers: a model of more layers would decide.",
    )


def _over_layers(rows: DiagnosisScores, metric: str) -> Span | None:
    """R2 of all layers, its interval widened for the layers that its positions share."""
    bounds = span(rows.score("predictability", WHOLE, metric))
    if bounds is None:
        return None
    below, above = SHARED * (bounds.value - bounds.low), SHARED * (bounds.high - bounds.value)
    return Span(bounds.value, bounds.value - below, bounds.value + above)


def _null(rows: DiagnosisScores, metric: str, null: str) -> Span | None:
    """The interval of a null; one without bounds is known exactly."""
    score = rows.score("predictability", WHOLE, f"{metric}{NULL}{null}")
    return None if score is None else span(score) or Span(score.value, score.value, score.value)
