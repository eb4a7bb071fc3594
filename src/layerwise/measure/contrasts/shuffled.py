"""Contrasts of the LayerShuffle paper: accuracies of variants trained with the same seeds, on the same examples.

Each claim has these metrics, where NULL is one of the variants in `NULLS`:

trained_order      cost: baseline in order - layershuffle in random order
                   gain_above@NULL: layershuffle in random order - NULL in random order
collapse           random_order, in_order: baseline in this order - chance
position_informed  random_order: layershuffle in random order - chance
pruning            lost = L / 2 * sum_r r (a(0) - a(r)) / (a(0) - chance) / sum_r r^2, r of L layers skipped
                   lost@NULL: the same for NULL; spared_above@NULL = lost@NULL - lost
positions          short, short@NULL: 0.9999 - accuracy of predicted positions (variance: Agresti and Coull 1998)
merging            loss: models - models merged from them; skill: models - chance; with @NULL, models in order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from layerwise.measure.contrasts.trainings import (
    DIFFERENCE,
    Term,
    TrainingEstimate,
    average_trainings,
    compute_seed_term,
    compute_unit_variance,
    sum_batches,
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
"""Minimum accuracy above chance that every seed of a variant must have for its decline to be measured."""

PUBLISHED = 0.9999
SHORTFALL = (PUBLISHED - 1, PUBLISHED)
"""The smallest and the largest possible shortfall from the published accuracy."""

Answers = Mapping[int, Numbers]
"""Maps each position to the numbers of right and of all answers in each batch, `(2, batches)`."""

DECIDES = {(SHUFFLED, "random"): "", **{(null, "own-depth"): f"@{null}" for null in NULLS}}
"""The suffix of the metrics of each variant and of the kind of merging that its training prepares it for."""

Surveys = Mapping[str, Mapping[int, Survey]]
VariantTask = tuple[str, str]

_FREE = (SHUFFLED, RANDOM_ORDER)
COMPARED: tuple[tuple[str, str, str, tuple[VariantTask, ...]], ...] = (
    (TRAINED_ORDER, "cost", ALL, ((BASELINE, SEQUENTIAL), _FREE)),
    *((TRAINED_ORDER, f"gain_above@{null}", ALL, (_FREE, (null, RANDOM_ORDER))) for null in NULLS),
    (COLLAPSE, "random_order", ALL, ((BASELINE, RANDOM_ORDER),)),
    (COLLAPSE, "in_order", ALL, ((BASELINE, SEQUENTIAL),)),
    (POSITION_INFORMED, "random_order", ALL, (_FREE,)),
)
"""The claim, metric and task of each contrast, and the one or two accuracies that it compares."""


def contrast_orders(variants: Surveys, *, chance: float, batch: int) -> list[Score]:
    """Return the contrasts about layer order and pruning.

    `chance` is the fraction of the most frequent label, and `batch` the number of examples that run in the same order.
    """
    return [*_compare_accuracies(variants, chance, batch), *_contrast_pruning(variants, chance, batch)]


@dataclass(frozen=True, slots=True, eq=False)
class Accuracies:
    """Accuracies of pairs (variant, condition), `(seeds, pairs)`, and their `influences`, `(seeds, pairs, units)`.

    A unit is a batch. Its influence is how much it raises the accuracy above the average of all batches. Only the
    `documents` examples that are scored in every pair are used.
    """

    values: Numbers
    influences: Numbers
    documents: int

    @classmethod
    def from_surveys(cls, variants: Surveys, pairs: Sequence[VariantTask], batch: int) -> Accuracies | None:
        """Return the accuracies for the seeds that all variants share, or None if a variant or condition is missing."""
        seeds = [seed for seed in variants.get(pairs[0][0], {}) if _is_measured(variants, pairs, seed)]
        if not seeds:
            return None
        outcomes = [[variants[variant][seed].outcomes[task] for variant, task in pairs] for seed in seeds]
        counted = np.all([[outcome.scored > 0 for outcome in of] for of in outcomes], axis=(0, 1))
        if not counted.any():
            return None
        hits = sum_batches(np.array([[outcome.hits * counted for outcome in of] for of in outcomes]), batch)
        scored = sum_batches(counted.astype(np.float64), batch)
        hits, scored = hits[..., scored > 0], scored[scored > 0]
        values = hits.sum(axis=-1) / scored.sum()
        return cls(values, (hits - values[..., None] * scored) / scored.sum(), int(counted.sum()))

    def sum(self, *factors: float, less: float = 0.0) -> TrainingEstimate:
        return average_trainings(
            self.values @ factors - less, np.einsum("sau,a->su", self.influences, factors), self.documents
        )


def _is_measured(variants: Surveys, pairs: Sequence[VariantTask], seed: int) -> bool:
    return all(
        seed in variants.get(variant, {}) and task in variants[variant][seed].outcomes for variant, task in pairs
    )


def _compare_accuracies(variants: Surveys, chance: float, batch: int) -> Iterator[Score]:
    for claim, metric, task, pairs in COMPARED:
        accuracies = Accuracies.from_surveys(variants, pairs, batch)
        if accuracies is not None:
            if len(pairs) == 2:
                yield accuracies.sum(1.0, -1.0).row(claim, metric, task, within=DIFFERENCE)
            else:
                yield accuracies.sum(1.0, less=chance).row(claim, metric, task, within=(-chance, 1 - chance))


def _contrast_pruning(variants: Surveys, chance: float, batch: int) -> Iterator[Score]:
    for null in NULLS:
        depth = max((survey.depth for survey in variants.get(null, {}).values()), default=0)
        skipped = range(1, depth // 2 + 1)
        tasks = (SEQUENTIAL, *(f"kept {depth - count} even {SEQUENTIAL}" for count in skipped))
        pair = [(variant, task) for variant in (SHUFFLED, null) for task in tasks]
        accuracies = Accuracies.from_surveys(variants, pair, batch)
        if accuracies is None or (accuracies.values[:, [0, len(tasks)]] < chance + SKILL).any():
            continue
        own, other = (
            _compute_decline(accuracies, slice(start, start + len(tasks)), depth, chance) for start in (0, len(tasks))
        )
        if null == BASELINE:
            yield average_trainings(*own, accuracies.documents).row(PRUNING, "lost")
        yield average_trainings(*other, accuracies.documents).row(PRUNING, f"lost@{null}")
        spared = average_trainings(other[0] - own[0], other[1] - own[1], accuracies.documents)
        yield spared.row(PRUNING, f"spared_above@{null}")


def _compute_decline(accuracies: Accuracies, tasks: slice, depth: int, chance: float) -> tuple[Numbers, Numbers]:
    values, influences = accuracies.values[:, tasks], accuracies.influences[:, tasks]
    skipped = np.arange(1.0, values.shape[1])
    weights = depth / 2 * skipped / np.square(skipped).sum()
    skill = values[:, :1] - chance
    lost = (values[:, :1] - values[:, 1:]) / skill @ weights
    slopes = np.concatenate([weights.sum() - lost[:, None], np.broadcast_to(-weights, values[:, 1:].shape)], axis=1)
    return lost, np.einsum("sau,sa->su", influences, slopes / skill)


def contrast_positions(variants: Surveys) -> Iterator[Score]:
    counts = [survey.positions for survey in variants.get(PREDICTING, {}).values() if survey.positions]
    if counts:
        yield compute_shortfall(counts).row(POSITIONS, "short", within=SHORTFALL)
    for null in NULLS:
        probed = [survey.probed for survey in variants.get(null, {}).values() if survey.probed]
        if probed:
            yield compute_shortfall(probed).row(POSITIONS, f"short@{null}", within=SHORTFALL)


def compute_shortfall(seeds: list[Answers]) -> TrainingEstimate:
    counts = np.array([sum(answers.values()) for answers in seeds], dtype=np.float64)
    right, totals = counts[:, 0], counts[0, 1]
    accuracies = right.sum(axis=1) / totals.sum()
    examples = int(totals.sum() / len(seeds[0]))
    estimate = average_trainings(
        PUBLISHED - accuracies, -(right - accuracies[:, None] * totals) / totals.sum(), examples
    )
    if not estimate.terms:
        return estimate
    over_seeds, over_batches = estimate.terms
    share = (accuracies.mean() * examples + 2) / (examples + 4)
    least = float(share * (1 - share)) / examples
    return replace(estimate, terms=(over_seeds, Term(max(over_batches.variance, least), over_batches.degrees)))


def contrast_merging(
    variant: str, kind: str, members: Sequence[Predictions], models: Sequence[Predictions], chance: float, *, batch: int
) -> list[Score]:
    """Return the contrasts of one variant and one kind of merging, if a claim depends on them.

    `members` are predictions of the models that are merged, and `models` those of the merged models, one per random
    draw, on the same images. `chance` is the fraction of the most frequent label. `batch` images run in the same order.
    """
    ends = DECIDES.get((variant, kind))
    if ends is None:
        return []
    hits = np.array([outcome.hits for outcome in members])
    values, sizes = hits.mean(axis=1), sum_batches(np.ones(hits.shape[1]), batch)
    skill = average_trainings(
        values - chance, (sum_batches(hits, batch) - values[:, None] * sizes) / sizes.sum(), len(hits[0])
    )
    return [
        compute_merging_loss(members, models, batch).row(MERGING, f"loss{ends}", within=DIFFERENCE),
        skill.row(MERGING, f"skill{ends}", within=(-chance, 1 - chance)),
    ]


def compute_merging_loss(members: Sequence[Predictions], models: Sequence[Predictions], batch: int) -> TrainingEstimate:
    own, mixed = (np.array([outcome.hits for outcome in of]) for of in (members, models))
    accuracies = own.mean(axis=1), mixed.mean(axis=1)
    value, images = float(accuracies[0].mean() - accuracies[1].mean()), own.shape[1]
    gaps = sum_batches(own.mean(axis=0) - mixed.mean(axis=0), batch)
    if min(len(own), len(mixed)) < 2 or len(gaps) < MIN_UNITS:
        return TrainingEstimate(value, (), images)
    sizes = sum_batches(np.ones(images), batch)
    terms = (
        *map(compute_seed_term, accuracies),
        Term(compute_unit_variance((gaps - value * sizes) / images), len(gaps) - 1),
    )
    return TrainingEstimate(value, terms, images)
