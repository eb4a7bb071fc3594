"""Minibatches: every window once, little padding, and the very targets of the reading."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data.batches import LabelledBatch, batches, item
from layerwise.data.text.tokens import Window
from layerwise.measure.language.evaluation_data import EvalData, minibatches


def reading(lengths: list[int]) -> EvalData:
    windows = [
        Window(f"d{number}", "text", 0, tuple(range(3, 3 + length)), 1, length) for number, length in enumerate(lengths)
    ]
    return EvalData("r", "0", 64, "next_token", batches(windows, 1024, 0))


@settings(deadline=None)
@given(st.lists(st.integers(2, 64), min_size=1, max_size=20), st.integers(1, 200))
def test_every_window_once_and_little_padding(lengths: list[int], tokens: int) -> None:
    made = minibatches(reading(lengths), tokens)
    found = sorted(len(window.ids) for batch in made for window in batch.windows)
    assert found == sorted(lengths)
    for batch in made:
        assert batch.size <= tokens or len(batch.windows) == 1
        assert batch.size <= 2 * sum(len(window.ids) for window in batch.windows)


def test_targets_are_those_of_the_reading() -> None:
    whole = reading([9, 5, 5, 2])
    own = {
        window: batch.targets[row, : len(window.ids)]
        for batch in whole.batches
        for row, window in enumerate(batch.windows)
    }
    for batch in minibatches(whole, 12):
        for row, window in enumerate(batch.windows):
            assert torch.equal(batch.targets[row, : len(window.ids)], own[window])


def test_labelled_items_fill_one_position_each() -> None:
    windows = tuple(item(f"image-{number}") for number in range(5))
    labelled = LabelledBatch({"pixel_values": torch.arange(5.0)[:, None]}, torch.arange(5), windows)
    made = minibatches(EvalData("r", "0", 1, None, (labelled,)), 2)
    assert [batch.size for batch in made] == [2, 2, 1]
    assert torch.cat([batch.targets for batch in made]).tolist() == [0, 1, 2, 3, 4]
