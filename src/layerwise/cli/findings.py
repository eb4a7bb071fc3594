"""What a run has found: its rows as the report reads them, and the findings one sentence a line."""

from __future__ import annotations

from dataclasses import asdict

from layerwise import report as pages
from layerwise.errors import RunError
from layerwise.measure.effects import MEASURE, effects
from layerwise.measure.grid import complete
from layerwise.results import Run
from layerwise.results.rows import Loss, Score


def report_data(run: Run) -> pages.ReportData:
    """The rows of `run` as the report reads them; effects are reckoned here when the run was stopped before its own."""
    scores = run.store.scores()
    losses = tuple(run.store.losses())
    if not losses:
        raise RunError(f"{run.folder} has no rows yet: the sweep was stopped before its first. Run it again to go on")
    if not any(score.measure == MEASURE for score in scores):
        scores += _provisional_effects(run, losses)
    return pages.ReportData(asdict(run.manifest), tuple(run.store.plans()), tuple(scores), losses)


def headline(data: pages.ReportData) -> str:
    """What was found, one sentence a line."""
    return "\n".join(f"- {finding.text}" for finding in pages.findings(pages.Evidence.of(data)))


def _provisional_effects(run: Run, losses: tuple[Loss, ...]) -> list[Score]:
    """Effects on the windows that every plan has rows for."""
    identity = next(record.plan for record in run.store.plans() if record.family == "identity")
    shared = complete(losses)
    return effects(shared, identity, seed=run.manifest.seed) if shared else []
