"""No layout of an image set tests on training images."""

from collections import Counter
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import datasets
import numpy
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from layerwise.data.splits import SPLITS, Examples, Splits, sample
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.data.vision.images import divide, read_images
from layerwise.data.vision.preprocessing import ImageExamples, Preprocessing
from layerwise.errors import DataError
from tier import first_fast

SMALL = Preprocessing(8, 8)
CLASSES = tuple(f"class {number}" for number in range(8))
SIZES = {"train": 30, "val": 12, "validation": 12, "test": 9}
"""Images per class."""

LAYOUTS: dict[str, tuple[str, ...]] = {
    "train and val": ("train", "val"),
    "train and validation": ("train", "validation"),
    "train and test": ("train", "test"),
    "train, val and test": ("train", "val", "test"),
    "one folder": (),
    "parquet": ("train", "validation"),
}
REPORTED = {
    "train and val": 96,
    "train and validation": 96,
    "train and test": 72,
    "train, val and test": 72,
    "one folder": 24,
    "parquet": 96,
}


def noise(generator: numpy.random.Generator) -> bytes:
    content = BytesIO()
    Image.fromarray(generator.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)).save(content, "png")
    return content.getvalue()


@pytest.fixture
def image_set(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    generator = numpy.random.default_rng(0)
    parts = LAYOUTS[request.param]
    content = {
        split: [(label, noise(generator)) for label in range(len(CLASSES)) for _ in range(SIZES[split or "train"])]
        for split in parts or ("",)
    }
    if request.param != "parquet":
        for split, pictures in content.items():
            for number, (label, image) in enumerate(pictures):
                path = tmp_path / "set" / split / CLASSES[label] / f"{number:04}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(image)
        return tmp_path / "set"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()
    (tmp_path / "set" / "data").mkdir(parents=True)
    # ImageNet's test split has no labels.
    content["test"] = [(-1, noise(generator)) for _ in range(20)]
    for split, pictures in content.items():
        table = datasets.Dataset.from_dict(
            {
                "image": [{"bytes": image, "path": None} for _, image in pictures],
                "label": [label for label, _ in pictures],
            }
        )
        table = table.cast_column("image", datasets.Image()).cast_column(
            "label", datasets.ClassLabel(names=list(CLASSES))
        )
        table.to_parquet(tmp_path / "set" / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path / "set"


every_layout = pytest.mark.parametrize("image_set", first_fast(LAYOUTS), indirect=True)


def content_of(examples: Examples) -> list[tuple[bytes, int]]:
    shown = (examples[index] for index in range(len(examples)))
    return [(example["pixel_values"].numpy().tobytes(), int(example["labels"])) for example in shown]


def labels_of(examples: Examples) -> list[int]:
    return [int(examples[index]["labels"]) for index in range(len(examples))]


def memorised(splits: Splits) -> float:
    known = dict(content_of(splits.train))
    reported = content_of(splits.test)
    return sum(known.get(image, 0) == label for image, label in reported) / len(reported)


@every_layout
def test_held_out_images_are_disjoint(image_set: Path, request: pytest.FixtureRequest) -> None:
    layout = request.node.callspec.params["image_set"]
    splits = read_images(image_set, preprocessing=SMALL)
    parts = {split: {image for image, _ in content_of(getattr(splits, split))} for split in SPLITS}
    assert not parts["train"] & parts["test"]
    assert not parts["train"] & parts["validation"]
    assert not parts["validation"] & parts["test"]
    assert len(splits.test) == REPORTED[layout]
    assert Counter(labels_of(splits.test)) == dict.fromkeys(range(8), REPORTED[layout] // 8)
    assert min(Counter(labels_of(splits.validation)).values()) == max(Counter(labels_of(splits.validation)).values())
    # 8 classes: a model that memorizes the training images is at chance.
    assert memorised(splits) == 1 / 8 == splits.chance
    held_out = (SIZES[split] for split in LAYOUTS[layout] if split in ("val", "validation", "test"))
    given = 8 * (30 + sum(held_out))
    assert sum(len(getattr(splits, split)) for split in SPLITS) == given
    alike = read_images(image_set, preprocessing=SMALL, select_on="reported")
    assert (splits.selects_on_reported, alike.selects_on_reported) == (False, True)
    assert alike.validation is alike.test
    assert len(alike.test) == REPORTED[layout]
    assert len(alike.train) == (240 if LAYOUTS[layout] else 216)
    assert content_of(alike.test)[:20] == content_of(splits.test)[:20] or layout == "one folder"
    assert alike.digest != splits.digest
    assert memorised(alike) == 1 / 8
    assert alike.origin.endswith("on which checkpoints are selected too")


@every_layout
def test_samples_cover_many_classes(image_set: Path) -> None:
    splits = read_images(image_set, preprocessing=SMALL, seed=5)
    for part in (splits.validation, splits.test):
        labels = labels_of(part)
        for count in (1, 2, 4, 8, 12, 24):
            enough = 0.6 * min(count, len(CLASSES))
            starts = range(len(labels) - count + 1)
            assert min(len(set(labels[start : start + count])) for start in starts) >= enough
            for seed in range(20):
                drawn = {labels[index] for index in sample(part, count, seed)}
                assert len(drawn) == min(count, len(CLASSES), len(labels))


def test_the_order_of_reported_images_is_seeded() -> None:
    listed = set_of({"train": [5] * 6, "validation": [4] * 6})
    orders = [[each.name for each in divide(listed, seed)[0]["test"]] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(orders[2]) == sorted(each.name for each in listed.parts["validation"])


def test_a_class_with_one_image_is_not_split() -> None:
    one = set_of({"train": [5, 1], "validation": [2, 2]})
    with pytest.raises(DataError, match="'class 1' must have at least 2 examples"):
        divide(one, 0)
    assert len(divide(one, 0, "reported")[0]["train"]) == 6


def test_samples_of_unbalanced_classes() -> None:
    uneven = Labeled([0] * 90 + [1] * 9 + [2])
    assert {int(uneven.labels[index]) for index in sample(uneven, 3, seed=0)} == {0, 1, 2}
    assert {int(uneven.labels[index]) for index in sample(uneven, 2, seed=0)} < {0, 1, 2}
    assert sample(uneven, 500, seed=0) == tuple(range(100))
    bare = Bare(100)
    assert len(set(sample(bare, 10, seed=0))) == 10
    assert sample(bare, 10, seed=0) == sample(bare, 10, seed=0) != sample(bare, 10, seed=1)


class Bare(Examples):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count


class Labeled(Bare):
    def __init__(self, labels: Sequence[int]) -> None:
        super().__init__(len(labels))
        self.labels: Tensor = torch.tensor(labels)


def set_of(counts: dict[str, list[int]]) -> ImageSet:
    parts = {
        split: tuple(
            ImageSource(f"{split}/{label}/{number}", label, lambda: b"")
            for label, count in enumerate(of)
            for number in range(count)
        )
        for split, of in counts.items()
    }
    return ImageSet("set", CLASSES[: len(counts["train"])], parts)


@pytest.fixture(scope="module")
def found() -> Splits:
    return digits()


def images(examples: object) -> ImageExamples:
    assert isinstance(examples, ImageExamples)
    return examples


def test_every_digit_is_in_exactly_one_split(found: Splits) -> None:
    parts = [images(part) for part in (found.train, found.validation, found.test)]
    pixels = torch.stack([part.read(index).flatten() for part in parts for index in range(len(part))])
    shown = torch.cat([pixels, torch.cat([part.labels for part in parts])[:, None]], dim=1)
    source = load_digits()
    expected = torch.cat([torch.from_numpy(source.data), torch.from_numpy(source.target)[:, None]], dim=1)
    assert sorted(shown.tolist()) == sorted(expected.tolist())


def test_pixels_are_between_minus_one_and_one(found: Splits) -> None:
    example = found.test[0]
    assert example["pixel_values"].shape == (1, 8, 8)
    assert example["pixel_values"].dtype == torch.float32
    assert torch.equal(example["pixel_values"], images(found.test).read(0) / 8 - 1)
    every = found.collate([found.test[index] for index in range(len(found.test))])["pixel_values"]
    assert (every.min(), every.max()) == (-1, 1)


def test_the_split_is_frozen(found: Splits) -> None:
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


def test_a_limit_is_spread_over_digits() -> None:
    found = digits(limit=20)
    for part in (found.train, found.validation, found.test):
        labels = [int(part[index]["labels"]) for index in range(len(part))]
        assert sorted(labels) == sorted([*range(10), *range(10)])
    assert found.digest == digits(limit=20).digest
    assert len({found.digest, digits(limit=20, seed=1).digest, digits().digest}) == 3
    assert digits(limit=9_999).digest == digits().digest
    with pytest.raises(DataError, match="at least 10 images, one per class"):
        digits(limit=9)
