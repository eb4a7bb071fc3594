"""The chapters of a robustness run: who survives what in one matrix, then a chapter for each kind of change.

A run that was only trained is a group of its own: the same chapters, the training first, and in the others the command
that fills them.
"""

from __future__ import annotations

from layerwise.report.claims.chapter import claims
from layerwise.report.evidence import Evidence
from layerwise.report.kinds.pretraining import is_pretrained
from layerwise.report.page.group import ChapterGroup, arm_tiles, incomplete
from layerwise.report.robustness.chapters.inside import inside
from layerwise.report.robustness.chapters.merging import merging
from layerwise.report.robustness.chapters.nodes import nodes
from layerwise.report.robustness.chapters.orders import orders
from layerwise.report.robustness.chapters.position import position
from layerwise.report.robustness.chapters.pruning import pruning
from layerwise.report.robustness.chapters.survival import survival
from layerwise.report.robustness.chapters.training import training
from layerwise.report.robustness.lookup import MEASURES
from layerwise.report.robustness.tables import robustness_markdown


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    run = evidence.robustness
    name = "documents" if run.is_language else "images"
    examples = () if run.examples is None else ((f"{run.examples:,}", name),)
    return (*arm_tiles(run.arms, run.seeds), *examples)


def _unfinished(evidence: Evidence) -> str | None:
    """Trainings that were begun and have no end, and parts that the run was to have and that have no rows."""
    run = evidence.robustness
    families = evidence.data.manifest.get("families")
    names = [str(name) for name in families] if isinstance(families, list | tuple) else []
    complete = {*run.measures, *(score.subject for score in evidence.scores("part"))}
    missing = [name for name in names if name in MEASURES and name not in complete]
    # The chapters of a run that was only trained say themselves how to go on.
    return incomplete((run.unfinished, "training"), ([] if run.only_trained else missing, "part"))


_TESTED = (survival, claims, orders, pruning, nodes, merging, position, inside)

ROBUSTNESS = ChapterGroup(
    "robustness",
    (*_TESTED, training),
    (robustness_markdown,),
    present=lambda evidence: bool(evidence.robustness.measures) and not evidence.robustness.only_trained,
    tiles=_tiles,
    unfinished=_unfinished,
)

TRAINED = ChapterGroup(
    "training",
    (training, *_TESTED),
    (robustness_markdown,),
    present=lambda evidence: (
        evidence.robustness.only_trained and not is_pretrained(evidence.data) and not evidence.growth.measures
    ),
    tiles=_tiles,
    unfinished=_unfinished,
)
