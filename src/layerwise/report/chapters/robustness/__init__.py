"""The chapters of a robustness run: who survives what in one matrix, then a chapter for each kind of change.

A run that was only trained is a group of its own: the same chapters, the training first, and in the others the command
that fills them.
"""

from __future__ import annotations

from layerwise.report.chapters.claims import claims
from layerwise.report.chapters.group import Group
from layerwise.report.chapters.robustness.inside import inside
from layerwise.report.chapters.robustness.merging import merging
from layerwise.report.chapters.robustness.orders import orders
from layerwise.report.chapters.robustness.position import position
from layerwise.report.chapters.robustness.pruning import pruning
from layerwise.report.chapters.robustness.survival import survival
from layerwise.report.chapters.robustness.training import training
from layerwise.report.data import Evidence
from layerwise.report.robustness import MEASURES, TRAINING
from layerwise.report.wording import counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    found = evidence.robustness
    seeds = max((len(owned) for owned in found.seeds.values()), default=0)
    told = "documents" if found.is_language else "images"
    sizes = ((f"{seeds:,}", "seeds"),) if seeds else ()
    examples = () if found.examples is None else ((f"{found.examples:,}", told),)
    return ((f"{len(found.arms):,}", "arms"), *sizes, *examples)


def _unfinished(evidence: Evidence) -> str | None:
    """Trainings that were begun and have no end, and parts that were asked for and have no rows."""
    found = evidence.robustness
    begun = {name for arm in found.arms for name in found.seeded(TRAINING, "train_loss", arm)}
    waiting = sorted(begun - set(found.subjects(TRAINING, "steps")))
    asked = evidence.data.manifest.get("families")
    names = [str(name) for name in asked] if isinstance(asked, list | tuple) else []
    said = {score.subject for score in evidence.scores("examination")}
    missing = [name for name in names if name in MEASURES and name not in {*found.measures, *said}]
    parts = [] if found.only_trained else missing  # their chapters say how to go on
    if not waiting and not parts:
        return None
    told = [
        *([f"{counted(len(waiting), 'training')} ({listed(waiting)})"] if waiting else []),
        *([f"{counted(len(parts), 'part')} ({listed(parts)})"] if parts else []),
    ]
    verb = "is" if len(waiting) + len(parts) == 1 else "are"
    return (
        f"{listed(told)} {verb} not complete: the run was interrupted, or is still going. Resume it and write the"
        " report again."
    )


_TESTED = (survival, claims, orders, pruning, merging, position, inside)

ROBUSTNESS = Group(
    "robustness",
    (*_TESTED, training),
    present=lambda evidence: bool(evidence.robustness.measures) and not evidence.robustness.only_trained,
    tiles=_tiles,
    unfinished=_unfinished,
    counts=(),
)

TRAINED = Group(
    "training",
    (training, *_TESTED),
    present=lambda evidence: (
        evidence.robustness.only_trained and not evidence.pretraining.is_pretrained and not evidence.growth.measures
    ),
    tiles=_tiles,
    unfinished=_unfinished,
    counts=(),
)
