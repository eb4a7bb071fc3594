"""Settings of a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from layerwise.search.budget import Budget
from layerwise.search.edits import Edit

Method = Literal["auto", "greedy", "evolve", "one-shot"]

WIDTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings of a search. `width` is the beam width. If `is_timed`, latency is measured in milliseconds."""

    budget: Budget
    edits: tuple[Edit, ...]
    method: Method
    width: int
    seed: int
    is_timed: bool

    def counted_budget(self) -> Budget:
        """Return a budget that needs no timing, to estimate the cost of the search.

        A budget of `0.75x` milliseconds becomes `0.75x` layers; an absolute one becomes `0.5x` layers.
        """
        if self.budget.unit != "ms":
            return self.budget
        return Budget(layers=self.budget.ms if str(self.budget.ms).endswith("x") else "0.5x")

    def resolve(self, method: Method | None = None, width: int | None = None) -> SearchSettings:
        """Return the settings with the given method and width. If no method is given, `auto` becomes greedy."""
        resolved: Method = method or ("greedy" if self.method == "auto" else self.method)
        return replace(self, method=resolved, width=width or self.width)
