"""Settings of a search: the budget, the edits and the algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from layerwise.search.budget import Budget
from layerwise.search.edits import Edit

Method = Literal["auto", "greedy", "evolve", "one-shot"]

WIDTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings that decide which plans are compared.

    Args:
        budget: Maximum cost of a plan.
        edits: Edits of a plan.
        method: Search algorithm.
        width: Beam width.
        seed: Random seed.
        is_timed: Measure milliseconds.
    """

    budget: Budget
    edits: tuple[Edit, ...]
    method: Method
    width: int
    seed: int
    is_timed: bool

    def counted_budget(self) -> Budget:
        """Return a budget that needs no timing.

        A relative budget of milliseconds becomes the same share of the layers, an absolute one half of the layers.
        """
        if self.budget.unit != "ms":
            return self.budget
        return Budget(layers=self.budget.ms if str(self.budget.ms).endswith("x") else "0.5x")

    def resolve(self, method: Method | None = None, width: int | None = None) -> SearchSettings:
        """Return the settings with `auto` replaced by `method` (default: greedy), and with `width`."""
        resolved: Method = method or ("greedy" if self.method == "auto" else self.method)
        return replace(self, method=resolved, width=width or self.width)
