"""Span masking: the share, the spans, the replacements, and that the index decides all of it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import Generator, Philox, SeedSequence

from layerwise.data.batches import IGNORED
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode
from layerwise.data.text.segments import cut
from layerwise.data.text.span_masking import (
    LONGEST,
    Draw,
    FixedMasks,
    MaskedSegments,
    SpanMasking,
    uniforms,
)
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.errors import DataError

TOKENIZER = train_wordpiece(["The cat saw the dog. It ran."] * 20, vocabulary=300)
MASKING = SpanMasking.of(TOKENIZER)
SPECIAL = np.array(sorted(TOKENIZER.all_special_ids))
TEXT = encode(TOKENIZER, [Document(str(n), f"The cat {n} saw the dog. It ran. " * 9) for n in range(8)])
SEGMENTS, LONG = cut(TEXT, 48), cut(TEXT, 96)


def drawn(ids: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed).random((1, MASKING.numbers(len(ids))))
    shown, asked = MASKING.draw(ids[None], np.array([len(ids)]), random)
    return shown[0], asked[0]


segments = st.lists(st.integers(0, len(TOKENIZER) - 1), min_size=1, max_size=200).map(np.array)
seeds = st.integers(0, 2**32)


def reference(ids: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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
    # The normal difference of two means passes 5 standard errors, for 60 statistics, once in 29,000 seeds.
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


def test_spans_are_geometric_and_never_empty() -> None:
    spans = MASKING._spans(np.random.default_rng(0).random((1, 300_000)))[0]
    lengths = np.bincount(spans)[:-1]  # the last one is cut by the end of the segment
    assert lengths.min() == 1
    assert lengths.max() == LONGEST
    stop = 1 / 3
    expected = np.array([stop * (1 - stop) ** (n - 1) for n in range(1, LONGEST)] + [(1 - stop) ** (LONGEST - 1)])
    found = np.bincount(lengths, minlength=LONGEST + 1)[1:] / len(lengths)
    assert np.abs(found - expected).max() < 0.006


def test_a_share_or_a_stop_that_is_none_is_refused() -> None:
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(DataError, match="between 0 and 1"):
            SpanMasking.of(TOKENIZER, share)
    for stop in (0.0, 1.5):
        with pytest.raises(DataError, match="above 0 and up to 1"):
            SpanMasking.of(TOKENIZER, stop=stop)


def test_random_numbers_are_one_stream_wherever_it_is_entered() -> None:
    for count in (1, 4, 6):
        stream = Generator(Philox(SeedSequence((3, 1)))).random((40, -(-count // 4) * 4))[:, :count]
        for indices in ([0], [39], [5, 6, 7], [7, 8, 2, 3, 3, 30], list(range(40))):
            assert (uniforms((3, 1), indices, count) == stream[indices]).all()
    assert not np.isin(*(uniforms((3, key), [0], 64) for key in (1, 2))).any()


def test_seed_and_index_decide_a_training_example() -> None:
    read, again, other = (MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=seed) for seed in (3, 3, 4))
    one, same = read[Draw(48, 0, 5, 1)], again[Draw(48, 0, 5, 1)]
    assert all(torch.equal(one[name], same[name]) for name in one)
    for another in (read[Draw(48, 0, 6, 1)], read[Draw(48, 0, 5, 2)], other[Draw(48, 0, 5, 1)]):
        assert not torch.equal(one["labels"], another["labels"])


def test_one_training_segment_in_ten_is_cut_short_and_all_stand_between_start_and_end() -> None:
    read = MaskedSegments([SEGMENTS], MASKING, TOKENIZER, seed=0)
    whole = len(SEGMENTS.ids([0])[0]) + 2
    examples = read.__getitems__([Draw(48, 0, 0, slot) for slot in range(5_000)])
    lengths = np.array([len(each["input_ids"]) for each in examples])
    assert (lengths < whole).mean() == pytest.approx(0.1, abs=0.02)
    assert set(lengths) == set(range(3, whole + 1))
    for each in examples[:50]:
        assert (each["input_ids"][0], each["input_ids"][-1]) == (TOKENIZER.cls_token_id, TOKENIZER.sep_token_id)
        assert each["labels"][0] == each["labels"][-1] == IGNORED


def test_held_out_masks_are_fixed_and_spread_over_the_text() -> None:
    whole, some = FixedMasks(SEGMENTS, MASKING, TOKENIZER), FixedMasks(SEGMENTS, MASKING, TOKENIZER, limit=5)
    assert len(whole) == len(SEGMENTS)
    assert some.numbers.tolist() == sorted(set(some.numbers.tolist()))
    assert (some.numbers[0], some.numbers[-1], len(some)) == (0, len(SEGMENTS) - 1, 5)
    for index, number in enumerate(some.numbers):
        assert torch.equal(some[index]["labels"], whole[int(number)]["labels"])
        assert some.owners[index] == whole.owners[number]
