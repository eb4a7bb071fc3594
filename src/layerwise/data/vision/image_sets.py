"""Image sets: what lies in a folder of class folders, or in a dataset of the hub or of a folder, listed and not read.

    flowers/rose/1.jpg  flowers/tulip/7.jpg                       one set, to be split
    flowers/train/rose/1.jpg  flowers/test/rose/9.jpg             splits of its own; also val, validation

Classes are numbered in the order of their names. Images may lie in subfolders of their class; hidden files and files
that are not images by their names are passed over. (The reader of `datasets` takes a class called "test" for a split,
and the subfolder of a class for a class.)

In a dataset columns are found by their types, not their names: one column of images, one of labels. Where it has
several of labels the name says which: `uoft-cs/cifar100:fine_label`. A test split whose labels are withheld (all -1, as
in ImageNet) counts as missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.bounded import shortened
from layerwise.data.vision.image_sources import SPLIT_NAMES, ImageSet, ImageSource, Version, image_bytes
from layerwise.errors import DataError, near_matches

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""What an image's name ends in, in small or capital letters."""

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "class", "target")
_WITHHELD = -1
"""What `datasets` writes where a label is not known."""


def listed_images(where: str | Path) -> ImageSet:
    """The labelled images of a folder of class folders, named by their paths in it, or of the dataset that is called
    `where` or lies in the folder `where`, named by split and row.

    Raises `DataError` for a path that is a file or does not exist; for a class folder without images, images outside of
    class folders, a test without a train folder, and classes that train does not have; for a dataset that cannot be
    loaded, has no train split, no image column, or no label column, and that has several of either and none by a usual
    name.
    """
    path = Path(where).expanduser()
    if path.is_file():
        raise DataError(f"{path} is a file: give --images a folder with one subfolder a class")
    if path.is_dir():
        saved = any((path / name).is_file() for name in ("dataset_dict.json", "state.json"))
        return _of_dataset(path) if saved or _holds_parquet(path) else _of_folder(path)
    if isinstance(where, Path) or not re.fullmatch(r"(hf:)?[\w.-]*\w(/[\w.-]+)?(:\w+)?", where):
        raise DataError(
            f"there is no folder {path}: give --images a folder with one subfolder a class, a dataset of the hub, "
            "or digits"
        )
    return _of_dataset(where.removeprefix("hf:"))


def _holds_parquet(folder: Path) -> bool:
    return next(folder.rglob("*.parquet"), None) is not None


# -- folders ----------------------------------------------------------------------------------------------------------


def _of_folder(folder: Path) -> ImageSet:
    splits = _split_folders(folder)
    train = splits["train"]
    classes = tuple(inner.name for inner in _subfolders(train))
    if not classes:
        loose = sum(_is_image(file, train) for file in train.iterdir())
        contents = f"{loose} images and no subfolders" if loose else "no subfolders"
        raise DataError(
            f"{train} holds {contents}: put the images of each class into a folder of its own, such as {train / 'cat'}/"
        )
    parts = {split: tuple(_files(path, folder, classes)) for split, path in splits.items()}
    return ImageSet(folder.resolve().name, classes, parts)


def _split_folders(folder: Path) -> dict[str, Path]:
    """The folder of each split; `folder` itself is train where it has no splits."""
    folders: dict[str, Path] = {}
    for inner in _subfolders(folder):
        split = SPLIT_NAMES.get(inner.name.lower())
        # A class may be called "test": a split is a folder of folders.
        if split is not None and _subfolders(inner):
            if split in folders:
                raise DataError(
                    f"{folder} holds both {folders[split].name}/ and {inner.name}/, which mean the same split: keep one"
                )
            folders[split] = inner
    if folders and "train" not in folders:
        given = ", ".join(f"{path.name}/" for path in folders.values())
        raise DataError(f"{folder} holds {given} but no train/: add train/ with the same class folders")
    return folders or {"train": folder}


def _files(path: Path, root: Path, classes: tuple[str, ...]) -> Iterator[ImageSource]:
    for inner in _subfolders(path):
        if inner.name not in classes:
            raise DataError(
                f"{inner} is a class that the training images do not have; they have {', '.join(classes)}: "
                "move it, or add images of it to train/"
            )
        files = [file for file in sorted(inner.rglob("*")) if _is_image(file, inner)]
        if not files:
            raise DataError(
                f"the class folder {inner} holds no image (looked for {', '.join(SUFFIXES)}): remove it, or fill it"
            )
        label = classes.index(inner.name)
        for file in files:
            name = file.relative_to(root).as_posix()
            yield ImageSource(name, label, partial(image_bytes, file), partial(Version.of, [file]))


def _subfolders(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _is_image(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.suffix.lower() in SUFFIXES and file.is_file()


# -- datasets ---------------------------------------------------------------------------------------------------------


def _of_dataset(where: str | Path) -> ImageSet:
    import datasets

    name, _, column = (where, "", "") if isinstance(where, Path) else where.partition(":")
    tables = _split_tables(_load(name), str(name))
    features = tables["train"].features
    if column and column not in features:
        raise DataError(f"the dataset {str(name)!r} has no column {column!r}; {near_matches(column, features)}")
    images = [each for each, kind in features.items() if isinstance(kind, datasets.Image)]
    image = _one_of(images, _IMAGE_NAMES, features, name, "images")
    classes_of = [each for each, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [each for each in _LABEL_NAMES if isinstance(features.get(each), datasets.Value)]
    label = column or _one_of(classes_of or plain, _LABEL_NAMES, features, name, "labels")
    labels = {split: list(table[label]) for split, table in tables.items()}
    labels = {split: values for split, values in labels.items() if set(values) != {_WITHHELD}}
    if isinstance(features[label], datasets.ClassLabel):
        classes, numbers = features[label].names, {number: number for number in range(len(features[label].names))}
    else:
        classes = sorted({value for column in labels.values() for value in column if value is not None})
        numbers = {value: number for number, value in enumerate(classes)}
    parts = {split: tuple(_rows(tables[split], image, values, numbers, split)) for split, values in labels.items()}
    return ImageSet(where.name if isinstance(where, Path) else where, tuple(map(str, classes)), parts)


def _load(name: str | Path) -> Any:
    import datasets

    try:
        if isinstance(name, Path) and not _holds_parquet(name):
            return datasets.load_from_disk(str(name))
        return datasets.load_dataset(str(name))
    except Exception as error:  # the hub, the network, the disk and the formats each have errors of their own
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"there is no folder {str(name)!r} that can be read, nor a dataset of this name on the Hugging Face hub: "
            f"{reason}; give --images a folder with one subfolder a class, a dataset's name, or digits"
        ) from error


def _split_tables(loaded: Any, name: str) -> dict[str, Any]:
    import datasets

    if isinstance(loaded, datasets.Dataset):
        return {"train": loaded}
    tables: dict[str, Any] = {}
    for given, table in loaded.items():
        split = SPLIT_NAMES.get(str(given).lower())
        if split is not None:
            tables.setdefault(split, table)
    if "train" not in tables:
        raise DataError(f"the dataset {name!r} has no train split; its splits are {', '.join(loaded)}")
    return tables


def _one_of(candidates: Sequence[str], usual: Sequence[str], every: Iterable[str], name: str | Path, what: str) -> str:
    """The only candidate, or the only one that is called as usual."""
    chosen = candidates if len(candidates) == 1 else [column for column in candidates if column in usual]
    if len(chosen) != 1:
        several = f"several columns of {what} ({', '.join(candidates)})" if candidates else f"no column of {what}"
        hint = f"; name it, as in {name}:{(candidates or list(every))[0]}" if what == "labels" else ""
        raise DataError(f"the dataset {str(name)!r} has {several}; its columns are {', '.join(every)}{hint}")
    return chosen[0]


def _rows(
    table: Any, image: str, labels: Sequence[Any], numbers: Mapping[Any, int], split: str
) -> Iterator[ImageSource]:
    import datasets

    rows = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    unlabelled = [row for row, label in enumerate(labels) if label not in numbers]
    if unlabelled:
        raise DataError(
            f"{len(unlabelled)} of {len(labels)} images of the {split} split have no label, first row {unlabelled[0]}: "
            "label them, or remove them"
        )
    # A table that names images elsewhere has no version: they may change, and its own files do not.
    chunks = rows.data.column(image).chunks
    within = all(not chunk.null_count and not chunk.field("bytes").null_count for chunk in chunks)
    files = [Path(file["filename"]) for file in rows.cache_files] if within else []
    # The fingerprint says which rows of the files are those of the table, and in which order.
    whole = Version.of(files, str(rows._fingerprint))
    for row, label in enumerate(labels):
        version = None if whole is None else whole._replace(name=f"{whole.name}#{row}")
        yield ImageSource(
            f"{split}[{row}]", numbers[label], partial(_content, rows, image, row), partial(_same, version)
        )


def _same(version: Version | None) -> Version | None:
    return version


def _content(rows: Any, column: str, row: int) -> bytes:
    cell = rows[row][column]
    if cell is None or (cell["bytes"] is None and cell["path"] is None):
        raise DataError("there is no image in this row")
    content: bytes | None = cell["bytes"]
    if content is not None:
        return content
    try:
        return image_bytes(Path(cell["path"]))
    except DataError as error:
        raise DataError(f"the row names the file {shortened(cell['path'])}, and {error}") from error
