"""The claim that layers which matter recover slowly, against the null that they were only damaged more."""

from __future__ import annotations

import math

from layerwise.report.claims.claim import BY_NULL, CONTRADICTED, NOT_ABOVE, SUPPORTED, Claim, Published, span
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.page.number_format import tidy
from layerwise.report.page.wording import counted

PUBLISHED_DAMAGE = "noise_50/layer"
EQUAL_DAMAGE = "equal_damage/layer"
MARGIN = 0.5
LAYERS_NEEDED = math.ceil(3 + (3.24 / math.atanh(MARGIN)) ** 2)
"""How many layers show a correlation of zero to lie within the margin, in 80 of 100 models."""

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
    "It needs recovery after the published damage, and the effect of skipping layers: run diagnose again.",
)


def recovery(evidence: Evidence) -> Claim:
    """Do layers that matter more recover more slowly, from equal damage?

    Fewer than 17 layers never show a correlation to be small.
    """
    rows = evidence.diagnosis
    tasks = [task for task in rows.tasks("recovery", "layers") if task != EQUAL_DAMAGE]
    if not tasks:
        return RECOVERY.unmeasured()
    task = PUBLISHED_DAMAGE if PUBLISHED_DAMAGE in tasks else tasks[0]
    equal = EQUAL_DAMAGE in rows.tasks("recovery", "spearman")
    among, metric = (EQUAL_DAMAGE, "spearman") if equal else (task, "spearman_given_damage")
    published = span(rows.score("recovery", "ablation", "spearman_published", task))
    decisive = span(rows.score("recovery", "ablation", metric, among))
    score = rows.score("recovery", "ablation", "layers", among)
    layers = int(score.value) if score else 0
    how = "after damage of equal size" if equal else "with the initial damage held fixed"
    raw, own = (each.position(MARGIN) if each else "open" for each in (published, decisive))
    unequal = "Layers that matter more were damaged more to begin with; among equals the relation is shown to be small."
    unrelated = "Not even layers damaged unequally recover in the order of what they matter."
    return RECOVERY.decided(
        f"Rank correlation of recovery with the effect of skipping: {published or 'none can be had'} over all layers,"
        f" as published ({task}); {decisive or 'none can be had'} among {counted(layers, 'damaged layer')}"
        f" {how}{_cut(rows, among)}.",
        _power(layers - (not equal)),
        (
            own == "above" and raw != "below",
            SUPPORTED,
            "Layers that matter more recover more slowly, from equal damage too.",
        ),
        (raw == "above" and own in NOT_ABOVE, BY_NULL, unequal),
        (raw in NOT_ABOVE and own != "above", CONTRADICTED, unrelated),
        otherwise=f"{counted(layers, 'damaged layer')} are too few to decide; about {LAYERS_NEEDED} layers would.",
    )


def _cut(rows: DiagnosisScores, task: str) -> str:
    """What share of the runs had not recovered at the last step, where that is any."""
    censored = rows.layers("recovery", "censored", task)
    share = sum(score.value for score in censored.values()) / len(censored) if censored else 0.0
    return f"; {100 * share:.0f} % of those runs had not recovered at the last step" if share else ""


def _power(layers: int) -> str:
    """The rank correlation that 80 of 100 models with so many layers would show, by Fisher's transformation."""
    if layers < 5:
        return "So few layers show no correlation, however strong."
    seen = 0.0
    for _ in range(50):
        seen = math.tanh(2.8 * math.sqrt((1 + seen**2 / 2) / (layers - 3)))
    return f"Of 100 such models 80 would show a rank correlation of {tidy(seen)}."
