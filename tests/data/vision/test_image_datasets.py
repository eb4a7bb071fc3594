import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy
import pytest
import torch
from PIL import Image

from layerwise.data.vision import image_reading
from layerwise.data.vision.images import KeptImages, read_images
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

SMALL = Preprocessing(8, 8)


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


def test_a_saved_dataset_is_read_by_the_types_of_its_columns(tmp_path: Path) -> None:
    datasets.DatasetDict({"train": table(20, 0), "test": table(6, 100)}).save_to_disk(tmp_path / "pets")
    found = read_images(tmp_path / "pets", preprocessing=SMALL)
    assert (found.name, found.classes) == ("pets", ("cat", "dog"))
    assert [len(part) for part in (found.train, found.validation, found.test)] == [18, 2, 6]
    assert isinstance(found.test, KeptImages)
    assert sorted(found.test.labels.tolist()) == [0, 0, 0, 1, 1, 1]
    third = SMALL.pixels(Image.open(BytesIO(png(103))))
    assert [
        int(label)
        for shown, label in zip(map(found.test.image, range(6)), found.test.labels, strict=True)
        if torch.equal(shown, third)
    ] == [1]


def test_a_dataset_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    served(monkeypatch, datasets.DatasetDict({"train": table(20, 0), "val": table(4, 50), "test": table(4, 100)}))
    found = read_images("hf:owner/pets", preprocessing=SMALL)
    assert found.name == "owner/pets"
    assert read_images("owner/pets", preprocessing=SMALL).digest == found.digest
    assert [len(part) for part in (found.train, found.validation, found.test)] == [20, 4, 4]


def test_withheld_labels_are_a_missing_split(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = table(4, 100).map(lambda row: {"kind": -1})
    served(monkeypatch, datasets.DatasetDict({"train": table(20, 0), "test": hidden}))
    found = read_images("pets", preprocessing=SMALL)
    assert [len(part) for part in (found.train, found.validation, found.test)] == [16, 2, 2]


def test_labels_may_be_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = table(20, 0, datasets.Value("string")).rename_column("kind", "label")
    served(monkeypatch, datasets.DatasetDict({"train": words}))
    found = read_images("flowers", preprocessing=SMALL)
    assert found.classes == ("rose", "tulip")
    assert isinstance(found.train, KeptImages)
    assert found.train.labels.bincount().tolist() == [8, 8]
    tulip = SMALL.pixels(Image.open(BytesIO(png(0))))
    index = next(index for index in range(16) if torch.equal(found.train.image(index), tulip))
    assert found.train.labels[index] == 1


def test_several_columns_of_labels_are_told_apart_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    both = table(20, 0, size=[0] * 10 + [1] * 10).cast_column("size", datasets.ClassLabel(names=["large", "small"]))
    served(monkeypatch, datasets.DatasetDict({"train": both}))
    with pytest.raises(DataError, match=r"several columns of labels \(kind, size\).*name it, as in pets:kind"):
        read_images("pets", preprocessing=SMALL)
    assert read_images("pets:size", preprocessing=SMALL).classes == ("large", "small")
    with pytest.raises(DataError, match="no column 'sise'; did you mean size"):
        read_images("pets:sise", preprocessing=SMALL)


def test_rows_without_a_picture_are_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = table(20, 0).map(lambda row, index: {"picture": None} if index == 3 else row, with_indices=True)
    served(monkeypatch, datasets.DatasetDict({"train": broken}))
    with pytest.raises(DataError, match=r"1 of 20 .*\n  train\[3\]: there is no image in this row"):
        read_images("pets", preprocessing=SMALL)
    assert read_images("pets", preprocessing=SMALL, unreadable="skip").skipped == ("train[3]",)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no labels": (
        lambda: {"train": table(20, 0).remove_columns("kind")},
        "no column of labels; its columns are picture; name it, as in pets:picture",
    ),
    "a row without a label": (
        lambda: {"train": table(20, 0).map(lambda row, at: {"kind": None if at == 5 else 0}, with_indices=True)},
        "1 of 20 images of the train split have no label, first row 5",
    ),
    "no images": (
        lambda: {"train": table(20, 0).remove_columns("picture")},
        "no column of images; its columns are kind",
    ),
    "no train split": (lambda: {"test": table(20, 0)}, "has no train split; its splits are test"),
    "no answer": (
        lambda: ConnectionError("the hub is out of reach\nand so on"),
        "no folder 'pets' .* nor a dataset .*the hub is out of reach; give --images",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_datasets_that_are_no_image_set_are_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, message = REFUSED[what]
    served(monkeypatch, make())
    with pytest.raises(DataError, match=message):
        read_images("pets", preprocessing=SMALL)


@pytest.mark.parametrize("saved", [True, False])
def test_a_later_start_reads_no_image_of_a_dataset(
    saved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        patched.setattr(image_reading, "decoded", None)
        again = read_images(tmp_path / "pets", preprocessing=SMALL)
    assert again.digest == first.digest
    assert torch.equal(again.test[0]["pixel_values"], first.test[0]["pixel_values"])
    write(1_000)
    assert read_images(tmp_path / "pets", preprocessing=SMALL).digest != first.digest
