"""The global generators of python, numpy and torch, for code of others that draws from whichever it likes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Within the context every global generator starts from `seed`; afterwards each is where the caller left it.

    They are python's, numpy's, and torch's: that of the CPU, and those of the kind of accelerator that `device` is.
    """
    python, numpy_, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    accelerator: Any = None if device is None or device.type == "cpu" else torch.get_device_module(device)
    several = hasattr(accelerator, "get_rng_state_all")
    if accelerator is not None:
        there = accelerator.get_rng_state_all() if several else accelerator.get_rng_state()
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)  # numpy takes 32 bits
        torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)
        torch.set_rng_state(cpu)
        if accelerator is not None:
            (accelerator.set_rng_state_all if several else accelerator.set_rng_state)(there)
