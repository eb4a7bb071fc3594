"""Rankings: what each score of a diagnosis says of the layers, read off its rows, larger meaning more important.

    skip, mean_ablate, neighbour_copy,      the ablation of that name, nats per token
    neighbour_average
    random_weights                          the ablation `random`
    block_influence                         the proxy of that name
    angular                                 the angular distance across the one layer
    gate_sensitivity, gate_gradient,        the proxies of those names
    taylor
    recovery                                the area under the recovery curve, after damage of equal size where there
                                            is one

Scores are named alike in the agreement and in the pruning curves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ABLATION, ALL, PROXIES, RECOVERY, SKIPPING

Ranking = Mapping[int, float]
"""Layer to importance; layers that a score does not speak of are missing."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a score is found: the rows of one measure and metric, of the first of `treatments` that there is."""

    name: str
    measure: str
    metric: str
    amount: float | None = None
    treatments: tuple[tuple[str | None, str | None], ...] = ((None, None),)
    """The condition and the arm of the rows, the best first."""

    def ranking(self, rows: Rows) -> Ranking:
        """The values by layer."""
        own = rows.where(
            measure=self.measure, metric=self.metric, task=ALL, layer=PRESENT, part=None, against=None, seed=None,
            amount=self.amount,
        )  # fmt: skip
        chosen = (own.where(condition=condition, arm=arm) for condition, arm in self.treatments)
        return {row.layer: row.value for row in next(filter(len, chosen), ()) if row.layer is not None}


_TREATMENTS = tuple(itertools.product(("equal_damage", "noise_50", "reinitialise"), ("layer", "model")))

_SOURCES = (
    *(_Source(name, ABLATION, name) for name in (SKIPPING, "mean_ablate", "neighbour_copy", "neighbour_average")),
    _Source("random_weights", ABLATION, "random"),
    _Source("block_influence", PROXIES, "block_influence"),
    _Source("angular", PROXIES, "angular_distance", amount=1.0),
    _Source("gate_sensitivity", PROXIES, "gate_sensitivity"),
    _Source("gate_gradient", PROXIES, "gate_gradient"),
    _Source("taylor", PROXIES, "taylor"),
    _Source("recovery", RECOVERY, "area", treatments=_TREATMENTS),
)

NAMES = tuple(source.name for source in _SOURCES)
"""The scores there can be, in the order of the report."""

ABLATIONS = {source.metric: source.name for source in _SOURCES if source.measure == ABLATION}
"""The name under which each ablation is ranked."""


def rankings(scores: Iterable[Score]) -> dict[str, Ranking]:
    """Every ranking that the rows hold, by the name of its score, in the order of `NAMES`.

    >>> rows = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([0.3, 0.1])]
    >>> rankings(rows)
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows = Rows(scores)
    by_source = {source.name: source.ranking(rows) for source in _SOURCES}
    return {name: dict(sorted(ranking.items())) for name, ranking in by_source.items() if ranking}
