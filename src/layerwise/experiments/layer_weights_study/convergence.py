"""Steps and seconds to one validation loss of pretraining, and to one selection score of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable

from layerwise.experiments.layer_weights_study.arms import BACKBONE, SECONDS, share_of
from layerwise.measure.cost.convergence import ValidationCurve, convergence_rows
from layerwise.measure.cost.tuning_convergence import score_curve, tuning_convergence_rows
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows


def study_convergence(rows: Iterable[Score], target: float | None) -> list[Score]:
    """The rows of convergence of the arms with equal steps on all of the text, from those of measure `training`."""
    losses: dict[tuple[str, int], dict[int, float]] = {}
    seconds: dict[tuple[str, int], float] = {}
    for row in Rows(rows).where(arm=PRESENT, seed=PRESENT):
        model = str(row.arm), row.seed or 0
        if row.metric == "validation_loss" and row.amount is not None:
            losses.setdefault(model, {})[int(row.amount)] = row.value
        elif row.metric == "step_seconds":
            seconds[model] = row.value
    curves: dict[str, dict[int, ValidationCurve]] = {}
    for (arm, seed), noted in losses.items():
        steps = tuple(sorted(step for step in noted if step > 0))
        if steps and arm != SECONDS and share_of(arm) is None:
            curve = ValidationCurve(steps, tuple(noted[step] for step in steps), seconds.get((arm, seed)))
            curves.setdefault(arm, {})[seed] = curve
    return convergence_rows(curves, BACKBONE, target)


def study_tuning_convergence(rows: Iterable[Score], target: float | None) -> list[Score]:
    """The rows of convergence of fine-tuning, from those of measure `learning_curve`; a model has one fine-tuning."""
    points: dict[tuple[str, str], dict[int, float]] = {}
    seconds: dict[tuple[str, str], float] = {}
    for row in rows:
        task, step, number = row.task.rpartition(" step ")
        if row.metric == "step_seconds":
            seconds[row.task, row.subject] = row.value
        elif step:
            points.setdefault((task, row.subject), {})[int(number)] = row.value
    curves: dict[str, dict[str, dict[int, ValidationCurve]]] = {}
    for (task, subject), of in points.items():
        arm, _, seed = subject.rpartition(".")[0].rpartition("/")
        if arm != SECONDS:
            curve = score_curve(of, seconds.get((task, subject)))
            curves.setdefault(task, {}).setdefault(arm, {})[int(seed)] = curve
    return tuning_convergence_rows(curves, BACKBONE, target)
