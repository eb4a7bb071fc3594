"""The mean of logits."""

from __future__ import annotations

import pytest
import torch

from layerwise.errors import ModelError
from layerwise.experiments.merging.comparison import mean_logits


def test_the_mean_is_taken_in_float32() -> None:
    logits = [torch.randn(4, 7, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    found = mean_logits(iter(logits))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, (logits[0].float() + logits[1].float()) / 2)


def test_one_member_is_itself_and_the_mean_can_overrule_every_member() -> None:
    one = torch.tensor([[3.0, 2.0, 0.0]])
    assert torch.equal(mean_logits([one]), one)
    both = mean_logits([one, torch.tensor([[0.0, 2.0, 3.0]])])
    assert both.argmax() == 1


def test_no_members_and_other_classes_are_refused() -> None:
    with pytest.raises(ModelError, match="one member or more"):
        mean_logits([])
    with pytest.raises(ModelError, match=r"found \(2, 4\) after \(2, 3\)"):
        mean_logits([torch.zeros(2, 3), torch.zeros(2, 4)])
