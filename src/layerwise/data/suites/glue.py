"""GLUE and SuperGLUE tasks from local files, as in the BabyLM evaluation or on the hub.

    BabyLM    TASK.train.jsonl and TASK.valid.jsonl; in 2023 .json and TASK.validation.json
    the hub   TASK/train-00000-of-00001.parquet and TASK/validation-00000-of-00001.parquet, also as train.parquet or
              train/0000.parquet

Test files are skipped because their labels are secret. A tenth of the training file is used to select the best epoch.
BabyLM's files have only examples of frequent words, so their scores are not comparable with published GLUE scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layerwise.bounded import shown
from layerwise.data.records import FileRecord, read_parquet_rows, read_records, walk_files
from layerwise.data.suites.classification import ClassificationTask, LabeledText, read_task_files
from layerwise.errors import DataError, near_matches

GLUE = "glue"


@dataclass(frozen=True, slots=True)
class Form:
    """Format of a GLUE task: columns of the first text and its pair, labels in order, and metrics, the main one first.

    If `answer` names a column, its text follows the question in the first text. A regression has a range of `scores`
    instead of labels. `validation` is the name of the reported split on the hub.
    """

    text: str
    pair: str | None
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    answer: str | None = None
    scores: tuple[float, float] | None = None
    validation: str = "validation"


_ENTAILED = ("entailment", "not_entailment")
_MNLI = Form("premise", "hypothesis", ("entailment", "neutral", "contradiction"), validation="validation_matched")

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "cola": Form("sentence", None, ("unacceptable", "acceptable"), ("mcc", "accuracy")),
        "sst2": Form("sentence", None, ("negative", "positive")),
        "mrpc": Form("sentence1", "sentence2", ("not_equivalent", "equivalent"), ("f1", "accuracy")),
        "rte": Form("sentence1", "sentence2", _ENTAILED),
        "wsc": Form("text", None, ("false", "true")),
        "mnli": _MNLI,
        "mnli-mm": replace(_MNLI, validation="validation_mismatched"),
        "qqp": Form("question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy")),
        "qnli": Form("question", "sentence", _ENTAILED),
        "boolq": Form("question", "passage", ("false", "true")),
        "multirc": Form("question", "paragraph", ("false", "true"), answer="answer"),
        "stsb": Form("sentence1", "sentence2", (), ("pearson", "spearman"), scores=(0.0, 5.0)),
        "wnli": Form("sentence1", "sentence2", ("not_entailment", "entailment")),
    }
)
"""Tasks in the order in which they are reported."""

_LINES = (".json", ".json.gz", ".jsonl", ".jsonl.gz")
_DIGITS = 7

_MAX_NAMES = 5


def read_tasks(folder: Path, names: Sequence[str] | None = None, *, seed: int = 0) -> list[ClassificationTask]:
    """Read the tasks `names` (default: all that exist), in the order of `FORMS`.

    Files are found in `folder`, in directories below it whose name begins with "glue", and there in directories named
    after the task. `seed` determines the rows that select the epoch. Raises `DataError` for an unknown name, missing
    files, and invalid rows, with line and column.
    """
    for name in names or ():
        if name not in FORMS:
            raise DataError(f"unknown GLUE task {name!r}; {near_matches(name, FORMS)}")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory. Pass one with {_needed('TASK')}.")
    folders = (folder, *(path for path in walk_files(folder) if path.name.startswith("glue") and path.is_dir()))
    tasks = []
    for name in FORMS:
        files = _find_files(name, folders) if names is None or name in names else None
        if files is not None:
            tasks.append(_read_task(name, files, seed))
        elif name in (names or ()):
            raise DataError(f"{folder} has no files of {name}{_present(name, folders)}. Required: {_needed(name)}.")
    if not tasks:
        raise DataError(f"{folder} has no GLUE task. Required for one of {', '.join(FORMS)}: {_needed('TASK')}.")
    return tasks


def _read_task(name: str, files: tuple[list[Path], list[Path]], seed: int) -> ClassificationTask:
    examples = {paths[0]: tuple(_example(row, name) for row in _read_rows(paths)) for paths in files}
    return read_task_files(GLUE, name, FORMS[name].labels, FORMS[name].metrics, examples, seed)


def _find_files(name: str, folders: Sequence[Path]) -> tuple[list[Path], list[Path]] | None:
    whole, validation = _whole(name), FORMS[name].validation
    for folder in folders:
        for inside in (folder, *_folders_of(name, folder)):
            train = _find_lines(inside, f"{whole}.train")
            test = _find_lines(inside, f"{name}.valid", f"{name}.validation", f"{whole}.{validation}")
            if _is_of(inside, name) and not (train and test):
                train, test = _find_parquet(inside, "train"), _find_parquet(inside, validation)
            if train and test:
                return train, test
    return None


def _find_lines(folder: Path, *stems: str) -> list[Path]:
    paths = (folder / f"{stem}{ending}" for stem in stems for ending in _LINES)
    return [path for path in paths if path.is_file()][:1]


def _find_parquet(folder: Path, split: str) -> list[Path]:
    numbered = sorted(folder.glob(f"{split}-?????-of-?????.parquet"))
    return numbered or sorted((*folder.glob(f"{split}.parquet"), *folder.glob(f"{split}/[0-9]*.parquet")))


def _needed(name: str) -> str:
    whole, validation = _whole(name), FORMS[name].validation if name in FORMS else "validation"
    return (
        f"{whole}.train and {name}.valid or {whole}.{validation}, each .jsonl or .json, also .gz; or "
        f"{whole}/train-*.parquet and {whole}/{validation}-*.parquet of the hub"
    )


def _present(name: str, folders: Iterable[Path]) -> str:
    near = [
        path.relative_to(folder).as_posix()
        for folder in folders
        for inside in (folder, *_folders_of(name, folder))
        for path in sorted(inside.iterdir())
        if path.is_file() and (inside != folder or path.name.casefold().startswith(f"{_whole(name)}."))
    ]
    names = list(dict.fromkeys(near))
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f" (found {', '.join(names[:_MAX_NAMES])}{more})" if names else ""


def _whole(name: str) -> str:
    return name.removesuffix("-mm")


def _is_of(folder: Path, name: str) -> bool:
    plain = folder.resolve().name.casefold().removesuffix(".fixed").replace("-", "").replace("_", "")
    return plain in (_whole(name), name.replace("-", ""))


def _folders_of(name: str, folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_dir() and _is_of(path, name)]


def _read_rows(paths: Sequence[Path]) -> Sequence[FileRecord]:
    if paths[0].suffix != ".parquet":
        return read_records(paths[0], kind=".jsonl")
    split, *numbers = paths[0].stem.split("-")
    if numbers:
        count = int(numbers[-1])
        expected = [paths[0].with_name(f"{split}-{number:05}-of-{count:05}.parquet") for number in range(count)]
        missing = [path.name for path in expected if path not in paths]
        if missing:
            raise DataError(
                f"{paths[0].parent} has {count - len(missing)} of the {count} files of the split {split!r}. Download "
                f"{missing[0]} too."
            )
    return [row for path in paths for row in read_parquet_rows(path)]


def _example(row: FileRecord, name: str) -> LabeledText:
    form = FORMS[name]
    if name == "rte" and "premise" in row.columns:  # SuperGLUE's columns
        form = replace(form, text="premise", pair="hypothesis")
    text = row.text(form.text)
    if form.answer is not None:
        text = f"Question: {text} Answer: {row.text(form.answer)}"
    pair = _resolved(row) if name == "wsc" else None if form.pair is None else row.text(form.pair)
    value = row.cell("label")
    return LabeledText(text, pair, _label(row, value, form) if form.scores is None else _score(row, value, form.scores))


def _label(row: FileRecord, value: Any, form: Form) -> int:
    text = str(int(value)) if isinstance(value, bool) else value if isinstance(value, str) else shown(value)
    numbers = {key: number for number, name in enumerate(form.labels) for key in (name, str(number))}
    if text not in numbers:
        labels = ", ".join(f"{number} ({name})" for number, name in enumerate(form.labels))
        raise DataError(f"{row.location}: column 'label' must be one of {labels}, got {shown(value)}.")
    return numbers[text]


def _score(row: FileRecord, value: Any, bounds: tuple[float, float]) -> float:
    try:
        score = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        score = math.nan
    low, high = bounds
    if not low <= score <= high:
        raise DataError(
            f"{row.location}: column 'label' must be a number from {low:g} to {high:g}, got {shown(value)}."
        )
    return float(f"{score:.{_DIGITS}g}")


def _resolved(row: FileRecord) -> str:
    """Return the second text of a WSC example: the passage from the pronoun on, with the candidate in its place.

    `text` is the passage, `span1_text` the candidate, and `span2_text` the pronoun, which is word number `span2_index`.
    """
    candidate, pronoun = row.text("span1_text"), row.text("span2_text")
    start = row.columns.get("span2_index")
    words = row.text("text").split()
    if type(start) is not int or not 0 <= start < len(words):
        raise DataError(
            f"{row.location}: column 'span2_index' must be the number of a word of 'text' (0 to {len(words) - 1}), got "
            f"{shown(start)}."
        )
    end = start + len(pronoun.split())
    phrase = " ".join(words[start:end])
    if pronoun.lower() not in phrase.lower():
        raise DataError(
            f"{row.location}: column 'span2_text' must be word {start} of 'text' ({phrase!r}), got {pronoun!r}. "
            "Correct 'span2_index'."
        )
    at = phrase.lower().index(pronoun.lower())
    return " ".join([phrase[:at] + candidate + phrase[at + len(pronoun) :], *words[end:]])
