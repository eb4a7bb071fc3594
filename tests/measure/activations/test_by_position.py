"""What a layer writes at each position: orders that are balanced, and norms that are what they say."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from conftest import tiny_granite, tiny_llama
from layerwise.data.splits import Splits
from layerwise.measure.activations.by_position import BASES, branch_norms, rotations
from layerwise.measure.activations.embedding import outputs_by_position
from layerwise.stack import Stack, load
from measure.planted_classifiers import Listed, splits, turning

DEPTH = 3
CHANCE = torch.Generator().manual_seed(0)
PIXELS = torch.randn(12, 1, 8, 8, generator=CHANCE)
IMAGES = Listed([{"pixel_values": x, "labels": torch.tensor(0)} for x in PIXELS])
IDS = torch.randint(3, 97, (6, 7), generator=CHANCE)
TEXTS = Listed([{"input_ids": row, "labels": row} for row in IDS])


def collate(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return Splits("s", "d", IMAGES, IMAGES, IMAGES).collate(examples)


def vit() -> Stack:
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=8, patch_size=4, num_channels=1, hidden_size=16, intermediate_size=32, num_hidden_layers=DEPTH,
        num_attention_heads=2, num_labels=4, initializer_range=0.3,
    )  # fmt: skip
    return load(ViTForImageClassification(config).eval())


@pytest.fixture
def granite() -> Stack:
    return load(tiny_granite(DEPTH))


# Orders


@given(depth=st.integers(2, 13), bases=st.integers(1, 4), seed=st.integers(0, 99))
def test_every_layer_stands_at_every_position_equally_often(depth: int, bases: int, seed: int) -> None:
    plans = rotations(depth, bases, seed)
    assert len(plans) == bases * depth
    stood = Counter((layer, position) for plan in plans for position, layer in enumerate(plan.order()))
    assert stood == {(layer, position): bases for layer in range(depth) for position in range(depth)}


def test_the_first_orders_are_random_and_drawn_from_the_seed() -> None:
    assert rotations(8, 2, seed=0) == rotations(8, 2, seed=0)
    assert rotations(8, 2, seed=0) != rotations(8, 2, seed=1)
    bases = [plan.order() for plan in rotations(8, 2, seed=0)[::8]]
    assert bases[0] != bases[1]
    assert tuple(range(8)) not in bases


# Norms


def test_norms_are_those_of_a_vit_written_out() -> None:
    stack = vit()
    expected: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    with torch.inference_mode():
        for plan in rotations(DEPTH, BASES, 0):
            state = stack.model.vit.embeddings(PIXELS)
            for position, layer in enumerate(plan.order()):
                block = stack.block(layer)
                attn = block.attention(block.layernorm_before(state))
                attn = attn[0] if isinstance(attn, tuple) else attn
                middle = state + attn
                after = block(state)
                after = after[0] if isinstance(after, tuple) else after
                expected[layer, position, "attn"].append(float(attn.norm(dim=-1).mean()))
                expected[layer, position, "mlp"].append(float((after - middle).norm(dim=-1).mean()))
                share = (after - state).norm(dim=-1) / state.norm(dim=-1)
                expected[layer, position, "share"].append(float(share.mean()))
                state = after
    rows, notes = branch_norms(stack, "vit", IMAGES, collate)
    assert notes == []
    assert len(rows) == 3 * DEPTH**2
    for row in rows:
        assert row.value == pytest.approx(np.mean(expected[row.layer, row.other, row.part or row.metric]), rel=1e-4)
        assert row.arm == "vit"


def test_padding_is_no_token() -> None:
    """Of texts of 3 to 12 tokens in one batch the norms are those of every text alone, token by token."""
    stack = load(tiny_llama(DEPTH))
    lengths = (3, 5, 12)
    texts = [torch.randint(3, 97, (length,), generator=torch.Generator().manual_seed(length)) for length in lengths]
    examples = [{"input_ids": row, "labels": row} for row in texts]
    together, _ = branch_norms(stack, "together", Listed(examples), collate)
    alone = [branch_norms(stack, "alone", Listed([example]), collate)[0] for example in examples]
    for row, *each in zip(together, *alone, strict=True):
        expected = sum(length * own.value for length, own in zip(lengths, each, strict=True)) / sum(lengths)
        # Float32 through three layers: some tens of units of rounding.
        assert row.value == pytest.approx(expected, rel=1e-5), row.key


def test_what_is_added_is_what_reaches_the_stream(granite: Stack) -> None:
    """Granite multiplies the output of a branch by a residual multiplier before it adds it."""
    expected: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    with torch.inference_mode():
        captured = granite.capture(input_ids=IDS)
        for plan in rotations(DEPTH, BASES, 0):
            state = captured.state
            for position, layer in enumerate(plan.order()):
                middle = granite.apply(layer, state, captured, "attn")
                after = granite.apply(layer, state, captured)
                expected[layer, position, "attn"].append(float((middle - state).norm(dim=-1).mean()))
                expected[layer, position, "mlp"].append(float((after - middle).norm(dim=-1).mean()))
                state = after
    rows, _ = branch_norms(granite, "granite", TEXTS, collate)
    found = {(row.layer, row.other, row.part): row.value for row in rows}
    for (layer, position, part), values in expected.items():
        assert found[layer, position, part] == pytest.approx(np.mean(values), rel=1e-4)


def test_layers_that_cannot_be_split_have_their_share_and_a_note() -> None:
    found = splits(8)
    rows, notes = branch_norms(turning(4), "turning", found.test, found.collate)
    assert {row.metric for row in rows} == {"share"}
    assert len(rows) == 16
    assert len(notes) == 1
    assert notes[0].measure == "branches"
    assert notes[0].text.startswith("turning: ")


def test_nothing_stays_on_the_model() -> None:
    stack = vit()
    before = stack.model(PIXELS).logits
    branch_norms(stack, "vit", IMAGES, collate)
    outputs_by_position(stack, [1], IMAGES, collate, count=4)
    hooks = [hook for module in stack.model.modules() for hook in module._forward_hooks.values()]
    assert hooks == []
    assert torch.equal(stack.model(PIXELS).logits, before)
