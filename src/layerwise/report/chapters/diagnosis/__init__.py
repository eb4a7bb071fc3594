"""The chapters of a diagnosis: the claims and verdicts first, then a chapter for each measure, with its nulls."""

from __future__ import annotations

from layerwise.report.chapters.diagnosis.ablation import ablation
from layerwise.report.chapters.diagnosis.agreement import agreement
from layerwise.report.chapters.diagnosis.claims import claims
from layerwise.report.chapters.diagnosis.deltas import deltas
from layerwise.report.chapters.diagnosis.manipulation import manipulation
from layerwise.report.chapters.diagnosis.predictability import predictability
from layerwise.report.chapters.diagnosis.proxies import proxies
from layerwise.report.chapters.diagnosis.pruning import pruning
from layerwise.report.chapters.diagnosis.racing import racing
from layerwise.report.chapters.diagnosis.recovery import recovery
from layerwise.report.chapters.diagnosis.structure import structure
from layerwise.report.chapters.group import Group
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import MEASURES, WHOLE
from layerwise.report.wording import counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    scores = sum(score.measure in MEASURES for score in evidence.data.scores)
    tasks = [task for task in evidence.diagnosis.tasks("ablation") if task != WHOLE]
    return ((f"{scores:,}", "scores"), *(((f"{len(tasks):,}", "tasks"),) if tasks else ()))


def _unfinished(evidence: Evidence) -> str | None:
    """Measures that the run was asked for and has no rows of."""
    asked = evidence.data.manifest.get("families")
    names = [str(name) for name in asked] if isinstance(asked, list | tuple) else []
    waiting = [name for name in names if name in MEASURES and name not in evidence.diagnosis.measures]
    if not waiting:
        return None
    return (
        f"{counted(len(waiting), 'measure')} of this diagnosis, {listed(waiting)}, have no rows yet: the run was"
        " interrupted, is still going, or the measure had no honest answer. Resume it and write the report again."
    )


def _present(evidence: Evidence) -> bool:
    return bool(evidence.diagnosis.measures)


DIAGNOSIS = Group(
    "diagnosis",
    (
        claims,
        ablation,
        racing,
        deltas,
        predictability,
        recovery,
        manipulation,
        structure,
        proxies,
        agreement,
        pruning,
    ),
    present=_present,
    tiles=_tiles,
    unfinished=_unfinished,
)
