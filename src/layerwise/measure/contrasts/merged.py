"""The contrast of merging: the accuracy that models lose when their layers are mixed.

    merging   loss          layershuffle: its models in random order - models merged from them, any layer anywhere
              loss@NULL     NULL, trained in order: its models in order - models merged from them at their own depth
              skill         layershuffle: its models in random order - chance; and so skill@NULL, in order

What varies is which models there are, which assignments of layers are drawn, and the examples; each adds to the
variance (`layerwise.measure.contrasts.trainings`). Models and merged models share the examples, which cancel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerwise.measure.contrasts.shuffled import NULLS, SHUFFLED, by_batch
from layerwise.measure.contrasts.trainings import Term, TrainingEstimate, between, over_trainings, over_units
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.stats.grid import FEWEST_UNITS
from layerwise.results.rows import Score

MERGING = "merging"
CLAIMS = (MERGING,)
DECIDES = {(SHUFFLED, "random"): "", **{(null, "own-depth"): f"@{null}" for null in NULLS}}
"""Which kind of merging decides for which arm, the one that its training prepares it for, and how its metrics end."""


def merged(
    arm: str, kind: str, members: Sequence[Predictions], models: Sequence[Predictions], chance: float, *, batch: int
) -> list[Score]:
    """The rows of one arm and one kind of merging; none where it decides nothing.

    `members` are the outcomes of the models, `models` those of the merged ones, draw by draw, on the same images;
    `chance` is the share of the commonest label, `batch` how many images ran under one order.
    """
    ends = DECIDES.get((arm, kind))
    if ends is None:
        return []
    hits = np.array([outcome.hits for outcome in members])
    values, sizes = hits.mean(axis=1), by_batch(np.ones(hits.shape[1]), batch)
    skill = over_trainings(
        values - chance, (by_batch(hits, batch) - values[:, None] * sizes) / sizes.sum(), len(hits[0])
    )
    return [loss(members, models, batch).row(MERGING, f"loss{ends}"), skill.row(MERGING, f"skill{ends}")]


def loss(members: Sequence[Predictions], models: Sequence[Predictions], batch: int) -> TrainingEstimate:
    """The mean accuracy of the members minus that of the merged models, with what it owes to each source."""
    own, mixed = (np.array([outcome.hits for outcome in of]) for of in (members, models))
    accuracies = own.mean(axis=1), mixed.mean(axis=1)
    value, images = float(accuracies[0].mean() - accuracies[1].mean()), own.shape[1]
    gaps = by_batch(own.mean(axis=0) - mixed.mean(axis=0), batch)
    if min(len(own), len(mixed)) < 2 or len(gaps) < FEWEST_UNITS:
        return TrainingEstimate(value, (), images)
    sizes = by_batch(np.ones(images), batch)
    terms = *map(between, accuracies), Term(over_units((gaps - value * sizes) / images), len(gaps) - 1)
    return TrainingEstimate(value, terms, images)
