"""Every variant compared with a second implementation: values and gradients, with padding, short and long."""

import pytest
import torch
from torch import Tensor

from contracts.tiers import NIGHTLY
from layerwise.models import VARIANTS, ElcForMaskedLM
from models.published import as_published, logits, padded_batch, random_model

BAR = 1e-6
# Layers of three with trainable layer weights; the first of denseformer has none.
READERS = {"ltg": 0, "elc": 3, "elc-base": 3, "zero": 3, "normalized": 3, "weighted-output": 4, "denseformer": 3}
LONG = ("ltg", "elc", "denseformer")
"""Variants tested on 512 tokens too: without layer weights, with softmax, and without softmax."""


def difference(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def both(model: ElcForMaskedLM, variant: str, length: int, mistake: str = "") -> tuple[Tensor, Tensor]:
    ids, real = padded_batch(length)
    expected = logits(as_published(model), ids, real.bool(), variant=variant, heads=2, mistake=mistake)
    return model(ids, attention_mask=real).logits, expected


BY_LENGTH = pytest.mark.parametrize(
    ("variant", "length"),
    [
        *((variant, 128) for variant in VARIANTS),
        *(pytest.param(variant, 512, marks=pytest.mark.slow if variant in LONG else NIGHTLY) for variant in VARIANTS),
    ],
)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@BY_LENGTH
def test_a_variant_equals_its_equations(variant: str, length: int, implementation: str) -> None:
    model = random_model(variant)
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        found, expected = both(model, variant, length)
    assert difference(found, expected) < BAR


@BY_LENGTH
def test_gradients_equal_those_of_the_equations(variant: str, length: int) -> None:
    model = random_model(variant)
    found, expected = both(model, variant, length)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    parameters = dict(model.named_parameters())
    own = torch.autograd.grad((found * weights).sum(), list(parameters.values()), allow_unused=True)
    theirs = torch.autograd.grad((expected * weights).sum(), list(parameters.values()), allow_unused=True)
    scalars = [name for name in parameters if name.endswith("scalars")]
    assert len(scalars) == READERS[variant]
    for name, gradient, other in zip(parameters, own, theirs, strict=True):
        # A single source has weight one whatever its scalar.
        if float(other.abs().max()) > 1e-9:
            assert difference(gradient, other) < BAR, name
        else:
            assert float(gradient.abs().max()) < 1e-9, name


WRONG = [
    *(("elc", "elc", mistake) for mistake in ("the other direction", "scale", "no padding", "no softmax")),
    ("elc", "elc-base", ""),
    ("elc", "normalized", ""),
    ("denseformer", "zero", ""),
]


@pytest.mark.parametrize(("variant", "other", "mistake"), WRONG)
def test_a_mistake_in_the_equations_and_another_variant_would_be_seen(variant: str, other: str, mistake: str) -> None:
    with torch.no_grad():
        found, wrong = both(random_model(variant), other, 40, mistake)
    assert difference(found, wrong) > 1e-3


def test_a_text_of_padding_alone_has_numbers_and_gradients() -> None:
    ids, _ = padded_batch(9)
    for implementation in ("sdpa", "eager"):
        model = random_model("elc")
        model.set_attn_implementation(implementation)
        mask = torch.ones_like(ids)
        mask[0] = 0
        found = model(ids, attention_mask=mask).logits
        found.sum().backward()
        assert found.isfinite().all()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        alone = model(ids[1:], attention_mask=mask[1:]).logits
        assert torch.allclose(found[1:], alone, atol=1e-12)


def test_a_mask_of_pairs_is_the_mask_of_tokens_said_at_length() -> None:
    model = random_model("zero")
    ids, real = padded_batch(20)
    with torch.no_grad():
        by_token = model(ids, attention_mask=real).logits
        by_pair = model(ids, attention_mask=real[:, None, :].expand(-1, 20, -1)).logits
    assert torch.equal(by_token, by_pair)
