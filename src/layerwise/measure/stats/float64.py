"""Double precision on any device: Apple's GPUs (MPS) and some of Intel's (XPU) have none.

On such devices, small tensors are moved to the CPU and widened there (`to_float64`); large ones that are combined with
other tensors of the device stay in float32 (`widen`). Nothing else in layerwise widens a tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor


def widest_dtype(device: torch.device) -> torch.dtype:
    if device.type == "xpu":
        return torch.float64 if torch.xpu.get_device_properties(device).has_fp64 else torch.float32
    return torch.float32 if device.type == "mps" else torch.float64


def to_float64(values: Tensor) -> Tensor:
    """`values`, detached, in float64: on their own device where it has float64, else on the CPU."""
    values = values.detach()
    return (values if widest_dtype(values.device) == torch.float64 else values.cpu()).double()


def to_float64_cpu(values: Tensor) -> Tensor:
    return values.detach().cpu().double()


def widen(values: Tensor) -> Tensor:
    """`values`, detached, on their own device: in float64 where it has that, else in float32."""
    return values.detach().to(widest_dtype(values.device))


def token_norms(state: Tensor) -> Tensor:
    return torch.linalg.vector_norm(widen(state.flatten(2)), dim=2)
