"""Contrasts of the LayerShuffle paper, as accuracies of arms trained with the same seeds, on the same examples.

trained_order      cost: baseline in order - layershuffle in random order; gain_above@NULL: layershuffle - NULL
collapse           random_order, in_order: baseline - chance
position_informed  random_order: layershuffle - chance
pruning            lost = L / 2 * sum_r r (a(0) - a(r)) / (a(0) - chance) / sum_r r^2, r of L layers skipped;
                   lost@NULL, and spared_above@NULL = lost@NULL - lost
positions          short, short@NULL: 0.9999 - accuracy of predicted positions (variance: Agresti and Coull 1998)
merging            loss: models - models merged from them; skill: models - chance; @NULL in order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerwise.measure.contrasts.trainings import (
    DIFFERENCE,
    Term,
    TrainingEstimate,
    between,
    by_batch,
    over_trainings,
    over_units,
)
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.measure.stats.statistics import Numbers
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, RANDOM_ORDER, SEQUENTIAL

TRAINED_ORDER, COLLAPSE, POSITION_INFORMED, PRUNING = "trained_order", "collapse", "position_informed", "pruning"
POSITIONS, MERGING = "positions", "merging"
CLAIMS = (TRAINED_ORDER, COLLAPSE, POSITION_INFORMED, PRUNING, POSITIONS)
BASELINE, SHUFFLED = "baseline", "layershuffle"
NULLS = (BASELINE, "sequential")
PREDICTING = "layershuffle-predict"
SKILL = 0.05
"""The least accuracy above chance, of each seed of an arm, that has a share to lose."""

PUBLISHED = 0.9999
SHORTFALL = (PUBLISHED - 1, PUBLISHED)
"""What an accuracy can fall short of the published one by."""

Answers = Mapping[int, Numbers]
"""Position to how many answers were right, and how many there were, in each batch: (2, batches)."""

DECIDES = {(SHUFFLED, "random"): "", **{(null, "own-depth"): f"@{null}" for null in NULLS}}
"""Which kind of merging decides for which arm, the one that its training prepares it for, and how its metrics end."""

Arms = Mapping[str, Mapping[int, Survey]]
ArmTask = tuple[str, str]

_FREE = (SHUFFLED, RANDOM_ORDER)
COMPARED: tuple[tuple[str, str, str, tuple[ArmTask, ...]], ...] = (
    (TRAINED_ORDER, "cost", ALL, ((BASELINE, SEQUENTIAL), _FREE)),
    *((TRAINED_ORDER, f"gain_above@{null}", ALL, (_FREE, (null, RANDOM_ORDER))) for null in NULLS),
    (COLLAPSE, "random_order", ALL, ((BASELINE, RANDOM_ORDER),)),
    (COLLAPSE, "in_order", ALL, ((BASELINE, SEQUENTIAL),)),
    (POSITION_INFORMED, "random_order", ALL, (_FREE,)),
)
"""Claim, metric and task of a contrast, and what is compared with what."""


def shuffled(arms: Arms, *, chance: float, batch: int) -> list[Score]:
    """Compute every contrast of `arms`; `chance` is the commonest label's share, `batch` the examples per order."""
    return [*_differences(arms, chance, batch), *_pruning(arms, chance, batch)]


@dataclass(frozen=True, slots=True, eq=False)
class Accuracies:
    """Arms under conditions: `values` (seeds, pairs), and the units' `pulls` on them (seeds, pairs, units).

    Counts only the `documents` examples that every condition scored.
    """

    values: Numbers
    pulls: Numbers
    documents: int

    @classmethod
    def of(cls, arms: Arms, pairs: Sequence[ArmTask], batch: int) -> Accuracies | None:
        """The accuracies over the seeds that all arms have; `None` where some arm or condition is missing."""
        seeds = [seed for seed in arms.get(pairs[0][0], {}) if _has(arms, pairs, seed)]
        if not seeds:
            return None
        outcomes = [[arms[arm][seed].outcomes[task] for arm, task in pairs] for seed in seeds]
        counted = np.all([[outcome.scored > 0 for outcome in of] for of in outcomes], axis=(0, 1))
        if not counted.any():
            return None
        hits = by_batch(np.array([[outcome.hits * counted for outcome in of] for of in outcomes]), batch)
        scored = by_batch(counted.astype(np.float64), batch)
        hits, scored = hits[..., scored > 0], scored[scored > 0]
        values = hits.sum(axis=-1) / scored.sum()
        return cls(values, (hits - values[..., None] * scored) / scored.sum(), int(counted.sum()))

    def sum(self, *factors: float, less: float = 0.0) -> TrainingEstimate:
        return over_trainings(self.values @ factors - less, np.einsum("sau,a->su", self.pulls, factors), self.documents)


def _has(arms: Arms, pairs: Sequence[ArmTask], seed: int) -> bool:
    return all(seed in arms.get(arm, {}) and task in arms[arm][seed].outcomes for arm, task in pairs)


def _differences(arms: Arms, chance: float, batch: int) -> Iterator[Score]:
    for claim, metric, task, pairs in COMPARED:
        accuracies = Accuracies.of(arms, pairs, batch)
        if accuracies is not None:
            if len(pairs) == 2:
                yield accuracies.sum(1.0, -1.0).row(claim, metric, task, within=DIFFERENCE)
            else:
                yield accuracies.sum(1.0, less=chance).row(claim, metric, task, within=(-chance, 1 - chance))


def _pruning(arms: Arms, chance: float, batch: int) -> Iterator[Score]:
    for null in NULLS:
        depth = max((survey.depth for survey in arms.get(null, {}).values()), default=0)
        left_out = range(1, depth // 2 + 1)
        tasks = (SEQUENTIAL, *(f"kept {depth - count} even {SEQUENTIAL}" for count in left_out))
        pair = [(arm, task) for arm in (SHUFFLED, null) for task in tasks]
        accuracies = Accuracies.of(arms, pair, batch)
        if accuracies is None or (accuracies.values[:, [0, len(tasks)]] < chance + SKILL).any():
            continue
        own, other = (_lost(accuracies, slice(start, start + len(tasks)), depth, chance) for start in (0, len(tasks)))
        if null == BASELINE:
            yield over_trainings(*own, accuracies.documents).row(PRUNING, "lost")
        yield over_trainings(*other, accuracies.documents).row(PRUNING, f"lost@{null}")
        spared = over_trainings(other[0] - own[0], other[1] - own[1], accuracies.documents)
        yield spared.row(PRUNING, f"spared_above@{null}")


def _lost(accuracies: Accuracies, tasks: slice, depth: int, chance: float) -> tuple[Numbers, Numbers]:
    values, pulls = accuracies.values[:, tasks], accuracies.pulls[:, tasks]
    left_out = np.arange(1.0, values.shape[1])
    weights = depth / 2 * left_out / np.square(left_out).sum()
    skill = values[:, :1] - chance
    lost = (values[:, :1] - values[:, 1:]) / skill @ weights
    slopes = np.concatenate([weights.sum() - lost[:, None], np.broadcast_to(-weights, values[:, 1:].shape)], axis=1)
    return lost, np.einsum("sau,sa->su", pulls, slopes / skill)


def positions(arms: Arms) -> Iterator[Score]:
    counts = [survey.positions for survey in arms.get(PREDICTING, {}).values() if survey.positions]
    if counts:
        yield shortfall(counts).row(POSITIONS, "short", within=SHORTFALL)
    for null in NULLS:
        probed = [survey.probed for survey in arms.get(null, {}).values() if survey.probed]
        if probed:
            yield shortfall(probed).row(POSITIONS, f"short@{null}", within=SHORTFALL)


def shortfall(seeds: list[Answers]) -> TrainingEstimate:
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


def merged(
    arm: str, kind: str, members: Sequence[Predictions], models: Sequence[Predictions], chance: float, *, batch: int
) -> list[Score]:
    """Return the rows of one arm and one kind of merging; none if it decides nothing.

    `members` are the outcomes of the models and `models` those of the merged ones, by draw, on the same images;
    `chance` is the share of the commonest label, `batch` the number of images under one order.
    """
    ends = DECIDES.get((arm, kind))
    if ends is None:
        return []
    hits = np.array([outcome.hits for outcome in members])
    values, sizes = hits.mean(axis=1), by_batch(np.ones(hits.shape[1]), batch)
    skill = over_trainings(
        values - chance, (by_batch(hits, batch) - values[:, None] * sizes) / sizes.sum(), len(hits[0])
    )
    return [
        loss(members, models, batch).row(MERGING, f"loss{ends}", within=DIFFERENCE),
        skill.row(MERGING, f"skill{ends}", within=(-chance, 1 - chance)),
    ]


def loss(members: Sequence[Predictions], models: Sequence[Predictions], batch: int) -> TrainingEstimate:
    own, mixed = (np.array([outcome.hits for outcome in of]) for of in (members, models))
    accuracies = own.mean(axis=1), mixed.mean(axis=1)
    value, images = float(accuracies[0].mean() - accuracies[1].mean()), own.shape[1]
    gaps = by_batch(own.mean(axis=0) - mixed.mean(axis=0), batch)
    if min(len(own), len(mixed)) < 2 or len(gaps) < MIN_UNITS:
        return TrainingEstimate(value, (), images)
    sizes = by_batch(np.ones(images), batch)
    terms = *map(between, accuracies), Term(over_units((gaps - value * sizes) / images), len(gaps) - 1)
    return TrainingEstimate(value, terms, images)
