"""When two computations of one thing agree: the one meaning of "equal up to rounding" that proofs and laws share.

Rounding spreads over a vector (the entries of one token's state, or its logits): each entry errs by a share of the
vector's size, not of its own. So the *gap* of two computations is the norm of their difference beside the norm of the
vector, at the vector where it is largest. A vector that happens to be short, because its terms cancel, is compared
with the median one; the largest one is no measure, for it may be thousands of times as long as the others.

What is compared may be off by `rounding(width, visits)`. One addition or product errs by eps/2 of its result, and an
inner product of n terms, added up in one order or in another, by about sqrt(n) as much (Higham and Mary 2019,
doi.org/10.1137/18M1226312). A visit of a layer is about eight such steps in a row, over up to 4 * width terms; the
residual stream carries their errors on, and independent ones add up by their squares. Two computations of `visits`
layers are therefore sqrt(2 * 8 * 4 * width * visits) eps/2 = 4 eps sqrt(width * visits) apart, and rather less, for
kernels add in blocks. In float32 that is 6e-6 for 5 layers of width 32, and 2e-4 for 32 of width 4096.

eps is that of float32, also for float64: most models compute norms, softmax and rotary angles in float32 whatever the
dtype of the rest. In half precision such a bound would let anything pass, and only equal bits are equal: what is to be
distinguished from rounding there is computed in float32 (`layerwise.stack.precision`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps

ADDITIONS = 8 * EPS
"""What a few additions and products of entries, with no inner product among them, may be off."""

HALF_OF_THE_DIGITS = math.sqrt(EPS)
"""What two algorithms may differ by: a cache makes a recurrence of a scan, and layers of recurrences pass errors on
enlarged. A cache that holds the wrong thing is off by more than one part in a hundred."""

HALF = frozenset({torch.float16, torch.bfloat16})


def rounding(width: int, visits: int) -> float:
    """The gap that rounding may leave between two computations of `visits` layers of `width`.

    >>> f"{rounding(32, 5):.1g} {rounding(4096, 32):.1g}"
    '6e-06 0.0002'
    """
    return 4 * EPS * math.sqrt(width * max(1, visits))


def same(left: Tensor, right: Tensor) -> bool:
    """Equal to the bit, where not-a-number equals itself."""
    return left.shape == right.shape and bool(_equal(left, right).all())


def gap(actual: Tensor, expected: Tensor) -> float:
    """How far two computations are apart: infinitely, where their shapes differ or one of them alone is not finite.

    >>> round(gap(torch.tensor([[30.0, 45.0], [3.0, 4.0]]), torch.tensor([[30.0, 40.0], [3.0, 4.0]])), 3)
    0.1
    """
    if actual.shape != expected.shape:
        return math.inf
    return apart((actual - expected).masked_fill(_equal(actual, expected), 0.0), expected)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The `gap` of two computations, and what rounding may leave of it."""

    gap: float
    rounding: float

    @property
    def holds(self) -> bool:
        """Whether the two agree."""
        return self.gap <= self.rounding

    def __str__(self) -> str:
        return f"apart by {self.gap:.2g} of their size, rounding may leave {self.rounding:.2g}"


def compare(actual: Tensor, expected: Tensor, width: int, visits: int) -> Agreement:
    """Whether two computations of `visits` layers of `width` agree: up to rounding, or to the bit in half precision."""
    half = actual.dtype in HALF or expected.dtype in HALF
    return Agreement(gap(actual, expected), 0.0 if half else rounding(width, visits))


def apart(difference: Tensor, beside: Tensor) -> float:
    """The largest norm of a vector of `difference` beside that of `beside`; vectors lie along the last axis."""
    scale = _norms(beside.nan_to_num(0.0, 0.0, 0.0))
    differing = _norms(difference)
    share = torch.where(differing == 0, 0.0, differing / torch.maximum(scale, scale.median()))
    return float(share.nan_to_num(math.inf, math.inf).max())


def _norms(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor.reshape(tensor.shape or (1,)), dim=-1, dtype=wide).flatten()


def _equal(left: Tensor, right: Tensor) -> Tensor:
    return (left == right) | (left.isnan() & right.isnan())
