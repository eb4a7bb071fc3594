"""Image directories and datasets become splits, and invalid sets are rejected."""

import shutil
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy
import pytest
import torch
from PIL import Image

from layerwise.data.splits import Splits
from layerwise.data.vision import image_reading, images
from layerwise.data.vision.digits import digits
from layerwise.data.vision.images import read_images
from layerwise.data.vision.preprocessing import ImageExamples, Preprocessing
from layerwise.errors import DataError

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
        "'pets' is neither a readable directory nor a hub dataset: the hub is out of reach. Pass --images",
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
