"""Frontiers with a planted saving: the cost of one variant is 1 - `saved` of another's at every loss."""

import random

from layerwise.train.cost.frontier import CostPoint

LENGTHS = (0.25, 0.35, 0.5, 0.65, 0.8, 1.0, 1.3)
"""Training lengths of the variant as shares of the uniform budget."""

UNIFORM_LENGTHS = (0.5, 0.8, 1.0)
"""The last is its budget."""

FLOOR, SPAN, POWER = 2.4, 1.6, 0.4
"""Uniform's loss after a share x of its budget is FLOOR + SPAN * x ** -POWER: convex in log x."""

Trainings = dict[int, list[CostPoint]]


def law(share: float) -> float:
    return float(FLOOR + SPAN * share**-POWER)


def point(share: float, loss: float) -> CostPoint:
    return CostPoint(loss, {"flops": 1e12 * share, "seconds": 60.0 * share})


def frontiers(saved: float, *, seeds: int, noise: float, draw: int) -> tuple[Trainings, Trainings]:
    """Seeds shift both equally; every training also has `noise`."""
    chance = random.Random(f"{saved}/{seeds}/{noise}/{draw}")
    luck = {seed: chance.gauss(0.0, 0.2) for seed in range(seeds)}
    variant = {
        seed: [point(share, law(share / (1 - saved)) + own + chance.gauss(0.0, noise)) for share in LENGTHS]
        for seed, own in luck.items()
    }
    uniform = {
        seed: [point(share, law(share) + own + chance.gauss(0.0, noise)) for share in UNIFORM_LENGTHS]
        for seed, own in luck.items()
    }
    return variant, uniform
