"""Convert tensors to float64 on any device; MPS and some XPU devices lack it."""

from __future__ import annotations

import torch
from torch import Tensor


def widest_dtype(device: torch.device) -> torch.dtype:
    if device.type == "xpu":
        return torch.float64 if torch.xpu.get_device_properties(device).has_fp64 else torch.float32
    return torch.float32 if device.type == "mps" else torch.float64


def to_float64(values: Tensor) -> Tensor:
    """Detach `values` and convert them to float64, on the CPU if their device lacks float64."""
    values = values.detach()
    return (values if widest_dtype(values.device) == torch.float64 else values.cpu()).double()


def to_float64_cpu(values: Tensor) -> Tensor:
    return values.detach().cpu().double()


def widen(values: Tensor) -> Tensor:
    """Detach `values` and convert them to float64, or to float32 if their device lacks float64."""
    return values.detach().to(widest_dtype(values.device))


def token_norms(state: Tensor) -> Tensor:
    return torch.linalg.vector_norm(widen(state.flatten(2)), dim=2)
