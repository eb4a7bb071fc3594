"""The device, dtype and free memory of a model."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor, nn


def device_of(module: nn.Module) -> torch.device:
    """Return the device of the first parameter or buffer, or the CPU if there is none.

    >>> device_of(nn.Identity())
    device(type='cpu')
    """
    return next((tensor.device for tensor in _stored_tensors(module)), torch.device("cpu"))


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype of the first floating-point parameter or buffer, or float32 if there is none.

    >>> dtype_of(nn.Linear(2, 2).half())
    torch.float16
    """
    return next((tensor.dtype for tensor in _stored_tensors(module) if tensor.is_floating_point()), torch.float32)


def named_tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _stored_tensors(module: nn.Module) -> Iterator[Tensor]:
    for on_disk in (False, True):
        yield from (each for each in chain(module.parameters(), module.buffers()) if each.is_meta == on_disk)


SHARE = 0.25
"""Fraction of the free memory that a batch may use."""

_MEMINFO = Path("/proc/meminfo")


def free_memory(device: torch.device | str) -> int | None:
    """Return the free bytes of a device, or None if unknown."""
    device = torch.device(device)
    if device.type == "cuda" and torch.cuda.is_available():
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu":
        return None
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, OSError, ValueError):
        return None


def release_freed() -> None:
    """Return freed memory to the system with glibc's `malloc_trim`."""
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def batch_size_within(free: int | None, each: float, *, most: int, fixed: float = 0.0) -> int:
    """Return how many items fit into a `SHARE` of the `free` bytes, but at least 1 and at most `most`.

    An item takes `each` bytes. Another `fixed` bytes are needed for any number of items.

    >>> [batch_size_within(free, 10, most=50) for free in (800, 8_000, None)]
    [20, 50, 50]
    """
    return most if free is None else max(1, min(most, int((SHARE * free - fixed) // each)))
