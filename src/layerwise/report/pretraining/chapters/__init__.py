"""The chapters of pre-trained models, in four groups: how they were trained, what they know, whether it is worth it,
and what each edge of their wiring is worth.

A run of `layerwise train` with layer weights is the first; `layerwise evaluate` adds the second to it or stands alone;
a study adds the third; a wiring that was measured and pruned is the fourth.
"""

from __future__ import annotations

from layerwise.report.claims.chapter import claims
from layerwise.report.evidence import Evidence
from layerwise.report.finetuned.chapter import fine_tuned_plans
from layerwise.report.finetuned.findings import finetuned_markdown
from layerwise.report.kinds.training import TRAINED, TRAINING_SECTION, unfinished
from layerwise.report.page.chapter import Chapter
from layerwise.report.page.group import ChapterGroup, arm_tiles, incomplete
from layerwise.report.pretraining.chapters.attribution import attribution
from layerwise.report.pretraining.chapters.benchmarks import benchmarks
from layerwise.report.pretraining.chapters.costs import costs
from layerwise.report.pretraining.chapters.dynamics import dynamics
from layerwise.report.pretraining.chapters.edges import edges
from layerwise.report.pretraining.chapters.fine_tuning import fine_tuning
from layerwise.report.pretraining.chapters.layer_weights import weights
from layerwise.report.pretraining.chapters.minimal_pairs import pairs
from layerwise.report.pretraining.chapters.outcome import outcome
from layerwise.report.pretraining.chapters.phenomena import phenomena
from layerwise.report.pretraining.chapters.seed_agreement import seed_agreement
from layerwise.report.pretraining.chapters.stability import stability
from layerwise.report.pretraining.chapters.study import study
from layerwise.report.pretraining.findings import pretraining_markdown
from layerwise.report.writers.html import chapter


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = evidence.pretraining
    return arm_tiles(run.arms, run.seeds) if run.arms else ()


def _unfinished(evidence: Evidence) -> str | None:
    return incomplete((unfinished(evidence.data), "training"))


def training(evidence: Evidence) -> Chapter:
    """How the models were trained."""
    return chapter(TRAINED, TRAINING_SECTION, evidence.data)


STUDIED = ChapterGroup(
    "study",
    (study, fine_tuning, attribution, dynamics, claims),
    (pretraining_markdown,),
    present=lambda evidence: evidence.pretraining.is_studied,
    tiles=_tiles,
)
PRETRAINED = ChapterGroup(
    "pretraining",
    (outcome, claims, weights, seed_agreement, stability, training, costs),
    (pretraining_markdown,),
    present=lambda evidence: evidence.pretraining.is_pretrained,
    tiles=_tiles,
    unfinished=_unfinished,
)
EVALUATED = ChapterGroup(
    "evaluation",
    (pairs, benchmarks, fine_tuned_plans),
    (pretraining_markdown, finetuned_markdown),
    present=lambda evidence: evidence.pretraining.is_evaluated,
    tiles=_tiles,
)
WIRED = ChapterGroup(
    "wiring",
    (weights, edges, phenomena),
    (pretraining_markdown,),
    present=lambda evidence: evidence.pretraining.is_wired,
    tiles=_tiles,
)
