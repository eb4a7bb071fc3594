"""What a phase costs in floating-point operations, from which layers learn and which only run.

A layer that learns costs 3 of 3: its forward pass, the gradient of its input and that of its weights. A frozen one
costs 2 of 3 where something below it learns and 1 of 3 in the prefix; an absent one nothing. The embedding counts as
a layer below all others; the head has the gradient of its input wherever something below it learns. The lowest thing
that learns is counted whole.

Where chance decides (`sample`, `drop`), costs are means over the draws, and layers above one that is left out of a pass
are counted as if it were there. The optimizer's own work is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.errors import PlanError
from layerwise.plan.checks import shown
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase, apportion

LEARNS = 1.0
"""The share of its full cost that a layer has which learns."""

PASSES = 2 / 3
"""That of a frozen layer with something below it that learns."""

RUNS = 1 / 3
"""That of a frozen layer with nothing below it that learns."""

LEAST_SHARE = 1e-6
"""The share of a uniform step below which a step costs next to nothing, and no budget says how many there are."""


@dataclass(frozen=True, slots=True)
class ModelCost:
    """Floating-point operations of a token's forward pass, by layer and around them; a multiply-add counts as two.

    Raises `PlanError` for costs that are negative or not finite, or all zero.
    """

    layers: tuple[float, ...]
    embedding: float
    head: float

    def __post_init__(self) -> None:
        for cost in (*self.layers, self.embedding, self.head):
            if not 0 <= cost < math.inf:
                raise PlanError(f"a cost is a finite number of operations from 0 up, not {shown(cost)}")
        if not self.layers or self.total == 0:
            raise PlanError("a model's cost is of one layer or more, and above 0 in all")

    @property
    def total(self) -> float:
        """The whole forward pass of one token."""
        return sum(self.layers) + self.embedding + self.head


def layer_shares(phase: Phase, depth: int) -> tuple[float, ...]:
    """The share of its full cost, three times its forward pass, that every layer of a model of `depth` has in a phase.

    >>> phase = Phase("middle", share=1, trains=(1,), embedding=False, present=(0, 1, 2))
    >>> [round(share, 3) for share in layer_shares(phase, depth=4)]
    [0.333, 1.0, 0.667, 0.0]
    """
    running = phase.running(depth)
    kept = {layer: 1 - chance for layer, chance in zip(running, phase.dropped(0.5, depth), strict=True)}
    return tuple(kept[layer] * _share_when_run(phase, layer) if layer in kept else 0.0 for layer in range(depth))


def embedding_share(phase: Phase) -> float:
    return LEARNS if phase.embedding else RUNS


def head_share(phase: Phase) -> float:
    return (1 + (phase.embedding or bool(phase.trains)) + phase.head) / 3


def flops_per_token(phase: Phase, cost: ModelCost) -> float:
    """Floating-point operations of training on one token in a phase, forward and backward; a mean where chance decides.

    >>> flops_per_token(Phase("all", share=1, trains=(0, 1)), ModelCost((10.0, 10.0), embedding=0.0, head=5.0))
    75.0
    """
    shares = layer_shares(phase, len(cost.layers))
    layers = sum(share * layer for share, layer in zip(shares, cost.layers, strict=True))
    return 3 * (layers + embedding_share(phase) * cost.embedding + head_share(phase) * cost.head)


def share_of_uniform(schedule: GrowthSchedule, cost: ModelCost) -> float:
    """What a step of the schedule costs on average, as a share of a step in which everything learns.

    Raises `PlanError` for the cost of a model of another depth.

    >>> half = GrowthSchedule("half", 2, (Phase("a", 0.5, (0, 1)), Phase("b", 0.5, (1,), embedding=False)))
    >>> round(share_of_uniform(half, ModelCost((9.0, 9.0), embedding=0.0, head=0.0)), 4)
    0.8333
    """
    shares = phase_shares(schedule, cost)
    return sum(phase.share * share for phase, share in zip(schedule.phases, shares, strict=True)) / sum(
        phase.share for phase in schedule.phases
    )


def phase_shares(schedule: GrowthSchedule, cost: ModelCost) -> tuple[float, ...]:
    schedule.check(len(cost.layers))
    return tuple(flops_per_token(phase, cost) / (3 * cost.total) for phase in schedule.phases)


def steps_for(schedule: GrowthSchedule, cost: ModelCost, budget_steps_of_uniform: int) -> int:
    """The number of steps of the schedule whose cost is nearest to that of so many steps in which everything learns.

    The cost is that of the whole steps that the phases get (`GrowthSchedule.bounds`), so what is left of a difference
    is less than half a step of the costliest phase, or of a few where a step more moves the bounds of several. Raises
    `PlanError` for a budget in which a phase would have no step, and for a schedule whose steps cost less than
    `LEAST_SHARE` of a uniform one.

    >>> half = GrowthSchedule("half", 2, (Phase("a", 0.5, (0, 1)), Phase("b", 0.5, (1,), embedding=False)))
    >>> steps_for(half, ModelCost((9.0, 9.0), embedding=0.0, head=0.0), 100)
    120
    """
    if type(budget_steps_of_uniform) is not int or budget_steps_of_uniform < 1:
        raise PlanError(f"a budget is a whole number of steps, 1 or more, not {shown(budget_steps_of_uniform)}")
    costs = phase_shares(schedule, cost)
    shares = [phase.share for phase in schedule.phases]
    mean = share_of_uniform(schedule, cost)
    if mean < LEAST_SHARE:
        raise PlanError(
            f"a step of the schedule {schedule.name} costs next to nothing, so no number of them fills a budget"
        )
    nominal = round(budget_steps_of_uniform / mean)
    reach = len(shares) + 1
    steps = min(
        range(max(1, nominal - reach), nominal + reach + 1),
        key=lambda candidate: abs(_spent(costs, apportion(shares, candidate)) - budget_steps_of_uniform),
    )
    schedule.bounds(steps)  # refuses a phase without a step
    return steps


def _spent(costs: Sequence[float], counts: Sequence[int]) -> float:
    return sum(cost * count for cost, count in zip(costs, counts, strict=True))


def _share_when_run(phase: Phase, layer: int) -> float:
    drawn = len(phase.trains) if phase.sample is None else phase.sample
    others = [other for other in phase.trains if other != layer]
    learns = drawn / len(phase.trains) if layer in phase.trains else 0.0
    if learns == 1:
        return LEARNS
    below = sum(other < layer for other in others)
    return learns * LEARNS + (1 - learns) * _share_when_frozen(phase.embedding, below, len(others), drawn)


def _share_when_frozen(embedding: bool, below: int, others: int, drawn: int) -> float:
    if embedding:
        return PASSES
    nothing_below = math.comb(others - below, drawn) / math.comb(others, drawn)
    return PASSES - (PASSES - RUNS) * nothing_below


def layer_epochs(schedule: GrowthSchedule, epochs: float) -> tuple[float, ...]:
    """Return how often every layer reads the text while it learns, in a training that reads it `epochs` times.

    >>> layer_epochs(GrowthSchedule("half", 2, (Phase("a", 0.5, (0,)), Phase("b", 0.5, (0, 1), sample=1))), epochs=4.0)
    (3.0, 1.0)
    """
    learned = [0.0] * schedule.depth
    for phase in schedule.phases:
        drawn = 1.0 if phase.sample is None else phase.sample / len(phase.trains)
        for layer, chance in zip(phase.running(schedule.depth), phase.dropped(0.5, schedule.depth), strict=True):
            if layer in phase.trains:
                learned[layer] += epochs * phase.share * drawn * (1 - chance)
    return tuple(learned)
