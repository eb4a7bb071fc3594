"""The chapters of a diagnosis: the claims and verdicts first, then a chapter for each measure, with its nulls."""

from __future__ import annotations

from layerwise.report.claims.chapter import claims
from layerwise.report.diagnosis.chapters.ablation import ablation
from layerwise.report.diagnosis.chapters.agreement import agreement
from layerwise.report.diagnosis.chapters.deltas import deltas
from layerwise.report.diagnosis.chapters.order import order
from layerwise.report.diagnosis.chapters.perturbation_curves import manipulation
from layerwise.report.diagnosis.chapters.predictability import predictability
from layerwise.report.diagnosis.chapters.proxies import proxies
from layerwise.report.diagnosis.chapters.pruning import pruning
from layerwise.report.diagnosis.chapters.racing import racing
from layerwise.report.diagnosis.chapters.recovery import recovery
from layerwise.report.diagnosis.chapters.structure import structure
from layerwise.report.diagnosis.chapters.verdicts import verdicts
from layerwise.report.diagnosis.lookup import MEASURES, ORDER, WHOLE
from layerwise.report.diagnosis.tables import diagnosis_markdown
from layerwise.report.evidence import Evidence
from layerwise.report.page.group import STOPPED, ChapterGroup
from layerwise.report.page.wording import NATS, counted, listed


def _tiles(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    scores = sum(score.measure in MEASURES for score in evidence.data.scores)
    tasks = [task for task in evidence.diagnosis.tasks("ablation") if task != WHOLE]
    return ((f"{scores:,}", "scores"), *(((f"{len(tasks):,}", "tasks"),) if tasks else ()))


def _unfinished(evidence: Evidence) -> str | None:
    """Parts that the run was to have and has not finished.

    A diagnosis that was carried out into a run folder says of each part when it is complete; of rows that came
    another way, a measure counts as complete when it has any.
    """
    families = evidence.data.manifest.get("families")
    names = [str(name) for name in families] if isinstance(families, list | tuple) else []
    complete = {score.subject for score in evidence.scores("part")}
    finished = complete or {*evidence.diagnosis.measures, *((ORDER,) if evidence.tasks else ())}
    waiting = [name for name in names if name in {*MEASURES, ORDER} and name not in finished]
    if not waiting:
        return None
    verb = "is" if len(waiting) == 1 else "are"
    parts = f"{counted(len(waiting), 'part')} of this diagnosis {verb} not complete ({listed(waiting)})"
    return f"{parts}: {STOPPED}"


def _opening(evidence: Evidence) -> str:
    return (
        f"Which of the {evidence.depth} layers of this model matter, and what explains it? Layers are left out,"
        " replaced, damaged and trained again, and their weights and outputs are looked at. What that does is stated"
        " with an interval and compared with a null: what would be found if there were nothing to find. What"
        f" became of published claims stands first, then what each layer is, then every measure by itself. {NATS}"
    )


DIAGNOSIS = ChapterGroup(
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
    (diagnosis_markdown,),
    present=lambda evidence: evidence.is_diagnosis,
    tiles=_tiles,
    unfinished=_unfinished,
    counts=("documents", "tokens"),
    opening=_opening,
)
