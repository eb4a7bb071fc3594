"""Correlate the size of a layer's update at a position with its importance there (Freiberger et al. 2024, section 5).

`layerwise.measure.activations.by_position` measures both, as `added[l, p]` and `importance[l, p]` for layer l at
position p. For each layer, their rank correlation over positions is computed. The `relation` is its mean over layers. A
jackknife over batches removes its bias, and p-values are from shuffling positions within layers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from layerwise.measure.activations.by_position import PositionTables
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.correlation import MIN_LAYERS, normalize_ranks
from layerwise.measure.stats.estimate import Numbers, student_quantile
from layerwise.measure.stats.seeds import seed_interval
from layerwise.results.rows import Score
from layerwise.results.vocabulary import POSITION_IMPORTANCE
from layerwise.results.vocabulary import SHUFFLED as SHUFFLED_POSITIONS

SHUFFLES = 2_000
RELATION = "relation"

Statistic = Callable[[Numbers, Numbers], Numbers]
"""Maps two arrays of tables `(..., layers, positions)` to one number for each pair of tables `(...)`."""


def position_importance_rows(variants: Mapping[str, Mapping[int, Survey]]) -> Iterator[Score]:
    """Yield rows of measure `position_importance`: the importance of each layer at each position, and the `relation`.

    The `relation` of a variant has an interval, a p-value, and a row with its range for shuffled positions.
    """
    for variant, surveys in variants.items():
        tables = _tables(surveys)
        if not tables:
            continue
        importance = np.mean([table.importance.mean(axis=0) for table in tables], axis=0)
        for layer, position in np.ndindex(*importance.shape):
            yield Score(
                POSITION_IMPORTANCE,
                "nll_added",
                float(importance[layer, position]),
                variant=variant,
                layer=layer,
                position=position,
            )
        each = [jackknife(table, relation) for table in tables]
        values = [estimate.value for estimate in each]
        reach = [student_quantile(0.975, len(one.influences) - 1.0) * one.error for one in each]
        bounds = [(value - half, value + half) for value, half in zip(values, reach, strict=True)]
        low, high = seed_interval(values, "spearman", bounds)
        p, band = shuffled_positions(tables)
        yield Score(POSITION_IMPORTANCE, RELATION, float(np.mean(values)), low, high, p, variant=variant)
        yield Score(POSITION_IMPORTANCE, RELATION, 0.0, *band, variant=variant, against=SHUFFLED_POSITIONS)


@dataclass(frozen=True, slots=True, eq=False)
class Jackknifed:
    """A jackknife estimate. The influences of the batches have the shape `(batches,)` and sum to zero."""

    value: float
    influences: Numbers

    @property
    def error(self) -> float:
        units = self.influences.size
        return float(np.sqrt(np.square(self.influences).sum() * units / (units - 1)))


def jackknife(tables: PositionTables, statistic: Statistic) -> Jackknifed:
    units = len(tables.importance)
    added, importance = tables.added.sum(axis=0), tables.importance.sum(axis=0)
    if units < 2:
        return Jackknifed(float(statistic(added / units, importance / units)), np.zeros(units))
    # Row 0 is the mean over all batches; every other row leaves out one batch.
    values = statistic(_leave_one_out(added, tables.added), _leave_one_out(importance, tables.importance))
    full, without = float(values[0]), values[1:]
    value = units * full - (units - 1) * float(without.mean())
    return Jackknifed(value, (without.mean() - without) * (units - 1) / units)


def _leave_one_out(total: Numbers, each: Numbers) -> Numbers:
    means: Numbers = np.concatenate([total[None] / len(each), (total - each) / (len(each) - 1)])
    return means


def relation(added: Numbers, importance: Numbers) -> Numbers:
    """Return the mean over layers of the rank correlations over positions.

    The arguments have the shape `(..., layers, positions)`, and the result `(...)`.

    >>> float(relation(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[0.0, 0.1, 0.3, 0.2]])))
    0.8
    """
    correlations: Numbers = np.einsum("...lp,...lp->...l", normalize_ranks(added), normalize_ranks(importance))
    return correlations.mean(axis=-1).round(12)


def shuffled_positions(tables: list[PositionTables]) -> tuple[float, tuple[float, float]]:
    draw = np.random.default_rng(0)
    added, importance = (
        normalize_ranks(np.array([getattr(table, name).mean(axis=0) for table in tables]))
        for name in ("added", "importance")
    )
    value = float(np.einsum("slp,slp->sl", added, importance).mean())
    shuffled = draw.permuted(np.broadcast_to(importance, (SHUFFLES, *importance.shape)), axis=-1)
    null = np.einsum("slp,nslp->nsl", added, shuffled).mean(axis=(1, 2))
    p = (1 + int((np.abs(null) >= abs(value)).sum())) / (1 + SHUFFLES)
    low, high = (float(bound) for bound in np.quantile(null, [0.025, 0.975]))
    return p, (low, high)


def _tables(surveys: Mapping[int, Survey]) -> list[PositionTables]:
    tables = [survey.tables for survey in surveys.values() if survey.tables is not None]
    return [table for table in tables if table.importance.shape[-1] >= MIN_LAYERS and len(table.importance) > 1]
