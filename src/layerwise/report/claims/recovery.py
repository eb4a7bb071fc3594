"""The claim that layers which matter recover slowly, against the null that they were only damaged more."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import Claim, Published, Span, span
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.notation import tidy
from layerwise.report.wording import counted

PUBLISHED_DAMAGE = "noise_50/layer"
EQUAL_DAMAGE = "equal_damage/layer"
MARGIN = 0.5

RECOVERY = Published(
    "recovery",
    "Recovery follows importance",
    "Damaged layers that matter (8, 11) take 200 steps to recover, others (14) none.",
    "arXiv 2603.19348, recovery speed (metric 3)",
    "Rank correlations over layers of recovery (the area above an undamaged twin) with the effect of skipping. The"
    " published one is over all layers after 50 % noise. Heavy damage takes longer to undo wherever it falls, so the"
    " claim is decided among equals: after damage of equal size, or, where that was not run, with the initial damage"
    f" held fixed, over the layers that were damaged at all. The margin is {MARGIN:g}: less explains less than a"
    " quarter of the ranks. Supported: the correlation among equals lies above zero, and not within the margin."
    " Explained by the null: the published one does, and the one among equals is shown to lie within the margin, or"
    " below zero. Contradicted: the published one is shown to lie within the margin or below zero, and the one among"
    " equals is not above it. Anything else is not resolvable.",
)


def recovery(evidence: Evidence) -> Claim:
    """Do layers that matter more recover more slowly, from equal damage?

    - supported (true): the correlation among equals is above zero, the published one not below it.
    - explained by the null: the published one is above; the one among equals is within the margin or below zero.
    - contradicted (false): the published one is within the margin or below zero, the one among equals not above.
    - not resolvable (underpowered): anything else; fewer than 17 layers never show a correlation to be small.
    """
    found = evidence.diagnosis
    tasks = [task for task in found.tasks("recovery", "layers") if task != EQUAL_DAMAGE]
    if not tasks:
        why = "It needs recovery after the published damage, and the effect of skipping layers: run diagnose again."
        return RECOVERY.unmeasured(why)
    task = PUBLISHED_DAMAGE if PUBLISHED_DAMAGE in tasks else tasks[0]
    equal = EQUAL_DAMAGE in found.tasks("recovery", "spearman")
    decided = (EQUAL_DAMAGE, "spearman") if equal else (task, "spearman_given_damage")
    published, among = _correlation(found, task, "spearman_published"), _correlation(found, *decided)
    layers = _layers(found, decided[0])
    how = "after damage of equal size" if equal else "with the initial damage held fixed"
    figures = (
        f"Rank correlation of recovery with the effect of skipping: {_told(published)} over all layers, as published"
        f" ({task}); {_told(among)} among {counted(layers, 'damaged layer')} {how}{_cut(found, decided[0])}."
    )
    power = _power(layers - (not equal))
    raw, own = (each.position(MARGIN) if each else "open" for each in (published, among))
    if own == "above" and raw != "below":
        why = "Layers that matter more recover more slowly, from equal damage too."
        return RECOVERY.claim("supported", figures, why, power)
    if raw == "above" and own in ("within", "below"):
        why = "Layers that matter more were damaged more to begin with; among equals the relation is shown to be small."
        return RECOVERY.claim("explained by the null", figures, why, power)
    if raw in ("within", "below") and own != "above":
        why = "Not even layers damaged unequally recover in the order of what they matter."
        return RECOVERY.claim("contradicted", figures, why, power)
    why = f"{counted(layers, 'damaged layer')} are too few to tell; about {_layers_needed()} layers would."
    return RECOVERY.claim("not resolvable", figures, why, power)


def _correlation(found: Diagnosis, task: str, metric: str) -> Span | None:
    return span(found.score("recovery", "ablation", metric, task))


def _told(correlation: Span | None) -> str:
    return str(correlation) if correlation else "none can be had"


def _layers(found: Diagnosis, task: str) -> int:
    score = found.score("recovery", "ablation", "layers", task)
    return int(score.value) if score else 0


def _cut(found: Diagnosis, task: str) -> str:
    """What share of the runs had not recovered at the last step, where that is any."""
    rows = found.layers("recovery", "censored", task)
    share = sum(score.value for score in rows.values()) / len(rows) if rows else 0.0
    return f"; {100 * share:.0f} % of those runs had not recovered at the last step" if share else ""


def _power(layers: int) -> str:
    """The rank correlation that 80 of 100 models with so many layers would show, by Fisher's transformation."""
    if layers < 5:
        return "So few layers show no correlation, however strong."
    seen = 0.0
    for _ in range(50):
        seen = math.tanh(2.8 * math.sqrt((1 + seen**2 / 2) / (layers - 3)))
    return f"Of 100 such models 80 would show a rank correlation of {tidy(seen)}."


def _layers_needed() -> int:
    """How many layers show a correlation of zero to lie within the margin, in 80 of 100 models."""
    return math.ceil(3 + (3.24 / math.atanh(MARGIN)) ** 2)
