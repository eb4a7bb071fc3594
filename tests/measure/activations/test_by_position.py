import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from conftest import tiny_granite, tiny_llama
from layerwise.data.splits import Splits
from layerwise.measure.activations import attention_by_position as module
from layerwise.measure.activations.attention_by_position import attention_by_position, attention_sums, token_distances
from layerwise.measure.activations.by_position import (
    BASES,
    UNITS,
    branch_norms,
    draw_rotations,
    importance_by_position,
    probe_positions,
)
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.survey import EvaluationGrid, Survey
from layerwise.plan.edits import skip
from layerwise.stack import Stack, load
from measure.planted_classifiers import CLASSES, Idle, Listed, classifier, splits, turning
from train.tiny_models import tiny_vit

DEPTH = 3
CHANCE = torch.Generator().manual_seed(0)
PIXELS = torch.randn(12, 1, 8, 8, generator=CHANCE)
IMAGES = Listed([{"pixel_values": x, "labels": torch.tensor(0)} for x in PIXELS])
IDS = torch.randint(3, 97, (6, 7), generator=CHANCE)
TEXTS = Listed([{"input_ids": row, "labels": row} for row in IDS])


def collate(examples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return Splits("s", "d", IMAGES, IMAGES, IMAGES).collate(examples)


def vit() -> Stack:
    return load(tiny_vit(DEPTH))


@given(depth=st.integers(2, 13), seed=st.integers(0, 99))
def test_rotations_place_every_layer_at_every_position(depth: int, seed: int) -> None:
    plans = draw_rotations(depth, str(seed))
    pairs = [(layer, position) for plan in plans for position, layer in enumerate(plan.order())]
    assert sorted(pairs) == [(layer, position) for layer in range(depth) for position in range(depth)]
    assert plans == draw_rotations(depth, str(seed))


@pytest.mark.parametrize(("model", "examples"), [(tiny_vit, IMAGES), (tiny_granite, TEXTS)])
def test_norms_are_of_residual_updates(model: Any, examples: Listed) -> None:
    """Granite multiplies what its branches return."""
    stack = load(model(DEPTH))
    expected: dict[tuple[int, int, str], list[float]] = defaultdict(list)
    with torch.inference_mode():
        inputs = collate(examples.examples)
        del inputs["labels"]
        captured = stack.capture(**inputs)
        for plan in (plan for base in range(BASES) for plan in draw_rotations(DEPTH, f"0/rotations/{base}")):
            state = captured.state
            for position, layer in enumerate(plan.order()):
                middle, after = stack.apply(layer, state, captured, "attn"), stack.apply(layer, state, captured)
                added = {"attn": middle - state, "mlp": after - middle, "share": after - state}
                for name, change in added.items():
                    norms = change.norm(dim=-1) / (state.norm(dim=-1) if name == "share" else 1)
                    expected[layer, position, name].append(float(norms.mean()))
                state = after
    rows, notes = branch_norms(stack, "variant", examples, collate)
    assert notes == []
    assert len(rows) == 3 * DEPTH**2
    for row in rows:
        assert row.value == pytest.approx(np.mean(expected[row.layer, row.position, row.part or row.metric]), rel=1e-4)
        assert row.variant == "variant"


def test_padding_is_excluded() -> None:
    stack = load(tiny_llama(DEPTH))
    lengths = (3, 5, 12)
    texts = [torch.randint(3, 97, (length,), generator=torch.Generator().manual_seed(length)) for length in lengths]
    examples = [{"input_ids": row, "labels": row} for row in texts]
    together, _ = branch_norms(stack, "together", Listed(examples), collate)
    alone = [branch_norms(stack, "alone", Listed([example]), collate)[0] for example in examples]
    for row, *each in zip(together, *alone, strict=True):
        expected = sum(length * own.value for length, own in zip(lengths, each, strict=True)) / sum(lengths)
        # Float32 through three layers rounds by some tens of units.
        assert row.value == pytest.approx(expected, rel=1e-5), row.key


def test_unsplit_layers_have_a_note() -> None:
    found = splits(8)
    rows, notes = branch_norms(turning(4), "turning", found.test, found.collate)
    assert {row.metric for row in rows} == {"share"}
    assert len(rows) == 16
    assert len(notes) == 1
    assert notes[0].measure == "branches"
    assert notes[0].text.startswith("turning: ")


def test_attention_matches_a_vit_in_plain_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCHES", 1)
    stack = vit()
    before = stack.model.config._attn_implementation
    rows, notes = attention_by_position(stack, "vit", IMAGES, collate)
    assert notes == []
    assert stack.model.config._attn_implementation == before
    found = {(row.layer, row.position, row.metric, row.against): row.value for row in rows}
    assert len(found) == 5 * DEPTH**2
    with torch.inference_mode():
        for plan in draw_rotations(DEPTH, "0/attention/0"):
            state = stack.model.vit.embeddings(PIXELS)
            for position, layer in enumerate(plan.order()):
                block = stack.block(layer)
                query, key = (
                    linear(block.layernorm_before(state)).view(len(PIXELS), 5, 2, 8).transpose(1, 2)
                    for linear in (block.attention.q_proj, block.attention.k_proj)
                )
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


def test_uniform_attention_matches_its_null() -> None:
    weights = torch.full((2, 3, 10, 10), 0.1)
    sums = attention_sums(weights, {"pixel_values": torch.zeros(2)})
    means = {metric: above / below for metric, (above, below) in sums.items()}
    assert means["entropy", None] == pytest.approx(1.0)
    assert means["first", None] == pytest.approx(means["first", "uniform"]) == pytest.approx(0.1)
    assert means["distance", None] == pytest.approx(means["distance", "uniform"])
    assert token_distances(11, is_image=True) is None


def test_masked_tokens_are_excluded() -> None:
    weights = torch.ones(1, 1, 4, 4).tril()
    weights = weights / weights.sum(dim=-1, keepdim=True)
    sums = attention_sums(weights, {"attention_mask": torch.tensor([[1, 1, 1, 0]])})
    # The first query sees one key and has nothing to spread; the last is padding.
    assert sums["entropy", None] == pytest.approx((math.log(2) + math.log(3), math.log(2) + math.log(3)))
    assert sums["first", None] == pytest.approx((1 / 2 + 1 / 3, 2.0))
    assert sums["distance", None] == pytest.approx((0.5 + 1.0, 2.0))


def test_missing_attention_gives_a_note() -> None:
    found = splits(8)
    rows, notes = attention_by_position(turning(4), "turning", found.test, found.collate)
    assert rows == []
    assert [note.text for note in notes] == ["turning: the model does not return the attention of every layer"]


QUESTIONS = EvaluationGrid(draws=8)
PROBED = 4


class Raising(nn.Module):
    def forward(self, state: Tensor) -> Tensor:
        raised = (state[:, 0, CLASSES:] > 1.0).sum(dim=1)
        state = state.clone()
        for image, count in enumerate(raised):
            state[image, 0, CLASSES + int(count)] = 5.0
        return state


def accuracy(stack: Stack) -> float:
    images = splits(64)
    found = probe_positions(stack, images.validation, images.test, images.collate, QUESTIONS.batch_size, QUESTIONS.seed)
    assert sorted(found) == list(range(PROBED))
    assert all(answers.shape == (2, 8) for answers in found.values())
    right, asked = np.sum(list(found.values()), axis=(0, 2))
    assert asked == PROBED * 64
    return float(right / asked)


def test_encoded_position_is_predicted() -> None:
    assert accuracy(classifier([Raising() for _ in range(PROBED)])) == 1.0


def test_states_without_position_give_chance() -> None:
    # Three standard deviations of a share of 64 images.
    assert abs(accuracy(classifier([Idle() for _ in range(PROBED)])) - 1 / PROBED) < 0.15


SPLITS = splits(24)


def test_importance_is_the_loss_without_the_layer_at_its_position() -> None:
    stack = turning(3)
    tables = importance_by_position(stack, SPLITS.test, SPLITS.collate, seed=2)
    dealt = [index for unit in range(UNITS) for index in range(24)[unit::UNITS]]
    for unit in range(UNITS):
        part = [SPLITS.test[index] for index in dealt[3 * unit : 3 * unit + 3]]
        for plan in draw_rotations(3, f"2/worth/{unit}"):
            whole = evaluate(stack, plan, part, SPLITS.collate).mean_nll
            for position, layer in enumerate(plan.order()):
                without = evaluate(stack, skip(plan, layer), part, SPLITS.collate).mean_nll
                assert tables.importance[unit, layer, position] == pytest.approx(without - whole, rel=1e-3, abs=1e-5)


def test_survey_stores_the_tables(tmp_path) -> None:  # type: ignore[no-untyped-def]
    tables = importance_by_position(turning(3), SPLITS.test, SPLITS.collate)
    Survey(3, {}, tables=tables).save(tmp_path / "survey.npz")
    kept = Survey.read(tmp_path / "survey.npz").tables
    assert np.array_equal(kept.importance, tables.importance)
    assert np.array_equal(kept.added, tables.added)
    Survey(3, {}).save(tmp_path / "bare.npz")
    assert Survey.read(tmp_path / "bare.npz").tables is None
