"""When two computations of one thing agree."""

from __future__ import annotations

from torch import Tensor


def same(left: Tensor, right: Tensor) -> bool:
    """Equal to the bit, where not-a-number equals itself."""
    return left.shape == right.shape and bool(((left == right) | (left.isnan() & right.isnan())).all())
