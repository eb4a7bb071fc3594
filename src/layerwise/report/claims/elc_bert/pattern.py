"""Two claims of the ELC-BERT paper about the weights themselves: their pattern, and that trainings agree on it."""

from __future__ import annotations

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published, Span, span
from layerwise.report.claims.contrasts import CONTRAST, contrasts
from layerwise.report.claims.elc_bert.learned import NOT_LEARNED, not_above_chance
from layerwise.report.claims.power import more, seen
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.lookup import SEED_AGREEMENT
from layerwise.results.rows import Score

MASS, LIKE = 0.05, 0.2
ARM, BEYOND = "elc", "seeds beyond the start"
NEEDS = "It needs an arm that learns layer weights, with two seeds or more: layerwise study layer-weights."
WIDENED = 1.25
"""How much wider than the band of permuted sources the interval is.

A source that is moved to another position is read by fewer readers, so what it carries to all of them weighs less in
the permutations: of 12 layers and 5 seeds their standard deviation is 0.061, that of simulated trainings 0.073.
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
    " over seeds (Student's). The arm is elc where it was trained." + NOT_LEARNED.format("it"),
    NEEDS,
)


def pattern(evidence: Evidence) -> Claim:
    """Do layers learn to weigh the embedding and the layer before them most?"""
    tasks = evidence.diagnosis.tasks(CONTRAST, "learned")
    arm = ARM if ARM in tasks else next(iter(tasks), ARM)
    rows = contrasts(evidence, PATTERN.key, "learned", task=arm)
    if rows is None:
        return PATTERN.unmeasured()
    equal, learned = rows.span("above_equal"), rows.span("learned")
    if equal is None or learned is None:
        return PATTERN.undecided(
            f"Training moved {rows.points('learned')} points of the mass there.",
            "One training says nothing of others: train two seeds or more.",
        )
    position, moved = equal.position(MASS), learned.position(MASS)
    began = "The weights began so: training has not moved more of the mass there."
    return PATTERN.decided(
        f"In {arm} the embedding and the layer before carry {equal.times(100)} points more than equal shares, and"
        f" {learned.times(100)} points more than at the start.",
        seen(rows["learned"], MASS, "points", scale=100),
        not_above_chance(evidence.pretraining, arm),
        (position == "within", BY_NULL, "Equal shares give them as much."),
        (position == "below", CONTRADICTED, "They carry less than equal shares would give them."),
        (position == "above" and moved in NOT_ABOVE, BY_NULL, began),
        (position == moved == "above", SUPPORTED, "Training has moved the mass there."),
        otherwise=f"The intervals hold both answers.{more(rows['learned'], MASS, 'the seeds')}",
    )


ALIKE = Published(
    "alike",
    "Alike in every training",
    "The weights that the layers learn are shown as a pattern of the model, from one training of each.",
    "arXiv 2311.02265, heat maps of the layer weights",
    "The agreement is the mean rank correlation of the rows of two trainings; chance is its mean where the sources of"
    " each training are permuted, and the interval is the agreement above chance with 1.25 times the width that"
    " permutation gives. It decides after the weights at the start, which all trainings share, were taken off."
    " Supported: beyond the start the agreement is above chance, by more than counts (0.2). Explained by the"
    " null: beyond the start it is within 0.2 of chance, though the weights as they are are alike. Contradicted: it is"
    " within 0.2 of chance, and so are the weights as they are, or below. The arm is elc where it was trained."
    + NOT_LEARNED.format("it"),
    NEEDS,
)


def alike(evidence: Evidence) -> Claim:
    """Do trainings that differ in their seed learn the same layer weights?"""
    arms = evidence.pretraining.subjects(SEED_AGREEMENT, "correlation", BEYOND)
    arm = ARM if ARM in arms else next(iter(arms), ARM)
    beyond, raw = (_above_chance(evidence, arm, task) for task in (BEYOND, "seeds"))
    if beyond is None or raw is None:
        return ALIKE.unmeasured()
    seeds = counted(len(evidence.pretraining.seeds.get(arm, ())), "seed")
    score = Score(CONTRAST, ALIKE.key, arm, "correlation", beyond.value, mde=beyond.mde)
    position = beyond.position(LIKE)
    shuffled = f"The band of the permutations holds both answers.{more(score, LIKE, 'the pairs of seeds')}"
    start = "What is alike is the start that they share: they do not go the same way from there."
    return ALIKE.decided(
        f"In {arm} the rank correlation of trainings is {raw.signed} above chance, {beyond.signed} beyond the start"
        f" ({seeds}).",
        seen(score, LIKE, "of rank correlation"),
        not_above_chance(evidence.pretraining, arm),
        (position == "above", SUPPORTED, "They are alike beyond the start that they share."),
        (position != "open" and raw.position(LIKE) == "above", BY_NULL, start),
        (position != "open", CONTRADICTED, "Each training learns weights of its own."),
        otherwise=shuffled,
    )


def _above_chance(evidence: Evidence, arm: str, task: str) -> Span | None:
    """The agreement above chance, with the width of the band that permuted sources give, widened."""
    rows = evidence.pretraining
    score, null = (rows.score(SEED_AGREEMENT, metric, arm, task) for metric in ("correlation", "correlation@shuffled"))
    band = span(null)
    if score is None or band is None:
        return None
    value, half = score.value - band.value, WIDENED * (band.high - band.low) / 2
    return Span(value, value - half, value + half, NORMAL * half).inside(-1.0 - band.value, 1.0 - band.value)
