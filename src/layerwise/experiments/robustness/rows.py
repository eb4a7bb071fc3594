"""The rows of a robustness run: what follows from the surveys of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from layerwise.data.splits import Splits
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.positions import CLAIMS as OF_POSITIONS
from layerwise.measure.contrasts.positions import positions
from layerwise.measure.contrasts.shuffled import CLAIMS, shuffled
from layerwise.measure.contrasts.switching_off import CLAIMS as OF_SWITCHING
from layerwise.measure.contrasts.switching_off import position_worth, switching_off
from layerwise.measure.interventions import robustness as rows
from layerwise.measure.interventions.node_loss import NODES, node_loss
from layerwise.measure.interventions.survey import EvaluationGrid, Survey
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import RETRAINED


def store_surveys(run: Run, surveys: Mapping[str, Mapping[int, Survey]], splits: Splits, grid: EvaluationGrid) -> None:
    """Compute and store the rows that follow from the surveys of every arm and seed."""
    text = not splits.classes
    chance = 0.0 if text else splits.chance
    run.store.replace_scores(
        rows.ROBUSTNESS,
        rows.robustness(surveys, chance=chance, classes=len(splits.classes), leads="nll" if text else "accuracy"),
    )
    run.store.replace_scores("orders", rows.orders(surveys))
    run.store.replace_scores("identity", rows.identity(surveys))
    whole = {arm: result for arm, result in surveys.items() if arm != RETRAINED}
    run.store.replace_scores("contribution", rows.contribution(whole))
    run.store.replace_scores(NODES, node_loss(whole, grid.batch_size(len(splits.test))))
    run.store.replace_scores("worth", position_worth(whole))
    decisive = [*positions(whole), *switching_off(whole)]
    if not text:  # what is published is accuracy of classification
        decisive += shuffled(whole, chance=chance, batch=grid.batch_size(len(splits.test)))
    stored = run.store.scores(CONTRAST)
    run.store.replace_scores(CONTRAST, renewed(stored, decisive, (*CLAIMS, *OF_POSITIONS, *OF_SWITCHING)))


def position_rows(label: str, answers: Mapping[int, Numbers]) -> list[Score]:
    """Rows of measure `position` of one model; none of one that predicts nothing."""
    if not answers:
        return []
    counts = {position: (int(right.sum()), int(wanted.sum())) for position, (right, wanted) in answers.items()}
    results = [_proportion(label, str(position), right, wanted) for position, (right, wanted) in counts.items()]
    right, wanted = (sum(of) for of in zip(*counts.values(), strict=True))
    return [*results, _proportion(label, "all", right, wanted)]


def _proportion(subject: str, task: str, right: int, count: int) -> Score:
    share = wilson(right, count)
    low, high = float(share.low), float(share.high)
    return Score("position", subject, task, "accuracy", float(share.value), low, high, documents=count)


def arm_means(placed: Sequence[Score]) -> list[Score]:
    """The rows of arms: means over seeds, and what guessing would give."""
    results = []
    arms = dict.fromkeys(row.subject.rpartition("/")[0] for row in placed)
    for arm in arms:
        tasks = dict.fromkeys(row.task for row in placed)
        for task in tasks:
            own = [row for row in placed if row.task == task and row.subject.rpartition("/")[0] == arm]
            values = [row.value for row in own]
            low, high = over_seeds(values, "accuracy", [(row.low, row.high) for row in own])
            results.append(Score("position", arm, task, "accuracy", float(np.mean(values)), low, high))
            results.append(Score("position", arm, task, "accuracy@chance", 1 / (len(tasks) - 1)))
    return results
