"""Training, validation and test splits of images, made from the splits that a dataset has.

given splits                 train         validation          test
train, validation and test   train         validation          test
train and validation         9/10 train    1/10 of train       validation
train and test               9/10 train    1/10 of train       test
train                        8/10          1/10                1/10
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from layerwise.data.splits import (
    SPLITS,
    Examples,
    Splits,
    digest,
    limit_stratified,
    order_evenly,
    select_on_reported,
    split_stratified,
)
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_reading import ReadImages, read_image_rows
from layerwise.data.vision.image_sets import list_images
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.data.vision.preprocessing import Augmentation, ImageExamples, Preprocessing
from layerwise.errors import DataError

MAX_CACHED_BYTES = 2 * 2**30
"""Maximum size of decoded pixels in the cache: 14,000 images of 224 x 224, or 700,000 of 32 x 32."""

SelectOn = Literal["held-out", "reported"]

TENTH = 0.1

_MAX_NAMES = 5


def read_images(
    where: str | Path,
    *,
    preprocessing: Preprocessing,
    seed: int = 0,
    unreadable: Literal["refuse", "skip"] = "refuse",
    augmentation: Augmentation = "none",
    limit: int | None = None,
    select_on: SelectOn = "held-out",
    progress: Callable[[int, int], None] | None = None,
) -> Splits:
    """Read and split the images of a directory, a hub dataset, or `digits`.

    All images are read first, so that damaged files are reported before training starts. An image that occurs in
    two splits stays in the later one.

    Args:
        where: A directory of class directories, a hub dataset or its directory, or `digits`.
        preprocessing: Preprocessing of the model.
        seed: Seed of the splits, which are stratified by class, and of the limit.
        unreadable: Raise an error for unreadable images (`refuse`), or skip them (see `Splits.skipped`).
        augmentation: Augmentation of training images.
        limit: Maximum images per split, balanced over classes.
        select_on: If `reported`, checkpoints are selected on the test images, as in most papers, and no training images
            are held out for selection.
        progress: Called with (done, total) while images are read.

    Raises:
        DataError: If the path does not exist or is a file, or if there are too few classes or images.
    """
    if str(where) == "digits" and not Path(where).exists():
        splits = digits(augmentation, preprocessing, limit=limit, seed=seed)
        return select_on_reported(splits) if select_on == "reported" else splits
    listed = list_images(where)
    division, origin = divide(listed, seed, select_on, limit)
    pictures = [picture for part in division.values() for picture in part]
    is_small = len(pictures) * preprocessing.bytes <= MAX_CACHED_BYTES
    reading = read_image_rows(pictures, preprocessing if is_small else None, listed.fingerprint, progress)
    if reading.faults and unreadable == "refuse":
        raise DataError(_unreadable(reading.faults, len(pictures), listed.name))
    skipped = tuple(picture.name for picture in pictures if picture.name in reading.faults)
    copies = _copies(division, reading)
    excluded = {*skipped, *copies}
    images = {split: [each for each in part if each.name not in excluded] for split, part in division.items()}
    has_validation = select_on != "reported"
    _refuse_empty(images, listed, SPLITS if has_validation else ("train", "test"))
    train, validation, test = (
        _examples(images[split], reading, preprocessing, augmentation if split == "train" else "none")
        for split in SPLITS
    )
    rows = (
        (split, listed.classes[picture.label], reading.digests[picture.name])
        for split in SPLITS
        for picture in images[split]
    )
    splits = Splits(
        listed.name,
        digest(rows),
        train,
        validation,
        test,
        classes=listed.classes,
        skipped=skipped,
        copies=copies,
        origin=origin,
    )
    return splits if has_validation else select_on_reported(splits)


def divide(
    listed: ImageSet, seed: int, select_on: SelectOn = "held-out", limit: int | None = None
) -> tuple[dict[str, tuple[ImageSource, ...]], str]:
    """Divide images into splits of at most `limit` images, and describe where each split comes from.

    Held-out images are shuffled with classes spread evenly. If `select_on` is "reported", checkpoints are selected on
    the test images, and the validation split is empty. Raises `DataError` if a class has too few images.
    """
    given = listed.parts
    reported = next((name for name in ("test", "validation") if name in given), None)
    selecting = "validation" if "validation" in given and reported == "test" else None
    to_cut = ["validation"] if selecting is None and select_on == "held-out" else []
    to_cut += ["test"] if reported is None else []
    cut = {"train": given["train"]}
    if to_cut:
        shares = (1 - TENTH * len(to_cut), *(TENTH for _ in to_cut))
        names = [listed.classes[picture.label] for picture in given["train"]]
        parts = split_stratified(names, shares, seed)
        cut = {split: _take(given["train"], part) for split, part in zip(("train", *to_cut), parts, strict=True)}
    selected = () if select_on == "reported" else cut["validation"] if selecting is None else given[selecting]
    division = dict(
        zip(SPLITS, (cut["train"], selected, cut["test"] if reported is None else given[reported]), strict=True)
    )
    for split, part in division.items():
        images = _take(part, limit_stratified(_labels(part), limit, seed))
        division[split] = images if split == "train" else _take(images, order_evenly(_labels(images), seed))
    return division, _describe(reported, selecting, select_on)


def _describe(reported: str | None, selecting: str | None, select_on: str) -> str:
    on = f"reported on all of its {reported} split" if reported else "reported on a tenth of its images"
    if select_on == "reported":
        return f"{on}, on which checkpoints are selected too"
    own = f"on its {selecting} split" if selecting else "on a tenth that is cut from its training images"
    return f"{on}; checkpoints are selected {own}"


def _labels(pictures: Sequence[ImageSource]) -> list[int]:
    return [picture.label for picture in pictures]


def _take(pictures: Sequence[ImageSource], indices: Sequence[int]) -> tuple[ImageSource, ...]:
    return tuple(pictures[index] for index in indices)


def check_labels(splits: Splits, config: Any) -> tuple[str, ...]:
    """Compare the classes of `splits` with the labels of the model's head in `config`, and return notes on differences.

    Different names give only a note, because names are spelled in many ways. transformers' default `LABEL_3` matches
    any name. Raises `DataError` if the head has more or fewer outputs than there are classes.
    """
    if not splits.classes:
        return ()
    outputs = int(config.num_labels)
    if outputs != len(splits.classes):
        listed = ", ".join(splits.classes[:_MAX_NAMES]) + (", ..." if len(splits.classes) > _MAX_NAMES else "")
        raise DataError(
            f"The model's head must have {len(splits.classes)} outputs for the classes of {splits.name!r} ({listed}), "
            f"got {outputs}. Train a new head with `layerwise train robust ... --new-head`, or pass images of its "
            "classes."
        )
    # Configs from JSON may have numbers as text.
    given = {int(number): str(name) for number, name in config.id2label.items()}
    names = [given.get(number, f"LABEL_{number}") for number in range(outputs)]
    plain = [[name.strip().lower().replace("_", " ") for name in each] for each in (names, splits.classes)]
    first = next((at for at, (one, other) in enumerate(zip(*plain, strict=True)) if one != other), None)
    if first is None or all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        return ()
    problem = "another order" if sorted(names) == sorted(splits.classes) else "other names"
    return (
        f"the head's {outputs} outputs have {problem} than the classes of {splits.name!r}: output {first} is "
        f"{names[first]!r} instead of {splits.classes[first]!r}; unless they mean the same, pass --new-head",
    )


def _examples(
    pictures: Sequence[ImageSource], reading: ReadImages, preprocessing: Preprocessing, augmentation: Augmentation
) -> Examples:
    labels = torch.tensor([each.label for each in pictures], dtype=torch.int64, device="cpu")
    if reading.pixels is None:
        read = partial(_decode_image, tuple(pictures), preprocessing)
    else:
        read = partial(_read_pixels, reading.pixels, [reading.rows[each.name] for each in pictures], preprocessing)
    return ImageExamples(labels, read, preprocessing.scaling, augmentation)


def _decode_image(pictures: Sequence[ImageSource], preprocessing: Preprocessing, index: int) -> Tensor:
    return preprocessing.pixels(pictures[index].image())


def _read_pixels(column: Any, rows: Sequence[int], preprocessing: Preprocessing, index: int) -> Tensor:
    content = bytearray(column[rows[index]].as_buffer())
    shape = (preprocessing.channels, preprocessing.height, preprocessing.width)
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


def _unreadable(faults: Mapping[str, str], total: int, name: str) -> str:
    shown = "".join(f"\n  {picture}: {reason}" for picture, reason in list(faults.items())[:_MAX_NAMES])
    more = f"\n  and {len(faults) - _MAX_NAMES} more" if len(faults) > _MAX_NAMES else ""
    return (
        f"{len(faults)} of {total} images of {name!r} cannot be read. Repair or remove them, or pass --on-bad-image "
        f"skip:{shown}{more}"
    )


def _copies(division: Mapping[str, Sequence[ImageSource]], reading: ReadImages) -> tuple[str, ...]:
    later: set[bytes] = set()
    copies: list[str] = []
    for split in reversed(SPLITS):
        names = [picture.name for picture in division[split]]
        copies += (name for name in names if reading.digests[name] in later and name not in reading.faults)
        later.update(reading.digests[name] for name in names)
    return tuple(copies)


def _refuse_empty(images: Mapping[str, Sequence[ImageSource]], listed: ImageSet, splits: Sequence[str]) -> None:
    trained = {picture.label for picture in images["train"]}
    untrained = [name for label, name in enumerate(listed.classes) if label not in trained]
    empty = [split for split in splits if not images[split]]
    if untrained or empty:
        problem = f"no training image of {', '.join(untrained)}" if untrained else f"no image in {', '.join(empty)}"
        raise DataError(
            f"Without unreadable images and copies in other splits, {listed.name!r} has {problem}. Add images, or "
            "remove the class."
        )
