"""Steps and seconds to one validation loss of pretraining, and to one selection score of fine-tuning."""

from __future__ import annotations

from collections.abc import Iterable

from layerwise.experiments.layer_weights_study.arms import AT_EQUAL_SECONDS, share_of
from layerwise.measure.cost.convergence import ValidationCurve, convergence_rows
from layerwise.measure.cost.tuning_convergence import score_curve, tuning_convergence_rows
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import BACKBONE, LEARNING_CURVE, TRAINING


def study_convergence(rows: Iterable[Score], target: float | None) -> list[Score]:
    """The rows of convergence of the arms with equal steps on all of the text, from those of measure `training`."""
    trained = Rows(rows).where(measure=TRAINING)
    seconds = {(row.arm, row.seed): row.value for row in trained.where(metric="step_seconds")}
    curves: dict[str, dict[int, ValidationCurve]] = {}
    for arm, of in trained.where(metric="validation_loss", amount=PRESENT).by("arm").items():
        if arm == AT_EQUAL_SECONDS or share_of(arm) is not None:
            continue
        for seed, noted in of.by("seed").items():
            losses = _by_step(noted)
            steps = tuple(sorted(step for step in losses if step > 0))
            if steps:
                curve = ValidationCurve(steps, tuple(losses[step] for step in steps), seconds.get((arm, seed)))
                curves.setdefault(arm, {})[seed] = curve
    return convergence_rows(curves, BACKBONE, target)


def study_tuning_convergence(rows: Iterable[Score], target: float | None) -> list[Score]:
    """The rows of convergence of fine-tuning, from those of measure `learning_curve`; a model has one fine-tuning."""
    learned = Rows(rows).where(measure=LEARNING_CURVE)
    seconds = {(row.task, row.arm, row.seed): row.value for row in learned.where(metric="step_seconds")}
    curves: dict[str, dict[str, dict[int, ValidationCurve]]] = {}
    for task, taught in learned.where(amount=PRESENT).by("task").items():
        for arm, of in taught.by("arm").items():
            if arm != AT_EQUAL_SECONDS:
                curves.setdefault(task, {})[arm] = {
                    seed: score_curve(
                        {int(row.amount or 0): row.value for row in points}, seconds.get((task, arm, seed))
                    )
                    for seed, points in of.by("seed").items()
                }
    return tuning_convergence_rows(curves, BACKBONE, target)


def _by_step(rows: Rows) -> dict[int, float]:
    return {int(row.amount): row.value for row in rows if row.amount is not None}
