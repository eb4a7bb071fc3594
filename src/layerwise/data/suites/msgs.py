"""MSGS, the Mixed Signals Generalization Set (Warstadt et al. 2020), in the form its authors publish it.

    main_verb_control/                  train.jsonl, test.jsonl    one feature, can it be learned?
    main_verb_lexical_content_the/      train.jsonl, test.jsonl    two features that agree in training

`FOLDER/NAME.train.jsonl` is read too, and each file as `.gz`; files with neither of MSGS's labels are skipped. An
ambiguous task is taught on the rows of `train` with condition "training", where the two labels are the same, and
reported on those of `test` with condition "test", where they differ; its label is the linguistic one. A tenth of the
training rows selects.
"""

from __future__ import annotations

from pathlib import Path

from layerwise.bounded import shown
from layerwise.data.records import FileRecord, json_rows, read_records
from layerwise.data.suites.classification import ClassificationTask, Labelled, task_of_files
from layerwise.errors import DataError

MSGS = "msgs"
LABELS = ("no", "yes")
COLUMNS = ("linguistic_feature_label", "surface_feature_label")
_CONTROL = "_control"
_KINDS = (".jsonl", ".jsonl.gz")


def read_msgs(folder: Path, *, seed: int = 0) -> list[ClassificationTask]:
    """The tasks in `folder`, sorted; `seed` cuts the selection sets.

    Their own names say what they are: `control main_verb`, `ambiguous main_verb_lexical_content_the`. Raises
    `DataError` when there are none, and for what is wrong in a file, by line and column.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}; give one that holds MSGS, a folder a task")
    available, others = _tasks_in(folder)
    if not available:
        passed_over = f" ({others[0]} is there, and its first row has no {COLUMNS[0]})" if others else ""
        raise DataError(
            f"no MSGS task in {folder}{passed_over}; it needs NAME/train.jsonl and NAME/test.jsonl, or "
            "NAME.train.jsonl and NAME.test.jsonl, for one NAME such as main_verb_control"
        )
    return [_task(name, *available[name], seed) for name in sorted(available)]


def _tasks_in(folder: Path) -> tuple[dict[str, tuple[Path, Path]], list[str]]:
    tasks: dict[str, tuple[Path, Path]] = {}
    others: list[str] = []
    for kind in _KINDS:
        for train in sorted((*folder.glob(f"*/train{kind}"), *folder.glob(f"*.train{kind}"))):
            if not _is_labelled(train):
                others.append(train.relative_to(folder).as_posix())
                continue
            inside = train.name == f"train{kind}"
            name = train.parent.name if inside else train.name.removesuffix(f".train{kind}")
            stem = train.parent / ("test" if inside else f"{name}.test")
            test = next((path for other in _KINDS if (path := stem.with_name(stem.name + other)).is_file()), None)
            if test is None:
                raise DataError(f"{train} has no test file beside it; put {stem.name}.jsonl there")
            tasks.setdefault(name, (train, test))
    return tasks, others


def _is_labelled(path: Path) -> bool:
    try:
        return not next(json_rows(path)).columns.keys().isdisjoint(COLUMNS)
    except DataError:  # reading the task says what is wrong
        return True


def _task(name: str, train: Path, test: Path, seed: int) -> ClassificationTask:
    control = name.endswith(_CONTROL)
    if control:
        taught, test_rows = (
            tuple(_labelled(row, _only_label(row)) for row in read_records(path)) for path in (train, test)
        )
    else:
        taught = _of_condition(train, "training", agree=True)
        test_rows = _of_condition(test, "test", agree=False)
    title = f"control {name.removesuffix(_CONTROL)}" if control else f"ambiguous {name}"
    return task_of_files(MSGS, title, LABELS, ("mcc", "accuracy"), {train: taught, test: test_rows}, seed)


def _of_condition(path: Path, condition: str, *, agree: bool) -> tuple[Labelled, ...]:
    rows = [row for row in read_records(path) if row.text("condition") == condition]
    if not rows:
        raise DataError(f"{path} has no row whose column 'condition' is {condition!r}; take the file as published")
    for row in rows:
        first, second = (_feature(row, column) for column in COLUMNS)
        if (first == second) is not agree:
            raise DataError(
                f"{row.location}: columns {' and '.join(map(repr, COLUMNS))} hold {first} and {second}, but in rows of "
                f"condition {condition!r} they {'agree' if agree else 'differ'}; take the file as published"
            )
    return tuple(_labelled(row, _feature(row, COLUMNS[0])) for row in rows)


def _only_label(row: FileRecord) -> int:
    given = [column for column in COLUMNS if row.columns.get(column) is not None]
    if len(given) != 1:
        raise DataError(
            f"{row.location}: {len(given)} of the columns {' and '.join(COLUMNS)} hold a label; in a control task "
            "exactly one does, and the other is null"
        )
    return _feature(row, given[0])


def _feature(row: FileRecord, column: str) -> int:
    value = row.columns.get(column)
    if not isinstance(value, int) or value not in (0, 1):
        problem = f"holds {shown(value)}" if column in row.columns else "is not there"
        raise DataError(f"{row.location}: column {column!r} {problem}; it must be 0 or 1")
    return int(value)


def _labelled(row: FileRecord, label: int) -> Labelled:
    return Labelled(row.text("sentence"), None, label)
