"""GLUE and MSGS from local files: every layout gives the same task, splits are disjoint, and errors name the row."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.glue_files import BABYLM, TASKS, YEARS, example, hub, names, write
from data.glue_files import lines as _lines
from data.glue_files import parquet_file as _parquet
from layerwise.data.suites import glue
from layerwise.data.suites.classification import ClassificationTask, LabeledText, exclude_texts, split_selection
from layerwise.data.suites.glue import read_tasks
from layerwise.data.suites.msgs import read_msgs
from layerwise.errors import DataError

SENTENCES = {"qnli": ("question", "sentence"), "boolq": ("question", "passage"), "mnli-mm": ("premise", "hypothesis")}


@pytest.mark.parametrize("year", YEARS)
def test_babylm_task_files_are_read(year: str, tmp_path: Path) -> None:
    for name in TASKS:
        write(tmp_path / "glue_filtered", name, year)
    tasks = {task.name: task for task in read_tasks(tmp_path)}
    assert list(tasks) == list(glue.FORMS)
    assert len(TASKS) == len(BABYLM) + 2 == 13
    for name, task in tasks.items():
        start = 200 if name == "mnli-mm" else 100
        assert [row.label for row in task.test] == [
            example(name, number)["label"] for number in range(start, start + 10)
        ]
        train, selection = ({row.content for row in rows} for rows in (task.train, task.selection))
        assert not train & selection
        assert len(train | selection) == 40
        # A tenth of each label, or of all examples in a regression.
        assert len(selection) == (4 if task.is_regression else sum(max(1, n // 10) for n in _counts(name)))
        first, second = names(name, year)
        assert task.source == f"trained on {first}, selected on a tenth of {first} (seed 0), reported on {second}"
    for name, columns in SENTENCES.items():
        row = example(name, 200 if name == "mnli-mm" else 100)
        assert tasks[name].test[0] == LabeledText(row[columns[0]], row[columns[1]], row["label"])
    row = example("multirc", 100)
    assert tasks["multirc"].test[0].content == (
        f"Question: {row['question']} Answer: {row['answer']}",
        row["paragraph"],
    )
    others = {name: task.metric for name, task in tasks.items() if task.metric != "accuracy"}
    assert others == {"cola": "mcc", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}


def _counts(name: str) -> list[int]:
    return [14, 13, 13] if name.startswith("mnli") else [20, 20]


@pytest.mark.parametrize("name", TASKS)
def test_hub_files_equal_babylm_files(name: str, tmp_path: Path) -> None:
    hub(tmp_path / "published", name)
    _same(name, tmp_path)


def _same(name: str, tmp_path: Path) -> None:
    (task,) = read_tasks(tmp_path / "published", [name])
    (other,) = read_tasks(write(tmp_path / "babylm", name), [name])
    assert (task.sets, task.labels, task.metrics) == (other.sets, other.labels, other.metrics)


def test_rte_columns_name_their_benchmark(tmp_path: Path) -> None:
    named = {"sentence1": "premise", "sentence2": "hypothesis"}
    rows = [{named.get(key, key): value for key, value in example("rte", number).items()} for number in range(110)]
    _parquet(tmp_path / "published" / "rte" / "train-00000-of-00001.parquet", rows[:40])
    _parquet(tmp_path / "published" / "rte" / "validation-00000-of-00001.parquet", rows[100:])
    _same("rte", tmp_path)


@pytest.mark.parametrize("stems", [("train-00000-of-00002", "train-00001-of-00002"), ("train/0000", "train/0001")])
def test_a_hub_split_can_be_several_files(stems: tuple[str, str], tmp_path: Path) -> None:
    place = hub(tmp_path / "published", "sst2", train=20)
    (place / "train-00000-of-00001.parquet").unlink()
    for stem, start in zip(stems, (0, 20), strict=True):
        _parquet(place / f"{stem}.parquet", [example("sst2", number) for number in range(start, start + 20)])
    _same("sst2", tmp_path)
    (place / f"{stems[1]}.parquet").unlink()
    if "of" in stems[0]:
        with pytest.raises(
            DataError, match=r"has 1 of the 2 files of the split 'train'\. Download train-00001-of-00002"
        ):
            read_tasks(place)


def test_withheld_hub_labels_are_never_scored(tmp_path: Path) -> None:
    place = hub(tmp_path, "cola")
    (task,) = read_tasks(place)
    (place / "test-00000-of-00001.parquet").unlink()
    assert read_tasks(tmp_path) == [task]
    assert task.source.endswith("reported on validation-00000-of-00001.parquet")
    _parquet(place / "validation-00000-of-00001.parquet", [{**example("cola", 100), "label": -1}])
    with pytest.raises(DataError, match=r"validation-.*parquet, row 1: column 'label' must be one of 0 .*, got -1"):
        read_tasks(tmp_path)


def test_invalid_parquet_files_are_rejected(tmp_path: Path) -> None:
    path = hub(tmp_path, "qnli") / "train-00000-of-00001.parquet"
    content = path.read_bytes()
    for broken in (b"", b"words", content[: len(content) // 2], content[:8] + b"\0" * 200 + content[208:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"train-.* is not a readable Parquet file .* Download it again"):
            read_tasks(tmp_path)
    pandas.DataFrame({"pair": [{"premise": "a", "hypothesis": "b"}]}).to_parquet(path)
    with pytest.raises(DataError, match=r"train-.* has no column of texts or numbers"):
        read_tasks(tmp_path)


def _winograd(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {**example("wsc", number), **changes}


RTE = {"sentence1": "a", "sentence2": "b", "label": 0}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("rte", {"sentence1": "a", "label": 0}, "unknown column 'sentence2'; did you mean"),
    ("rte", {**RTE, "sentence2": " "}, "column 'sentence2' must be text, got ' '"),
    ("rte", {"sentence1": "a", "sentence2": "b"}, "unknown column 'label'"),
    ("rte", {**RTE, "label": 7}, r"column 'label' must be one of 0 \(entailment\), 1 .*, got 7"),
    ("rte", {**RTE, "label": -1}, "column 'label' must be .*, got -1"),
    ("multirc", {"question": "a", "answer": "b", "label": 0}, "unknown column 'paragraph'"),
    ("multirc", {"paragraph": "a", "question": "b", "label": 0}, "unknown column 'answer'"),
    (
        "wsc",
        _winograd(span2_index=90),
        r"column 'span2_index' must be the number of a word of 'text' \(0 to 10\), got 90",
    ),
    ("wsc", _winograd(span2_index=2), r"column 'span2_text' must be word 2 of 'text' \('Pete,'\), got 'he'"),
    ("wsc", _winograd(span1_text=""), "column 'span1_text' must be text, got ''"),
    *(
        ("stsb", {**example("stsb", 1), "label": value}, "column 'label' must be a number from 0 to 5, got")
        for value in ("5.1", "-1", "nan", "high", None, True, 10**400)
    ),
]


@pytest.mark.parametrize(("name", "row", "message"), REFUSED)
def test_errors_name_file_line_and_column(name: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    _lines(tmp_path / f"{name}.train.jsonl", [example(name, 1), row])
    with pytest.raises(DataError, match=rf"{name}\.train\.jsonl, line 2: {message}"):
        read_tasks(tmp_path)


def test_the_selection_set_depends_only_on_the_seed(tmp_path: Path) -> None:
    folder = write(tmp_path, "rte")
    assert read_tasks(folder, seed=1) == read_tasks(folder, seed=1)
    assert read_tasks(folder, seed=1)[0].selection != read_tasks(folder, seed=2)[0].selection


def test_evaluation_texts_are_removed_from_training(tmp_path: Path) -> None:
    write(tmp_path, "rte")
    reported = [{**example("rte", 3), "label": 0}, *(example("rte", number) for number in range(100, 104))]
    _lines(tmp_path / "rte.valid.jsonl", reported)
    (task,) = read_tasks(tmp_path)
    assert len(task.train) + len(task.selection) == 39
    assert task.source.endswith("; 1 training example(s) removed because their text is in another set")
    assert task.test[0].content not in {row.content for row in (*task.train, *task.selection)}


def test_winograd_pairs_resolve_the_pronoun(tmp_path: Path) -> None:
    write(tmp_path, "wsc")
    last = _winograd(span1_text="Pete", span2_text="him", span2_index=6, label=0)
    _lines(tmp_path / "wsc.valid.jsonl", [_winograd(label=True), last])
    (task,) = read_tasks(tmp_path)
    text = example("wsc", 0)["text"]
    assert task.test == (LabeledText(text, "Mark was late.", 1), LabeledText(text, "Pete that he was late.", 0))


def test_tasks_are_found_by_directory_name(tmp_path: Path) -> None:
    public, filtered = tmp_path / "glue", tmp_path / "inside" / "glue_filtered"
    hub(public, "cola")
    hub(public, "sst2").rename(public / "SST-2")
    for name in ("qqp", "rte"):
        write(filtered, name)
    assert [task.name for task in read_tasks(tmp_path)] == ["cola", "sst2", "rte", "qqp"]
    assert [task.name for task in read_tasks(tmp_path, ["qqp", "cola"])] == ["cola", "qqp"]


def test_missing_files_are_reported_with_their_names(tmp_path: Path) -> None:
    def refused(message: str, folder: Path, *wanted: str) -> None:
        with pytest.raises(DataError, match=message):
            read_tasks(folder, wanted or None)

    refused("unknown GLUE task 'colla'; did you mean cola", tmp_path, "colla")
    refused(
        r"has no files of cola\. Required: cola\.train and .* cola/train-\*\.parquet",
        write(tmp_path / "a", "rte"),
        "cola",
    )
    refused(
        r"no files of mnli-mm.*mnli\.train and mnli-mm\.valid or .*mismatched", write(tmp_path / "b", "mnli"), "mnli-mm"
    )
    refused("is not a directory", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused("has no GLUE task.*TASK/train-", tmp_path / "empty")
    (write(tmp_path / "c", "boolq") / "boolq.train.jsonl").unlink()
    refused(r"\(found boolq\.valid\.jsonl\)\. Required: boolq\.train and .* boolq/train", tmp_path / "c", "boolq")
    (hub(tmp_path / "e", "cola") / "validation-00000-of-00001.parquet").unlink()
    refused(r"\(found cola/test-.*, cola/train-.*\)\. Required: .* cola/validation-\*\.parquet", tmp_path / "e", "cola")


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


def test_msgs_rows_are_ambiguous_only_in_training(tmp_path: Path) -> None:
    tasks = {task.name: task for task in read_msgs(_suite(tmp_path))}
    assert set(tasks) == {"ambiguous main_verb_length", "control length", "control main_verb"}
    task = tasks["ambiguous main_verb_length"]
    assert [(row.text, row.label) for row in task.test] == [(f"test {number}", number % 2) for number in range(6)]
    assert {row.text for row in (*task.train, *task.selection)} == {f"training {number}" for number in range(40)}
    assert len(task.selection) == 4
    assert (task.measure, task.metric) == ("msgs", "mcc")


@pytest.mark.parametrize("name", ["control main_verb", "control length"])
def test_a_control_keeps_its_label(name: str, tmp_path: Path) -> None:
    task = next(task for task in read_msgs(_suite(tmp_path)) if task.name == name)
    assert [row.label for row in task.test] == [number % 2 for number in range(8)]
    assert len(task.train) + len(task.selection) == 30


@pytest.mark.parametrize(
    ("part", "row", "message"),
    [
        ("train", _row(99, "training", 0, 1), "line 41: columns .* must agree in rows .*, got 0 and 1"),
        ("train", _row(99, "training", 2, 1), "line 41: column 'linguistic_feature_label' must be 0 or 1, got 2"),
        ("test", _row(99, "test", 1, 1), "line 11: columns .* must differ in rows .*, got 1 and 1"),
        ("test", _row(99, "test", None, 1), "line 11: column 'linguistic_feature_label' must be 0 or 1, got None"),
        ("test", _row(99, "test", 0, 1, sentence=""), "line 11: column 'sentence' must be text, got ''"),
        ("test", {"sentence": "no condition"}, "line 11: unknown column 'condition'"),
    ],
)
def test_mixed_signals_are_reported(part: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    _suite(tmp_path)
    _write(tmp_path / "main_verb_length" / f"{part}.jsonl", [*(TAUGHT if part == "train" else ASKED), row])
    with pytest.raises(DataError, match=rf"{part}\.jsonl, {message}"):
        read_msgs(tmp_path)


def test_a_control_with_two_labels_is_rejected(tmp_path: Path) -> None:
    _write(tmp_path / "main_verb_control" / "train.jsonl", TAUGHT)
    _write(tmp_path / "main_verb_control" / "test.jsonl", TAUGHT)
    with pytest.raises(DataError, match=r"exactly one of the columns .* got 2"):
        read_msgs(tmp_path)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a directory"):
        read_msgs(tmp_path / "nowhere")
    with pytest.raises(DataError, match="has no MSGS task"):
        read_msgs(tmp_path)
    _write(tmp_path / "main_verb_length" / "train.jsonl", TAUGHT)
    with pytest.raises(DataError, match=r"has no test file\. Add test\.jsonl"):
        read_msgs(tmp_path)
    _write(tmp_path / "main_verb_length" / "test.jsonl", TAUGHT)
    with pytest.raises(DataError, match="has no row whose column 'condition' is 'test'"):
        read_msgs(tmp_path)


def test_files_of_other_datasets_are_skipped(tmp_path: Path) -> None:
    """A folder of several evaluation sets has other files of these names, with or without a test file."""
    _write(tmp_path / "gsm8k" / "train.jsonl.gz", [{"question": "1 + 1?", "answer": "2"}])
    _write(tmp_path / "rte.train.jsonl", [{"sentence1": "a", "sentence2": "b", "label": 0}])
    with pytest.raises(DataError, match=r"has no MSGS task \(the first row of rte\.train\.jsonl has no ling"):
        read_msgs(tmp_path)
    assert len(read_msgs(_suite(tmp_path))) == 3
    (tmp_path / "main_verb_length" / "train.jsonl").write_text("{no row")
    with pytest.raises(DataError, match=r"main_verb_length/train\.jsonl, line 1: it is not JSON"):
        read_msgs(tmp_path)


def _rows(start: int, stop: int, classes: int = 2) -> tuple[LabeledText, ...]:
    return tuple(LabeledText(f"text {number}", None, number % classes) for number in range(start, stop))


def _task(**changes: object) -> ClassificationTask:
    whole = ClassificationTask("glue", "numbers", ("even", "odd"), "mcc", _rows(0, 40), _rows(40, 50), _rows(50, 70))
    return replace(whole, **changes)  # type: ignore[arg-type]


@given(st.integers(20, 200), st.integers(2, 4), st.integers(0, 1000))
def test_a_split_is_disjoint_complete_and_stratified(count: int, classes: int, seed: int) -> None:
    rows = _rows(0, count, classes)
    train, selection = split_selection(rows, seed)
    assert not set(train) & set(selection)
    assert sorted(train + selection) == sorted(rows)
    whole, chosen = Counter(row.label for row in rows), Counter(row.label for row in selection)
    assert chosen == {label: max(1, int(0.1 * held)) for label, held in whole.items()}
    assert split_selection(rows, seed) == (train, selection)


@given(st.integers(0, 100))
def test_duplicate_texts_stay_in_one_split(seed: int) -> None:
    rows = _rows(0, 30) * 2
    train, selection = split_selection(rows, seed)
    assert not {row.content for row in train} & {row.content for row in selection}


def test_texts_are_independent_of_labels() -> None:
    rows = [LabeledText("a", None, 0), LabeledText("a", "b", 0), LabeledText("a", "c", 1)]
    assert exclude_texts(rows, [LabeledText("a", "b", 1)]) == (rows[0], rows[2])


def test_tasks_have_a_digest_a_majority_label_and_examples() -> None:
    changed = [
        _task(),
        _task(train=_rows(0, 39)),
        _task(train=(*_rows(0, 39), LabeledText("text 39", None, 0))),
        _task(train=(*_rows(0, 39), LabeledText("text 39", "", 1))),
        _task(train=_rows(0, 50), selection=_rows(40, 50)),
        _task(labels=("odd", "even")),
    ]
    assert len({task.digest for task in changed}) == len(changed)
    assert _task().digest == _task().digest

    with pytest.raises(DataError, match="the selection set must have at least one example"):
        _task(selection=())

    assert _task().commonest == 0
    assert _task(train=_rows(1, 40)).commonest == 1


def test_a_limit_is_stratified_and_spares_the_selection_set() -> None:
    skewed = _task(train=(*_rows(0, 10), *(LabeledText(f"more {number}", None, 1) for number in range(390))))
    small = skewed.limited(train=200, test=6)
    assert Counter(row.label for row in small.train)[1] > 180
    assert [len(small.train), len(small.test)] == [200, 6]
    assert set(small.train) < set(skewed.train)
    assert set(small.test) < set(skewed.test)
    assert small.selection == skewed.selection
    assert small.commonest == skewed.commonest
    assert small == skewed.limited(train=200, test=6)
    assert small != skewed.limited(train=200, test=6, seed=1)
    assert skewed.limited() == skewed == skewed.limited(train=1000, test=1000)
    with pytest.raises(DataError, match="must be at least 1, got 0"):
        skewed.limited(train=0)
