"""The contrast of positions: how far a layer's knowledge of its position falls short of the published 99.99 %.

    positions   short         0.9999 - accuracy of the position that a layer of layershuffle-predict predicts
                short@NULL    the same of a probe of NULL, an arm trained in order: its states may predict it as well

Both are over every layer at every position, in orders drawn at random, on test examples; a unit is a batch, whose
examples share an order. Where nearly nothing is wrong the errors seen say too little of the errors there are, so the
variance over batches is at least that of one answer an example, with two right and two wrong ones added (Agresti and
Coull 1998).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from layerwise.measure.contrasts.shuffled import NULLS
from layerwise.measure.contrasts.trainings import Term, TrainingEstimate, over_trainings
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score

POSITIONS = "positions"
CLAIMS = (POSITIONS,)
PREDICTING = "layershuffle-predict"
PUBLISHED = 0.9999

Answers = Mapping[int, Numbers]
"""Position to how many answers were right, and how many there were, in each batch: (2, batches)."""


def positions(arms: Mapping[str, Mapping[int, Survey]]) -> Iterator[Score]:
    """The rows of a robustness run, those of arms that were asked for their positions or probed for them."""
    counts = [survey.positions for survey in arms.get(PREDICTING, {}).values() if survey.positions]
    if counts:
        yield shortfall(counts).row(POSITIONS, "short")
    for null in NULLS:
        probed = [survey.probed for survey in arms.get(null, {}).values() if survey.probed]
        if probed:
            yield shortfall(probed).row(POSITIONS, f"short@{null}")


def shortfall(seeds: list[Answers]) -> TrainingEstimate:
    """The published accuracy minus that of the answers of several seeds."""
    counts = np.array([sum(answers.values()) for answers in seeds], dtype=np.float64)
    right, totals = counts[:, 0], counts[0, 1]
    accuracies = right.sum(axis=1) / totals.sum()
    examples = int(totals.sum() / len(seeds[0]))
    estimate = over_trainings(PUBLISHED - accuracies, -(right - accuracies[:, None] * totals) / totals.sum(), examples)
    if not estimate.terms:
        return estimate
    over_seeds, over_batches = estimate.terms
    share = (accuracies.mean() * examples + 2) / (examples + 4)
    least = float(share * (1 - share)) / examples
    return replace(estimate, terms=(over_seeds, Term(max(over_batches.variance, least), over_batches.degrees)))
