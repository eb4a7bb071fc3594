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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from layerwise.results.rows import Score

Ranking = Mapping[int, float]
"""Layer to importance; layers that a score does not speak of are missing."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a score is found: the rows of one measure and metric, of the first task of `tasks` that there is."""

    name: str
    measure: str
    metric: str
    tasks: tuple[str, ...] = ("all",)
    suffix: str = ""
    """What follows the layer in the subject."""

    def ranking(self, scores: Iterable[Score]) -> Ranking:
        by_task: dict[str, dict[int, float]] = {}
        for score in scores:
            layer = score.subject.removesuffix(self.suffix)
            mine = (score.measure, score.metric) == (self.measure, self.metric)
            if mine and score.subject == f"{layer}{self.suffix}" and layer.isdecimal():
                by_task.setdefault(score.task, {})[int(layer)] = score.value
        return next((by_task[task] for task in self.tasks if task in by_task), {})


_RECOVERY_TASKS = tuple(
    f"{damage}/{scope}" for damage in ("equal_damage", "noise_50", "reinitialise") for scope in ("layer", "model")
)

_SOURCES = (
    *(_Source(name, "ablation", name) for name in ("skip", "mean_ablate", "neighbour_copy", "neighbour_average")),
    _Source("random_weights", "ablation", "random"),
    _Source("block_influence", "proxies", "block_influence"),
    _Source("angular", "proxies", "angular_distance", suffix=",1"),
    _Source("gate_sensitivity", "proxies", "gate_sensitivity"),
    _Source("gate_gradient", "proxies", "gate_gradient"),
    _Source("taylor", "proxies", "taylor"),
    _Source("recovery", "recovery", "area", _RECOVERY_TASKS),
)

NAMES = tuple(source.name for source in _SOURCES)
"""The scores there can be, in the order of the report."""

ABLATIONS = {source.metric: source.name for source in _SOURCES if source.measure == "ablation"}
"""The name under which each ablation is ranked."""


def rankings(scores: Iterable[Score]) -> dict[str, Ranking]:
    """Every ranking that the rows hold, by the name of its score, in the order of `NAMES`.

    >>> rows = [Score("ablation", str(layer), "all", "skip", value) for layer, value in enumerate([0.3, 0.1])]
    >>> rankings(rows)
    {'skip': {0: 0.3, 1: 0.1}}
    """
    rows = list(scores)
    by_source = {source.name: source.ranking(rows) for source in _SOURCES}
    return {name: dict(sorted(ranking.items())) for name, ranking in by_source.items() if ranking}
