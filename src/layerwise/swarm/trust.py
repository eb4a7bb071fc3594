"""Tolerance of the comparison of two nodes' answers to one hop."""

from __future__ import annotations

from math import sqrt

import torch
from torch import Tensor


def tolerance(width: int, visits: int, eps: float) -> float:
    """Return the relative difference that rounding may leave between two honest answers to a hop.

    It is 16 times that of `layerwise.stack.rounding`, for caches that were filled in other ways and devices of other
    kinds, and at most 0.05: of a dtype with three digits, differences beyond that are no rounding either.
    """
    return min(0.05, 16 * 4 * eps * sqrt(width * max(1, visits)))


def agree(one: Tensor, other: Tensor, visits: int) -> bool:
    """Return True if two answers differ by at most rounding, relative to the larger of the two."""
    wide = torch.promote_types(one.dtype, torch.float32)
    left, right = one.to(wide), other.to(wide)
    larger = max(float(left.norm()), float(right.norm()), 1e-30)
    return float((left - right).norm()) / larger <= tolerance(one.shape[-1], visits, torch.finfo(one.dtype).eps)
