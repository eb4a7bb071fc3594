"""The device and the floating-point dtype of a module, which may hold its weights in buffers, or hold none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor, nn


def device_of(module: nn.Module) -> torch.device:
    """The device of the first parameter, else of the first buffer; the CPU for a module that holds no tensor.

    >>> device_of(nn.Identity())
    device(type='cpu')
    """
    return next((tensor.device for tensor in _stored_tensors(module)), torch.device("cpu"))


def dtype_of(module: nn.Module) -> torch.dtype:
    """The dtype of the first floating-point parameter, else buffer; float32 for a module that holds none.

    >>> dtype_of(nn.Linear(2, 2).half())
    torch.float16
    """
    return next((tensor.dtype for tensor in _stored_tensors(module) if tensor.is_floating_point()), torch.float32)


def _stored_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Those that have content first: the layers of a model may be on the disk."""
    for on_disk in (False, True):
        yield from (each for each in chain(module.parameters(), module.buffers()) if each.is_meta == on_disk)
