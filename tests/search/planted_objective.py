"""An evaluator with a planted objective: a loss increase per skipped layer, per skipped pair, and per document."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan

DAMAGE = {"Q8_0": 0.002, "Q5_1": 0.02, "Q5_0": 0.03, "Q4_1": 0.06, "Q4_0": 0.1}
"""The effect of a type as a share of that of skipping the layer."""


class PlantedObjective:
    def __init__(
        self, depth: int, *, coupling: float, noise: float = 0.0, seed: int = 0, documents: int = 64, text: int = 0
    ) -> None:
        draw = np.random.default_rng(seed)
        self.depth = depth
        self.single = np.abs(draw.normal(size=depth)) * 0.1
        pairs = np.triu(draw.normal(size=(depth, depth)), 1) * 0.1 * coupling
        self.pairs = pairs + pairs.T
        own = np.random.default_rng((seed, text, 1))
        self.spread = own.normal(size=(documents, depth)) * noise
        self.hardness = 3 + 0.3 * own.normal(size=documents)
        self.parts = np.split(np.arange(documents), [documents // 16 + 4, documents // 4 + 4])
        self.evaluated: list[tuple[Plan, int]] = []

    @property
    def tokens(self) -> Sequence[Numbers]:
        return [np.full(part.size, 100.0) for part in self.parts]

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        self.evaluated += [(plan, rung) for plan in plans]
        return np.array([self.losses(plan)[self.parts[rung]] for plan in plans])

    def losses(self, plan: Plan) -> Numbers:
        return np.asarray(100 * (self.hardness + self.true(plan) + self.spread @ self.missing(plan)))

    def true(self, plan: Plan) -> float:
        missing = self.missing(plan)
        return float(self.single @ missing + missing @ self.pairs @ missing / 2)

    def missing(self, plan: Plan) -> Numbers:
        sources = {step.layer: step.source for step in plan.steps()}
        return np.array(
            [DAMAGE.get(sources[layer] or "", 0.0) if layer in sources else 1.0 for layer in range(self.depth)]
        )

    def optimum(self, dropped: int) -> float:
        best = np.inf
        for chosen in combinations(range(self.depth), dropped):
            index = np.array(chosen)
            best = min(best, self.single[index].sum() + self.pairs[np.ix_(index, index)].sum() / 2)
        return float(best)
