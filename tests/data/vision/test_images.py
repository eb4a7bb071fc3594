"""Image directories and datasets become splits that never test on training images, or are rejected."""

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor

from layerwise.data.splits import SPLITS, Examples, Splits, sample
from layerwise.data.vision import image_reading, images
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.data.vision.images import divide, read_images
from layerwise.data.vision.preprocessing import ImageExamples, Preprocessing
from layerwise.errors import DataError
from tier import first_fast

SMALL = Preprocessing(8, 8)


def draw(folder: Path, count: int, seed: int, suffix: str = ".png") -> None:
    folder.mkdir(parents=True)
    generator = numpy.random.default_rng(seed)
    for number in range(count):
        noise = generator.integers(0, 256, (12, 10, 3), dtype=numpy.uint8)
        Image.fromarray(noise).save(folder / f"{number:02}{suffix}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw(tmp_path / "pets" / "cat", 20, seed=1)
    draw(tmp_path / "pets" / "dog", 30, seed=2, suffix=".JPEG")
    return tmp_path / "pets"


@pytest.fixture
def split_folder(tmp_path: Path) -> Path:
    for index, (split, count) in enumerate((("train", 6), ("val", 2), ("test", 3))):
        draw(tmp_path / "pets" / split / "cat", count, seed=2 * index)
        draw(tmp_path / "pets" / split / "dog", count, seed=2 * index + 1)
    return tmp_path / "pets"


def parts(splits: Splits) -> list[ImageExamples]:
    found = [splits.train, splits.validation, splits.test]
    assert all(isinstance(part, ImageExamples) for part in found)
    return [part for part in found if isinstance(part, ImageExamples)]


def test_a_class_directory_is_split_by_class(folder: Path) -> None:
    found = read_images(folder, preprocessing=SMALL)
    assert (found.name, found.classes, found.skipped) == ("pets", ("cat", "dog"), ())
    counts = [Counter(part.labels.tolist()) for part in parts(found)]
    assert counts == [{0: 16, 1: 24}, {0: 2, 1: 3}, {0: 2, 1: 3}]
    shown = {tuple(image.flatten().tolist()) for part in parts(found) for image in map(part.read, range(len(part)))}
    assert len(shown) == 50


def test_the_digest_covers_the_files(folder: Path) -> None:
    before = read_images(folder, preprocessing=SMALL).digest
    assert read_images(folder, preprocessing=Preprocessing(6, 6), augmentation="crop").digest == before
    draw(folder.parent / "other", 1, seed=9)
    shutil.copy(folder.parent / "other" / "00.png", folder / "cat" / "00.png")
    assert read_images(folder, preprocessing=SMALL).digest != before


def test_a_class_can_be_named_test(tmp_path: Path) -> None:
    draw(tmp_path / "test", 5, seed=0)
    draw(tmp_path / "practice", 5, seed=1)
    assert read_images(tmp_path, preprocessing=SMALL).classes == ("practice", "test")


def test_large_image_sets_are_decoded_on_access(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = read_images(folder, preprocessing=SMALL, augmentation="crop+flip")
    monkeypatch.setattr(images, "MAX_CACHED_BYTES", 50 * SMALL.bytes - 1)
    decoded = read_images(folder, preprocessing=SMALL, augmentation="crop+flip")
    assert decoded.digest == kept.digest
    for one, other in ((kept.train, decoded.train), (kept.validation, decoded.validation)):
        assert len(one) == len(other)
        for index in range(len(one)):
            torch.manual_seed(index)
            first = one[index]
            torch.manual_seed(index)
            second = other[index]
            assert torch.equal(first["pixel_values"], second["pixel_values"])
            assert int(first["labels"]) == int(second["labels"])
    shutil.rmtree(folder)
    assert len(kept.train[0]["pixel_values"]) == 3
    with pytest.raises(DataError, match="Cannot read the image"):
        decoded.train[0]


def test_only_training_images_are_augmented(folder: Path) -> None:
    found = read_images(folder, preprocessing=SMALL, augmentation="crop+flip")
    assert [part.augmentation for part in parts(found)] == ["crop+flip", "none", "none"]


def test_a_limit_is_stratified(folder: Path) -> None:
    found = read_images(folder, preprocessing=SMALL, limit=4)
    assert [Counter(part.labels.tolist()) for part in parts(found)] == [{0: 2, 1: 2}] * 3
    assert read_images(folder, preprocessing=SMALL, limit=4, seed=0).digest == found.digest
    with pytest.raises(DataError, match="at least 2 images, one per class"):
        read_images(folder, preprocessing=SMALL, limit=1)


def damage(folder: Path) -> dict[str, str]:
    whole = (folder / "cat" / "03.png").read_bytes()
    (folder / "cat" / "03.png").write_bytes(whole[: len(whole) // 2])
    (folder / "dog" / "05.JPEG").write_text("not an image")
    Image.fromarray(numpy.zeros((9, 9), dtype=numpy.uint16)).save(folder / "dog" / "99.png")
    return {
        "cat/03.png": "",
        "dog/05.JPEG": "not an image of a known format",
        "dog/99.png": "at most 8 bits per channel",
    }


def test_unreadable_images_are_rejected_or_skipped(folder: Path) -> None:
    wanted = damage(folder)
    with pytest.raises(DataError, match=r"3 of 51 images of 'pets' cannot be read.*--on-bad-image skip") as caught:
        read_images(folder, preprocessing=SMALL)
    for name, reason in wanted.items():
        assert f"\n  {name}: " in str(caught.value)
        assert reason in str(caught.value)
    found = read_images(folder, preprocessing=SMALL, unreadable="skip")
    assert set(found.skipped) == set(wanted)
    assert sum(len(part) for part in parts(found)) == 48
    for number in range(8):
        (folder / "cat" / f"{number:02}.png").write_bytes(b"")
    with pytest.raises(DataError, match="10 of 51") as caught:
        read_images(folder, preprocessing=SMALL)
    assert str(caught.value).count("\n  ") == 6
    assert str(caught.value).endswith("and 5 more")


def test_duplicate_images_stay_in_the_evaluation_split(split_folder: Path) -> None:
    cats = {split: split_folder / split / "cat" for split in ("train", "val", "test")}
    shutil.copy(cats["test"] / "00.png", cats["train"] / "90.png")
    shutil.copy(cats["test"] / "01.png", cats["val"] / "91.png")
    shutil.copy(cats["val"] / "00.png", cats["train"] / "92.png")
    shutil.copy(cats["train"] / "00.png", cats["train"] / "93.png")
    found = read_images(split_folder, preprocessing=SMALL)
    assert set(found.copies) == {"train/cat/90.png", "val/cat/91.png", "train/cat/92.png"}
    assert found.skipped == ()
    assert [len(part) for part in parts(found)] == [13, 4, 6]


def test_progress_counts_every_image(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    read_images(folder, preprocessing=SMALL, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 50) for done in range(1, 51)]


def test_digits_load_by_name() -> None:
    own = Preprocessing(8, 8, 1, (0.5,), (0.5,))
    assert read_images("digits", preprocessing=own, seed=3).digest == digits().digest
    large = read_images("digits", preprocessing=Preprocessing(16, 16), augmentation="crop")
    assert large.digest == digits().digest
    example = large.test[0]["pixel_values"]
    assert example.shape == (3, 16, 16)
    assert torch.equal(example[0], example[2])
    assert -1 <= example.min() < -0.7 < 0.7 < example.max() <= 1


def change(folder: Path, what: str) -> Path:
    match what:
        case "no train":
            shutil.rmtree(folder / "train")
        case "gone":
            return folder / "nowhere"
        case "file":
            return folder / "train" / "cat" / "00.png"
        case "flat":
            return folder / "train" / "cat"
        case "one class":
            shutil.rmtree(folder / "train" / "dog")
        case "an empty class":
            (folder / "train" / "fox" / "empty").mkdir(parents=True)
            (folder / "train" / "fox" / ".hidden.png").write_bytes(b"")
        case "an archive":
            (folder / "train" / "cat" / "more.ZIP").write_bytes(b"")
        case "depths":
            shutil.copytree(folder / "val" / "cat", folder / "train" / "cat" / "more")
        case "few":
            shutil.rmtree(folder / "val")
            draw(folder / "train" / "fox", 1, seed=30)
        case "twice":
            shutil.copytree(folder / "val", folder / "validation")
        case "new":
            draw(folder / "test" / "fox", 2, seed=40)
    return folder


REFUSED = {
    "gone": "nowhere does not exist",
    "file": "got the file",
    "flat": "cat must have one subdirectory",
    "one class": "no training image of dog",
    "an empty class": "fox has no images",
    "an archive": r"\.zip files\. Unzip",
    "depths": "has no labels. Put the images of each class",
    "few": "'fox' must have at least 2 examples",
    "no train": "has test/, val/ but no train/",
    "twice": "val/ and validation/, which mean the same split",
    "new": "no training image of fox",
}


@pytest.mark.parametrize("what", REFUSED)
def test_directories_without_images_are_rejected(split_folder: Path, what: str) -> None:
    with pytest.raises(DataError, match=REFUSED[what]):
        read_images(change(split_folder, what), preprocessing=SMALL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def png(seed: int) -> bytes:
    noise = numpy.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=numpy.uint8)
    content = BytesIO()
    Image.fromarray(noise).save(content, "png")
    return content.getvalue()


def table(rows: int, seed: int, label: Any = None, **columns: list[Any]) -> datasets.Dataset:
    label = label or datasets.ClassLabel(names=["cat", "dog"])
    named = isinstance(label, datasets.ClassLabel)
    values = [row % 2 if named else ("tulip", "rose")[row % 2] for row in range(rows)]
    made = datasets.Dataset.from_dict(
        {"picture": [{"bytes": png(seed + row), "path": None} for row in range(rows)], "kind": values, **columns}
    )
    return made.cast_column("picture", datasets.Image()).cast_column("kind", label)


def served(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    def load(name: str) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(datasets, "load_dataset", load)


def test_a_saved_dataset_is_read_by_column_types(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(20, 0), "test": table(6, 100)}).save_to_disk(tmp_path / "pets")
    found = read_images(tmp_path / "pets", preprocessing=SMALL)
    assert (found.name, found.classes) == ("pets", ("cat", "dog"))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [18, 2, 6]
    assert isinstance(found.test, ImageExamples)
    assert sorted(found.test.labels.tolist()) == [0, 0, 0, 1, 1, 1]
    third = SMALL.pixels(Image.open(BytesIO(png(103))))
    assert [
        int(label)
        for shown, label in zip(map(found.test.read, range(6)), found.test.labels, strict=True)
        if torch.equal(shown, third)
    ] == [1]


def test_a_hub_dataset_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, datasets.DatasetDict({"train": table(20, 0), "val": table(4, 50), "test": table(4, 100)}))
    found = read_images("hf:owner/pets", preprocessing=SMALL)
    assert found.name == "owner/pets"
    assert read_images("owner/pets", preprocessing=SMALL).digest == found.digest
    assert [len(part) for part in (found.train, found.validation, found.test)] == [20, 4, 4]


def test_withheld_labels_count_as_a_missing_split(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = table(4, 100).map(lambda row: {"kind": -1})
    served(monkeypatch, datasets.DatasetDict({"train": table(20, 0), "test": hidden}))
    found = read_images("pets", preprocessing=SMALL)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [16, 2, 2]


def test_labels_can_be_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = table(20, 0, datasets.Value("string")).rename_column("kind", "label")
    served(monkeypatch, datasets.DatasetDict({"train": words}))
    found = read_images("flowers", preprocessing=SMALL)
    assert found.classes == ("rose", "tulip")
    assert isinstance(found.train, ImageExamples)
    assert found.train.labels.bincount().tolist() == [8, 8]
    tulip = SMALL.pixels(Image.open(BytesIO(png(0))))
    index = next(index for index in range(16) if torch.equal(found.train.read(index), tulip))
    assert found.train.labels[index] == 1


def test_label_columns_are_selected_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    both = table(20, 0, size=[0] * 10 + [1] * 10).cast_column("size", datasets.ClassLabel(names=["large", "small"]))
    served(monkeypatch, datasets.DatasetDict({"train": both}))
    with pytest.raises(DataError, match=r"one column of labels, got several \(kind, size\)\. Name it, as in pets:kind"):
        read_images("pets", preprocessing=SMALL)
    assert read_images("pets:size", preprocessing=SMALL).classes == ("large", "small")
    with pytest.raises(DataError, match="no column 'sise'; did you mean size"):
        read_images("pets:sise", preprocessing=SMALL)


REFUSED_DATASETS: dict[str, tuple[Callable[[], Any], str]] = {
    "no labels": (
        lambda: {"train": table(20, 0).remove_columns("kind")},
        "one column of labels, got none among picture. Name it, as in pets:picture",
    ),
    "a row without a label": (
        lambda: {"train": table(20, 0).map(lambda row, at: {"kind": None if at == 5 else 0}, with_indices=True)},
        "1 of 20 images of the train split have no label, first row 5",
    ),
    "no images": (
        lambda: {"train": table(20, 0).remove_columns("picture")},
        "one column of images, got none among kind",
    ),
    "no train split": (lambda: {"test": table(20, 0)}, "must have a train split, got test"),
    "no answer": (
        lambda: ConnectionError("the hub is out of reach\nand so on"),
        "'pets' is neither a readable directory nor a hub dataset: the hub is out of reach. Set --images",
    ),
}


@pytest.mark.parametrize("what", REFUSED_DATASETS)
def test_datasets_without_images_are_rejected(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, message = REFUSED_DATASETS[what]
    served(monkeypatch, make())
    with pytest.raises(DataError, match=message):
        read_images("pets", preprocessing=SMALL)


@pytest.mark.parametrize("saved", [True, False])
def test_a_cached_dataset_decodes_no_image(saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(seed: int) -> None:
        shutil.rmtree(tmp_path / "pets", ignore_errors=True)
        if saved:
            table(20, seed).save_to_disk(tmp_path / "pets")
        else:
            (tmp_path / "pets").mkdir()
            table(20, seed).to_parquet(tmp_path / "pets" / "train.parquet")

    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "own"))
    write(0)
    first = read_images(tmp_path / "pets", preprocessing=SMALL)
    with monkeypatch.context() as patched:
        patched.setattr(image_reading, "decode_image", None)
        again = read_images(tmp_path / "pets", preprocessing=SMALL)
    assert again.digest == first.digest
    assert torch.equal(again.test[0]["pixel_values"], first.test[0]["pixel_values"])
    write(1_000)
    assert read_images(tmp_path / "pets", preprocessing=SMALL).digest != first.digest


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


def as_images(examples: object) -> ImageExamples:
    assert isinstance(examples, ImageExamples)
    return examples


def test_every_digit_is_in_exactly_one_split(found: Splits) -> None:
    parts = [as_images(part) for part in (found.train, found.validation, found.test)]
    pixels = torch.stack([part.read(index).flatten() for part in parts for index in range(len(part))])
    shown = torch.cat([pixels, torch.cat([part.labels for part in parts])[:, None]], dim=1)
    source = load_digits()
    expected = torch.cat([torch.from_numpy(source.data), torch.from_numpy(source.target)[:, None]], dim=1)
    assert sorted(shown.tolist()) == sorted(expected.tolist())


def test_pixels_are_between_minus_one_and_one(found: Splits) -> None:
    example = found.test[0]
    assert example["pixel_values"].shape == (1, 8, 8)
    assert example["pixel_values"].dtype == torch.float32
    assert torch.equal(example["pixel_values"], as_images(found.test).read(0) / 8 - 1)
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
        assert as_images(part).augmentation == "none"


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
