"""How many threads torch computes with in the tests: one, or as many as the variable `LAYERWISE_TEST_THREADS` says.

Two threads sum in another order than one, so a test that compares bits across processes needs the same number in both.
"""

from __future__ import annotations

import os

import torch

VARIABLE = "LAYERWISE_TEST_THREADS"


def thread_count() -> int:
    return int(os.environ.get(VARIABLE, "1"))


def use_threads() -> None:
    torch.set_num_threads(thread_count())


def threaded(**more: str) -> dict[str, str]:
    """The environment of a process that computes as this one does, and the variables in `more`.

    `MKL_DYNAMIC` is what `torch.set_num_threads` also sets: as many threads as were asked for, on any number of cores.
    """
    return {**os.environ, "OMP_NUM_THREADS": str(thread_count()), "MKL_DYNAMIC": "FALSE", **more}
