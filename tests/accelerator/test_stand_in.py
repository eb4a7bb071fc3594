"""Without an accelerator the tests of this folder, and the examples, run on a stand-in for one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from accelerator import stand_in
from accelerator.conftest import DEVICE

TESTS = Path(__file__).parents[1]
EXAMPLES = "tests/test_examples.py::test_an_example_runs"
IN_CI = [f"{EXAMPLES}[{name}]" for name in ("05_any_order",)]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("marked", "examples"),
    [("not slow and not nightly", IN_CI), pytest.param("", [EXAMPLES], marks=pytest.mark.nightly)],
)
def test_the_simulated_accelerator_passes(marked: str, examples: list[str]) -> None:
    if DEVICE in os.environ or torch.accelerator.is_available():
        pytest.skip("these tests run on another device")
    reason = stand_in.missing()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-m", marked, "--tb=short"]
    ended = subprocess.run(
        [*command, "tests/accelerator", *examples],
        cwd=TESTS.parent,
        env={**os.environ, DEVICE: stand_in.NAME},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2_000:]
