"""Augmented examples that are the same whoever reads them, after whatever."""

import pytest
import torch
from torch.utils.data import DataLoader
from transformers import TrainerState

from layerwise.data.splits import Example, Examples
from layerwise.train.data_order import Epochs, LengthGroupedSampler, ReproducibleDataset
from train.tiny_models import VOCABULARY, tiny_digits


def _pixels(examples: ReproducibleDataset, *numbers: int) -> list[torch.Tensor]:
    return [examples[number]["pixel_values"] for number in numbers]


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_an_example_depends_on_seed_epoch_and_number_alone() -> None:
    examples = ReproducibleDataset(tiny_digits("crop").train, seed=4)
    first = _pixels(examples, *range(24))
    torch.manual_seed(11)
    assert _equal(_pixels(examples, *reversed(range(24))), first[::-1])
    assert not _equal(_pixels(ReproducibleDataset(tiny_digits("crop").train, seed=5), *range(24)), first)
    examples.set_epoch(1)
    assert not _equal(_pixels(examples, *range(24)), first)
    examples.set_epoch(0)
    assert _equal(_pixels(examples, *range(24)), first)


def test_examples_of_an_epoch_are_drawn_apart() -> None:
    whole = tiny_digits("crop").train
    shared = torch.utils.data.Subset(whole, [0] * 24)
    assert len({tuple(pixels.flatten().tolist()) for pixels in _pixels(ReproducibleDataset(shared, 0), *range(24))}) > 4


def test_a_batch_is_its_examples_and_the_global_generator_stays_where_it_was() -> None:
    examples = ReproducibleDataset(tiny_digits("crop").train, seed=4)
    before = torch.get_rng_state()
    batch = examples.__getitems__([5, 2])
    assert _equal([example["pixel_values"] for example in batch], _pixels(examples, 5, 2))
    assert torch.equal(torch.get_rng_state(), before)


def test_without_augmentation_the_examples_are_as_they_are() -> None:
    plain = tiny_digits().train
    assert _equal(_pixels(ReproducibleDataset(plain, 0), 0, 7), [plain[0]["pixel_values"], plain[7]["pixel_values"]])
    assert len(ReproducibleDataset(plain, 0)) == 24


def test_workers_that_live_on_learn_of_the_epoch() -> None:
    splits = tiny_digits("crop")
    examples = ReproducibleDataset(splits.train, seed=4)
    loader = DataLoader(
        examples,
        batch_size=8,
        collate_fn=splits.collate,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for epoch in (0, 1):
        examples.set_epoch(epoch)
        read = torch.cat([batch["pixel_values"] for batch in loader])
        assert _equal(list(read), _pixels(examples, *range(24)))


def test_the_trainer_turns_the_epochs() -> None:
    examples = ReproducibleDataset(tiny_digits("crop").train, seed=4)
    turn = Epochs(examples)
    for epoch in (None, 0.0, 1.0, 2.5):
        turn.on_epoch_begin(None, TrainerState(epoch=epoch), None)
        known = _pixels(examples, *range(24))
        examples.set_epoch(int(epoch or 0))
        assert _equal(_pixels(examples, *range(24)), known)


class _Texts(Examples):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        return {"input_ids": torch.full((1 + index % 10,), index % VOCABULARY)}


@pytest.mark.parametrize("alike", [None, 4])
def test_an_order_reads_every_example_once_and_depends_on_seed_and_epoch_alone(alike: int | None) -> None:
    examples = ReproducibleDataset(_Texts(45), seed=4)
    order = LengthGroupedSampler(examples, alike)
    first = list(order)
    assert len(order) == 45
    assert sorted(first) == list(range(45)) != first
    examples.set_epoch(1)
    second = list(order)
    assert second != first
    torch.manual_seed(11)
    assert list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=4), alike)) == first
    assert list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=5), alike)) != first
    assert list(order) == second


def test_texts_of_like_length_share_a_batch() -> None:
    order = list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=4), alike=4))
    batches = [[1 + number % 10 for number in order[start : start + 4]] for start in range(0, 45, 4)]
    assert all(max(batch) - min(batch) <= 1 for batch in batches)
    lengths = [batch[0] for batch in batches[:-1]]
    assert lengths != sorted(lengths), "short texts first, and long ones last"
    assert len(batches[-1]) == 1, "the batch that is not full is the last"
