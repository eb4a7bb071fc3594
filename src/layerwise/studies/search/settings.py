"""The settings of a search: what a plan may cost, which edits are tried, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from layerwise.search.budget import Budget
from layerwise.search.moves import Move

Method = Literal["auto", "greedy", "evolve", "one-shot"]

WIDTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """Settings that decide which plans are compared.

    Args:
        budget: What a plan may cost.
        moves: Edits of a plan.
        method: Search algorithm.
        width: Number of plans kept at every step.
        seed: Seed of every random draw.
        is_timed: Whether milliseconds are measured.
    """

    budget: Budget
    moves: tuple[Move, ...]
    method: Method
    width: int
    seed: int
    is_timed: bool

    def counted_budget(self) -> Budget:
        """Return the budget in a unit that is known before anything is timed.

        A share of the milliseconds is taken as that share of the layers, a number of them as half of the layers.
        """
        if self.budget.unit != "ms":
            return self.budget
        return Budget(layers=self.budget.ms if str(self.budget.ms).endswith("x") else "0.5x")

    def settled(self, method: Method | None = None, width: int | None = None) -> SearchSettings:
        """Return the settings with a method and a width that were chosen; `auto` is greedy unless one was."""
        chosen: Method = method or ("greedy" if self.method == "auto" else self.method)
        return replace(self, method=chosen, width=width or self.width)
