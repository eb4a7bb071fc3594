"""The claim about weights from layer to layer that their differences oscillate."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, SUPPORTED, Claim, Published, span
from layerwise.report.claims.power import seen, widest
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted, listed

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
UNIVERSAL = Published(
    "universal_oscillation",
    "The oscillation is universal",
    "A universal oscillatory pattern: the correlation is about −0.50 in every type of weights.",
    "arXiv 2603.19348, abstract; weight differences (metric 1)",
    "The contrast of the claim before, for every type of tensor by itself, with intervals that hold for all types"
    " together. Supported: every one lies below zero, and not inside ±0.1. Explained by the null: every one lies inside"
    " ±0.1, which is what layers in any order give. Contradicted: one lies above zero, or some below and others inside,"
    " so that the pattern is not that of all. Anything else is not resolvable. Whether it is that of all models is for"
    " several runs.",
    "It needs the correlation of weight differences at lag 1 for two types of tensors or more: layerwise diagnose.",
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


def universal_oscillation(evidence: Evidence) -> Claim:
    """Is what successive weight differences show the same in every type of tensor?"""
    run = evidence.diagnosis
    scores = {
        task: score
        for task in run.tasks("deltas", "correlation")
        if task != "all"
        for name in LAG
        if (score := run.score("deltas", "1", name, task)) is not None
    }
    found = {task: each for task, score in scores.items() if (each := span(score)) is not None}
    if len(scores) < 2:
        return UNIVERSAL.unmeasured()
    raw = [row.value for task in scores if (row := run.score("deltas", "1", "correlation", task)) is not None]
    excess = _range([score.value for score in scores.values()], signed=True)
    figures = (
        f"{counted(len(scores), 'type')} of tensors: the correlation at lag 1 is {_range(raw)}; with layers of norm 1"
        f" it is {excess} beside that of random orders."
    )
    if len(found) < len(scores):
        return UNIVERSAL.undecided(figures, "So few layers have too few orders to compare with.")
    wider = NormalDist().inv_cdf(1 - 0.025 / len(found)) / NormalDist().inv_cdf(0.975)
    positions = {task: each.widened(wider).position(FINE_ENOUGH) for task, each in found.items()}
    kinds = set(positions.values())
    least_known = widest(scores.values())
    apart = [task for task, position in positions.items() if position != "below"]
    return UNIVERSAL.decided(
        figures,
        seen(least_known, FINE_ENOUGH, "of a correlation"),
        (kinds == {"within"}, BY_NULL, "Every type gives what its layers give in any order: nothing oscillates."),
        (kinds == {"below"}, SUPPORTED, "Every type lies below what any order of its layers gives."),
        ("above" in kinds, CONTRADICTED, "In some types neighbouring layers are more alike than others."),
        (kinds == {"below", "within"}, CONTRADICTED, f"Not of all types: {listed(apart)} show none."),
        otherwise="The interval of a type holds both an oscillation and none.",
    )


def _range(values: Sequence[float], *, signed: bool = False) -> str:
    """The least and the greatest value."""
    if not values:
        return "not measured"
    return f"{tidy(min(values), signed=signed)} to {tidy(max(values), signed=signed)}"
