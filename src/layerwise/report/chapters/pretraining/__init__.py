"""The chapters of pre-trained models, in four groups: how they were trained, what they know, whether it is worth it,
and what each edge of their wiring is worth.

A run of `layerwise train` with layer weights is the first; `layerwise evaluate` adds the second to it or stands alone;
a study adds the third; a wiring that was measured and pruned is the fourth.
"""

from __future__ import annotations

from layerwise.report.chapters.claims import claims
from layerwise.report.chapters.group import Group
from layerwise.report.chapters.pretraining.benchmarks import benchmarks
from layerwise.report.chapters.pretraining.costs import costs
from layerwise.report.chapters.pretraining.edges import edges
from layerwise.report.chapters.pretraining.likeness import likeness
from layerwise.report.chapters.pretraining.outcome import outcome
from layerwise.report.chapters.pretraining.pairs import pairs
from layerwise.report.chapters.pretraining.study import study
from layerwise.report.chapters.pretraining.weights import weights
from layerwise.report.chapters.robustness.training import training
from layerwise.report.data import Evidence
from layerwise.report.pretraining import TRAINING
from layerwise.report.wording import counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    found = evidence.pretraining
    if not found.arms:
        return ()
    seeds = max(len(owned) for owned in found.seeds.values())
    return ((f"{len(found.arms):,}", "arms"), *(((f"{seeds:,}", "seeds"),) if seeds else ()))


def _unfinished(evidence: Evidence) -> str | None:
    """Trainings that were begun and have no end."""
    found = evidence.robustness
    begun = {name for arm in found.arms for name in found.seeded(TRAINING, "train_loss", arm)}
    waiting = sorted(begun - set(found.subjects(TRAINING, "steps")))
    if not waiting:
        return None
    verb = "is" if len(waiting) == 1 else "are"
    return (
        f"{counted(len(waiting), 'training')} ({listed(waiting)}) {verb} not complete: the run was interrupted, or is"
        " still going. Resume it and write the report again."
    )


def _nothing_waits(evidence: Evidence) -> str | None:
    """What was evaluated or compared is complete row by row: there is nothing to resume."""
    return None


STUDIED = Group(
    "study",
    (study, claims),
    present=lambda evidence: evidence.pretraining.is_studied,
    tiles=_tiles,
    unfinished=_nothing_waits,
    counts=(),
)
PRETRAINED = Group(
    "pretraining",
    (outcome, claims, weights, likeness, training, costs),
    present=lambda evidence: evidence.pretraining.is_pretrained,
    tiles=_tiles,
    unfinished=_unfinished,
    counts=(),
)
EVALUATED = Group(
    "evaluation",
    (pairs, benchmarks),
    present=lambda evidence: evidence.pretraining.is_evaluated,
    tiles=_tiles,
    unfinished=_nothing_waits,
    counts=(),
)
WIRED = Group(
    "wiring",
    (weights, edges),
    present=lambda evidence: evidence.pretraining.is_wired,
    tiles=_tiles,
    unfinished=_nothing_waits,
    counts=(),
)
