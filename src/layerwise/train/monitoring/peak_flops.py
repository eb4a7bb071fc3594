"""How many floating-point operations a second an accelerator can do at most: what a share of them is a share of.

The numbers are those of dense matrices (without 2:4 sparsity) with float32 sums, in 1e12 a second, from NVIDIA's data
sheets: H100 (2023), H200 (2024), A100 (2021), A30, A40, A10, L4, L40S, V100, T4, and the white papers of the Ada
(RTX 4090) and Ampere (RTX 3090) generations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from layerwise.stack.precision import matmul_precision

_TERA = 1e12


@dataclass(frozen=True, slots=True)
class PeakFlops:
    """Operations a second, in 1e12, in half precision (either), in TF32 and in float32; `None` where there is none."""

    half: float
    tf32: float | None
    float32: float


PEAKS: dict[str, PeakFlops] = {
    r"H200": PeakFlops(989.4, 494.7, 66.9),
    r"H100 PCIe": PeakFlops(756.0, 378.0, 51.2),
    r"H100 NVL": PeakFlops(835.0, 417.5, 60.0),
    r"H100": PeakFlops(989.4, 494.7, 66.9),
    r"A100": PeakFlops(312.0, 156.0, 19.5),
    r"A30": PeakFlops(165.0, 82.0, 10.3),
    r"A40": PeakFlops(149.7, 74.8, 37.4),
    r"A10": PeakFlops(125.0, 62.5, 31.2),
    r"L40S": PeakFlops(362.0, 183.0, 91.6),
    r"L4": PeakFlops(121.0, 60.0, 30.3),
    r"V100": PeakFlops(125.0, None, 15.7),
    r"T4": PeakFlops(65.0, None, 8.1),
    r"RTX 4090": PeakFlops(165.2, 82.6, 82.6),
    r"RTX 3090": PeakFlops(71.0, 35.6, 35.6),
}
"""By what stands, as words of its own, in the name that torch gives the device; the first that does counts."""


def peak_of(device: str, precision: str) -> float | None:
    """The operations a second of the device of this name in `bfloat16`, `float16`, `tf32` or `float32`, if known.

    >>> peak_of("NVIDIA L40S", "bfloat16"), peak_of("Tesla T4", "tf32"), peak_of("another", "float32")
    (362000000000000.0, 8100000000000.0, None)
    """
    for name, peak in PEAKS.items():
        if re.search(rf"\b{name}\b", device):
            of = {"bfloat16": peak.half, "float16": peak.half, "tf32": peak.tf32 or peak.float32}
            return of.get(precision, peak.float32) * _TERA
    return None


def peak_in_training(args: Any) -> float | None:
    """That of one device of a training with these arguments: as they say, or as its accelerator is known."""
    given = getattr(args, "peak_flops", None)
    if given is not None:
        return float(given)
    if args.device.type != "cuda":
        return None
    exact = matmul_precision() == "highest"
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32" if exact else "tf32"
    return peak_of(torch.cuda.get_device_name(args.device), precision)
