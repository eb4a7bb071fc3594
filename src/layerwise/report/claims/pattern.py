"""Two claims of the ELC-BERT paper about the weights themselves: their pattern, and that trainings agree on it."""

from __future__ import annotations

from layerwise.report.claims.claim import CONTRAST, Claim, Published, Span, seen, span
from layerwise.report.claims.trained import contrast, hundredths, interval, more, resolved
from layerwise.report.data import Evidence
from layerwise.report.notation import tidy
from layerwise.report.pretraining import LIKENESS
from layerwise.report.wording import counted
from layerwise.results.rows import Score

MASS, LIKE = 0.05, 0.2
ARM, BEYOND = "elc", "seeds beyond the start"
NEEDS = "It needs an arm that learns layer weights, with two seeds or more: layerwise study layer-weights."
WIDENED = 1.25
"""How much wider than the band of permuted sources the interval is.

A source that is moved to another place is read by fewer readers, so what it carries to all of them weighs less in the
permutations: of 12 layers and 5 seeds their standard deviation is 0.061, that of simulated trainings 0.073.
"""

NORMAL = (1.960 + 0.842) / 1.960
"""How much a band of 95 % is exceeded by what is found with 80 % power."""

PATTERN = Published(
    "pattern",
    "Embedding and last layer first",
    "Layers put most of their weight on the embedding and on the layer before them; some are hardly read by anyone.",
    "arXiv 2311.02265, heat maps of the layer weights",
    "The mass is what a reader of three sources or more gives to the embedding and to the layer before it; the mean"
    " over readers is compared with equal shares and with the weights at the start, which prefer the layer before"
    " in the paper's own setting. Supported: the mass is above equal shares, and above the start, by more than counts"
    " (5 points). Explained by the null: it is within 5 points of equal shares, or above them but not above the start"
    " (within 5 points of it, or below it). Contradicted: it is below equal shares. Each is read off a 95 % interval"
    " over seeds (Student's). The arm is elc where it was trained.",
)


def pattern(evidence: Evidence) -> Claim:
    """Do layers learn to weigh the embedding and the layer before them most?

    - supported: those two carry more than their share, and more than before the first step.
    - explained by the null: equal shares, or the weights at the start, carry as much.
    - contradicted: they carry less than their share.
    - not resolvable: an interval holds both answers.
    """
    tasks = evidence.diagnosis.tasks(CONTRAST, "learned")
    arm = ARM if ARM in tasks else next(iter(tasks), ARM)
    score = contrast(evidence, PATTERN.key, "learned", arm)
    if score is None:
        return PATTERN.unmeasured(NEEDS)
    equal, learned = (interval(evidence, PATTERN.key, metric, arm) for metric in ("above_equal", "learned"))
    if equal is None or learned is None:
        shown = f"Training moved {tidy(100 * score.value)} points of the mass there."
        return PATTERN.claim("not resolvable", shown, "One training says nothing of others: train two seeds or more.")
    figures = (
        f"In {arm} the embedding and the layer before carry {hundredths(equal)} points more than equal shares, and"
        f" {hundredths(learned)} points more than at the start."
    )
    power = resolved(score, MASS, "points")
    place, moved = equal.position(MASS), learned.position(MASS)
    if place == "within":
        return PATTERN.claim("explained by the null", figures, "Equal shares give them as much.", power)
    if place == "below":
        return PATTERN.claim("contradicted", figures, "They carry less than equal shares would give them.", power)
    if place == "above" and moved in ("within", "below"):
        why = "The weights began so: training has not moved more of the mass there."
        return PATTERN.claim("explained by the null", figures, why, power)
    if place == "above" and moved == "above":
        return PATTERN.claim("supported", figures, "Training has moved the mass there.", power)
    why = f"The intervals hold both answers.{more(score, MASS, 'the seeds')}"
    return PATTERN.claim("not resolvable", figures, why, power)


ALIKE = Published(
    "alike",
    "Alike in every training",
    "The weights that the layers learn are shown as a pattern of the model, from one training of each.",
    "arXiv 2311.02265, heat maps of the layer weights",
    "The likeness is the mean rank correlation of the rows of two trainings; chance is its mean where the sources of"
    " each training are permuted, and the interval is the likeness above chance with 1.25 times the width that"
    " permutation gives. It decides after the weights at the start, which all trainings share, were taken off."
    " Supported: beyond the start the likeness is above chance, by more than counts (0.2). Explained by the"
    " null: beyond the start it is within 0.2 of chance, though the weights as they are are alike. Contradicted: it is"
    " within 0.2 of chance, and so are the weights as they are, or below. The arm is elc where it was trained.",
)


def alike(evidence: Evidence) -> Claim:
    """Do trainings that differ in their seed learn the same layer weights?

    - supported: they are alike beyond the start that they share.
    - explained by the null: they are alike, but not beyond their start.
    - contradicted: they are not alike.
    - not resolvable: the band of the permutations holds both answers.
    """
    rows = evidence.pretraining.subjects(LIKENESS, "correlation", BEYOND)
    arm = ARM if ARM in rows else next(iter(rows), ARM)
    beyond, raw = (_above_chance(evidence, arm, task) for task in (BEYOND, "seeds"))
    if beyond is None or raw is None:
        return ALIKE.unmeasured(NEEDS)
    seeds = counted(len(evidence.pretraining.seeds.get(arm, ())), "seed")
    figures = (
        f"In {arm} the rank correlation of trainings is {raw.signed} above chance, {beyond.signed} beyond the start"
        f" ({seeds})."
    )
    score = Score(CONTRAST, ALIKE.key, arm, "correlation", beyond.value, resolution=beyond.resolution)
    power = seen(score, LIKE, "of rank correlation")
    place = beyond.position(LIKE)
    if place == "above":
        return ALIKE.claim("supported", figures, "They are alike beyond the start that they share.", power)
    if place == "open":
        why = f"The band of the permutations holds both answers.{more(score, LIKE, 'the pairs of seeds')}"
        return ALIKE.claim("not resolvable", figures, why, power)
    if raw.position(LIKE) == "above":
        why = "What is alike is the start that they share: they do not go the same way from there."
        return ALIKE.claim("explained by the null", figures, why, power)
    return ALIKE.claim("contradicted", figures, "Each training learns weights of its own.", power)


def _above_chance(evidence: Evidence, arm: str, task: str) -> Span | None:
    """The likeness above chance, with the width of the band that permuted sources give, widened."""
    found = evidence.pretraining
    score, null = (found.score(LIKENESS, metric, arm, task) for metric in ("correlation", "correlation@shuffled"))
    band = span(null)
    if score is None or band is None:
        return None
    value, half = score.value - band.value, WIDENED * (band.high - band.low) / 2
    return Span(value, value - half, value + half, NORMAL * half)
