"""Simulated models: losses of skipping each layer by document, with known effects and heavy-tailed noise."""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from layerwise.measure.interventions.ablation import skip_keys
from layerwise.measure.stats.grid import WHOLE, Piece
from layerwise.plan import Plan
from layerwise.results import Loss


class SimulatedModel:
    """`effects` are in nats/token; `noise` is the standard deviation of a document's own effect."""

    def __init__(self, effects: Sequence[float], *, documents: int = 160, noise: float = 0.05, seed: int = 0) -> None:
        self.effects = tuple(effects)
        generator = np.random.default_rng(seed)
        tokens = generator.integers(20, 200, size=documents)
        # Student's t with 5 degrees of freedom has variance 5/3.
        drawn = generator.standard_t(5, size=(len(self.effects), documents)) * noise / np.sqrt(5 / 3)
        self.lengths: dict[Piece, int] = {
            ("text", f"{number:04d}", WHOLE): int(count) for number, count in enumerate(tokens)
        }
        self._own = 3 * tokens * generator.uniform(0.5, 1.5, size=documents)
        self._changes = (np.asarray(self.effects)[:, None] + drawn) * tokens
        self.evaluated = 0

    def draw(self, changes: NDArray[np.float64]) -> None:
        self._changes = changes * np.array(list(self.lengths.values()))

    def blur(self, layer: int, noise: float, seed: int = 0) -> None:
        tokens = np.array(list(self.lengths.values()))
        self._changes[layer] += np.random.default_rng([seed, 3]).normal(0.0, noise, tokens.size) * tokens

    @property
    def depth(self) -> int:
        return len(self.effects)

    @property
    def baseline(self) -> str:
        return str(Plan.identity(self.depth))

    def measure(self, layers: Collection[int], pieces: Collection[Piece]) -> list[Loss]:
        baseline, keys = self.baseline, skip_keys(self.depth)
        evaluations = self.depth + sum(self.depth - layer - 1 for layer in layers)
        rows = []
        for piece in pieces:
            task, document, _ = piece
            index, tokens = int(document), self.lengths[piece]
            rows.append(Loss(baseline, task, document, 0, float(self._own[index]), tokens, 0))
            for layer in layers:
                nll = float(self._own[index] + self._changes[layer, index])
                rows.append(Loss(keys[layer], task, document, 0, nll, tokens, 0))
            self.evaluated += tokens * evaluations
        return rows

    def whole(self) -> list[Loss]:
        return self.measure(range(self.depth), self.lengths)
