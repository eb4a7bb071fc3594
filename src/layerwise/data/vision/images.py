"""Images: a folder, a dataset of the hub, or the digits, as the splits that a model is trained and judged on.

    the set brings               train         select              report
    train, validation and test   train         validation          test
    train and validation         9/10 train    1/10 of train       validation, all of it
    train and test               9/10 train    1/10 of train       test
    train alone                  8/10          1/10                1/10

Tenths are of each class, drawn from a seed. With `select_on="reported"`, as in most papers, nothing is cut from train
for the selection, which uses the reported images.

Every image is read once first, so that a damaged file is reported before training starts. Sets of up to
`MOST_PIXELS_KEPT` are kept in the cache, decoded and resized. An image that occurs in two splits, byte for byte, stays
in the one that reports (or else in the one that selects).
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
    evenly_ordered,
    limited,
    selecting_on_reported,
    stratified,
)
from layerwise.data.vision.digits import digits
from layerwise.data.vision.image_examples import Augmentation, ImageExamples
from layerwise.data.vision.image_reading import ReadImages, read_all
from layerwise.data.vision.image_sets import listed_images
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.data.vision.preprocessing import Preprocessing
from layerwise.errors import DataError

MOST_PIXELS_KEPT = 2 * 2**30
"""Up to so many bytes of pixels are kept decoded: 14,000 images of 224 x 224, or 700,000 of 32 x 32."""

SelectOn = Literal["held-out", "reported"]

TENTH = 0.1

_NAMED = 5


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
    """Read the images at `where`: a folder of class folders, a dataset of the hub or its folder, or `digits`.

    They are divided as the module says, drawn from `seed`. `limit` is per split, evenly over the classes. Unreadable
    images raise, or are named in `Splits.skipped` with `unreadable="skip"`. `augmentation` is for training only.
    `progress(done, total)` is called while images are read.

    Raises `DataError` for a path that does not exist or is a file, for images without classes, and for too few images.
    """
    if str(where) == "digits" and not Path(where).exists():
        splits = digits(augmentation, preprocessing, limit=limit, seed=seed)
        return selecting_on_reported(splits) if select_on == "reported" else splits
    listed = listed_images(where)
    division, origin = divide(listed, seed, select_on, limit)
    pictures = [picture for part in division.values() for picture in part]
    is_small = len(pictures) * preprocessing.bytes <= MOST_PIXELS_KEPT
    reading = read_all(pictures, preprocessing if is_small else None, listed.fingerprint, progress)
    if reading.faults and unreadable == "refuse":
        raise DataError(_unreadable(reading.faults, len(pictures), listed.name))
    skipped = tuple(picture.name for picture in pictures if picture.name in reading.faults)
    copies = _copies(division, reading)
    gone = {*skipped, *copies}
    left = {split: [each for each in part if each.name not in gone] for split, part in division.items()}
    selected_apart = select_on != "reported"
    _refuse_empty(left, listed, SPLITS if selected_apart else ("train", "test"))
    train, validation, test = (
        _examples(left[split], reading, preprocessing, augmentation if split == "train" else "none") for split in SPLITS
    )
    rows = (
        (split, listed.classes[picture.label], reading.digests[picture.name])
        for split in SPLITS
        for picture in left[split]
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
    return splits if selected_apart else selecting_on_reported(splits)


def divide(
    listed: ImageSet, seed: int, select_on: SelectOn = "held-out", limit: int | None = None
) -> tuple[dict[str, tuple[ImageSource, ...]], str]:
    """Return the images of each split, at most `limit` of each, and in words where they are from.

    Held-out images are in an order drawn from `seed`, in which classes are spread evenly. There are none to select if
    the reported images do. Raises `DataError` for a class too small to cut.
    """
    brought = listed.parts
    reported = next((name for name in ("test", "validation") if name in brought), None)
    selecting = "validation" if "validation" in brought and reported == "test" else None
    to_cut = ["validation"] if selecting is None and select_on == "held-out" else []
    to_cut += ["test"] if reported is None else []
    cut = {"train": brought["train"]}
    if to_cut:
        shares = (1 - TENTH * len(to_cut), *(TENTH for _ in to_cut))
        names = [listed.classes[picture.label] for picture in brought["train"]]
        parts = stratified(names, shares, seed)
        cut = {split: _take(brought["train"], part) for split, part in zip(("train", *to_cut), parts, strict=True)}
    selected = () if select_on == "reported" else cut["validation"] if selecting is None else brought[selecting]
    division = dict(
        zip(SPLITS, (cut["train"], selected, cut["test"] if reported is None else brought[reported]), strict=True)
    )
    for split, part in division.items():
        kept = _take(part, limited(_labels(part), limit, seed))
        division[split] = kept if split == "train" else _take(kept, evenly_ordered(_labels(kept), seed))
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
    """Return notes on the labels of `splits` and of the head in `config`; empty when they agree.

    Names that differ are a note, because names are spelled in many ways; transformers' own `LABEL_3` agrees with any.
    Texts have no classes. Raises `DataError` if the head's outputs are not as many as the classes.
    """
    if not splits.classes:
        return ()
    outputs = int(config.num_labels)
    if outputs != len(splits.classes):
        listed = ", ".join(splits.classes[:_NAMED]) + (", ..." if len(splits.classes) > _NAMED else "")
        raise DataError(
            f"{splits.name!r} has {len(splits.classes)} classes ({listed}), but the model's head has "
            f"{outputs} outputs: give it a new one with `layerwise train robust ... --new-head`, or give images of its "
            "classes"
        )
    # A config read from JSON may have its numbers as text.
    given = {int(number): str(name) for number, name in config.id2label.items()}
    names = [given.get(number, f"LABEL_{number}") for number in range(outputs)]
    plain = [[name.strip().lower().replace("_", " ") for name in each] for each in (names, splits.classes)]
    first = next((at for at, (one, other) in enumerate(zip(*plain, strict=True)) if one != other), None)
    if first is None or all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        return ()
    order = "the same names in another order" if sorted(names) == sorted(splits.classes) else "other names"
    return (
        f"the head's {outputs} outputs have {order} than the classes of {splits.name!r}: output {first} is "
        f"{names[first]!r} there and {splits.classes[first]!r} here; unless they mean the same, use --new-head",
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
    shown = "".join(f"\n  {picture}: {reason}" for picture, reason in list(faults.items())[:_NAMED])
    more = f"\n  and {len(faults) - _NAMED} more" if len(faults) > _NAMED else ""
    return (
        f"{len(faults)} of {total} images of {name!r} cannot be read; repair or remove them, or leave them out "
        f"with --on-bad-image skip:{shown}{more}"
    )


def _copies(division: Mapping[str, Sequence[ImageSource]], reading: ReadImages) -> tuple[str, ...]:
    later: set[bytes] = set()
    copies: list[str] = []
    for split in reversed(SPLITS):
        names = [picture.name for picture in division[split]]
        copies += (name for name in names if reading.digests[name] in later and name not in reading.faults)
        later.update(reading.digests[name] for name in names)
    return tuple(copies)


def _refuse_empty(left: Mapping[str, Sequence[ImageSource]], listed: ImageSet, splits: Sequence[str]) -> None:
    trained = {picture.label for picture in left["train"]}
    untrained = [name for label, name in enumerate(listed.classes) if label not in trained]
    empty = [split for split in splits if not left[split]]
    if untrained or empty:
        what = f"no image of {', '.join(untrained)} to train on" if untrained else f"no image in {', '.join(empty)}"
        raise DataError(
            f"without unreadable images and those that occur in two splits, {listed.name!r} has {what}: "
            "add images, or remove the class"
        )
