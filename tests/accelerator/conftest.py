"""Compare an accelerator with the CPU; skipped without one.

LAYERWISE_TEST_DEVICE names another device: `cpu`, or `stand_in`, which test_stand_in.py uses without CUDA.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from accelerator import stand_in

DEVICE = "LAYERWISE_TEST_DEVICE"

if os.environ.get(DEVICE) == stand_in.NAME:
    stand_in.register()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker("accelerator")


@pytest.fixture(scope="session")
def device() -> torch.device:
    named = os.environ.get(DEVICE, "cuda")
    if named == "cuda" and not torch.cuda.is_available():
        pytest.skip(f"no CUDA device; {DEVICE}=stand_in runs these tests without one")
    return torch.device(named)


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    chosen: torch.dtype = request.param
    return chosen


@pytest.fixture(autouse=True)
def _without_tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]
