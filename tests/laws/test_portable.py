"""The quick part of `make test-portable`: results do not depend on the processor."""

import subprocess

import pytest
import torch

from other_kernel import OtherKernel
from portable import QUICK, QUICK_TESTS, Setting, command


@pytest.mark.nightly
@pytest.mark.parametrize("setting", QUICK, ids=str)
def test_what_is_compared_holds_under_another_setting(setting: Setting) -> None:
    ended = subprocess.run(
        command(QUICK_TESTS, workers="0"), env=setting.environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-10000:]


def test_the_other_kernel_gives_equal_bits_to_equal_operands_alone() -> None:
    left, right = (torch.randn(8, 8, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    shifted = torch.empty(65)[1:].reshape(8, 8).copy_(right)
    with OtherKernel():
        whole = left @ right
        assert torch.equal(left @ right, whole)
        assert torch.equal(left @ shifted.clone(), whole)
        for other in (left @ shifted, torch.cat([left[:4] @ right, left[4:] @ right])):
            assert not torch.equal(other, whole)
            torch.testing.assert_close(other, whole)
        assert torch.equal(torch.eye(8) @ right, right), "a sum of one term is exact"
        assert torch.equal(left.round().sum(), left.round().double().sum().float()), "and so is one of whole numbers"
