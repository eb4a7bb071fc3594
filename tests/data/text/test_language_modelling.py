"""Documents as windows for language-model training and evaluation."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.data.splits import SPLITS, Splits
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modelling import TokenWindows, evenly_spaced, splits_of, whole
from layerwise.errors import DataError
from tiny_tokenizers import character_tokenizer

TOKENIZER = character_tokenizer()


def documents(count: int, name: str = "text") -> tuple[Document, ...]:
    return tuple(Document(f"{name}/{n}", f"{name} number {n}") for n in range(count))


def splits(given: tuple[Document, ...], length: int = 9) -> Splits:
    return splits_of(TOKENIZER, "notes", dict.fromkeys(SPLITS, given), length=length)


def train(count: int, length: int) -> TokenWindows:
    found = splits(documents(count), length).train
    assert isinstance(found, TokenWindows)
    return found


def test_documents_stay_in_their_parts_and_the_digest_knows_them() -> None:
    parts = {split: documents(4, split) for split in SPLITS}
    found = splits_of(TOKENIZER, "mine", parts, length=8)
    assert (found.name, found.pad_id) == ("mine", TOKENIZER.pad_token_id)
    for split in SPLITS:
        assert {each.document for each in getattr(found, split).windows} == {each.id for each in parts[split]}
    swapped = splits_of(TOKENIZER, "mine", {**parts, "train": parts["test"], "test": parts["train"]}, length=8)
    assert found.digest != swapped.digest


def test_labels_are_the_ids_that_are_scored() -> None:
    found = splits(tuple(Document(f"{number}", f"2+{number}=9\n", "sums", 4) for number in range(10)), 64)
    example = found.test[0]
    ids, labels = example["input_ids"].tolist(), example["labels"].tolist()
    assert ids[0] == TOKENIZER.bos_token_id
    assert labels == [-100] * 5 + ids[5:]
    assert TOKENIZER.decode(ids[5:]) == "9\n"


def test_a_model_of_transformers_computes_the_loss_of_the_scored_tokens() -> None:
    found = splits(documents(12))
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


def test_masked_models_are_refused() -> None:
    with pytest.raises(DataError, match=r"\.\.\.ForCausalLM"):
        splits_of(TOKENIZER, "x", dict.fromkeys(SPLITS, documents(3)), length=64, objective="masked_token")


@given(st.integers(2, 9), st.integers(1, 12))
def test_whole_windows_are_of_one_length_and_lose_the_ends_of_documents_alone(length: int, limit: int) -> None:
    found = train(30, length)
    kept = whole(found, length)
    assert {len(window.ids) for window in kept.windows} == {length}
    left_out = Counter(window.document for window in found.windows if window not in kept.windows)
    assert max(left_out.values(), default=0) <= 1, "of a document one window at most, the last"
    positions = [kept.windows.index(window) for window in evenly_spaced(kept, limit).windows]
    count = min(limit, len(kept))
    assert positions == [number * len(kept) // count for number in range(count)]


def test_documents_without_a_whole_window_are_refused_with_the_length_that_fits() -> None:
    found = train(9, 64)
    longest = max(len(window.ids) for window in found.windows)
    with pytest.raises(DataError, match=f"no document to train on has 64 tokens.*use --max-length {longest} or less"):
        whole(found, 64)
    assert len(whole(found, longest))
