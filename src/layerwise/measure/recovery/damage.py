"""Three ways to damage a layer before it recovers; the direction of the noise depends on the seed alone.

noise_50      W + N(0, (0.5 std(W))^2), tensor by tensor: the published perturbation
equal_damage  the same noise, scaled so that the model loses a given number of nats
reinitialise  the weights that the model class draws before training (Zhang, Bengio and Singer, JMLR 2022,
              arXiv 1902.01996, section 3)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from layerwise.errors import MeasureError
from layerwise.measure.stats.float64 import exact_on_cpu

Damage = Literal["noise_50", "equal_damage", "reinitialise"]
DAMAGES: tuple[Damage, ...] = get_args(Damage)

PUBLISHED_SCALE = 0.5
"""Standard deviations of noise in `noise_50`."""

WIDEST_SCALE = 64.0
NARROWEST_SCALE = 2.0**-12
"""Where the search for an equal scale gives up: noise of 64 standard deviations leaves nothing of a layer."""

HALVINGS = 24
"""Bisections at most; each halves the ratio of the bracket's ends, so the scale is then known to a part in 10^7."""


def generator(*seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1))


def noise_direction(weights: Mapping[str, Tensor], seed: Sequence[int]) -> dict[str, Tensor]:
    """Draw N(0, std(W)^2) for every tensor in float32, `std` over all entries in float64.

    The draw depends on `seed`, the names and the shapes. Raises `MeasureError` for a tensor that is not finite.
    """
    draw = generator(*seed)
    direction = {}
    for name, tensor in sorted(weights.items()):
        spread = exact_on_cpu(tensor).std(correction=0)
        if not spread.isfinite():
            raise MeasureError(f"{name} holds values that are not finite, so no noise is in proportion to it")
        drawn = torch.randn(tensor.shape, generator=draw, dtype=torch.float32, device="cpu")
        direction[name] = (drawn * spread.float()).to(tensor.device)
    return direction


def displaced(weights: Mapping[str, Tensor], direction: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """`W + scale * direction`, in float32; with scale 0 the weights themselves."""
    return {name: tensor.float() + scale * direction[name] for name, tensor in weights.items()}


def equal_scale(damage_at: Callable[[float], float], target: float, tolerance: float) -> float | None:
    """Find a scale at which `damage_at` is within `tolerance` of `target`, or `None`.

    The scale is doubled or halved from 0.5, then bisected geometrically. Damage that is not finite counts as too much.

    >>> round(equal_scale(lambda scale: scale**2, target=9.0, tolerance=0.01), 3)
    3.0
    """

    def too_much(scale: float) -> tuple[bool, bool]:
        damage = damage_at(scale)
        return not damage < target, math.isfinite(damage) and abs(damage - target) <= tolerance

    scale = PUBLISHED_SCALE
    above, hit = too_much(scale)
    factor = 0.5 if above else 2.0
    beyond = above
    while not hit and beyond == above:
        scale *= factor
        if not NARROWEST_SCALE <= scale <= WIDEST_SCALE:
            return None
        beyond, hit = too_much(scale)
    low, high = sorted((scale, scale / factor))
    for _ in range(HALVINGS):
        if hit:
            return scale
        scale = math.sqrt(low * high)
        above, hit = too_much(scale)
        low, high = (low, scale) if above else (scale, high)
    return scale if hit else None
