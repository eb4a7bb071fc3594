import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from layerwise.data.batches import IGNORED, Batch, batches, regrouped
from layerwise.data.text import tokens
from layerwise.data.text.tokens import MASKED_SHARE, Window
from layerwise.errors import DataError

PAD, MASK = 0, 99


def window(number: int, length: int, scored_from: int = 1) -> Window:
    ids = tuple(random.Random(number).choices(range(1, 90), k=length))
    return Window(f"d{number}", "text", 0, ids, scored_from, length)


lengths = st.lists(st.integers(2, 30), min_size=1, max_size=25)


@given(lengths, st.integers(1, 100))
@settings(deadline=None)
def test_every_window_stands_in_one_batch_within_the_bound(lengths: list[int], bound: int) -> None:
    windows = [window(number, length) for number, length in enumerate(lengths)]
    made = batches(windows, bound, PAD)
    placed = [each for batch in made for each in batch.windows]
    assert sorted(placed, key=lambda each: each.document) == sorted(windows, key=lambda each: each.document)
    assert all(batch.input_ids.numel() <= bound or len(batch.windows) == 1 for batch in made)
    longest = [batch.input_ids.shape[1] for batch in made]
    assert longest == sorted(longest, reverse=True)
    for batch in made:
        for row, each in enumerate(batch.windows):
            assert batch.input_ids[row, : len(each.ids)].tolist() == list(each.ids)
            assert (batch.input_ids[row, len(each.ids) :] == PAD).all()
            assert batch.attention_mask[row].sum() == len(each.ids)
            assert batch.attention_mask[row, : len(each.ids)].all()


@given(lengths, st.data())
@settings(deadline=None)
def test_next_token_targets_sit_where_they_are_predicted(lengths: list[int], data: st.DataObject) -> None:
    windows = [window(number, length, data.draw(st.integers(1, length - 1))) for number, length in enumerate(lengths)]
    for batch in batches(windows, 64, PAD):
        for row, each in enumerate(batch.windows):
            expected = [IGNORED] * batch.input_ids.shape[1]
            for position in range(each.scored_from, each.scored_until):
                expected[position - 1] = each.ids[position]
            assert batch.targets[row].tolist() == expected
        assert torch.equal(batch.scored, batch.targets != IGNORED)
        assert batch.scored.sum() == sum(each.scored for each in batch.windows)


def masked(windows: list[Window], bound: int = 64, seed: int = 0) -> tuple[Batch, ...]:
    return batches([tokens.masked(each, seed) for each in windows], bound, PAD, MASK)


@given(lengths)
@settings(deadline=None)
def test_masked_targets_sit_on_the_masks_and_only_there(lengths: list[int]) -> None:
    for batch in masked([window(number, length) for number, length in enumerate(lengths)]):
        assert torch.equal(batch.scored, batch.input_ids == MASK)
        for row, each in enumerate(batch.windows):
            restored = torch.where(batch.scored[row], batch.targets[row], batch.input_ids[row])
            assert restored[: len(each.ids)].tolist() == list(each.ids)
            assert batch.scored[row].sum() == each.scored > 0
            assert not batch.scored[row, 0]


def test_about_fifteen_in_a_hundred_tokens_are_masked() -> None:
    (batch,) = masked([window(number, 201) for number in range(50)], bound=50 * 201)
    share = batch.scored.sum().item() / (50 * 200)
    assert abs(share - MASKED_SHARE) < 3 * (0.15 * 0.85 / 10_000) ** 0.5


def test_masks_belong_to_the_window_and_the_seed_not_to_the_batch() -> None:
    windows = [window(number, 20) for number in range(6)]

    def masks(batches: tuple[Batch, ...]) -> dict[str, list[int]]:
        return {
            each.document: batch.targets[row].tolist() for batch in batches for row, each in enumerate(batch.windows)
        }

    assert masks(masked(windows)) == masks(masked(windows[::-1], bound=200))
    assert masks(masked(windows, seed=1)) != masks(masked(windows, seed=2))


def test_nothing_to_batch_is_refused() -> None:
    with pytest.raises(DataError, match="no window"):
        batches([], 10, PAD)
    with pytest.raises(DataError, match="use 1 or more"):
        batches([window(1, 4)], 0, PAD)
    with pytest.raises(DataError, match="needs a mask token"):
        batches([tokens.masked(window(1, 4), 0)], 10, PAD)


@given(st.integers(3, 30), st.integers(1, 8), st.booleans())
@settings(deadline=None)
def test_a_beginning_keeps_the_targets_that_it_still_holds(length: int, scored: int, fills_in: bool) -> None:
    ids = (1, *window(0, length).ids, 2)
    whole = Window("d", "text", 0, ids, 1, 1 + length)
    whole = tokens.masked(whole, length) if fills_in else whole
    made = batches([whole, window(1, 4)] if not fills_in else [whole], 1000, PAD, MASK)
    beginning = whole.beginning(scored)
    (batch,) = regrouped(made, [whole], {whole: beginning})
    assert batch.windows == (beginning,)
    assert batch.scored.sum() == beginning.scored == min(scored, whole.scored)
    (before,) = [each for each in made if whole in each.windows]
    row = before.windows.index(whole)
    ends = beginning.scored_until - (0 if fills_in else 1)
    assert batch.targets[0, :ends].tolist() == before.targets[row, :ends].tolist()
    assert batch.input_ids[0, : beginning.scored_until].tolist() == (
        before.input_ids[row, : beginning.scored_until].tolist()
    )
    assert batch.input_ids[0, -1] == 2
