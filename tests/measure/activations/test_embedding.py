import numpy as np
import pytest
import torch

from conftest import tiny_llama
from layerwise.data.splits import sample
from layerwise.errors import MeasureError
from layerwise.measure.activations import embedding as module
from layerwise.measure.activations.by_position import draw_rotations
from layerwise.measure.activations.embedding import EmbeddingOptions, embedding, outputs_by_position
from layerwise.stack import load
from measure.activations.test_by_position import IDS, TEXTS, collate
from measure.planted_classifiers import CLASSES, splits, turning


def test_outputs_are_of_the_first_token_by_layer_and_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCHES", 2)
    stack, found = turning(4), splits(10)
    states = outputs_by_position(stack, [1, 3], found.test, found.collate, count=6, seed=3)
    assert states.shape == (2, 4, 6, 16)
    chosen = sample(found.test, 6, 3)
    pixels = torch.stack([found.test[index]["pixel_values"] for index in chosen]).clone()
    pixels[..., CLASSES:] /= 10_000
    for number in range(2):  # six images in two batches, each with an order of its own
        part = slice(3 * number, 3 * number + 3)
        for plan in draw_rotations(4, f"3/embedding/{number}"):
            state = pixels[part]
            with torch.inference_mode():
                for position, layer in enumerate(plan.order()):
                    state = stack.block(layer)(state)
                    if layer in (1, 3):
                        at = (1, 3).index(layer)
                        np.testing.assert_allclose(states[at, position, part], state[:, 0].numpy(), rtol=1e-5)


def test_outputs_of_texts_are_token_means() -> None:
    stack = load(tiny_llama(3))
    states = outputs_by_position(stack, [0], TEXTS, collate, count=6)
    with torch.inference_mode():
        for number, plans in enumerate(draw_rotations(3, f"0/embedding/{number}") for number in range(6)):
            first = next(plan for plan in plans if plan.order()[0] == 0)
            assert first.order()[0] == 0
            captured = stack.capture(input_ids=IDS[number : number + 1])
            expected = stack.apply(0, captured.state, captured).mean(dim=1)
            np.testing.assert_allclose(states[0, 0, number], expected[0].numpy(), rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("flat")
def test_every_image_layer_and_position_has_a_point() -> None:
    stack, found = turning(4), splits(10)
    rows, notes = embedding(stack, "turning", found.test, found.collate, EmbeddingOptions(6))
    assert notes == []
    facts = {row.metric: row.value for row in rows if row.layer is None and row.against is None}
    assert {"images": 6.0, "layers": 4.0, "points": 96.0}.items() <= facts.items()
    states = outputs_by_position(stack, range(4), found.test, found.collate, count=6)
    points = {(row.example, row.layer, row.position, row.metric): row.value for row in rows if row.layer is not None}
    assert len(points) == 4 * 4 * 6 * 2
    for layer, position, image in np.ndindex(4, 4, 6):
        xy = tuple(points[image, layer, position, axis] for axis in "xy")
        assert xy == pytest.approx(tuple(states[layer, position, image, :2]))


@pytest.mark.usefixtures("flat")
def test_one_layer_and_a_subset_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    found = splits(10)
    monkeypatch.setattr(module, "MAX_POINTS", 12)
    rows, _ = embedding(turning(4), "turning", found.test, found.collate, EmbeddingOptions(10, (2,)))
    points = {(row.example, row.layer, row.position) for row in rows if row.metric == "x"}
    assert len(points) == 12
    assert {layer for _, layer, _ in points} == {2}
    assert {image for image, _, _ in points} == {0, 4, 9}
    facts = {row.metric: row.value for row in rows if row.layer is None and row.against is None}
    assert facts["points"] == 40
    assert "same_layer" not in facts
    with pytest.raises(MeasureError, match="between 0 and 3, got 4"):
        embedding(turning(4), "turning", found.test, found.collate, EmbeddingOptions(10, (4,)))


def test_neighbors_share_what_states_depend_on() -> None:
    draw = np.random.default_rng(0)
    noise = draw.standard_normal((3, 5, 20, 8)).astype(np.float32)
    by_position, by_layer = noise.copy() * 0.01, noise.copy() * 0.01
    by_position += 10 * np.arange(5, dtype=np.float32)[None, :, None, None]
    by_layer += 10 * np.arange(3, dtype=np.float32)[:, None, None, None]
    for states, position, layer in ((by_position, 1.0, 1 / 3), (by_layer, 1 / 5, 1.0), (noise, 1 / 5, 1 / 3)):
        shared = {(row.metric, row.against): row.value for row in module._neighbor_rows("variant", states, 0)}
        assert shared["same_position", None] == pytest.approx(position, abs=0.04)
        assert shared["same_layer", None] == pytest.approx(layer, abs=0.04)
        assert tuple(shared[metric, "chance"] for metric in ("same_position", "same_layer")) == (1 / 5, 1 / 3)


def test_missing_umap_gives_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_umap_installed", lambda: False)
    rows, notes = embedding(turning(4), "turning", splits(10).test, splits(10).collate)
    assert rows == []
    assert [note.text for note in notes] == ["UMAP is not installed: pip install umap-learn, and run again."]


@pytest.mark.usefixtures("flat")
def test_few_outputs_are_not_laid_out() -> None:
    rows, notes = embedding(turning(3), "turning", splits(5).test, splits(5).collate, EmbeddingOptions(5, (1,)))
    assert rows == []
    assert notes[0].text.startswith("turning: 5 examples at 3 positions are too few")
    assert embedding(turning(4), "turning", splits(4).test, splits(4).collate, EmbeddingOptions(4, (1,)))[0]


@pytest.mark.nightly
def test_umap_layout_is_deterministic() -> None:
    pytest.importorskip("umap")
    options = EmbeddingOptions(4, (2,))
    first, again = (embedding(turning(4), "turning", splits(4).test, splits(4).collate, options)[0] for _ in range(2))
    assert first == again
    assert len([row for row in first if row.layer is not None]) == 4 * 4 * 2
