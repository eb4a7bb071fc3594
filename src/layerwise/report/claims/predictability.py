"""The claim that a layer's weights are predicted by its neighbours'."""

from __future__ import annotations

from layerwise.report.claims.claim import Claim, Published, Span, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, WHOLE, Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.series import null_name
from layerwise.report.wording import listed

MOST_OF_THE_VARIANCE = 0.5
MARGIN = 0.1
HELD_OUT = ("heldout_rows_r2", "heldout_layers_r2")
SHARED = 3**0.5
"""Every layer stands in three fits, so as little as a third of the places may be independent."""
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
)


def predictability(evidence: Evidence) -> Claim:
    """Can a layer's weights be predicted from its neighbours, R2 0.91?

    Read from the row of all tensor types, whose intervals are over layers.

    - supported (true): both held-out R2 above 0.5, and above all their nulls.
    - explained by the null: the R2 in sample above 0.5 and a held-out one below; or both above 0.5 and a null within
      0.1 of one of them.
    - contradicted (false): the R2 in sample below 0.5 and a held-out one too.
    - not resolvable (underpowered): anything else.
    """
    found = evidence.diagnosis
    held = {metric: _over_layers(found, metric) for metric in HELD_OUT}
    known = {metric: bounds for metric, bounds in held.items() if bounds is not None}
    inside = _over_layers(found, "in_sample_r2")
    if not known or inside is None:
        why = "It needs R² inside the sample, on held-out rows and on held-out layers, with intervals."
        return PREDICTABILITY.unmeasured(why)
    noise = found.score("predictability", WHOLE, f"in_sample_r2{NULL}p_over_n")
    line = f" (a fit to noise gives {tidy(noise.value)})" if noise else ""
    shown = {"heldout_rows_r2": "on held-out rows", "heldout_layers_r2": "on held-out layers"}
    told = " and ".join(f"{bounds} {shown[metric]}" for metric, bounds in known.items())
    figures = f"R² is {inside} inside the sample{line}, {told}."
    reach = max((bounds.high - bounds.low) / 2 for bounds in known.values())
    power = f"Of 100 such runs 80 would tell an R² that lies {tidy(SEEN * reach)} from one half."
    weak = any(bounds.high < MOST_OF_THE_VARIANCE for bounds in known.values())
    if len(known) == len(HELD_OUT) and all(bounds.low > MOST_OF_THE_VARIANCE for bounds in known.values()):
        return _against_the_nulls(found, known, figures, power)
    if weak and inside.low > MOST_OF_THE_VARIANCE:
        why = "The high value is the fit's own: where nothing was fitted, most of the variance is not predicted."
        return PREDICTABILITY.claim("explained by the null", figures, why, power)
    if weak and inside.high < MOST_OF_THE_VARIANCE:
        why = "Not even the fit itself explains half of the variance."
        return PREDICTABILITY.claim("contradicted", figures, why, power)
    why = "The intervals hold one half, and so both answers: a model of more layers would tell."
    return PREDICTABILITY.claim("not resolvable", figures, why, power)


def _over_layers(found: Diagnosis, metric: str) -> Span | None:
    """R2 of all layers, its interval widened for the layers that its places share."""
    bounds = span(found.score("predictability", WHOLE, metric))
    if bounds is None:
        return None
    below, above = SHARED * (bounds.value - bounds.low), SHARED * (bounds.high - bounds.value)
    return Span(bounds.value, bounds.value - below, bounds.value + above)


def _against_the_nulls(found: Diagnosis, known: dict[str, Span], figures: str, power: str) -> Claim:
    """The verdict where most of the variance is predicted."""
    rivals = [
        (null_name(null), bounds, chance)
        for metric, bounds in known.items()
        for null in found.nulls("predictability", metric)
        if (chance := _null(found, metric, null)) is not None
    ]
    as_good = [name for name, bounds, chance in rivals if bounds.high - chance.low < MARGIN]
    if as_good:
        why = f"{listed(list(dict.fromkeys(as_good))).capitalize()} predict as much."
        return PREDICTABILITY.claim("explained by the null", figures, why, power)
    if all(bounds.above(chance) for _, bounds, chance in rivals):
        why = "Most of the variance is predicted where nothing was fitted, and no null predicts as much."
        return PREDICTABILITY.claim("supported", figures, why, power)
    return PREDICTABILITY.claim("not resolvable", figures, "A null is not told apart from it.", power)


def _null(found: Diagnosis, metric: str, null: str) -> Span | None:
    """The interval of a null; one without bounds is known exactly."""
    score = found.score("predictability", WHOLE, f"{metric}{NULL}{null}")
    return None if score is None else span(score) or Span(score.value, score.value, score.value)
