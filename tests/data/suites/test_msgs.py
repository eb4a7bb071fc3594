"""MSGS as published: training rows, test rows, labels, and refusals."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from layerwise.data.suites.msgs import read_msgs
from layerwise.errors import DataError


def _row(number: int, condition: str, linguistic: int | None, surface: int | None, **more: Any) -> dict[str, Any]:
    return {
        "sentence": f"{condition} {number}",
        "condition": condition,
        "linguistic_feature_label": linguistic,
        "surface_feature_label": surface,
        "UID": "x",
        **more,
    }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


TAUGHT = [_row(number, "training", number % 2, number % 2) for number in range(40)]
ASKED = [
    *(_row(number, "test", number % 2, 1 - number % 2) for number in range(6)),
    *(_row(number, "control", number % 2, number % 2) for number in range(4)),
]


def _suite(folder: Path) -> Path:
    _write(folder / "main_verb_length" / "train.jsonl", TAUGHT)
    _write(folder / "main_verb_length" / "test.jsonl", ASKED)
    _write(folder / "main_verb_length" / "inoculating.jsonl", [])
    for feature, labels in (("main_verb", (1, None)), ("length", (None, 1))):
        no = tuple(None if label is None else 0 for label in labels)
        for part, condition, count in (("train", "training", 30), ("test", "test", 8)):
            rows = [_row(number, condition, *(labels if number % 2 else no)) for number in range(count)]
            _write(folder / f"{feature}_control.{part}.jsonl.gz", rows)
    return folder


def test_ambiguous_rows_agree_in_training_and_differ_where_they_are_asked(tmp_path: Path) -> None:
    tasks = {task.name: task for task in read_msgs(_suite(tmp_path))}
    assert set(tasks) == {"ambiguous main_verb_length", "control length", "control main_verb"}
    task = tasks["ambiguous main_verb_length"]
    assert [(row.text, row.label) for row in task.test] == [(f"test {number}", number % 2) for number in range(6)]
    assert {row.text for row in (*task.train, *task.selection)} == {f"training {number}" for number in range(40)}
    assert len(task.selection) == 4
    assert (task.measure, task.metric) == ("msgs", "mcc")


@pytest.mark.parametrize("name", ["control main_verb", "control length"])
def test_a_control_has_the_label_that_is_given(name: str, tmp_path: Path) -> None:
    task = next(task for task in read_msgs(_suite(tmp_path)) if task.name == name)
    assert [row.label for row in task.test] == [number % 2 for number in range(8)]
    assert len(task.train) + len(task.selection) == 30


@pytest.mark.parametrize(
    ("part", "row", "message"),
    [
        ("train", _row(99, "training", 0, 1), "line 41: columns .* hold 0 and 1, but in rows .* they agree"),
        ("train", _row(99, "training", 2, 1), "line 41: column 'linguistic_feature_label' holds 2; it must be 0 or 1"),
        ("test", _row(99, "test", 1, 1), "line 11: columns .* hold 1 and 1, but in rows .* they differ"),
        ("test", _row(99, "test", None, 1), "line 11: column 'linguistic_feature_label' holds None"),
        ("test", _row(99, "test", 0, 1, sentence=""), "line 11: column 'sentence' holds ''"),
        ("test", {"sentence": "no condition"}, "line 11: there is no column 'condition'"),
    ],
)
def test_a_fault_is_named_by_file_line_and_column(part: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    _suite(tmp_path)
    _write(tmp_path / "main_verb_length" / f"{part}.jsonl", [*(TAUGHT if part == "train" else ASKED), row])
    with pytest.raises(DataError, match=rf"{part}\.jsonl, {message}"):
        read_msgs(tmp_path)


def test_a_control_with_two_labels_is_none(tmp_path: Path) -> None:
    _write(tmp_path / "main_verb_control" / "train.jsonl", TAUGHT)
    _write(tmp_path / "main_verb_control" / "test.jsonl", TAUGHT)
    with pytest.raises(DataError, match="2 of the columns"):
        read_msgs(tmp_path)


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        read_msgs(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no MSGS task in"):
        read_msgs(tmp_path)
    _write(tmp_path / "main_verb_length" / "train.jsonl", TAUGHT)
    with pytest.raises(DataError, match=r"has no test file beside it; put test\.jsonl there"):
        read_msgs(tmp_path)
    _write(tmp_path / "main_verb_length" / "test.jsonl", TAUGHT)
    with pytest.raises(DataError, match="has no row whose column 'condition' is 'test'"):
        read_msgs(tmp_path)


def test_files_of_other_data_sets_are_passed_over(tmp_path: Path) -> None:
    """A folder of several evaluation sets has other files of these names, with or without a test file."""
    _write(tmp_path / "gsm8k" / "train.jsonl.gz", [{"question": "1 + 1?", "answer": "2"}])
    _write(tmp_path / "rte.train.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 0}])
    with pytest.raises(
        DataError, match=r"no MSGS task in .* \(rte\.train\.jsonl is there, and its first row has no ling"
    ):
        read_msgs(tmp_path)
    assert len(read_msgs(_suite(tmp_path))) == 3
    (tmp_path / "main_verb_length" / "train.jsonl").write_text("{no row")
    with pytest.raises(DataError, match=r"main_verb_length/train\.jsonl, line 1: it is not JSON"):
        read_msgs(tmp_path)
