import pytest
import torch
from sklearn.datasets import load_digits

from layerwise.data.splits import Splits
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_examples import Pixels
from layerwise.errors import DataError


@pytest.fixture(scope="module")
def found() -> Splits:
    return digits()


def images(examples: object) -> Pixels:
    assert isinstance(examples, Pixels)
    return examples


def test_every_digit_is_in_exactly_one_split(found: Splits) -> None:
    parts = [images(part) for part in (found.train, found.validation, found.test)]
    shown = torch.cat([torch.cat([part.pixels.flatten(1), part.labels[:, None]], dim=1) for part in parts])
    source = load_digits()
    expected = torch.cat([torch.from_numpy(source.data), torch.from_numpy(source.target)[:, None]], dim=1)
    assert sorted(shown.tolist()) == sorted(expected.tolist())


def test_pixels_lie_between_minus_one_and_one(found: Splits) -> None:
    example = found.test[0]
    assert example["pixel_values"].shape == (1, 8, 8)
    assert example["pixel_values"].dtype == torch.float32
    assert torch.equal(example["pixel_values"], images(found.test).pixels[0] / 8 - 1)
    every = found.collate([found.test[index] for index in range(len(found.test))])["pixel_values"]
    assert (every.min(), every.max()) == (-1, 1)


def test_the_split_is_the_same_on_every_day(found: Splits) -> None:
    # Frozen: another draw would evaluate shipped models on their training images.
    assert found.digest == digits("crop").digest
    assert found.digest.startswith("e9b60f446ef06fd4")


def test_only_training_examples_are_augmented() -> None:
    found = digits("crop+flip")
    torch.manual_seed(0)
    first, again = (torch.stack([found.train[3]["pixel_values"] for _ in range(20)]) for _ in range(2))
    assert not torch.equal(first, again)
    for part in (found.validation, found.test):
        assert torch.equal(part[3]["pixel_values"], part[3]["pixel_values"])
        assert images(part).augmentation == "none"


def test_an_unknown_augmentation_is_refused() -> None:
    with pytest.raises(DataError, match="did you mean crop"):
        digits("crops")


def test_a_limit_is_spread_over_the_digits() -> None:
    found = digits(limit=20)
    for part in (found.train, found.validation, found.test):
        labels = [int(part[index]["labels"]) for index in range(len(part))]
        assert sorted(labels) == sorted([*range(10), *range(10)])
    assert found.digest == digits(limit=20).digest
    assert len({found.digest, digits(limit=20, seed=1).digest, digits().digest}) == 3
    assert digits(limit=9_999).digest == digits().digest
    with pytest.raises(DataError, match="one for each of the 10 classes"):
        digits(limit=9)
