import pytest
import torch

from layerwise.measure.activations.padding import token_mask, token_mean

STATE = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [torch.nan, torch.inf]], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])


@pytest.mark.parametrize("inputs", [{}, {"attention_mask": torch.ones(2, 3, 3)}], ids=["no mask", "another shape"])
def test_all_tokens_count_without_a_mask(inputs: dict[str, torch.Tensor]) -> None:
    assert token_mask(inputs, STATE).all()


def test_half_precision_means_are_summed_in_float32() -> None:
    state = torch.ones(1, 4096, 1, dtype=torch.bfloat16)
    mean = token_mean(state, torch.ones(1, 4096, dtype=torch.bool))
    assert mean.dtype == torch.bfloat16
    assert mean.item() == 1.0
