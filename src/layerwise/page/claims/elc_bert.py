"""The claims of ELC-BERT: what they read, what counts, and which verdict follows."""

from __future__ import annotations

from functools import partial

from layerwise.page.claims.claim import span
from layerwise.page.claims.contrasts import (
    SHARES,
    Fact,
    Facts,
    Several,
    clipped,
    contrast_rows,
    scaled,
    training_ends,
)
from layerwise.page.data import ReportData
from layerwise.page.text.wording import counted
from layerwise.page.trained import by_arm, seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score

MASS, LIKE = 0.05, 0.2
CHANCE, HELD = 0.5, "elc-frozen"
WIDENED = 1.25
"""Factor on the band of permuted sources: their std is 0.061 (12 layers, 5 seeds), of simulated trainings 0.073."""
NORMAL = (1.960 + 0.842) / 1.960
"""How much a band of 95 % is exceeded by what is found with 80 % power."""


def _skill(data: ReportData, arm: str) -> Fact | None:
    score = by_arm(data.rows.where(measure=vocab.PAIRS, metric="accuracy", task=vocab.ALL)).one(arm=arm)
    return None if score is None else Fact(score, 0.0, CHANCE)


def gain(data: ReportData, task: str, terms: str, better: int, margin: float, written: str) -> Facts | None:
    """Return what elc gains over its backbone and over fixed initial weights; above zero is better.

    The backbone is compared on `terms`, fixed weights on those or at equal tokens. `better` is the sign of a gain, and
    `written` the format of the second.
    """
    rows = data.rows.where(measure=vocab.STUDY, metric="difference", task=task, arm=vocab.LAYER_WEIGHTS)
    score = rows.one(against=vocab.BACKBONE, condition=terms)
    if score is None:
        return None
    held = rows.one(against=HELD, condition=terms) or rows.one(against=HELD, condition=vocab.TOKENS)
    within = SHARES if task == vocab.PAIRS else None
    learned = (
        {"": Fact(scaled(held, better), margin, within=within)} if held is not None and span(held) is not None else {}
    )
    return {
        "gain": Fact(scaled(score, better), margin, within=within),
        "learned": Several(learned, f"{{0:{written}}}", ", on frozen weights "),
        "seeds": counted(min(len(seeds(data, arm)) for arm in (vocab.LAYER_WEIGHTS, vocab.BACKBONE)), "seed"),
        "skill": _skill(data, vocab.BACKBONE),
        **training_ends(vocab.LAYER_WEIGHTS)(data),
    }


worth = partial(gain, task=vocab.MASKED_LM, terms=vocab.SECONDS, better=-1, margin=0.01, written="+")
grammar = partial(gain, task=vocab.PAIRS, terms=vocab.TOKENS, better=1, margin=0.005, written="+%")


def pattern(data: ReportData) -> Facts | None:
    tasks = data.rows.where(measure=vocab.CONTRAST, metric="learned").axis("task")
    arm = vocab.LAYER_WEIGHTS if vocab.LAYER_WEIGHTS in tasks else next(iter(tasks), vocab.LAYER_WEIGHTS)
    rows = contrast_rows(data, "pattern", arm)
    if "learned" not in rows:
        return None
    facts = {
        name: Fact(rows[metric], MASS, within=SHARES)
        for name, metric in (("equal", "above_equal"), ("learned", "learned"))
        if metric in rows
    }
    return {"arm": arm, **facts, "skill": _skill(data, arm), **training_ends(arm)(data)}


def alike(data: ReportData) -> Facts | None:
    rows = data.rows.where(measure=vocab.SEED_AGREEMENT, metric="correlation", condition=vocab.BEYOND_START)
    arms = rows.axis("arm")
    arm = vocab.LAYER_WEIGHTS if vocab.LAYER_WEIGHTS in arms else next(iter(arms), vocab.LAYER_WEIGHTS)
    beyond, raw = (_above_chance(data, arm, condition) for condition in (vocab.BEYOND_START, None))
    if beyond is None or raw is None:
        return None
    return {
        "arm": arm,
        "beyond": Fact(beyond, LIKE),
        "raw": Fact(raw, LIKE),
        "seeds": counted(len(seeds(data, arm)), "seed"),
        "skill": _skill(data, arm),
        **training_ends(arm)(data),
    }


def _above_chance(data: ReportData, arm: str, condition: str | None) -> Score | None:
    rows = data.rows.where(measure=vocab.SEED_AGREEMENT, metric="correlation", arm=arm, condition=condition)
    score, null = rows.one(against=None), rows.one(against=vocab.SHUFFLED)
    band = span(null)
    if score is None or band is None:
        return None
    value, half = score.value - band.value, WIDENED * (band.high - band.low) / 2
    above = Score(
        vocab.CONTRAST, "correlation", value, value - half, value + half, claim="alike", task=arm, mde=NORMAL * half
    )
    return clipped(above, -1.0 - band.value, 1.0 - band.value)
