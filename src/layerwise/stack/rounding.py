"""Compare two computations up to rounding.

The *gap* is the largest norm of a token's difference, relative to the norm of the token's vector, or to the median norm
if that is larger. `rounding(width, visits)` is the largest gap that rounding explains. An inner product of n terms has
an error of about sqrt(n) eps/2 (Higham and Mary 2019, doi.org/10.1137/18M1226312). A layer has about eight of them in
sequence, with up to 4 * width terms, so two computations differ by about sqrt(2 * 8 * 4 * width * visits) eps/2. eps is
that of float32. In half precision, only equal bits count as equal (see `layerwise.stack.precision`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = torch.finfo(torch.float32).eps

ADDITIONS = 8 * EPS
"""Maximum gap after a few elementwise additions and products."""

HALF_OF_THE_DIGITS = math.sqrt(EPS)
"""Maximum gap of cached decoding: recurrences amplify errors, but a wrong cache has a gap above 0.01."""

HALF = frozenset({torch.float16, torch.bfloat16})


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device has bfloat16 matrix instructions (AVX512-BF16 or AMX on a CPU)."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "xpu":
        return torch.xpu.is_bf16_supported()
    cpu = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(cpu.get("avx512_bf16") or cpu.get("amx_bf16"))


def rounding(width: int, visits: int) -> float:
    """Return the largest relative difference that rounding explains after `visits` layers of `width`.

    >>> f"{rounding(32, 5):.1g} {rounding(4096, 32):.1g}"
    '6e-06 0.0002'
    """
    return 4 * EPS * math.sqrt(width * max(1, visits))


def same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(_equal(left, right).all())


def gap(actual: Tensor, expected: Tensor) -> float:
    """Return the relative difference (*gap*) of two results, which is infinite if only one is finite or shapes differ.

    >>> round(gap(torch.tensor([[30.0, 45.0], [3.0, 4.0]]), torch.tensor([[30.0, 40.0], [3.0, 4.0]])), 3)
    0.1
    """
    if actual.shape != expected.shape:
        return math.inf
    return apart((actual - expected).masked_fill(_equal(actual, expected), 0.0), expected)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The relative difference of two results, and the largest one that rounding explains."""

    gap: float
    rounding: float

    @property
    def holds(self) -> bool:
        return self.gap <= self.rounding

    def __str__(self) -> str:
        return f"{self.gap:.2g} apart relative to their size (rounding: at most {self.rounding:.2g})"


def compare(actual: Tensor, expected: Tensor, width: int, visits: int) -> Agreement:
    """Compare two results of `visits` layers of `width`, up to rounding, or to the bit in half precision."""
    half = actual.dtype in HALF or expected.dtype in HALF
    return Agreement(gap(actual, expected), 0.0 if half else rounding(width, visits))


def apart(difference: Tensor, reference: Tensor) -> float:
    """Return the largest norm of `difference` relative to that of `reference`, for vectors along the last axis."""
    scale = _norms(reference.nan_to_num(0.0, 0.0, 0.0))
    differing = _norms(difference)
    share = torch.where(differing == 0, 0.0, differing / torch.maximum(scale, scale.median()))
    return float(share.nan_to_num(math.inf, math.inf).max())


def _norms(tensor: Tensor) -> Tensor:
    wide = torch.promote_types(tensor.dtype, torch.float32)
    return torch.linalg.vector_norm(tensor.reshape(tensor.shape or (1,)), dim=-1, dtype=wide).flatten()


def _equal(left: Tensor, right: Tensor) -> Tensor:
    return (left == right) | (left.isnan() & right.isnan())
