from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.data.splits import Splits
from layerwise.data.text import skills
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.demo_corpus import demo_corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modelling import (
    TokenWindows,
    demo_text_splits,
    evenly_spaced,
    splits_of,
    text_splits,
    whole,
)
from layerwise.errors import DataError
from tiny_tokenizers import character_tokenizer

TOKENIZER = character_tokenizer()


def corpus(**tasks: int) -> Corpus:
    """As many documents of each task as said, every one with another text."""
    return Corpus(
        "notes",
        tuple(
            Document(f"{task}/{n}", f"{task} number {n}", task) for task, count in tasks.items() for n in range(count)
        ),
    )


def parts(splits: Splits) -> list[TokenWindows]:
    return [part for part in (splits.train, splits.validation, splits.test) if isinstance(part, TokenWindows)]


def names(part: TokenWindows) -> set[str]:
    return {window.document for window in part.windows}


@given(st.dictionaries(st.sampled_from("abcde"), st.integers(1, 20), min_size=1), st.integers(0, 3))
def test_no_document_is_in_two_splits(tasks: dict[str, int], seed: int) -> None:
    total = sum(tasks.values())
    assume(total >= 3)
    train, validation, test = (
        names(part) for part in parts(text_splits(TOKENIZER, corpus(**tasks), length=5, seed=seed))
    )
    assert len(train) + len(validation) + len(test) == len(train | validation | test) == total
    assert train
    assert validation
    assert test


def test_every_task_is_in_every_split() -> None:
    found = parts(text_splits(TOKENIZER, corpus(sums=20, prose=40, rare=2, other=1), length=64))
    counts = [Counter(window.task for window in part.windows) for part in found]
    assert [(count["sums"], count["prose"]) for count in counts] == [(16, 32), (2, 4), (2, 4)]
    assert [count["rare"] + count["other"] for count in counts] == [1, 1, 1]


def test_the_seed_decides_the_split() -> None:
    digests = [text_splits(TOKENIZER, corpus(text=30), length=64, seed=seed).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_equal_texts_stay_together() -> None:
    twins = tuple(Document(f"{number}", f"text {number // 2}") for number in range(40))
    for part in parts(text_splits(TOKENIZER, Corpus("twins", twins), length=64)):
        assert set(Counter(int(name) // 2 for name in names(part)).values()) == {2}


def test_labels_are_the_ids_that_are_scored() -> None:
    documents = [Document(f"{number}", f"2+{number}=9\n", "sums", 4) for number in range(10)]
    found = text_splits(TOKENIZER, Corpus("sums", tuple(documents)), length=64)
    example = found.test[0]
    ids, labels = example["input_ids"].tolist(), example["labels"].tolist()
    assert ids[0] == TOKENIZER.bos_token_id
    assert labels == [-100] * 5 + ids[5:]
    assert TOKENIZER.decode(ids[5:]) == "9\n"


def test_a_model_of_transformers_computes_the_loss_of_the_scored_tokens() -> None:
    found = text_splits(TOKENIZER, corpus(text=12), length=9)
    examples = [found.train[index] for index in range(4)]
    model = tiny_llama(vocabulary=len(TOKENIZER))
    with torch.no_grad():
        together = model(**found.collate(examples))
        scored, total = 0, 0.0
        for example in examples:
            logits = model(input_ids=example["input_ids"][None]).logits[0]
            wanted = example["labels"][1:]
            losses = torch.nn.functional.cross_entropy(logits[:-1], wanted, ignore_index=-100, reduction="none")
            scored, total = scored + int((wanted != -100).sum()), total + float(losses.sum())
    assert float(together.loss) == pytest.approx(total / scored, rel=1e-5)


def test_padding_is_the_tokenizers() -> None:
    assert text_splits(TOKENIZER, corpus(text=12), length=9).pad_id == TOKENIZER.pad_token_id


@pytest.mark.slow
def test_the_demo_reports_on_what_it_has_not_seen() -> None:
    found = demo_text_splits(TOKENIZER, texts=10, questions=10, length=600)
    assert [sum(window.index == 0 for window in part.windows) for part in parts(found)] == [
        45,
        5,
        len(demo_corpus().documents),
    ]
    for part, split in zip(parts(found), ("train", "train", "heldout"), strict=True):
        for window in part.windows:
            if window.task in skills.TASKS:
                prompt = TOKENIZER.decode(window.ids[1 : window.scored_from])
                assert skills.split_of(prompt) == split


def test_too_few_documents_are_refused() -> None:
    alike = Corpus("book", tuple(Document(f"{number}", "the same") for number in range(5)))
    with pytest.raises(DataError, match=r"1 different document\(s\).*<\|endoftext\|>"):
        text_splits(TOKENIZER, alike, length=64)


def test_masked_models_are_refused() -> None:
    with pytest.raises(DataError, match=r"\.\.\.ForCausalLM"):
        text_splits(TOKENIZER, corpus(text=12), length=64, objective="masked_token")


def test_windows_longer_than_the_model_are_refused() -> None:
    with pytest.raises(DataError, match="the model has 32 positions"):
        text_splits(TOKENIZER, corpus(text=12), length=64, positions=32)


# -- even windows


@given(st.integers(2, 9), st.integers(1, 12))
def test_whole_windows_are_of_one_length_and_lose_the_ends_of_documents_alone(length: int, limit: int) -> None:
    found = text_splits(TOKENIZER, corpus(text=30), length=length).train
    assert isinstance(found, TokenWindows)
    kept = whole(found, length)
    assert {len(window.ids) for window in kept.windows} == {length}
    left_out = Counter(window.document for window in found.windows if window not in kept.windows)
    assert max(left_out.values(), default=0) <= 1, "of a document one window at most, the last"
    few = evenly_spaced(kept, limit)
    assert len(few) == min(limit, len(kept))
    assert len(set(few.windows)) == len(few)
    assert [window for window in kept.windows if window in few.windows] == list(few.windows), "in their order"


def test_few_windows_are_spread_over_all_of_them() -> None:
    found = text_splits(TOKENIZER, corpus(text=100), length=4).train
    assert isinstance(found, TokenWindows)
    positions = [found.windows.index(window) for window in evenly_spaced(found, 5).windows]
    assert positions == [number * len(found) // 5 for number in range(5)]


def test_documents_without_a_whole_window_are_refused_with_the_length_that_fits() -> None:
    found = text_splits(TOKENIZER, corpus(text=9), length=64).train
    assert isinstance(found, TokenWindows)
    longest = max(len(window.ids) for window in found.windows)
    with pytest.raises(DataError, match=f"no document to train on has 64 tokens.*use --max-length {longest} or less"):
        whole(found, 64)
    assert len(whole(found, longest))


def test_documents_that_are_divided_already_stay_where_they_are() -> None:
    given_parts = {split: corpus(**{split: 4}).documents for split in ("train", "validation", "test")}
    found = splits_of(TOKENIZER, "mine", given_parts, length=8)
    assert found.name == "mine"
    assert [names(part) for part in parts(found)] == [
        {document.id for document in documents} for documents in given_parts.values()
    ]
