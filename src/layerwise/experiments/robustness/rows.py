"""The rows of a robustness run: what follows from the surveys of its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from layerwise.data.splits import Splits
from layerwise.measure.contrasts.contrast import CONTRAST, renewed
from layerwise.measure.contrasts.positions import CLAIMS as OF_POSITIONS
from layerwise.measure.contrasts.positions import positions
from layerwise.measure.contrasts.shuffled import CLAIMS, shuffled
from layerwise.measure.contrasts.switching_off import CLAIMS as OF_SWITCHING
from layerwise.measure.contrasts.switching_off import position_worth, switching_off
from layerwise.measure.interventions import robustness as rows
from layerwise.measure.interventions.node_loss import node_loss
from layerwise.measure.interventions.survey import EvaluationGrid, Survey
from layerwise.measure.stats.seeds import over_seeds
from layerwise.measure.stats.statistics import Numbers, wilson
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import RETRAINED
from layerwise.results.vocabulary import CHANCE, CONTRIBUTION, IDENTITY, NODES, ORDERS, POSITION, ROBUSTNESS, WORTH


def store_surveys(run: Run, surveys: Mapping[str, Mapping[int, Survey]], splits: Splits, grid: EvaluationGrid) -> None:
    """Compute and store the rows that follow from the surveys of every arm and seed."""
    text = not splits.classes
    chance = 0.0 if text else splits.chance
    run.store.replace_scores(
        ROBUSTNESS,
        rows.robustness(surveys, chance=chance, classes=len(splits.classes), leads="nll" if text else "accuracy"),
    )
    run.store.replace_scores(ORDERS, rows.orders(surveys))
    run.store.replace_scores(IDENTITY, rows.identity(surveys))
    whole = {arm: result for arm, result in surveys.items() if arm != RETRAINED}
    run.store.replace_scores(CONTRIBUTION, rows.contribution(whole))
    run.store.replace_scores(NODES, node_loss(whole, grid.batch_size(len(splits.test))))
    run.store.replace_scores(WORTH, position_worth(whole))
    decisive = [*positions(whole), *switching_off(whole)]
    if not text:  # what is published is accuracy of classification
        decisive += shuffled(whole, chance=chance, batch=grid.batch_size(len(splits.test)))
    stored = run.store.scores(CONTRAST)
    run.store.replace_scores(CONTRAST, renewed(stored, decisive, (*CLAIMS, *OF_POSITIONS, *OF_SWITCHING)))


def position_rows(arm: str, seed: int, answers: Mapping[int, Numbers]) -> list[Score]:
    """Rows of measure `position` of one model, `other` being the position; none of one that predicts nothing."""
    if not answers:
        return []
    counts = {position: (int(right.sum()), int(wanted.sum())) for position, (right, wanted) in answers.items()}
    right, wanted = (sum(of) for of in zip(*counts.values(), strict=True))
    results = []
    for position, (hits, count) in [*counts.items(), (None, (right, wanted))]:
        share = wilson(hits, count)
        bounds = float(share.value), float(share.low), float(share.high)
        results.append(Score(POSITION, "accuracy", *bounds, arm=arm, seed=seed, other=position, documents=count))
    return results


def arm_means(placed: Sequence[Score]) -> list[Score]:
    """The rows of arms: means over seeds, and what guessing would give."""
    results, positions = [], dict.fromkeys(row.other for row in placed)
    for arm in dict.fromkeys(row.arm for row in placed):
        for position in positions:
            own = [row for row in placed if (row.arm, row.other) == (arm, position)]
            values = [row.value for row in own]
            bounds = over_seeds(values, "accuracy", [(row.low, row.high) for row in own])
            of: dict[str, Any] = {"arm": arm, "other": position}
            results.append(Score(POSITION, "accuracy", float(np.mean(values)), *bounds, **of))
            results.append(Score(POSITION, "accuracy", 1 / (len(positions) - 1), **of, against=CHANCE))
    return results
