"""The quick part of `make test-portable`: results do not depend on the processor."""

import subprocess

import pytest
import torch
from torch import nn

from other_kernel import OtherKernel
from portable import QUICK, QUICK_TESTS, Setting, command
from rounding import realigned


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


def test_realigned_weights_are_the_weights_and_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model[0].weight.data = torch.empty(17)[1:].reshape(4, 4).copy_(before["0.weight"])
    assert model[0].weight.data_ptr() % 64 == 4
    assert realigned(model) is model
    assert all(tensor.data_ptr() % 64 == 0 for tensor in model.parameters())
    assert model[1].weight is model[0].weight
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
