"""The chapters of a growth run: the verdict, what it rests on, the schedules, and whether the test was a fair one.

A run of `layerwise train growth` has the same chapters as a study: where one schedule was trained alone, those that
compare say so in a line.
"""

from __future__ import annotations

from layerwise.report.claims.chapter import claims
from layerwise.report.evidence import Evidence
from layerwise.report.growth.chapters.accounting import accounting
from layerwise.report.growth.chapters.differences import differences
from layerwise.report.growth.chapters.headline import headline
from layerwise.report.growth.chapters.learning_rates import rates
from layerwise.report.growth.chapters.loss_vs_cost import loss_vs_cost
from layerwise.report.growth.chapters.schedules import schedules
from layerwise.report.growth.chapters.verdict import verdict
from layerwise.report.growth.findings import growth_markdown
from layerwise.report.growth.lookup import TRAINING
from layerwise.report.page.group import ChapterGroup, arm_tiles, incomplete


def _unfinished(evidence: Evidence) -> str | None:
    """Trainings that were begun and have no end."""
    run = evidence.growth
    begun = {*run.measured(TRAINING, "train_loss"), *run.measured(TRAINING, "validation_loss")}
    return incomplete((sorted(begun - set(run.subjects(TRAINING, "steps"))), "training"))


GROWN = ChapterGroup(
    "growth",
    (verdict, claims, headline, loss_vs_cost, differences, schedules, rates, accounting),
    (growth_markdown,),
    present=lambda evidence: bool(evidence.growth.measures),
    tiles=lambda evidence: arm_tiles(evidence.growth.arms, evidence.growth.seeds),
    unfinished=_unfinished,
)
