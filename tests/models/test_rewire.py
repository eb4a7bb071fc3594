"""A backbone that is given layer weights computes what it computed, whatever plan it runs."""

from __future__ import annotations

import pytest
import torch

from layerwise.errors import ModelError
from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.models.elc.wiring import rewired
from layerwise.plan import Plan
from layerwise.stack import load

IDS = torch.arange(20).reshape(2, 10) + 5


def backbone() -> ElcForMaskedLM:
    torch.manual_seed(0)
    return ElcForMaskedLM(ElcConfig.of_size("tiny", variant="ltg", vocab_size=40)).eval()


@pytest.mark.parametrize("plan", ["0-5", "0 2-5", "0-3", "3-5", "1 3 5"])
@torch.no_grad()
def test_the_weights_change_nothing_yet(plan: str) -> None:
    model = backbone()
    one, other = (load(each).logits(Plan.parse(plan), input_ids=IDS) for each in (model, rewired(model)))
    assert torch.equal(one, other)


@pytest.mark.parametrize("training", [False, True])
def test_the_weights_can_learn(training: bool) -> None:
    """Of every state that is read, though its weight is 0 and whether or not the model is in training."""
    model = rewired(backbone()).train(training)
    model(input_ids=IDS, labels=IDS).loss.backward()
    scalars = {name: each.grad for name, each in model.named_parameters() if name.endswith(".scalars")}
    assert len(scalars) == 6
    for gradient in scalars.values():
        assert gradient is not None
        # The norm after the output is blind to how large the state is that it reads whole.
        assert bool((gradient[:-1].abs() > 1e-6).all())


def test_a_model_with_weights_is_refused() -> None:
    with pytest.raises(ModelError, match="give one of ltg"):
        rewired(ElcForMaskedLM(ElcConfig.of_size("tiny", variant="elc", vocab_size=40)))
