"""MSGS, the Mixed Signals Generalization Set (Warstadt et al. 2020), in its published form.

    main_verb_control/                  train.jsonl, test.jsonl    a single feature
    main_verb_lexical_content_the/      train.jsonl, test.jsonl    two features that agree in training

`FOLDER/NAME.train.jsonl` and `.gz` files are read too; files without MSGS's labels are skipped. An ambiguous task is
trained on rows of condition "training", where both labels agree, and reported on rows of condition "test", where they
differ. The label to predict is the linguistic one. A tenth of the training rows is used to select the best epoch.
"""

from __future__ import annotations

from pathlib import Path

from layerwise.bounded import shown
from layerwise.data.records import FileRecord, read_json_rows, read_records
from layerwise.data.suites.classification import ClassificationTask, LabeledText, read_task_files
from layerwise.errors import DataError

MSGS = "msgs"
LABELS = ("no", "yes")
COLUMNS = ("linguistic_feature_label", "surface_feature_label")
_CONTROL = "_control"
_KINDS = (".jsonl", ".jsonl.gz")


def read_msgs(folder: Path, *, seed: int = 0) -> list[ClassificationTask]:
    """Read all tasks in `folder`, sorted by name. `seed` determines the rows that select the epoch.

    Tasks are named like `control main_verb` or `ambiguous main_verb_lexical_content_the`. Raises `DataError` if the
    folder has none, and for invalid rows, with line and column.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is not a directory. Pass one with MSGS, a directory per task.")
    available, others = _tasks_in(folder)
    if not available:
        skipped = f" (the first row of {others[0]} has no {COLUMNS[0]})" if others else ""
        raise DataError(
            f"{folder} has no MSGS task{skipped}. Required: NAME/train.jsonl and NAME/test.jsonl, or NAME.train.jsonl "
            "and NAME.test.jsonl, for a NAME such as main_verb_control."
        )
    return [_task(name, *available[name], seed) for name in sorted(available)]


def _tasks_in(folder: Path) -> tuple[dict[str, tuple[Path, Path]], list[str]]:
    tasks: dict[str, tuple[Path, Path]] = {}
    others: list[str] = []
    for kind in _KINDS:
        for train in sorted((*folder.glob(f"*/train{kind}"), *folder.glob(f"*.train{kind}"))):
            if not _is_labeled(train):
                others.append(train.relative_to(folder).as_posix())
                continue
            inside = train.name == f"train{kind}"
            name = train.parent.name if inside else train.name.removesuffix(f".train{kind}")
            stem = train.parent / ("test" if inside else f"{name}.test")
            test = next((path for other in _KINDS if (path := stem.with_name(stem.name + other)).is_file()), None)
            if test is None:
                raise DataError(f"{train} has no test file. Add {stem.name}.jsonl to its directory.")
            tasks.setdefault(name, (train, test))
    return tasks, others


def _is_labeled(path: Path) -> bool:
    try:
        return not next(read_json_rows(path)).columns.keys().isdisjoint(COLUMNS)
    except DataError:  # reported when the task is read
        return True


def _task(name: str, train: Path, test: Path, seed: int) -> ClassificationTask:
    control = name.endswith(_CONTROL)
    if control:
        train_rows, test_rows = (
            tuple(_label_row(row, _only_label(row)) for row in read_records(path)) for path in (train, test)
        )
    else:
        train_rows = _read_condition(train, "training", agree=True)
        test_rows = _read_condition(test, "test", agree=False)
    title = f"control {name.removesuffix(_CONTROL)}" if control else f"ambiguous {name}"
    return read_task_files(MSGS, title, LABELS, ("mcc", "accuracy"), {train: train_rows, test: test_rows}, seed)


def _read_condition(path: Path, condition: str, *, agree: bool) -> tuple[LabeledText, ...]:
    rows = [row for row in read_records(path) if row.text("condition") == condition]
    if not rows:
        raise DataError(f"{path} has no row whose column 'condition' is {condition!r}. Use the published file.")
    for row in rows:
        first, second = (_feature(row, column) for column in COLUMNS)
        if (first == second) is not agree:
            raise DataError(
                f"{row.location}: columns {' and '.join(map(repr, COLUMNS))} must {'agree' if agree else 'differ'} in "
                f"rows of condition {condition!r}, got {first} and {second}. Use the published file."
            )
    return tuple(_label_row(row, _feature(row, COLUMNS[0])) for row in rows)


def _only_label(row: FileRecord) -> int:
    given = [column for column in COLUMNS if row.columns.get(column) is not None]
    if len(given) != 1:
        raise DataError(
            f"{row.location}: exactly one of the columns {' and '.join(COLUMNS)} must have a label in a control task, "
            f"got {len(given)}."
        )
    return _feature(row, given[0])


def _feature(row: FileRecord, column: str) -> int:
    value = row.columns.get(column)
    if not isinstance(value, int) or value not in (0, 1):
        got = shown(value) if column in row.columns else "no such column"
        raise DataError(f"{row.location}: column {column!r} must be 0 or 1, got {got}.")
    return int(value)


def _label_row(row: FileRecord, label: int) -> LabeledText:
    return LabeledText(row.text("sentence"), None, label)
