"""The chapters of a diagnosis: the claims and verdicts first, then a chapter for each measure, with its nulls."""

from __future__ import annotations

from layerwise.report.chapters.claims import claims
from layerwise.report.chapters.diagnosis.ablation import ablation
from layerwise.report.chapters.diagnosis.agreement import agreement
from layerwise.report.chapters.diagnosis.deltas import deltas
from layerwise.report.chapters.diagnosis.manipulation import manipulation
from layerwise.report.chapters.diagnosis.order import order
from layerwise.report.chapters.diagnosis.predictability import predictability
from layerwise.report.chapters.diagnosis.proxies import proxies
from layerwise.report.chapters.diagnosis.pruning import pruning
from layerwise.report.chapters.diagnosis.racing import racing
from layerwise.report.chapters.diagnosis.recovery import recovery
from layerwise.report.chapters.diagnosis.structure import structure
from layerwise.report.chapters.diagnosis.verdicts import verdicts
from layerwise.report.chapters.group import Group
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import MEASURES, ORDER, WHOLE
from layerwise.report.wording import NATS, counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    scores = sum(score.measure in MEASURES for score in evidence.data.scores)
    tasks = [task for task in evidence.diagnosis.tasks("ablation") if task != WHOLE]
    return ((f"{scores:,}", "scores"), *(((f"{len(tasks):,}", "tasks"),) if tasks else ()))


def _unfinished(evidence: Evidence) -> str | None:
    """Parts that the run was asked for and has not finished.

    A diagnosis that was carried out into a run folder says of each part when it is complete; of rows that came
    another way, a measure counts as complete when it has any.
    """
    asked = evidence.data.manifest.get("families")
    names = [str(name) for name in asked] if isinstance(asked, list | tuple) else []
    said = {score.subject for score in evidence.scores("examination")}
    finished = said or {*evidence.diagnosis.measures, *((ORDER,) if evidence.tasks else ())}
    waiting = [name for name in names if name in {*MEASURES, ORDER} and name not in finished]
    if not waiting:
        return None
    return (
        f"{counted(len(waiting), 'part')} of this diagnosis {'is' if len(waiting) == 1 else 'are'} not complete"
        f" ({listed(waiting)}): the run was interrupted, or is still going. Resume it and write the report again."
    )


def _opening(evidence: Evidence) -> str:
    return (
        f"Which of the {evidence.depth} layers of this model matter, and what explains it? Layers are left out,"
        " replaced, damaged and trained again, and their weights and outputs are looked at. What that does is stated"
        " with an interval and compared with a null: what would be found if there were nothing to find. What"
        f" became of published claims stands first, then what each layer is, then every measure by itself. {NATS}"
    )


DIAGNOSIS = Group(
    "diagnosis",
    (
        claims,
        verdicts,
        ablation,
        racing,
        order,
        deltas,
        predictability,
        recovery,
        manipulation,
        structure,
        proxies,
        agreement,
        pruning,
    ),
    present=lambda evidence: evidence.is_diagnosis,
    tiles=_tiles,
    unfinished=_unfinished,
    opening=_opening,
)
