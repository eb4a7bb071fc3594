from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.data.batches import LabeledBatch, make_batches, make_item
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.tokens import Window, mask_window
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData, minibatches, refuse_too_little, sample, tokenize
from layerwise.measure.stats.grid import MIN_UNITS
from layerwise.plan import Plan
from layerwise.runner.reporter import describe_data
from layerwise.stack import load
from measure.planted_models import own_text
from tiny_tokenizers import word_tokenizer

PAD, MASK = 0, 99


def reading(*documents: list[int], fills_in: bool = False, answers: int = 0) -> EvalData:
    cut = [
        Window(f"d{number}", "text", index, tuple(range(3, 4 + scored)), 1, 1 + scored)
        for number, lengths in enumerate(documents)
        for index, scored in enumerate(lengths)
    ]
    cut += [Window(f"a{number}", "sums", 0, tuple(range(3, 13)), 9, 10) for number in range(answers)]
    if fills_in:
        cut = [mask_window(window, 0) for window in cut]
    objective = "masked_token" if fills_in else "next_token"
    return EvalData("r", "0", 512, objective, make_batches(cut, 2048, PAD, MASK), ("sums",) if answers else ())


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 200), min_size=1, max_size=9), min_size=1, max_size=12), st.integers(8, 900))
def test_sample_keeps_its_budget_and_supports_an_interval(documents: list[list[int]], tokens: int) -> None:
    whole = reading(*documents)
    some = sample(whole, tokens, 0)
    assert some.tokens <= tokens or some is whole
    assert some.units >= min(whole.units, MIN_UNITS)
    assert max(window.scored for window in some.windows) <= max(tokens // MIN_UNITS, max(map(max, documents)))
    names = Counter((window.document, window.index) for window in some.windows)
    assert max(names.values()) == 1


def test_small_budget_takes_the_start_of_many_documents() -> None:
    whole = reading([511] * 40)
    some = sample(whole, 600, 0)
    assert some.units == len(some.windows) == 8
    assert {window.scored for window in some.windows} == {75}
    assert some.documents == 1
    assert [window.document for window in sample(whole, 20 * 511, 0).windows] == ["d0"] * 20


def test_short_windows_and_answers_are_not_cut() -> None:
    whole = reading([5], [400], [9], answers=20)
    some = sample(whole, 80, 0)
    assert {window.document for window in some.windows if window.task == "sums"} <= {f"a{n}" for n in range(20)}
    long = [window for window in some.windows if window.scored > 9]
    assert [(window.document, window.scored) for window in long] == [("d1, windows of 10", 10)]


def test_masked_windows_count_masked_tokens() -> None:
    whole = reading([300] * 20, fills_in=True)
    assert 600 < whole.tokens < 1200
    some = sample(whole, 160, 0)
    assert some.units == 8
    assert sum(int(batch.scored.sum()) for batch in some.batches) == some.tokens == 160  # type: ignore[union-attr]


def test_losses_of_a_prefix_match_the_full_window() -> None:
    """A causal model predicts the beginning of a window as it does in the whole window."""
    stack = load(tiny_llama())
    whole = own_text(stack, windows=16, length=24)
    identity = str(Plan.identity(stack.depth))
    shorter = sample(whole, 64, 0)
    found = {row.document: row.nll for row in sweep(stack, [], shorter) if row.plan == identity}
    again = own_text(stack, windows=16, length=9)
    alone = {f"{row.document}, windows of 8": row.nll for row in sweep(stack, [], again) if row.plan == identity}
    assert len(found) == len(shorter.windows) == 8
    assert {window.ids for window in shorter.windows} < {window.ids for window in again.windows}
    assert found == pytest.approx({name: alone[name] for name in found}, rel=1e-5)


def test_repeated_text_is_read_once() -> None:
    """Twenty equal files are one document; of few documents equal windows are one window."""
    words = [f"w{number}" for number in range(40)]
    stack = load(tiny_llama(4, vocabulary=60), tokenizer=word_tokenizer(words))
    texts = [" ".join(words[number : number + 20]) for number in range(9)]
    once, often = tokenize(stack, Corpus.of(texts)), tokenize(stack, Corpus.of(texts * 3))
    assert often.cells == once.cells
    assert (once.repeated, often.repeated) == (0, 18)
    assert "9 documents (18 duplicates skipped)" in describe_data(often)
    same = Corpus("c", tuple(Document(str(n), texts[0], task=f"t{n % 9}") for n in range(18)))
    assert tokenize(stack, same).documents == 9  # a task is scored on its own
    loop = tokenize(stack, Corpus.of([" ".join(words[:10] * 20)]), length=10)
    assert (len(loop.windows), loop.repeated) == (1, 19)
    with pytest.raises(MeasureError, match=r"got 1 window .* \(after removing 19 duplicates\)"):
        refuse_too_little(loop)


def test_too_little_text_is_rejected_with_a_fix() -> None:
    refuse_too_little(reading([4] * 8))
    with pytest.raises(
        MeasureError, match=r"at least 8 .* got 2 windows with 300 .* at least 4,096 tokens .*--max-length 37"
    ):
        refuse_too_little(reading([200, 100]))
    with pytest.raises(MeasureError, match=r"got 1 window with 1 .*a larger --tokens\)\.$"):
        refuse_too_little(reading([1]))


def of_lengths(lengths: list[int]) -> EvalData:
    windows = [
        Window(f"d{number}", "text", 0, tuple(range(3, 3 + length)), 1, length) for number, length in enumerate(lengths)
    ]
    return EvalData("r", "0", 64, "next_token", make_batches(windows, 1024, 0))


@settings(deadline=None)
@given(st.lists(st.integers(2, 64), min_size=1, max_size=20), st.integers(1, 200))
def test_minibatches_have_every_window_once_with_little_padding(lengths: list[int], tokens: int) -> None:
    made = minibatches(of_lengths(lengths), tokens)
    found = sorted(len(window.ids) for batch in made for window in batch.windows)
    assert found == sorted(lengths)
    for batch in made:
        assert batch.size <= tokens or len(batch.windows) == 1
        assert batch.size <= 2 * sum(len(window.ids) for window in batch.windows)


def test_targets_match_the_objective() -> None:
    whole = of_lengths([9, 5, 5, 2])
    own = {
        window: batch.targets[row, : len(window.ids)]
        for batch in whole.batches
        for row, window in enumerate(batch.windows)
    }
    for batch in minibatches(whole, 12):
        for row, window in enumerate(batch.windows):
            assert torch.equal(batch.targets[row, : len(window.ids)], own[window])


def test_labeled_items_have_one_position() -> None:
    windows = tuple(make_item(f"image-{number}") for number in range(5))
    labeled = LabeledBatch({"pixel_values": torch.arange(5.0)[:, None]}, torch.arange(5), windows)
    made = minibatches(EvalData("r", "0", 1, None, (labeled,)), 2)
    assert [batch.size for batch in made] == [2, 2, 1]
    assert torch.cat([batch.targets for batch in made]).tolist() == [0, 1, 2, 3, 4]
