"""Where the files of a GLUE or SuperGLUE task lie: the layouts in which they are distributed, and which file does what.

    BabyLM 2024, 2025   TASK.train.jsonl and TASK.valid.jsonl
    BabyLM 2023         TASK.train.json and TASK.validation.json; of mnli, validation_matched.json
    the authors'        cola: in_domain_train.tsv, in_domain_dev.tsv, out_of_domain_dev.tsv; sst2: train.tsv, dev.tsv
    GLUE                RTE/train.tsv and RTE/dev.tsv; of MNLI, dev_matched.tsv and dev_mismatched.tsv
    SuperGLUE           BoolQ/train.jsonl and BoolQ/val.jsonl
    the hub             rte/train-00000-of-00001.parquet and rte/validation-00000-of-00001.parquet; of mnli,
                        validation_matched and validation_mismatched

JSON lines may be packed (`.gz`). Labels of published test files are secret (-1 on the hub), so these files are passed
over; only SST-2 in its authors' form has a labelled one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from layerwise.bounded import TEXT_SIZE, Unreadable, decoded, read_bytes
from layerwise.data.suites.glue_forms import FORMS, GLUE_FORMS, SUPERGLUE_FORMS, Form
from layerwise.data.suites.glue_parquet import form_of, read_parquet, split_file
from layerwise.data.suites.glue_tables import (
    HEADERLESS,
    Reader,
    read_flat,
    read_headed,
    read_headerless,
    read_superglue,
)
from layerwise.errors import DataError

_KINDS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_MISMATCHED = "mnli-mm"
_FOLDERS: Mapping[str, str] = {
    "cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B", "boolq": "BoolQ", "multirc": "MultiRC", _MISMATCHED: "MNLI",
}  # fmt: skip
"""What the folders of tasks are called as published, where that is not the name in capitals."""

_DEV = {"mnli": "dev_matched", _MISMATCHED: "dev_mismatched"}
_HUB = {"mnli": "validation_matched", _MISMATCHED: "validation_mismatched"}
_AUTHORS = {"cola": ("in_domain_train", "in_domain_dev", "out_of_domain_dev"), "sst2": ("train", "dev", "test")}
_MOST_NAMED = 5


class Files(NamedTuple):
    """The files a task is taught on, selected on (none: a part of the first) and reported on, and how they are read."""

    train: Path
    selection: Path | None
    test: tuple[Path, ...]
    form: Form
    read: Reader


def find_files(name: str, folders: Sequence[Path]) -> Files | None:
    """The files of a task in the first of the folders that has them, or in a folder of the task's name there."""
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; give one that holds {needed('TASK')}")
        for path in (folder, *_of_name(folder, name)):
            for layout in (_babylm, _glue, _superglue, _hub, _authors):
                files = layout(path, name)
                if files is not None:
                    return files
    return None


def needed(name: str) -> str:
    """The files that a task needs, in words; for `TASK` those of any."""
    train, valid = _stems(name)
    layouts = [f"{' or '.join(train)} and {' or '.join(valid)}, each {', '.join(_KINDS)}"]
    if name in _AUTHORS:
        *first, last = (f"{stem}.tsv" for stem in _AUTHORS[name][: 3 if name == "cola" else 2])
        layouts.append(f"{', '.join(first)} and {last}")
    folder = _published(name)
    if name in GLUE_FORMS:
        layouts.append(f"{folder}/train.tsv and {folder}/{_DEV.get(name, 'dev')}.tsv as GLUE publishes them")
    if name in SUPERGLUE_FORMS:
        layouts.append(f"{folder}/train.jsonl and {folder}/val.jsonl as SuperGLUE publishes them")
    if name in FORMS:
        whole = name.removesuffix("-mm")
        layouts.append(f"{whole}/train-*.parquet and {whole}/{_HUB.get(name, 'validation')}-*.parquet of the hub")
    else:
        layouts.append("the folders that GLUE and SuperGLUE publish, such as RTE with train.tsv and dev.tsv")
        layouts.append("those of the hub, such as rte with train-00000-of-00001.parquet and validation-*.parquet")
    return "; or ".join(layouts)


def present(name: str, folders: Iterable[Path]) -> str:
    """What lies in the folders that has the name of the task: "found boolq.valid.jsonl", or nothing at all."""
    stem = name.removesuffix("-mm")
    near = [
        path.relative_to(folder).as_posix()
        for folder in folders
        for inside in (folder, *_of_name(folder, name))
        for path in sorted(inside.iterdir())
        if path.is_file() and (inside != folder or path.name.casefold().startswith(f"{stem}."))
    ]
    names = list(dict.fromkeys(near))
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"found {', '.join(names[:_MOST_NAMED])}{more}, and it needs" if names else "it needs"


def _squeezed(name: str) -> str:
    return name.casefold().removesuffix(".fixed").replace("-", "").replace("_", "")  # the hub has wsc and wsc.fixed


def _published(name: str) -> str:
    return _FOLDERS.get(name, name.upper())


def _is_named(folder: Path, name: str) -> bool:
    """Whether a folder has the name of a task, its own or the published one."""
    return _squeezed(folder.resolve().name) in (_squeezed(name), _squeezed(_published(name)))


def _of_name(folder: Path, name: str) -> Iterator[Path]:
    yield from (path for path in sorted(folder.iterdir()) if path.is_dir() and _is_named(path, name))


def _babylm(folder: Path, name: str) -> Files | None:
    train, valid = (
        next((path for stem in stems for kind in _KINDS if (path := folder / f"{stem}{kind}").is_file()), None)
        for stems in _stems(name)
    )
    return None if train is None or valid is None else Files(train, None, (valid,), FORMS[name], read_flat)


def _stems(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the training and the validation file of a task may be called in the BabyLM form, without their endings."""
    valid = (f"{name}.valid", f"{name}.validation")
    if name == _MISMATCHED:
        return ("mnli.train",), (*valid, "mnli.validation_mismatched")
    return (f"{name}.train",), (*valid, "mnli.validation_matched") if name == "mnli" else valid


def _glue(folder: Path, name: str) -> Files | None:
    train, dev = folder / "train.tsv", folder / f"{_DEV.get(name, 'dev')}.tsv"
    if name not in GLUE_FORMS or not (_is_named(folder, name) and train.is_file() and dev.is_file()):
        return None
    if name == "sst2" and not _has_header(train):
        return None
    read = read_headerless if name == "cola" else read_headed
    return Files(train, None, (dev,), GLUE_FORMS[name], read)


def _has_header(path: Path) -> bool:
    """Whether SST-2's table begins with the names of its columns, as GLUE's does and its authors' does not."""
    try:
        first = decoded(read_bytes(path, TEXT_SIZE)).partition("\n")[0]
    except Unreadable as fault:
        raise DataError(f"{path} {fault}; check the file, fetch it again, or convert it to UTF-8 text") from fault
    return tuple(first.rstrip("\r").split("\t")) == HEADERLESS["sst2"]


def _superglue(folder: Path, name: str) -> Files | None:
    if name not in SUPERGLUE_FORMS or not _is_named(folder, name):
        return None
    train, val = (
        next((path for kind in _KINDS[:2] if (path := folder / f"{stem}{kind}").is_file()), None)
        for stem in ("train", "val")
    )
    return None if train is None or val is None else Files(train, None, (val,), SUPERGLUE_FORMS[name], read_superglue)


def _hub(folder: Path, name: str) -> Files | None:
    if not _is_named(folder, name):
        return None
    train, validation = (split_file(folder, split) for split in ("train", _HUB.get(name, "validation")))
    if train is None or validation is None:
        return None
    return Files(train, None, (validation,), form_of(train, name), read_parquet)


def _authors(folder: Path, name: str) -> Files | None:
    # The names of SST-2's tables are those of GLUE's, so a folder that is named after another task is not its own.
    if name not in _AUTHORS or any(_is_named(folder, other) for other in FORMS if other != name):
        return None
    first, second, third = (folder / f"{stem}.tsv" for stem in _AUTHORS[name])
    form = FORMS[name]
    if not (first.is_file() and second.is_file()):
        return None
    if name == "cola":
        return Files(first, None, (second, third), form, read_headerless) if third.is_file() else None
    if third.is_file():
        return Files(first, second, (third,), form, read_headerless)
    return Files(first, None, (second,), form, read_headerless)
