"""Attention by position: sums that are those of attention written out, and models that do not give it."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from layerwise.data.splits import Splits
from layerwise.measure.activations import attention_by_position as module
from layerwise.measure.activations.attention_by_position import attention_by_position, attention_sums, distances_of
from layerwise.measure.activations.by_position import rotations_of
from layerwise.stack import load
from measure.planted_classifiers import Listed, splits, turning

DEPTH = 3
PIXELS = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
IMAGES = Listed([{"pixel_values": x, "labels": torch.tensor(0)} for x in PIXELS])


def collate(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return Splits("s", "d", IMAGES, IMAGES, IMAGES).collate(examples)


def test_attention_is_that_of_a_vit_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCHES", 1)
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=16, intermediate_size=32, num_hidden_layers=DEPTH,
        num_attention_heads=2, num_labels=4, initializer_range=0.5,
    )  # fmt: skip
    stack = load(ViTForImageClassification(config).eval())
    before = stack.model.config._attn_implementation
    rows, notes = attention_by_position(stack, "vit", IMAGES, collate)
    assert notes == []
    assert stack.model.config._attn_implementation == before
    found = {(row.layer, row.other, row.metric, row.against): row.value for row in rows}
    assert len(found) == 5 * DEPTH**2
    with torch.inference_mode():
        for plan in rotations_of(DEPTH, "0/attention/0"):
            state = stack.model.vit.embeddings(PIXELS)
            for position, layer in enumerate(plan.order()):
                block = stack.block(layer)
                attention = block.attention
                query, key = (
                    linear(block.layernorm_before(state)).view(4, 5, 2, 8).transpose(1, 2)
                    for linear in (attention.attention.query, attention.attention.key)
                ) if hasattr(attention, "attention") else (
                    linear(block.layernorm_before(state)).view(4, 5, 2, 8).transpose(1, 2)
                    for linear in (attention.q_proj, attention.k_proj)
                )  # fmt: skip
                weights = (query @ key.transpose(2, 3) / math.sqrt(8)).softmax(dim=-1)
                entropy = -(weights * weights.log()).sum(dim=-1).mean() / math.log(5)
                assert found[layer, position, "entropy", None] == pytest.approx(float(entropy), rel=1e-4)
                assert found[layer, position, "first", None] == pytest.approx(
                    float(weights[:, :, 1:, 0].mean()), rel=1e-4
                )
                inner = weights.mean(dim=1)[:, 1:, 1:]
                grid = torch.tensor([[0, 1, 1, 2**0.5], [1, 0, 2**0.5, 1], [1, 2**0.5, 0, 1], [2**0.5, 1, 1, 0]])
                far = ((inner * grid).sum(dim=-1) / inner.sum(dim=-1)).mean()
                assert found[layer, position, "distance", None] == pytest.approx(float(far), rel=1e-4)
                state = block(state)
                state = state[0] if isinstance(state, tuple) else state
    assert found[0, 0, "first", "uniform"] == pytest.approx(1 / 5)
    assert found[0, 0, "distance", "uniform"] == pytest.approx((2 + 2**0.5) / 4)


def test_attention_spread_evenly_is_that_of_its_null() -> None:
    weights = torch.full((2, 3, 10, 10), 0.1)
    sums = attention_sums(weights, {"pixel_values": torch.zeros(2)})
    means = {metric: above / below for metric, (above, below) in sums.items()}
    assert means["entropy", None] == pytest.approx(1.0)
    assert means["first", None] == pytest.approx(means["first", "uniform"]) == pytest.approx(0.1)
    assert means["distance", None] == pytest.approx(means["distance", "uniform"])


def test_of_a_text_only_what_is_seen_counts() -> None:
    """A causal mask, and a text whose last token is padding."""
    weights = torch.ones(1, 1, 4, 4).tril()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    sums = attention_sums(weights, {"attention_mask": torch.tensor([[1, 1, 1, 0]])})
    # The first query sees one key and has nothing to spread; the last is padding.
    assert sums["entropy", None] == pytest.approx((math.log(2) + math.log(3), math.log(2) + math.log(3)))
    assert sums["first", None] == pytest.approx((1 / 2 + 1 / 3, 2.0))
    assert sums["distance", None] == pytest.approx((0.5 + 1.0, 2.0))


def test_distances() -> None:
    assert distances_of(1 + 14 * 14, is_image=True) is not None
    assert distances_of(11, is_image=True) is None
    steps = distances_of(3, is_image=False)
    assert steps is not None
    assert steps.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]


def test_a_model_that_does_not_give_its_attention_has_a_note() -> None:
    found = splits(8)
    rows, notes = attention_by_position(turning(4), "turning", found.test, found.collate)
    assert rows == []
    assert [note.text for note in notes] == ["turning: the model does not give the attention of every layer"]
