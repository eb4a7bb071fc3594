"""Image sets from class directories and datasets, listed by `datasets` without reading an image.

    flowers/rose/1.jpg  flowers/tulip/7.jpg                       one set, to be split
    flowers/train/rose/1.jpg  flowers/test/rose/9.jpg             given splits; also val, validation

Directories are read like `imagefolder`, including metadata files; classes are sorted by name. Columns of a dataset are
found by type. If it has several label columns, the name selects one: `uoft-cs/cifar100:fine_label`. A test split with
withheld labels (all -1, as in ImageNet) counts as missing.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets

from layerwise.bounded import shortened
from layerwise.data.vision.image_sources import SPLIT_NAMES, ImageSet, ImageSource, read_image_bytes
from layerwise.errors import DataError, near_matches

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "class", "target")
_WITHHELD = -1


def list_images(where: str | Path) -> ImageSet:
    """List the labeled images of a directory or of a dataset. Images are named by path, or by split and row.

    `where` is a directory of class directories, a directory with a dataset (saved or as Parquet files), or a hub
    dataset. Raises `DataError` if the path does not exist or is a file. It is also raised if the dataset cannot be
    loaded, has no train split, or does not have exactly one image column and one label column.
    """
    path = Path(where).expanduser()
    if path.is_file():
        raise DataError(f"--images must be a directory with one subdirectory per class, got the file {path}.")
    if path.is_dir():
        name = path.resolve().name
        if any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            return _build_set(name, path, partial(datasets.load_from_disk, str(path)))
        if _holds(path, ".parquet"):
            return _build_set(name, path, partial(datasets.load_dataset, str(path)))
        return _build_set(name, path, partial(_load_folder, path), root=path.absolute())
    if isinstance(where, Path) or not re.fullmatch(r"(hf:)?[\w.-]*\w(/[\w.-]+)?(:\w+)?", where):
        raise DataError(
            f"{path} does not exist. Set --images to a directory with one subdirectory per class, a hub dataset, or "
            "digits."
        )
    name, _, column = where.removeprefix("hf:").partition(":")
    return _build_set(where.removeprefix("hf:"), name, partial(datasets.load_dataset, name), column)


def _load_folder(folder: Path) -> Any:
    if _holds(folder, ".zip"):
        raise DataError(f"{folder} has .zip files. Unzip or remove them.")
    splits = _find_split_folders(folder)
    classes = [inner.name for inner in _list_subfolders(splits["train"])]
    if not classes:
        raise DataError(f"{splits['train']} must have one subdirectory of images per class, got none.")
    files = {split: f"{glob.escape(str(path.absolute()))}/**" for split, path in splits.items()}
    loaded = datasets.load_dataset("imagefolder", data_files=files)
    features = loaded["train"].features
    if set(features) == {"image"}:
        raise DataError(
            f"{folder} has no labels. Put the images of each class (at least two) directly into a separate directory."
        )
    label = features.get("label")
    if isinstance(label, datasets.ClassLabel) and (empty := [name for name in classes if name not in label.names]):
        raise DataError(f"The class directory {splits['train'] / empty[0]} has no images. Remove it or add some.")
    return loaded


def _find_split_folders(folder: Path) -> dict[str, Path]:
    folders: dict[str, Path] = {}
    for inner in _list_subfolders(folder):
        split = SPLIT_NAMES.get(inner.name.lower())
        # A class may be named "test": a split is a directory of directories.
        if split is not None and _list_subfolders(inner):
            if split in folders:
                raise DataError(
                    f"{folder} has {folders[split].name}/ and {inner.name}/, which mean the same split. Remove one."
                )
            folders[split] = inner
    if folders and "train" not in folders:
        given = ", ".join(f"{path.name}/" for path in folders.values())
        raise DataError(f"{folder} has {given} but no train/. Add train/ with the same class directories.")
    return folders or {"train": folder}


def _list_subfolders(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _holds(folder: Path, suffix: str) -> bool:
    return any(file.suffix.lower() == suffix for file in folder.rglob("*.*"))


def _build_set(
    name: str, where: str | Path, load: Callable[[], Any], column: str = "", *, root: Path | None = None
) -> ImageSet:
    tables = _split_tables(_load(load, where), str(where))
    features = tables["train"].features
    if column and column not in features:
        raise DataError(f"The dataset {str(where)!r} has no column {column!r}; {near_matches(column, features)}")
    images = [each for each, kind in features.items() if isinstance(kind, datasets.Image)]
    image = _one_of(images, _IMAGE_NAMES, features, where, "images")
    classes_of = [each for each, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [each for each in _LABEL_NAMES if isinstance(features.get(each), datasets.Value)]
    label = column or _one_of(classes_of or plain, _LABEL_NAMES, features, where, "labels")
    labels = {split: list(table[label]) for split, table in tables.items()}
    labels = {split: values for split, values in labels.items() if set(values) != {_WITHHELD}}
    if isinstance(features[label], datasets.ClassLabel):
        classes, numbers = features[label].names, {number: number for number in range(len(features[label].names))}
    else:
        classes = sorted({value for column in labels.values() for value in column if value is not None})
        numbers = {value: number for number, value in enumerate(classes)}
    rows = {
        split: tables[split].select_columns([image]).cast_column(image, datasets.Image(decode=False))
        for split in labels
    }
    parts = {split: tuple(_list_rows(rows[split], labels[split], numbers, split, root)) for split in labels}
    return ImageSet(name, tuple(map(str, classes)), parts, _fingerprint(tables, rows, root))


def _load(load: Callable[[], Any], where: str | Path) -> Any:
    try:
        return load()
    except DataError:
        raise
    except Exception as error:  # hub, network, disk and formats raise different errors
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"{str(where)!r} is neither a readable directory nor a hub dataset: {reason}. Set --images to a directory "
            "with one subdirectory per class, the name of a dataset, or digits."
        ) from error


def _split_tables(loaded: Any, name: str) -> dict[str, Any]:
    if isinstance(loaded, datasets.Dataset):
        return {"train": loaded}
    tables: dict[str, Any] = {}
    for given, table in loaded.items():
        split = SPLIT_NAMES.get(str(given).lower())
        if split is not None:
            tables.setdefault(split, table)
    if "train" not in tables:
        raise DataError(f"The dataset {name!r} must have a train split, got {', '.join(loaded)}.")
    return tables


def _one_of(candidates: Sequence[str], usual: Sequence[str], every: Iterable[str], name: str | Path, what: str) -> str:
    columns = candidates if len(candidates) == 1 else [column for column in candidates if column in usual]
    if len(columns) != 1:
        got = f"several ({', '.join(candidates)})" if candidates else f"none among {', '.join(every)}"
        hint = f" Name it, as in {name}:{(candidates or list(every))[0]}." if what == "labels" else ""
        raise DataError(f"The dataset {str(name)!r} must have one column of {what}, got {got}.{hint}")
    return columns[0]


def _list_rows(
    rows: Any, labels: Sequence[Any], numbers: Mapping[Any, int], split: str, root: Path | None
) -> Iterator[ImageSource]:
    unlabeled = [row for row, label in enumerate(labels) if label not in numbers]
    if unlabeled:
        raise DataError(
            f"{len(unlabeled)} of {len(labels)} images of the {split} split have no label, first row {unlabeled[0]}. "
            "Label or remove them."
        )
    paths = [] if root is None else [path for chunk in _find_chunks(rows) for path in chunk.field("path").to_pylist()]
    for row, label in enumerate(labels):
        name = f"{split}[{row}]" if root is None else Path(paths[row]).relative_to(root).as_posix()
        yield ImageSource(name, numbers[label], partial(_read_row, rows, row))


def _find_chunks(rows: Any) -> list[Any]:
    (column,) = rows.column_names
    return list(rows.data.column(column).chunks)


def _read_row(rows: Any, row: int) -> bytes:
    (cell,) = rows[row].values()
    if cell is None or (cell["bytes"] is None and cell["path"] is None):
        raise DataError("the row has no image")
    content: bytes | None = cell["bytes"]
    if content is not None:
        return content
    try:
        return read_image_bytes(Path(cell["path"]))
    except DataError as error:
        raise DataError(f"the row names the file {shortened(cell['path'])}, and {error}") from error


def _fingerprint(tables: Mapping[str, Any], rows: Mapping[str, Any], root: Path | None) -> str | None:
    if root is None and any(
        chunk.null_count or chunk.field("bytes").null_count for each in rows.values() for chunk in _find_chunks(each)
    ):
        return None
    files = [file["filename"] for table in tables.values() for file in table.cache_files]
    if not files:
        return None
    times = [(file, os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files]
    return repr([*(table._fingerprint for table in tables.values()), *times])
