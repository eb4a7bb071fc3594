"""Image datasets of the Hugging Face hub, or of a folder in one of its formats, through `datasets`.

Columns are found by their types, not their names: one column of images, one of labels. Where a dataset has several
of labels the name says which: `uoft-cs/cifar100:fine_label`. A test split whose labels are withheld (all -1, as in
ImageNet) counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from layerwise.bounded import shortened
from layerwise.data.vision.content_digests import FileVersion
from layerwise.data.vision.image_sources import SPLIT_NAMES, ImageSet, ImageSource, image_bytes
from layerwise.errors import DataError, near_matches

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "class", "target")
_WITHHELD = -1
"""What `datasets` writes where a label is not known."""


def is_dataset_folder(folder: Path) -> bool:
    """Whether a folder holds a dataset that was saved or exported, rather than image files."""
    saved = any((folder / name).is_file() for name in ("dataset_dict.json", "state.json"))
    return saved or next(folder.rglob("*.parquet"), None) is not None


def dataset_images(where: str | Path) -> ImageSet:
    """The labelled images of the dataset called `where`, or in the folder `where`; named by split and row.

    Raises `DataError` when the dataset cannot be loaded, has no train split, no image column, or no label column, and
    when it has several of either and none by a usual name.
    """
    name, _, column = (where, "", "") if isinstance(where, Path) else where.partition(":")
    tables = _splits(_load(name), str(name))
    features = tables["train"].features
    image = _image_column(features, str(name))
    label = _label_column(features, str(name), column)
    labels = {split: list(table[label]) for split, table in tables.items()}
    labels = {split: values for split, values in labels.items() if set(values) != {_WITHHELD}}
    classes, numbers = _classes(features[label], labels.values())
    parts = {split: _pictures(tables[split], image, values, numbers, split) for split, values in labels.items()}
    return ImageSet(where.name if isinstance(where, Path) else where, classes, parts)


def _load(name: str | Path) -> Any:
    import datasets

    try:
        if isinstance(name, Path) and not next(name.rglob("*.parquet"), None):
            return datasets.load_from_disk(str(name))
        return datasets.load_dataset(str(name))
    except Exception as error:  # the hub, the network, the disk and the formats each have errors of their own
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"there is no folder {str(name)!r} that can be read, nor a dataset of this name on the Hugging Face hub: "
            f"{reason}; give --images a folder with one subfolder a class, a dataset's name, or digits"
        ) from error


def _splits(loaded: Any, name: str) -> dict[str, Any]:
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


def _image_column(features: Mapping[str, Any], name: str) -> str:
    import datasets

    columns = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    return _one_of(columns, _IMAGE_NAMES, features, f"the dataset {name!r}", "images")


def _label_column(features: Mapping[str, Any], name: str, column: str) -> str:
    import datasets

    if column:
        if column not in features:
            raise DataError(f"the dataset {name!r} has no column {column!r}; {near_matches(column, features)}")
        return column
    columns = [each for each, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    plain = [each for each in _LABEL_NAMES if isinstance(features.get(each), datasets.Value)]
    try:
        return _one_of(columns or plain, _LABEL_NAMES, features, f"the dataset {name!r}", "labels")
    except DataError as error:
        raise DataError(f"{error}; name it, as in {name}:{(columns or list(features))[0]}") from error


def _one_of(candidates: Sequence[str], usual: Sequence[str], every: Iterable[str], owner: str, what: str) -> str:
    named = [column for column in candidates if column in usual]
    chosen = candidates if len(candidates) == 1 else named
    if len(chosen) != 1:
        several = f"several columns of {what} ({', '.join(candidates)})" if candidates else f"no column of {what}"
        raise DataError(f"{owner} has {several}; its columns are {', '.join(every)}")
    return chosen[0]


def _classes(kind: Any, labels: Iterable[Sequence[Any]]) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The names of the classes, and the number of each label as it stands in the table."""
    import datasets

    if isinstance(kind, datasets.ClassLabel):
        return tuple(kind.names), {number: number for number in range(len(kind.names))}
    values = sorted({value for column in labels for value in column if value is not None})
    return tuple(str(value) for value in values), {value: number for number, value in enumerate(values)}


def _pictures(
    table: Any, image: str, labels: Sequence[Any], numbers: Mapping[Any, int], split: str
) -> tuple[ImageSource, ...]:
    import datasets

    rows = table.select_columns([image]).cast_column(image, datasets.Image(decode=False))
    unlabelled = [row for row, label in enumerate(labels) if label not in numbers]
    if unlabelled:
        raise DataError(
            f"{len(unlabelled)} of {len(labels)} images of the {split} split have no label, first row {unlabelled[0]}: "
            "label them, or remove them"
        )
    whole = _version(rows, image)
    return tuple(
        ImageSource(
            f"{split}[{row}]", numbers[label], partial(_content, rows, image, row), partial(_row_version, whole, row)
        )
        for row, label in enumerate(labels)
    )


def _version(table: Any, column: str) -> FileVersion | None:
    """The version of a table, by the files that it lies in; `None` where it has none, or names images elsewhere."""
    within = all(
        not chunk.null_count and not chunk.field("bytes").null_count for chunk in table.data.column(column).chunks
    )
    version = FileVersion.of_all(Path(file["filename"]) for file in table.cache_files) if within else None
    # Which rows of the files are those of the table, and in which order.
    return None if version is None else version.part(str(table._fingerprint))


def _row_version(whole: FileVersion | None, row: int) -> FileVersion | None:
    return None if whole is None else whole.part(str(row))


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
