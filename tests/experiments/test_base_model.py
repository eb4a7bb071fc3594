"""The model that trainings begin from is opened anew for each of them."""

import pytest
import torch

from layerwise.errors import TrainError
from layerwise.experiments.opening import base_model
from layerwise.experiments.options.common import LoadingOptions
from layerwise.stack import load, weight_hash

OPTIONS = LoadingOptions(device="cpu")


def test_a_named_model_is_opened_again_in_float32() -> None:
    base = base_model("demo", OPTIONS)
    first, second = base.again(), base.again()
    assert first.model is not second.model
    assert first.dtype == torch.float32
    assert weight_hash(first.model) == base.base().weights


def test_an_opened_model_is_copied_and_stays_as_it_is() -> None:
    stack = load("demo", device="cpu", dtype="bfloat16")
    before = weight_hash(stack.model)
    copy = base_model("demo", OPTIONS, stack).again()
    torch.nn.init.zeros_(next(copy.model.parameters()))
    assert (copy.dtype, stack.dtype) == (torch.float32, torch.bfloat16)
    assert weight_hash(stack.model) == before


def test_an_opened_model_takes_no_new_head() -> None:
    base = base_model("demo-vit", OPTIONS, load("demo-vit", device="cpu"))
    with pytest.raises(TrainError, match="give its name or its folder"):
        base.base(("one", "two"))
