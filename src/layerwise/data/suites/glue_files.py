"""The files of a GLUE or SuperGLUE task, in the layouts in which they are distributed, and their rows.

    BabyLM 2024, 2025   TASK.train.jsonl and TASK.valid.jsonl
    BabyLM 2023         TASK.train.json and TASK.validation.json; of mnli, validation_matched.json
    SuperGLUE           BoolQ/train.jsonl and BoolQ/val.jsonl
    the hub             rte/train-00000-of-00001.parquet and rte/validation-00000-of-00001.parquet, also as
                        train.parquet or train/0000.parquet; of mnli, validation_matched and validation_mismatched

JSON lines may be packed (`.gz`). Test files are skipped: their labels are secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import types

from layerwise.bounded import Unreadable, shown
from layerwise.data.parquet_batches import parquet_batches
from layerwise.data.suites.records import FileRecord, read_records
from layerwise.errors import DataError

_KINDS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_PARTS = {"mnli": "_matched", "mnli-mm": "_mismatched"}
_SUPERGLUE = {"boolq": "BoolQ", "multirc": "MultiRC", "rte": "RTE", "wsc": "WSC"}
"""The folders of SuperGLUE's tasks as published."""

_NUMBERED = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet")
_DIGITS = 7
"""Digits of a number of 32 bits: scores are published with three decimals, and stored so."""

_MOST_NAMED = 5


class Files(NamedTuple):
    """The file that a task is taught and selected on, and the one that it is reported on."""

    train: Path
    test: Path


def find_files(name: str, folders: Sequence[Path]) -> Files | None:
    """The files of a task in the first of the folders that has them, or in a folder of the task's name there."""
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; give one that holds {needed('TASK')}")
        for inside in (folder, *_of_name(folder, name)):
            for in_its_folder, *patterns in _layouts(name):
                if not in_its_folder or _is_named(inside, name):
                    train, test = (_first(inside, each) for each in patterns)
                    if train is not None and test is not None:
                        return Files(train, test)
    return None


def needed(name: str) -> str:
    """The files that a task needs, in words; for `TASK` those of any."""
    whole = _whole(name)
    layouts = [f"{whole}.train and {' or '.join(_validation_stems(name))}, each {', '.join(_KINDS)}"]
    if name in _SUPERGLUE:
        folder = _SUPERGLUE[name]
        layouts.append(f"{folder}/train.jsonl and {folder}/val.jsonl as SuperGLUE publishes them")
    layouts.append(f"{whole}/train-*.parquet and {whole}/validation{_PARTS.get(name, '')}-*.parquet of the hub")
    return "; or ".join(layouts)


def present(name: str, folders: Iterable[Path]) -> str:
    """What lies in the folders that has the name of the task: "found boolq.valid.jsonl", or nothing at all."""
    near = [
        path.relative_to(folder).as_posix()
        for folder in folders
        for inside in (folder, *_of_name(folder, name))
        for path in sorted(inside.iterdir())
        if path.is_file() and (inside != folder or path.name.casefold().startswith(f"{_whole(name)}."))
    ]
    names = list(dict.fromkeys(near))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"found {', '.join(names[:_MOST_NAMED])}{more}, and it needs" if names else "it needs"


def read_rows(path: Path, name: str) -> tuple[FileRecord, ...]:
    """The rows of a file, and of those that follow it where a split of the hub is several, an example each.

    MultiRC's passages and WSC's spans, which SuperGLUE nests, are taken apart. Raises `DataError` for a file that
    cannot be read or holds more than text is read of, for a split of which a file is missing, and for no row.
    """
    if path.suffix == ".parquet":
        rows = tuple(row for part in _parts(path) for row in _parquet_rows(part))
        if not rows:
            raise DataError(f"{path} holds no row; fetch it again")
        return rows
    return tuple(each for row in read_records(path, kind=".jsonl") for each in _flat(row, name))


def _layouts(name: str) -> Iterator[tuple[bool, list[str], list[str]]]:
    """Whether the folder must have the task's name, and what its training and its validation file may be called."""
    stems = ([f"{_whole(name)}.train"], _validation_stems(name))
    train, test = ([f"{stem}{kind}" for stem in each for kind in _KINDS] for each in stems)
    yield False, train, test
    if name in _SUPERGLUE:
        yield True, [f"train{kind}" for kind in _KINDS[:2]], [f"val{kind}" for kind in _KINDS[:2]]
    train, test = (
        [f"{split}-?????-of-?????.parquet", f"{split}.parquet", f"{split}/0000.parquet"]
        for split in ("train", f"validation{_PARTS.get(name, '')}")
    )
    yield True, train, test


def _validation_stems(name: str) -> list[str]:
    """What the validation file of a task may be called in the BabyLM form, without its ending."""
    part = [f"{_whole(name)}.validation{_PARTS[name]}"] if name in _PARTS else []
    return [f"{name}.valid", f"{name}.validation", *part]


def _first(folder: Path, patterns: Iterable[str]) -> Path | None:
    return next((path for each in patterns for path in sorted(folder.glob(each)) if path.is_file()), None)


def _whole(name: str) -> str:
    """The task whose training file is that of the task."""
    return name.removesuffix("-mm")


def _is_named(folder: Path, name: str) -> bool:
    """Whether a folder has the name of a task, as the hub (`wsc.fixed`) or the benchmark (`SST-2`) writes it."""
    own = folder.resolve().name.casefold().removesuffix(".fixed").replace("-", "").replace("_", "")
    return own in (_whole(name), name.replace("-", ""))


def _of_name(folder: Path, name: str) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if path.is_dir() and _is_named(path, name))


def _parts(path: Path) -> Sequence[Path]:
    numbered = _NUMBERED.fullmatch(path.name)
    if numbered is None:
        return sorted(path.parent.glob("[0-9]*.parquet")) if path.stem.isdigit() else (path,)
    split, count = numbered["split"], int(numbered["count"])
    parts = [path.with_name(f"{split}-{number:05}-of-{count:05}.parquet") for number in range(count)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise DataError(
            f"{path.parent} holds {count - len(missing)} of the {count} files of the split {split!r}: fetch "
            f"{missing[0]} too"
        )
    return parts


def _parquet_rows(path: Path) -> Iterator[FileRecord]:
    number = 0
    try:
        for batch in parquet_batches(path):
            if not batch.columns:
                raise DataError(f"{path} has no column of texts or numbers; fetch it again, or give another file")
            columns = [_values(column) for column in batch.columns]
            for values in zip(*columns, strict=True):
                number += 1
                yield FileRecord(dict(zip(batch.schema.names, values, strict=True)), str(path), number, "row")
    except Unreadable as fault:
        raise DataError(f"{path} {fault}; fetch it again") from fault


def _values(column: Any) -> list[Any]:
    values: list[Any] = column.to_pylist()
    if not types.is_float32(column.type):
        return values
    return [None if value is None else float(f"{value:.{_DIGITS}g}") for value in values]


def _flat(row: FileRecord, name: str) -> Iterator[FileRecord]:
    """The row, or the rows that SuperGLUE nests in one: an answer each of MultiRC, the two spans of WSC."""
    if name == "wsc" and "target" in row.columns:
        rest = {column: value for column, value in row.columns.items() if column != "target"}
        yield FileRecord({**_nested(row.columns, "target", dict, row), **rest}, row.file, row.line)
    elif name == "multirc" and "passage" in row.columns:
        passage = _nested(row.columns, "passage", dict, row)
        for question in _nested(passage, "questions", list, row):
            for answer in _nested(question, "answers", list, row):
                texts = {"paragraph": passage.get("text"), "question": question.get("question")}
                label = {"label": answer["label"]} if "label" in answer else {}
                yield FileRecord({**texts, "answer": answer.get("text"), **label}, row.file, row.line)
    else:
        yield row


def _nested(columns: Mapping[str, Any], name: str, kind: type, row: FileRecord) -> Any:
    """The mapping, or the list of mappings, in a column."""
    value = columns.get(name)
    are_mappings = not isinstance(value, list) or all(isinstance(each, dict) for each in value)
    if not isinstance(value, kind) or not are_mappings:
        raise DataError(f"{row.location}: {name!r} holds {shown(value)}; take the file as SuperGLUE publishes it")
    return value
