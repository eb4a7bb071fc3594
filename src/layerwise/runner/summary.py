"""The data of a report, and the summary of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from layerwise import page as pages
from layerwise.errors import RunError
from layerwise.measure.stats.effects import compute_effects
from layerwise.measure.stats.grid import complete
from layerwise.page.derived.power import describe_text
from layerwise.page.kinds import present_kinds
from layerwise.page.writers.text import remove_verdicts
from layerwise.results import Loss, PlanRecord, Run, Score
from layerwise.results.vocabulary import EFFECT


def report_data(run: Run) -> pages.ReportData:
    """Read the rows of a run for its report. If the run was interrupted, compute its effects from the losses."""
    scores, plans = run.store.scores(), run.store.plans()
    swept = {record.plan for record in plans}
    losses = tuple(row for row in run.store.text_losses() if row.plan in swept)
    if not losses and not scores:
        raise RunError(f"{run.folder} has no rows yet. Run the same command again to resume it.")
    if not any(score.measure == EFFECT for score in scores):
        scores += _provisional_effects(plans, losses, run.manifest.seed)
    return pages.ReportData(asdict(run.manifest), tuple(plans), tuple(scores), losses, notes=tuple(run.store.notes()))


def summary(data: pages.ReportData) -> str:
    lines: list[str] = []
    for kind in present_kinds(data):  # an answer that another kind has given already is not repeated
        listed = {remove_verdicts(line) for line in lines}
        lines += [line for line in pages.terminal_lines(kind, data) if f"- {line}" not in listed]
    amount = (f"- {line}" for line in describe_text(data))
    published = (f"- {each.full_statement}" for each in pages.judge_published(data))
    return "\n".join([*lines, *published, *amount])


def _provisional_effects(plans: Sequence[PlanRecord], losses: tuple[Loss, ...], seed: int) -> list[Score]:
    identity = next((record.plan for record in plans if record.family == "identity"), None)
    shared = complete(losses)
    measured = any(row.plan == identity for row in shared)
    return compute_effects(shared, identity, seed=seed) if identity is not None and measured else []
