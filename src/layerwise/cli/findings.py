"""What a run has found: its rows as the report reads them, and the findings one sentence a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from layerwise import report as pages
from layerwise.errors import RunError
from layerwise.measure.effects import MEASURE, effects
from layerwise.measure.grid import complete
from layerwise.results import Run
from layerwise.results.rows import Loss, PlanRecord, Score


def report_data(run: Run) -> pages.ReportData:
    """The rows of `run` as the report reads them; effects are reckoned here when the run was stopped before its own."""
    scores, plans = run.store.scores(), run.store.plans()
    swept = {record.plan for record in plans}
    losses = tuple(row for row in run.store.losses() if row.plan in swept)
    if not losses and not scores:
        raise RunError(f"{run.folder} has no rows yet: it was stopped before its first. Run it again to go on")
    if not any(score.measure == MEASURE for score in scores):
        scores += _provisional_effects(plans, losses, run.manifest.seed)
    return pages.ReportData(asdict(run.manifest), tuple(plans), tuple(scores), losses, notes=tuple(run.store.notes()))


def headline(data: pages.ReportData) -> str:
    """What was found: of a diagnosis what became of the claims, of a sweep its questions with their answers,
    one a line.

    A robustness run is told as a table, where each of its arms stands; pre-trained models as theirs, and whether their
    layer weights are worth it; a growth run as the arms and the verdict.
    """
    evidence = pages.Evidence.of(data)
    if evidence.growth.measures:
        return "\n".join(pages.gain_lines(evidence.growth))
    pretrained = evidence.pretraining
    if pretrained.measures:
        standing = () if pretrained.is_pretrained else pages.standing_lines(evidence.robustness)
        return "\n".join([*standing, *pages.worth_lines(pretrained)])
    lines = pages.claim_lines(data) or [f"{each.question} {each.text}" for each in pages.findings(evidence)]
    return "\n".join([*pages.standing_lines(evidence.robustness), *(f"- {line}" for line in lines)])


def _provisional_effects(plans: Sequence[PlanRecord], losses: tuple[Loss, ...], seed: int) -> list[Score]:
    """Effects of a sweep that was stopped, on the windows that every plan has rows for; none where there are none, or
    where the model as trained has none.
    """
    identity = next((record.plan for record in plans if record.family == "identity"), None)
    shared = complete(losses)
    measured = any(row.plan == identity for row in shared)
    return effects(shared, identity, seed=seed) if identity is not None and measured else []
