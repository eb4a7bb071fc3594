"""The claims of ELC-BERT: what they read, what counts, and which verdict follows."""

from __future__ import annotations

from layerwise.report.claims.claim import span
from layerwise.report.claims.contrasts import CONTRAST, Fact, Facts, Several, clipped, contrast_rows, scaled
from layerwise.report.evidence import Evidence
from layerwise.report.page.wording import counted
from layerwise.report.pretraining.lookup import BACKBONE, SEED_AGREEMENT, STUDY
from layerwise.results.rows import Score

MASS, LIKE = 0.05, 0.2
PAIRS, CHANCE, ARM = "pairs", 0.5, "elc"
BEYOND = "seeds beyond the start"
WIDENED = 1.25
"""How much wider than the band of permuted sources the interval is.

A source that is moved to another position is read by fewer readers, so what it carries to all of them weighs less in
the permutations: of 12 layers and 5 seeds their standard deviation is 0.061, that of simulated trainings 0.073.
"""
NORMAL = (1.960 + 0.842) / 1.960
"""How much a band of 95 % is exceeded by what is found with 80 % power."""


def _skill(evidence: Evidence, arm: str) -> Fact | None:
    """How often an arm is right on minimal pairs, beside chance, over seeds."""
    score = evidence.pretraining.by_arm(PAIRS, "accuracy").get(arm)
    return None if score is None else Fact(score, 0.0, CHANCE)


def gain(
    evidence: Evidence, against_ltg: str, against_held: str, better: int, margin: float, written: str
) -> Facts | None:
    """What elc gains on its backbone, and on weights that keep their start: above zero is better.

    The tasks of the study are `against_ltg` and `against_held`, `better` is the sign of a gain, and `written` how the
    second is written.
    """
    rows = evidence.pretraining
    score = rows.score(STUDY, "difference", "elc - ltg", against_ltg)
    if score is None:
        return None
    held = rows.score(STUDY, "difference", "elc - elc-frozen", against_held)
    learned = {"": Fact(scaled(held, better), margin)} if held is not None and span(held) is not None else {}
    return {
        "gain": Fact(scaled(score, better), margin),
        "learned": Several(learned, f"{{0:{written}}}", ", on frozen weights "),
        "seeds": counted(min(len(rows.seeds.get(arm, ())) for arm in (ARM, BACKBONE)), "seed"),
        "skill": _skill(evidence, BACKBONE),
    }


def pattern(evidence: Evidence) -> Facts | None:
    """What the embedding and the layer before carry more than equal shares, and more than at the start."""
    tasks = evidence.diagnosis.tasks(CONTRAST, "learned")
    arm = ARM if ARM in tasks else next(iter(tasks), ARM)
    rows = contrast_rows(evidence, "pattern", arm)
    if "learned" not in rows:
        return None
    facts = {name: Fact(rows[metric], MASS) for name, metric in (("equal", "above_equal"), ("learned", "learned"))
             if metric in rows}  # fmt: skip
    return {"arm": arm, **facts, "skill": _skill(evidence, arm)}


def alike(evidence: Evidence) -> Facts | None:
    """How alike the weights of trainings are above chance, as they are and beyond the start that they share."""
    rows = evidence.pretraining
    arms = rows.subjects(SEED_AGREEMENT, "correlation", BEYOND)
    arm = ARM if ARM in arms else next(iter(arms), ARM)
    beyond, raw = (_above_chance(evidence, arm, task) for task in (BEYOND, "seeds"))
    if beyond is None or raw is None:
        return None
    return {
        "arm": arm,
        "beyond": Fact(beyond, LIKE),
        "raw": Fact(raw, LIKE),
        "seeds": counted(len(rows.seeds.get(arm, ())), "seed"),
        "skill": _skill(evidence, arm),
    }


def _above_chance(evidence: Evidence, arm: str, task: str) -> Score | None:
    """The agreement above chance, with the width of the band that permuted sources give, widened."""
    rows = evidence.pretraining
    score, null = (rows.score(SEED_AGREEMENT, metric, arm, task) for metric in ("correlation", "correlation@shuffled"))
    band = span(null)
    if score is None or band is None:
        return None
    value, half = score.value - band.value, WIDENED * (band.high - band.low) / 2
    above = Score(CONTRAST, "alike", arm, "correlation", value, value - half, value + half, mde=NORMAL * half)
    return clipped(above, -1.0 - band.value, 1.0 - band.value)
