"""What is masked: the share, the spans, what is shown in their place, and that the index decides all of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.batches import IGNORED
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode
from layerwise.data.text.segments import cut
from layerwise.data.text.span_masking import LONGEST, Draw, FixedMasks, MaskedSegments, Padding, SpanMasking
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.errors import DataError

TOKENIZER = train_wordpiece(["The cat saw the dog. It ran."] * 20, vocabulary=300)
MASKING = SpanMasking.of(TOKENIZER)
SPECIAL = np.array(sorted(TOKENIZER.all_special_ids))
TEXT = encode(TOKENIZER, [Document(str(n), f"The cat {n} saw the dog. It ran. " * 9) for n in range(8)])
SEGMENTS, LONG = cut(TEXT, 48), cut(TEXT, 96)


def drawn(ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What is shown of one segment and asked about it."""
    random = np.random.default_rng(seed).random((1, MASKING.numbers(len(ids))))
    shown, asked = MASKING.draw(ids[None], np.array([len(ids)]), random)
    return shown[0], asked[0]


segments = st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=200).map(np.array)
seeds = st.integers(0, 2**32)


def reference(ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The masking of one segment, step by step as the module describes it."""
    shown, asked = ids.copy(), np.full_like(ids, IGNORED)
    candidates = np.isin(ids, MASKING.ordinary)
    count = int(candidates.sum())
    if count == 0:
        return shown, asked
    budget = min(count, max(1, int(MASKING.share * count + random.random())))
    lengths = np.minimum(random.geometric(MASKING.stop, size=len(ids)), LONGEST)
    span = np.repeat(np.arange(len(ids)), lengths)[: len(ids)]
    in_order = np.argsort(random.permutation(span[-1] + 1)[span], kind="stable")
    chosen = in_order[candidates[in_order]][:budget]
    coins = random.random(span[-1] + 1)[span[chosen]]
    asked[chosen] = ids[chosen]
    shown[chosen[coins < 0.8]] = MASKING.mask
    replaced = chosen[(coins >= 0.8) & (coins < 0.9)]
    shown[replaced] = random.choice(MASKING.ordinary, size=len(replaced))
    return shown, asked


def statistics(ids: np.ndarray, shown: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Numbers (rows, statistics) of each masked row: where it is masked, in runs of which lengths, and shown how."""
    masked = asked != IGNORED
    fates = [
        masked & (shown == MASKING.mask),
        masked & (shown != MASKING.mask) & (shown != ids),
        masked & (shown == ids),
    ]
    edges = np.diff(np.pad(masked, ((0, 0), (1, 1))).astype(int), axis=1)
    (row, begin), (_, end) = np.nonzero(edges == 1), np.nonzero(edges == -1)
    runs = np.zeros((len(ids), LONGEST + 1))
    np.add.at(runs, (row, np.minimum(end - begin, LONGEST + 1) - 1), 1)
    both = masked[:, 1:] & masked[:, :-1]
    changes = [(both & (fate[:, 1:] != fate[:, :-1])).sum(axis=1) for fate in fates]
    ends = [ids * masked, np.where(fates[1], shown, 0)]  # which tokens are asked about, and shown at random
    return np.column_stack([masked, runs, *(each.sum(axis=1) for each in (masked, *fates, *ends)), *changes])


def test_whole_batches_are_masked_as_segments_are_one_by_one() -> None:
    # Means over independent rows. Where both have the same law their difference is normal about 0, and one beyond 5
    # standard errors comes once in 1.7 million: of 60 statistics, once in 29,000 seeds.
    rows, width = 4_000, 40
    random = np.random.default_rng(5)
    ids = np.tile(random.integers(0, len(TOKENIZER), width), (rows, 1))
    ids[:, ::7] = SPECIAL[0]
    batch = MASKING.draw(ids, np.full(rows, width), random.random((rows, MASKING.numbers(width))))
    single = [np.stack(each) for each in zip(*(reference(row, random) for row in ids), strict=True)]
    found, expected = (statistics(ids, *each) for each in (batch, single))
    error = np.sqrt((found.var(axis=0) + expected.var(axis=0)) / rows)
    assert found.shape[1] == 60
    assert (np.abs(found.mean(axis=0) - expected.mean(axis=0)) <= 5 * error).all()


def test_a_row_is_masked_alike_beside_any_others() -> None:
    read = MaskedSegments([SEGMENTS, LONG], MASKING, TOKENIZER, seed=1)
    draws = [Draw(48, 0, 5, 7), Draw(48, 3, 5, 8), Draw(48, 1, 5, 2), Draw(96, 1, 5, 3), Draw(48, 2, 6, 9)]
    for together, draw in zip(read.__getitems__(draws), draws, strict=True):
        alone = read[draw]
        assert all(torch.equal(together[name], alone[name]) for name in alone)
    fixed = FixedMasks(SEGMENTS, MASKING, TOKENIZER)
    for together, index in zip(fixed.__getitems__([4, 0, 1]), (4, 0, 1), strict=True):
        assert torch.equal(together["labels"], fixed[index]["labels"])


@given(segments, seeds)
def test_what_is_asked_is_what_was_there(ids: np.ndarray, seed: int) -> None:
    shown, asked = drawn(ids, seed)
    masked = asked != IGNORED
    assert (asked[masked] == ids[masked]).all()
    assert (shown[~masked] == ids[~masked]).all()
    assert not np.isin(ids[masked], SPECIAL).any()
    assert np.isin(shown[masked], SPECIAL, invert=True)[shown[masked] != MASKING.mask].all()


@given(segments, seeds)
def test_the_share_is_met(ids: np.ndarray, seed: int) -> None:
    _, asked = drawn(ids, seed)
    ordinary = int((~np.isin(ids, SPECIAL)).sum())
    count = int((asked != IGNORED).sum())
    if ordinary == 0:
        assert count == 0
    else:
        assert max(1, int(0.15 * ordinary)) <= count <= max(1, int(0.15 * ordinary) + 1)


@given(segments, seeds)
def test_the_same_seed_draws_the_same(ids: np.ndarray, seed: int) -> None:
    one, two = (drawn(ids, seed) for _ in range(2))
    assert all((mine == other).all() for mine, other in zip(one, two, strict=True))


def test_spans_are_geometric_and_never_empty() -> None:
    spans = MASKING._spans(np.random.default_rng(0).random((1, 300_000)))[0]
    lengths = np.bincount(spans)[:-1]  # the last one is cut by the end of the segment
    assert lengths.min() == 1
    assert lengths.max() == LONGEST
    stop = 1 / 3
    expected = np.array([stop * (1 - stop) ** (n - 1) for n in range(1, LONGEST)] + [(1 - stop) ** (LONGEST - 1)])
    found = np.bincount(lengths, minlength=LONGEST + 1)[1:] / len(lengths)
    assert np.abs(found - expected).max() < 0.006


def test_eight_spans_of_ten_are_masks_one_is_random_and_one_is_left() -> None:
    ids = np.full(400_000, 20)
    shown, asked = drawn(ids, 1)
    masked = asked != IGNORED
    share = (shown[masked] == MASKING.mask).mean(), (shown[masked] == 20).mean()
    assert share == pytest.approx((0.8, 0.1), abs=0.01)  # a random token is the right one 1 time in 293
    random = shown[masked & (shown != MASKING.mask) & (shown != 20)]
    assert set(random) == set(MASKING.ordinary) - {20}


def test_a_span_has_one_fate() -> None:
    # Chance alone would change the fate between neighbours that are both masked in about a third of cases.
    ids = np.full(200_000, 20)
    shown, asked = drawn(ids, 2)
    masked = asked != IGNORED
    both = masked[1:] & masked[:-1]
    is_mask = shown == MASKING.mask
    changes = (is_mask[1:] != is_mask[:-1])[both].mean()
    assert changes < 0.1


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(DataError, match="between 0 and 1"):
        SpanMasking.of(TOKENIZER, share)


@pytest.mark.parametrize("stop", [0.0, 1.5])
def test_a_stop_that_is_no_chance_is_refused(stop: float) -> None:
    with pytest.raises(DataError, match="above 0 and up to 1"):
        SpanMasking.of(TOKENIZER, stop=stop)


def test_the_index_decides_a_training_example() -> None:
    read = MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=3)
    one, same = read[Draw(48, 0, 5, 1)], MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=3)[Draw(48, 0, 5, 1)]
    assert all(torch.equal(one[name], same[name]) for name in one)
    others = [read[Draw(48, 0, 6, 1)], read[Draw(48, 0, 5, 2)]]
    others.append(MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=4)[Draw(48, 0, 5, 1)])
    assert all(not torch.equal(one["labels"], other["labels"]) for other in others)


def test_one_training_segment_in_ten_is_cut_short() -> None:
    read = MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=0)
    whole = len(SEGMENTS.ids(0)) + 2
    drawn = read.__getitems__([Draw(48, 0, 0, slot) for slot in range(5_000)])
    lengths = np.array([len(each["input_ids"]) for each in drawn])
    assert (lengths < whole).mean() == pytest.approx(0.1, abs=0.02)
    assert lengths.min() == 3
    assert set(lengths) == set(range(3, whole + 1))


def test_examples_stand_between_start_and_end() -> None:
    example = MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=0)[Draw(48, 1, 0, 0)]
    assert (example["input_ids"][0], example["input_ids"][-1]) == (TOKENIZER.cls_token_id, TOKENIZER.sep_token_id)
    assert example["labels"][0] == example["labels"][-1] == IGNORED


def test_held_out_masks_are_fixed_and_spread_over_the_text() -> None:
    whole, some = FixedMasks(SEGMENTS, MASKING, TOKENIZER), FixedMasks(SEGMENTS, MASKING, TOKENIZER, limit=5)
    assert len(whole) == len(SEGMENTS)
    assert some.numbers.tolist() == sorted(set(some.numbers.tolist()))
    assert (some.numbers[0], some.numbers[-1], len(some)) == (0, len(SEGMENTS) - 1, 5)
    for index, number in enumerate(some.numbers):
        assert torch.equal(some[index]["labels"], whole[int(number)]["labels"])
        assert some.owners[index] == whole.owners[number]


def test_padding_is_masked_and_asks_nothing() -> None:
    rows = [{"input_ids": torch.arange(n), "labels": torch.arange(n)} for n in (3, 9)]
    batch = Padding(pad=77)(rows)
    assert {name: tuple(tensor.shape) for name, tensor in batch.items()} == {
        "input_ids": (2, 16), "attention_mask": (2, 16), "labels": (2, 16),
    }  # fmt: skip
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 9]
    padding = batch["attention_mask"] == 0
    assert (batch["input_ids"][padding] == 77).all()
    assert (batch["labels"][padding] == IGNORED).all()
