"""Crossings of curves that are planted, and shares of planted losses."""

from __future__ import annotations

import pytest

from layerwise.experiments.healing import rows as made
from layerwise.experiments.healing.arms import HealingArm
from layerwise.experiments.healing.rows import Trainings
from layerwise.plan import Plan
from layerwise.train.heal.options import HealingOptions


@pytest.mark.parametrize("at", [0.5, 1.0, 2.25, 3.9])
def test_the_crossing_of_a_line_is_where_it_crosses(at: float) -> None:
    assert made.crossing({count: count - at for count in range(6)}) == pytest.approx(at)


class PlantedLosses:
    def __init__(self, losses: dict[str, float], reach: float | None = None) -> None:
        self.losses, self.reach = losses, reach

    def nll(self, name: str, task: str) -> float:
        return self.losses.get(name, 2.0)

    def difference(self, first: str, second: str, task: str) -> tuple[float, float | None, float | None]:
        value = self.nll(first, task) - self.nll(second, task)
        return (value, None, None) if self.reach is None else (value, value - self.reach, value + self.reach)

    def documents(self, task: str) -> int:
        return 9


@pytest.mark.parametrize(("whole", "at"), [(2.0, 1.5), (1.9, 0.0)])
def test_the_crossing_is_where_healing_stops_to_make_up_for_what_the_whole_model_gains(whole: float, at: float) -> None:
    """The text improves the whole model too, so healed models that only match the untouched one are worse."""
    arms = tuple(HealingArm(name, HealingOptions(), name) for name in ("whole", "skip-1", "skip-2"))
    losses = {
        f"{name}/{seed}": loss
        for seed in range(2)
        for name, loss in (("whole", whole), ("skip-1", 1.95), ("skip-2", 2.05))
    }
    rows = {
        (row.metric, row.amount): row.value
        for row in made.window_rows(Trainings(Plan.identity(6), 6, arms, 2, {}, {}), PlantedLosses(losses))
        if row.against == "whole"
    }
    assert rows["above_whole", 2] == pytest.approx(2.05 - whole)
    assert rows["layers", None] == pytest.approx(at)


def test_the_middle_is_in_the_middle() -> None:
    for depth in range(2, 14):
        for count in range(1, depth):
            kept = made.middle_skipped(depth, count).layers()
            gone = [layer for layer in range(depth) if layer not in kept]
            assert gone == list(range(gone[0], gone[0] + count))
            assert 0 <= (depth - 1 - gone[-1]) - gone[0] <= 1


def test_a_random_plan_has_the_size_and_is_another() -> None:
    plan = Plan.parse("0-1 4-5")
    drawn = {str(made.random_plan(plan, 6, seed)) for seed in range(20)}
    assert str(plan) not in drawn
    assert len(drawn) > 5
    assert all(len(Plan.parse(text).steps()) == 4 for text in drawn)


LOSSES = {"untouched": 2.0, "pruned": 3.0, "lora/0": 2.6, "random before/0": 6.0, "random/0": 3.2, "whole/0": 1.9}


def test_every_share_is_of_what_the_plan_that_was_asked_for_loses() -> None:
    """A random plan that lost 4 nats and kept 1.2 regained 70 % of its own loss, but 40 % of the healed plan's."""
    arms = tuple(HealingArm(name, HealingOptions(), name) for name in ("lora", "whole", "random"))
    trainings, losses = Trainings(Plan.parse("0-1 4-5"), 6, arms, 1, {}, {}), PlantedLosses(LOSSES, reach=0.1)
    rows = made.regained(trainings, losses, "all")  # type: ignore[arg-type]
    values = {(row.arm, row.metric): row.value for row in rows}
    assert values["pruned", "lost"] == pytest.approx(1.0)
    for arm, share in {"lora": 0.4, "random": -0.2}.items():
        assert values[arm, "regained"] == pytest.approx(share)
        assert values[arm, "regained_share"] == pytest.approx(share)
        assert values[arm, "net_share"] == pytest.approx(share - 0.1)
