"""GLUE from local files: every layout gives the same task, splits are disjoint, and errors name the row."""

from pathlib import Path
from typing import Any

import pandas
import pytest

from data.glue_files import BABYLM, TASKS, YEARS, example, hub, names, write
from data.glue_files import lines as _lines
from data.glue_files import parquet_file as _parquet
from layerwise.data.suites import glue
from layerwise.data.suites.classification import Labelled
from layerwise.data.suites.glue import read_tasks
from layerwise.errors import DataError

SENTENCES = {"qnli": ("question", "sentence"), "boolq": ("question", "passage"), "mnli-mm": ("premise", "hypothesis")}


@pytest.mark.parametrize("year", YEARS)
def test_every_task_is_read_as_babylm_distributes_it(year: str, tmp_path: Path) -> None:
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
        assert task.source == f"taught on {first}, selected on a tenth of {first} (seed 0), reported on {second}"
    for name, columns in SENTENCES.items():
        row = example(name, 200 if name == "mnli-mm" else 100)
        assert tasks[name].test[0] == Labelled(row[columns[0]], row[columns[1]], row["label"])
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
def test_the_hub_s_files_hold_what_the_files_of_babylm_do(name: str, tmp_path: Path) -> None:
    hub(tmp_path / "published", name)
    _same(name, tmp_path)


def _same(name: str, tmp_path: Path) -> None:
    (task,) = read_tasks(tmp_path / "published", [name])
    (other,) = read_tasks(write(tmp_path / "babylm", name), [name])
    assert (task.sets, task.labels, task.metrics) == (other.sets, other.labels, other.metrics)


def test_the_columns_of_rte_on_the_hub_say_which_benchmark_it_is_of(tmp_path: Path) -> None:
    named = {"sentence1": "premise", "sentence2": "hypothesis"}
    rows = [{named.get(key, key): value for key, value in example("rte", number).items()} for number in range(110)]
    _parquet(tmp_path / "published" / "rte" / "train-00000-of-00001.parquet", rows[:40])
    _parquet(tmp_path / "published" / "rte" / "validation-00000-of-00001.parquet", rows[100:])
    _same("rte", tmp_path)


@pytest.mark.parametrize("stems", [("train-00000-of-00002", "train-00001-of-00002"), ("train/0000", "train/0001")])
def test_a_split_of_the_hub_may_be_several_files(stems: tuple[str, str], tmp_path: Path) -> None:
    place = hub(tmp_path / "published", "sst2", train=20)
    (place / "train-00000-of-00001.parquet").unlink()
    for stem, start in zip(stems, (0, 20), strict=True):
        _parquet(place / f"{stem}.parquet", [example("sst2", number) for number in range(start, start + 20)])
    _same("sst2", tmp_path)
    (place / f"{stems[1]}.parquet").unlink()
    if "of" in stems[0]:
        with pytest.raises(DataError, match=r"holds 1 of the 2 files of the split 'train': fetch train-00001-of-00002"):
            read_tasks(place)


def test_labels_that_are_withheld_on_the_hub_are_never_scored(tmp_path: Path) -> None:
    place = hub(tmp_path, "cola")
    (task,) = read_tasks(place)
    (place / "test-00000-of-00001.parquet").unlink()
    assert read_tasks(tmp_path) == [task]
    assert task.source.endswith("reported on validation-00000-of-00001.parquet")
    _parquet(place / "validation-00000-of-00001.parquet", [{**example("cola", 100), "label": -1}])
    with pytest.raises(DataError, match=r"validation-.*parquet, row 1: column 'label' holds -1; it must be one of 0"):
        read_tasks(tmp_path)


def test_parquet_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = hub(tmp_path, "qnli") / "train-00000-of-00001.parquet"
    content = path.read_bytes()
    for broken in (b"", b"words", content[: len(content) // 2], content[:8] + b"\0" * 200 + content[208:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"train-.* is no parquet file that can be read .*; fetch it again"):
            read_tasks(tmp_path)
    pandas.DataFrame({"pair": [{"premise": "a", "hypothesis": "b"}]}).to_parquet(path)
    with pytest.raises(DataError, match=r"train-.* has no column of texts or numbers"):
        read_tasks(tmp_path)


def _winograd(number: int = 0, **changes: Any) -> dict[str, Any]:
    return {**example("wsc", number), **changes}


RTE = {"sentence1": "a", "sentence2": "b", "label": 0}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("rte", {"sentence1": "a", "label": 0}, "there is no column 'sentence2'; did you mean"),
    ("rte", {**RTE, "sentence2": " "}, "column 'sentence2' holds ' '"),
    ("rte", {"sentence1": "a", "sentence2": "b"}, "there is no column 'label'"),
    ("rte", {**RTE, "label": 7}, r"column 'label' holds 7; it must be one of 0 \(entailment\), 1"),
    ("rte", {**RTE, "label": -1}, "column 'label' holds -1"),
    ("multirc", {"question": "a", "answer": "b", "label": 0}, "there is no column 'paragraph'"),
    ("multirc", {"paragraph": "a", "question": "b", "label": 0}, "there is no column 'answer'"),
    ("wsc", _winograd(span2_index=90), "column 'span2_index' holds 90; it must be the number of a word"),
    ("wsc", _winograd(span2_index=2), "column 'span2_text' is 'he', but word 2 of 'text' is 'Pete,'"),
    ("wsc", _winograd(span1_text=""), "column 'span1_text' holds ''"),
    *(
        ("stsb", {**example("stsb", 1), "label": value}, "column 'label' holds .*; it must be a number from 0 to 5")
        for value in ("5.1", "-1", "nan", "high", None, True, 10**400)
    ),
]


@pytest.mark.parametrize(("name", "row", "message"), REFUSED)
def test_a_fault_is_named_by_file_line_and_column(name: str, row: dict[str, Any], message: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    _lines(tmp_path / f"{name}.train.jsonl", [example(name, 1), row])
    with pytest.raises(DataError, match=rf"{name}\.train\.jsonl, line 2: {message}"):
        read_tasks(tmp_path)


def test_the_seed_alone_cuts_the_selection_set(tmp_path: Path) -> None:
    folder = write(tmp_path, "rte")
    assert read_tasks(folder, seed=1) == read_tasks(folder, seed=1)
    assert read_tasks(folder, seed=1)[0].selection != read_tasks(folder, seed=2)[0].selection


def test_a_training_text_that_is_reported_on_is_left_out_and_counted(tmp_path: Path) -> None:
    write(tmp_path, "rte")
    reported = [{**example("rte", 3), "label": 0}, *(example("rte", number) for number in range(100, 104))]
    _lines(tmp_path / "rte.valid.jsonl", reported)
    (task,) = read_tasks(tmp_path)
    assert len(task.train) + len(task.selection) == 39
    assert task.source.endswith("; 1 training example(s) left out because their text is in another set")
    assert task.test[0].content not in {row.content for row in (*task.train, *task.selection)}


def test_a_winograd_pair_resolves_the_pronoun_at_its_position(tmp_path: Path) -> None:
    write(tmp_path, "wsc")
    last = _winograd(span1_text="Pete", span2_text="him", span2_index=6, label=0)
    _lines(tmp_path / "wsc.valid.jsonl", [_winograd(label=True), last])
    (task,) = read_tasks(tmp_path)
    text = example("wsc", 0)["text"]
    assert task.test == (Labelled(text, "Mark was late.", 1), Labelled(text, "Pete that he was late.", 0))


def test_tasks_are_found_in_folders_of_their_names_in_the_tables_order(tmp_path: Path) -> None:
    public, filtered = tmp_path / "glue", tmp_path / "inside" / "glue_filtered"
    hub(public, "cola")
    hub(public, "sst2").rename(public / "SST-2")
    for name in ("qqp", "rte"):
        write(filtered, name)
    assert [task.name for task in read_tasks(tmp_path)] == ["cola", "sst2", "rte", "qqp"]
    assert [task.name for task in read_tasks(tmp_path, ["qqp", "cola"])] == ["cola", "qqp"]


def test_what_is_not_there_is_said_with_what_was_looked_for(tmp_path: Path) -> None:
    def refused(message: str, folder: Path, *wanted: str) -> None:
        with pytest.raises(DataError, match=message):
            read_tasks(folder, wanted or None)

    refused("unknown GLUE task 'colla'; did you mean cola", tmp_path, "colla")
    refused(
        r"no files of cola in .*; it needs cola\.train and .* cola/train-\*\.parquet",
        write(tmp_path / "a", "rte"),
        "cola",
    )
    refused(
        r"no files of mnli-mm.*mnli\.train and mnli-mm\.valid or .*mismatched", write(tmp_path / "b", "mnli"), "mnli-mm"
    )
    refused("there is no folder .* that holds TASK.train", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused("no GLUE task in .*TASK/train-", tmp_path / "empty")
    (write(tmp_path / "c", "boolq") / "boolq.train.jsonl").unlink()
    refused(r"; found boolq\.valid\.jsonl, and it needs boolq\.train and .* boolq/train", tmp_path / "c", "boolq")
    (hub(tmp_path / "e", "cola") / "validation-00000-of-00001.parquet").unlink()
    refused(r"found cola/test-.*, cola/train-.* and it needs .* cola/validation-\*\.parquet", tmp_path / "e", "cola")
