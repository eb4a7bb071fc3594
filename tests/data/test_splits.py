from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerwise.data.batches import padded
from layerwise.data.splits import Examples, Splits, digest, stratified
from layerwise.errors import DataError

SHARES = (0.6, 0.2, 0.2)
counts = st.lists(st.integers(3, 60), min_size=1, max_size=6)
seeds = st.integers(0, 5)


@given(counts, seeds)
def test_parts_are_disjoint_and_complete_and_every_label_has_its_share(sizes: list[int], seed: int) -> None:
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    parts = stratified(labels, SHARES, seed)
    assert sorted(index for part in parts for index in part) == list(range(len(labels)))
    assert parts == stratified(labels, SHARES, seed)
    for part, share in zip(parts, SHARES, strict=True):
        held = Counter(labels[index] for index in part)
        assert all(held[label] >= 1 and abs(held[label] - share * size) < 2 for label, size in enumerate(sizes))


def test_a_new_class_leaves_the_others_where_they_were() -> None:
    alone = stratified("a" * 30, SHARES, 0)
    together = stratified("a" * 30 + "b" * 30, SHARES, 0)
    assert alone == tuple(tuple(index for index in part if index < 30) for part in together)
    assert alone != stratified("a" * 30, SHARES, 1)


@pytest.mark.parametrize(("labels", "shares"), [("aaab", SHARES), ("aaaaaaaaaa", (0.0, 0.5, 0.5))])
def test_too_few_examples_to_split_are_refused(labels: str, shares: tuple[float, ...]) -> None:
    with pytest.raises(DataError, match="too few to split into 3 sets"):
        stratified(labels, shares, 0)


def test_the_digest_tells_split_label_and_content_apart() -> None:
    rows = [("train", "a", b"bc"), ("train", "ab", b"c"), ("test", "a", b"bc"), ("train", "a", b"bd")]
    assert len({digest([row]) for row in rows}) == len(rows)
    assert digest(rows) == digest(iter(rows)) != digest(reversed(rows))


def test_images_are_stacked() -> None:
    splits = Splits("images", "", Examples(), Examples(), Examples())
    images = [{"pixel_values": torch.full((3, 8, 8), float(n)), "labels": torch.tensor(n)} for n in (4, 2)]
    batch = splits.collate(images)
    assert batch["pixel_values"].shape == (2, 3, 8, 8)
    assert batch["pixel_values"][:, 0, 0, 0].tolist() == batch["labels"].tolist() == [4, 2]


def test_texts_are_padded_on_the_right() -> None:
    splits = Splits("text", "", Examples(), Examples(), Examples(), pad_id=9)
    short = {"input_ids": torch.tensor([5, 6]), "labels": torch.tensor([-100, 6])}
    long = {"input_ids": torch.tensor([1, 2, 3]), "labels": torch.tensor([1, 2, 3])}
    wide = padded([short, long], 9, multiple=4)
    assert {name: tensor[:, 3].tolist() for name, tensor in wide.items()} == {
        "input_ids": [9, 9],
        "labels": [-100, -100],
        "attention_mask": [0, 0],
    }
    batch = splits.collate([short, long])
    assert {name: tensor[:, :3].tolist() for name, tensor in wide.items()} == {
        name: tensor.tolist() for name, tensor in batch.items()
    }
    assert batch["input_ids"].tolist() == [[5, 6, 9], [1, 2, 3]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["labels"].tolist() == [[-100, 6, -100], [1, 2, 3]]
