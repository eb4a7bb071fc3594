"""The search of mixed spaces: whatever moves it may make, it begins with what these can express."""

from __future__ import annotations

import pytest

from layerwise.plan import Plan
from layerwise.search.greedy import Space
from layerwise.search.nsga import CHOICES, nsga
from search.planted_objective import PlantedObjective

pytest.importorskip("optuna", reason="needs layerwise[search]")


@pytest.mark.parametrize("moves", [("drop",), ("halves",), ("merge",), ("drop", "halves")])
def test_plans_without_layers_begin_only_a_search_that_may_leave_layers_out(moves: tuple[str, ...]) -> None:
    halves = {f"{layer}.{half}" for layer in range(4) for half in CHOICES["halves"]}
    space = Space(4, moves, lambda plan: sum(0.5 if step.name in halves else 1.0 for step in plan.steps()), 3.5)
    starts = [Plan.parse("0 1 2")]
    *_, last = nsga(PlantedObjective(4, coupling=0.0), space, starts, population=8, generations=2)
    assert last.kind == "final"
    assert min(map(space.price, last.round.losses)) <= 3.5
