"""Images: a folder, a dataset of the hub, or the digits, as the splits that a model is trained and judged on.

Every image is read once before anything else happens, so that a damaged file is known by name after minutes and not
after a night; a later start reads those that have changed. A set of up to `MOST_PIXELS_KEPT` is kept in the cache,
decoded and resized, a byte a value; larger ones are decoded anew each time, by the workers of the data loader. An image
that occurs in two splits, byte for byte, stays in the one that reports (or else in the one that selects) and leaves the
other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from layerwise.data.splits import SPLITS, Example, Examples, Splits, digest, selecting_on_reported
from layerwise.data.vision.augmentation import augmented, check_augmentation
from layerwise.data.vision.decode_images import DecodedImages, decode_all
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_datasets import dataset_images, is_dataset_folder
from layerwise.data.vision.image_division import divided
from layerwise.data.vision.image_folders import folder_images
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.data.vision.pixels import Pixels
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError, near_matches

MOST_PIXELS_KEPT = 2 * 2**30
"""Up to so many bytes of pixels are kept decoded: 14,000 images of 224 x 224, or 700,000 of 32 x 32."""

UNREADABLE = ("refuse", "skip")
"""What is done about images that cannot be read."""

_NAMED = 5
"""So many unreadable images are named in an error."""


def read_images(
    where: str | Path,
    *,
    preprocessing: Preprocessing,
    seed: int = 0,
    unreadable: str = "refuse",
    augmentation: str = "none",
    limit: int | None = None,
    select_on: str = "held-out",
    progress: Callable[[int, int], None] | None = None,
) -> Splits:
    """The images at `where`: a folder of class folders, a dataset of the hub or its folder, or `digits`.

    `layerwise.data.vision.image_division` says which are trained on, which select and which are reported; `seed` draws
    what is cut, and the order of what is held out. `limit` keeps at most so many images of each split, evenly over the
    classes. Images that cannot be read are refused, or left out with `unreadable="skip"` and named in `Splits.skipped`.
    `augmentation` changes the training examples alone. `progress(done, total)` is called while images are read.

    Raises `DataError` for a path that does not exist or is a file, for images without classes, for too few to split,
    and for images that cannot be read.
    """
    check_augmentation(augmentation)
    if unreadable not in UNREADABLE:
        raise DataError(
            f"unknown way to treat unreadable images {unreadable!r}; {near_matches(unreadable, UNREADABLE)}"
        )
    if str(where) == "digits" and not Path(where).exists():
        splits = digits(augmentation, preprocessing, limit=limit, seed=seed)
        return selecting_on_reported(splits) if select_on == "reported" else splits
    listed = _listed(where)
    division = divided(listed, seed, select_on).limited(limit, seed).ordered(seed)
    parts = division.parts
    is_small = sum(map(len, parts.values())) * preprocessing.bytes <= MOST_PIXELS_KEPT
    readings = decode_all(parts, preprocessing if is_small else None, progress)
    skipped = _unreadable(readings, unreadable, listed.name)
    copies = _copies(readings)
    left = {split: reading.without({*skipped, *copies}) for split, reading in readings.items()}
    selected_apart = select_on != "reported"
    _refuse_empty(left, listed, SPLITS if selected_apart else ("train", "test"))
    examples = {
        split: _examples(left[split], preprocessing, augmentation if split == "train" else "none") for split in SPLITS
    }
    rows = (
        (split, listed.classes[picture.label], content)
        for split in SPLITS
        for picture, content in zip(left[split].pictures, left[split].digests, strict=True)
    )
    splits = Splits(
        listed.name, digest(rows), examples["train"], examples["validation"], examples["test"],
        classes=listed.classes, skipped=tuple(skipped), copies=tuple(copies), origin=division.origin,
    )  # fmt: skip
    return splits if selected_apart else selecting_on_reported(splits)


class ImageDataset(Examples):
    """Images that are decoded each time they are read."""

    def __init__(
        self, pictures: Sequence[ImageSource], preprocessing: Preprocessing, augmentation: str = "none"
    ) -> None:
        self.pictures = tuple(pictures)
        self.preprocessing = preprocessing
        self.augmentation = check_augmentation(augmentation)

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def labels(self) -> tuple[int, ...]:
        """The label of every image, known without decoding any."""
        return tuple(picture.label for picture in self.pictures)

    def __getitem__(self, index: int) -> Example:
        picture = self.pictures[index]
        pixels = augmented(self.preprocessing.pixels(picture.image()), self.augmentation)
        return {"pixel_values": self.preprocessing.scaling(pixels), "labels": torch.tensor(picture.label)}


def _examples(reading: DecodedImages, preprocessing: Preprocessing, augmentation: str) -> Examples:
    if reading.pixels is None:
        return ImageDataset(reading.pictures, preprocessing, augmentation)
    labels = torch.tensor([picture.label for picture in reading.pictures])
    return Pixels(
        reading.pixels, labels, mean=preprocessing.mean, std=preprocessing.std, augmentation=augmentation,
        rows=reading.rows,
    )  # fmt: skip


def _listed(where: str | Path) -> ImageSet:
    path = Path(where).expanduser()
    if path.is_file():
        raise DataError(f"{path} is a file: give --images a folder with one subfolder a class")
    if path.is_dir():
        return dataset_images(path) if is_dataset_folder(path) else folder_images(path)
    if isinstance(where, Path) or not re.fullmatch(r"[\w.-]*\w(/[\w.-]+)?(:\w+)?", where):
        raise DataError(
            f"there is no folder {path}: give --images a folder with one subfolder a class, a dataset of the hub, "
            "or digits"
        )
    return dataset_images(where)


def _unreadable(readings: Mapping[str, DecodedImages], unreadable: str, name: str) -> list[str]:
    """The names of the images that cannot be read; refused unless they are to be skipped."""
    faults = {picture: reason for reading in readings.values() for picture, reason in reading.faults.items()}
    if faults and unreadable == "refuse":
        total = sum(len(reading.pictures) for reading in readings.values())
        shown = "".join(f"\n  {picture}: {reason}" for picture, reason in list(faults.items())[:_NAMED])
        more = f"\n  and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
        raise DataError(
            f"{len(faults)} of {total} images of {name!r} cannot be read; repair or remove them, or leave them out "
            f"with --on-bad-image skip:{shown}{more}"
        )
    return list(faults)


def _copies(readings: Mapping[str, DecodedImages]) -> list[str]:
    """The names of images that are, byte for byte, also in a split that must not be seen where they are."""
    later: set[bytes] = set()
    copies = []
    for split in reversed(SPLITS):
        reading = readings[split]
        for picture, content in zip(reading.pictures, reading.digests, strict=True):
            if content in later and picture.name not in reading.faults:
                copies.append(picture.name)
        later.update(reading.digests)
    return copies


def _refuse_empty(left: Mapping[str, DecodedImages], listed: ImageSet, splits: Sequence[str]) -> None:
    trained = {picture.label for picture in left["train"].pictures}
    untrained = [name for label, name in enumerate(listed.classes) if label not in trained]
    empty = [split for split in splits if not left[split].pictures]
    if untrained or empty:
        what = f"no image of {', '.join(untrained)} to train on" if untrained else f"no image in {', '.join(empty)}"
        raise DataError(
            f"without unreadable images and those that occur in two splits, {listed.name!r} has {what}: "
            "add images, or remove the class"
        )
