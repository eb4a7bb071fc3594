"""Compute the floating-point operations (FLOPs) of growth schedules.

A trained layer costs three forward passes: the pass itself, and the gradients of its input and of its weights. A frozen
layer above a trained one costs two, a frozen layer below all trained ones costs one, and a layer that is not present
costs nothing. The embedding counts as the lowest layer. Random choices (`sample`, `drop`) are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from layerwise.errors import PlanError
from layerwise.plan.checks import describe_value
from layerwise.plan.schedule.schedule import GrowthSchedule, Phase, apportion

LEARNS = 1.0
"""Cost of a trained layer, as a fraction of three forward passes."""

PASSES = 2 / 3
"""Cost of a frozen layer above a trained one."""

RUNS = 1 / 3
"""Cost of a frozen layer below all trained ones."""

MIN_SHARE = 1e-6
"""Minimum cost of a step relative to a step of uniform training. `steps_for` rejects cheaper schedules."""


@dataclass(frozen=True, slots=True)
class ModelCost:
    """FLOPs per token in a forward pass of each layer, the embedding and the head. A multiply-add counts as two."""

    layers: tuple[float, ...]
    embedding: float
    head: float

    def __post_init__(self) -> None:
        for cost in (*self.layers, self.embedding, self.head):
            if not 0 <= cost < math.inf:
                raise PlanError(f"a cost must be a finite, non-negative number, got {describe_value(cost)}")
        if not self.layers or self.total == 0:
            raise PlanError("the cost of a model must have at least one layer and a positive total")

    @property
    def total(self) -> float:
        return sum(self.layers) + self.embedding + self.head


def layer_shares(phase: Phase, depth: int) -> tuple[float, ...]:
    """Return the cost of each layer in a phase, as a fraction of three forward passes of the layer.

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
    """Compute the expected FLOPs per training token in a phase, forward and backward.

    >>> flops_per_token(Phase("all", share=1, trains=(0, 1)), ModelCost((10.0, 10.0), embedding=0.0, head=5.0))
    75.0
    """
    shares = layer_shares(phase, len(cost.layers))
    layers = sum(share * layer for share, layer in zip(shares, cost.layers, strict=True))
    return 3 * (layers + embedding_share(phase) * cost.embedding + head_share(phase) * cost.head)


def share_of_uniform(schedule: GrowthSchedule, cost: ModelCost) -> float:
    """Compute the mean cost of a step relative to a step of uniform training, which trains everything.

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
    """Return the number of steps that costs about as much as the given number of steps of uniform training.

    Raises `PlanError` if a phase would have no step, or if a step costs less than `MIN_SHARE` of a uniform one.

    >>> half = GrowthSchedule("half", 2, (Phase("a", 0.5, (0, 1)), Phase("b", 0.5, (1,), embedding=False)))
    >>> steps_for(half, ModelCost((9.0, 9.0), embedding=0.0, head=0.0), 100)
    120
    """
    if type(budget_steps_of_uniform) is not int or budget_steps_of_uniform < 1:
        raise PlanError(
            "the budget must be an integer number of steps of at least 1, got "
            f"{describe_value(budget_steps_of_uniform)}"
        )
    costs = phase_shares(schedule, cost)
    shares = [phase.share for phase in schedule.phases]
    mean = share_of_uniform(schedule, cost)
    if mean < MIN_SHARE:
        raise PlanError(
            f"a step of the schedule {schedule.name} costs less than {MIN_SHARE:g} of a step of uniform training, so "
            "the budget would take too many steps; train more layers"
        )
    nominal = round(budget_steps_of_uniform / mean)
    reach = len(shares) + 1
    steps = min(
        range(max(1, nominal - reach), nominal + reach + 1),
        key=lambda candidate: abs(_total_cost(costs, apportion(shares, candidate)) - budget_steps_of_uniform),
    )
    schedule.bounds(steps)  # refuses a phase without a step
    return steps


def _total_cost(costs: Sequence[float], counts: Sequence[int]) -> float:
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
    """Return for how many of the `epochs` each layer is trained.

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
