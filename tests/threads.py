"""Number of torch threads in tests (LAYERWISE_TEST_THREADS, default 1), on which the rounding of sums depends."""

import os

import torch

VARIABLE = "LAYERWISE_TEST_THREADS"


def thread_count() -> int:
    return int(os.environ.get(VARIABLE, "1"))


def use_threads() -> None:
    torch.set_num_threads(thread_count())


def threaded(**more: str) -> dict[str, str]:
    """Return the environment for a process with the same threads; `MKL_DYNAMIC` as `torch.set_num_threads` sets it."""
    return {**os.environ, "OMP_NUM_THREADS": str(thread_count()), "MKL_DYNAMIC": "FALSE", **more}
