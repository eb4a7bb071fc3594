"""GLUE from local files: both forms, real splits, and every fault named with its file, line and column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data.glue_files import BABYLM, GLUE, SUPERGLUE, TASKS, YEARS, example, hub, names, published, superglue, write
from data.glue_files import lines as _lines
from data.glue_files import parquet_file as _parquet
from data.glue_files import table as _table
from layerwise.data.suites import glue
from layerwise.data.suites.classification import Labelled
from layerwise.data.suites.glue import read_tasks
from layerwise.errors import DataError


def _pairs(name: str, count: int, start: int = 0) -> list[dict[str, Any]]:
    form = glue.FORMS[name]
    return [
        {form.text: f"left {number}", str(form.pair): f"right {number}", "label": number % len(form.labels), "idx": 0}
        for number in range(start, start + count)
    ]


def _folder(folder: Path, name: str = "rte", ending: str = "jsonl") -> Path:
    _lines(folder / f"{name}.train.{ending}", _pairs(name, 40))
    _lines(folder / f"{name}.valid.{ending}", _pairs(name, 10, start=100))
    return folder


def _cola(folder: Path) -> Path:
    for part, count in (("in_domain_train", 40), ("in_domain_dev", 6), ("out_of_domain_dev", 4)):
        _table(
            folder / f"{part}.tsv",
            [("gj04", str(row % 2), "*" * (1 - row % 2), f'{part} said "{row}') for row in range(count)],
        )
    return folder


def _sst2(folder: Path, parts: Sequence[str] = ("train", "dev", "test")) -> Path:
    for part in parts:
        _table(folder / f"{part}.tsv", [(f"{part} {row}", str(row % 2)) for row in range(20)])
    return folder


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
@pytest.mark.parametrize("name", ["mrpc", "rte", "mnli", "qqp"])
def test_pairs_are_read_and_the_published_validation_is_only_reported_on(
    name: str, ending: str, tmp_path: Path
) -> None:
    (task,) = read_tasks([_folder(tmp_path, name, ending)])
    assert task.name == name
    assert task.test == tuple(
        Labelled(f"left {row}", f"right {row}", row % len(task.labels)) for row in range(100, 110)
    )
    train, selection = ({row.text for row in rows} for rows in (task.train, task.selection))
    assert not train & selection
    assert train | selection == {f"left {row}" for row in range(40)}
    assert {row.label for row in task.selection} == set(range(len(task.labels)))
    assert f"reported on {name}.valid.{ending}" in task.source


@pytest.mark.parametrize("year", YEARS)
def test_every_task_is_read_as_babylm_distributes_it(year: str, tmp_path: Path) -> None:
    for name in TASKS:
        write(tmp_path / "glue_filtered", name, year)
    tasks = {task.name: task for task in read_tasks([tmp_path / "glue_filtered"])}
    assert set(tasks) == set(TASKS) == set(glue.FORMS)
    assert len(TASKS) == len(BABYLM) + 2 == 13
    for name, task in tasks.items():
        assert len(task.train) + len(task.selection) == 40
        assert [row.label for row in task.test] == [
            example(name, number)["label"] for number in range(200 if name == "mnli-mm" else 100, 210)[:10]
        ]
        train, valid = names(name, year)
        assert task.source.startswith(f"taught on {train}, ")
        assert task.source.endswith(f"reported on {valid}")
    assert {(row.text, row.pair) for row in tasks["mnli-mm"].test}.isdisjoint(row.content for row in tasks["mnli"].test)


def _same(name: str, tmp_path: Path) -> None:
    """The published files in `tmp_path` and BabyLM's hold the same examples."""
    (task,) = read_tasks([tmp_path / "published"], [name])
    (other,) = read_tasks([write(tmp_path / "babylm", name)], [name])
    assert task.sets == other.sets
    assert (task.labels, task.metrics) == (other.labels, other.metrics)


@pytest.mark.parametrize("name", GLUE)
def test_the_tables_of_glue_hold_what_the_files_of_babylm_do(name: str, tmp_path: Path) -> None:
    published(tmp_path / "published", name)
    _same(name, tmp_path)


@pytest.mark.parametrize("name", SUPERGLUE)
def test_the_lines_of_superglue_hold_what_the_files_of_babylm_do(name: str, tmp_path: Path) -> None:
    superglue(tmp_path / "published", name)
    _same(name, tmp_path)


@pytest.mark.parametrize("name", TASKS)
def test_the_parquet_files_of_the_hub_hold_what_the_files_of_babylm_do(name: str, tmp_path: Path) -> None:
    hub(tmp_path / "published", name)
    _same(name, tmp_path)


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
            read_tasks([place])


def test_labels_that_are_withheld_on_the_hub_are_never_scored(tmp_path: Path) -> None:
    place = hub(tmp_path, "cola")
    test = place / "test-00000-of-00001.parquet"
    (task,) = read_tasks([place])
    test.unlink()
    assert read_tasks([tmp_path]) == [task]
    assert task.source.endswith("reported on validation-00000-of-00001.parquet")
    _parquet(place / "validation-00000-of-00001.parquet", [{**example("cola", 100), "label": -1}])
    with pytest.raises(DataError, match=r"validation-.*parquet, row 1: column 'label' holds -1; it must be one of 0"):
        read_tasks([tmp_path])
    (place / "validation-00000-of-00001.parquet").rename(test)
    with pytest.raises(
        DataError, match=r"found cola/test-.*, cola/train-.* and it needs .* cola/validation-\*\.parquet"
    ):
        read_tasks([tmp_path], ["cola"])


def test_parquet_files_that_are_none_are_refused(tmp_path: Path) -> None:
    path = hub(tmp_path, "qnli") / "train-00000-of-00001.parquet"
    content = path.read_bytes()
    for broken in (b"", b"words", content[: len(content) // 2], content[:8] + b"\0" * 200 + content[208:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"train-.* is no parquet file that can be read .*; fetch it again"):
            read_tasks([tmp_path])
    _parquet(path, [{**example("qnli", 0), "sentence": None}])
    with pytest.raises(DataError, match=r"row 1: column 'sentence' holds None"):
        read_tasks([tmp_path])


def test_the_folder_of_a_task_can_be_given_itself_and_test_files_are_passed_over(tmp_path: Path) -> None:
    place = published(tmp_path, "sst2")
    _table(place / "test.tsv", [["index", "sentence"], ["0", "secret"]])
    (task,) = read_tasks([place], ["sst2"])
    assert task.source.endswith("reported on dev.tsv")
    assert published(tmp_path, "rte") == tmp_path / "RTE"
    assert [task.name for task in read_tasks([tmp_path / "RTE"])] == ["rte"]


def test_rows_without_two_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    train = published(tmp_path, "qqp") / "train.tsv"
    text = train.read_text()
    train.write_text(text + "41\t1\t2\tonly one\n" + "42\t1\t2\tone\t\t0\n")
    (task,) = read_tasks([tmp_path])
    assert len(task.train) + len(task.selection) == 40
    assert "2 training example(s) left out because a question or the label is missing" in task.source
    train = published(tmp_path, "rte") / "train.tsv"
    train.write_text(train.read_text() + "41\tonly one\n")
    with pytest.raises(DataError, match=r"train\.tsv, line 42: 2 columns, but the header names 4 \(index, sentence1"):
        read_tasks([tmp_path], ["rte"])


def test_a_score_is_a_number_of_the_published_scale(tmp_path: Path) -> None:
    (task,) = read_tasks([write(tmp_path, "stsb")])
    assert task.is_regression
    assert [row.label for row in task.test] == [number % 26 / 5 for number in range(100, 110)]
    for value in ("5.1", "-1", "nan", "high", None, True, 10**400):
        _lines(tmp_path / "stsb.train.jsonl", [{**example("stsb", 1), "label": value}])
        with pytest.raises(DataError, match=r"line 1: column 'label' holds .*; it must be a number from 0 to 5"):
            read_tasks([tmp_path])


def test_a_table_without_its_header_is_refused_with_what_was_found(tmp_path: Path) -> None:
    place = published(tmp_path, "mnli")
    lines = (place / "train.tsv").read_text().splitlines(keepends=True)
    (place / "train.tsv").write_text("".join(lines[1:]))
    with pytest.raises(DataError, match=r"line 1: the header has no column 'sentence1' .*w0 premise 0.* was found"):
        read_tasks([tmp_path])
    (place / "train.tsv").write_text(lines[0])
    with pytest.raises(DataError, match="holds no row below its header"):
        read_tasks([tmp_path])


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("multirc", {"passage": "text"}, r"line 1: 'passage' holds 'text'; take the file as SuperGLUE publishes it"),
        ("multirc", {"passage": {"text": "a", "questions": [1]}}, r"line 1: 'questions' holds \[1\]"),
        ("wsc", {"text": "a", "label": True}, r"line 1: 'target' holds None"),
    ],
)
def test_nested_lines_of_another_shape_are_refused(
    name: str, row: dict[str, Any], message: str, tmp_path: Path
) -> None:
    _lines(superglue(tmp_path, name) / "train.jsonl", [row])
    with pytest.raises(DataError, match=message):
        read_tasks([tmp_path])


def test_half_of_what_is_needed_is_named(tmp_path: Path) -> None:
    write(tmp_path, "boolq")
    (tmp_path / "boolq.train.jsonl").unlink()
    with pytest.raises(DataError, match=r"; found boolq\.valid\.jsonl, and it needs boolq\.train and .* BoolQ/train"):
        read_tasks([tmp_path], ["boolq"])
    (superglue(tmp_path, "multirc") / "val.jsonl").unlink()
    with pytest.raises(DataError, match=r"; found MultiRC/train\.jsonl, and it needs"):
        read_tasks([tmp_path], ["multirc"])


@pytest.mark.parametrize(
    ("name", "text", "pair"),
    [
        ("qnli", "question", "sentence"),
        ("boolq", "question", "passage"),
        ("mnli-mm", "premise", "hypothesis"),
    ],
)
def test_which_column_is_which_text(name: str, text: str, pair: str, tmp_path: Path) -> None:
    row = example(name, 200 if name == "mnli-mm" else 100)
    (task,) = read_tasks([write(tmp_path, name)], [name])
    assert task.test[0] == Labelled(row[text], row[pair], row["label"])


def test_multirc_asks_of_an_answer_whether_it_is_right(tmp_path: Path) -> None:
    row = example("multirc", 100)
    (task,) = read_tasks([write(tmp_path, "multirc")])
    assert task.test[0] == Labelled(f"Question: {row['question']} Answer: {row['answer']}", row["paragraph"], 0)
    assert task.labels == ("false", "true")


@pytest.mark.parametrize(
    ("name", "column"), [("qnli", "sentence"), ("boolq", "passage"), ("multirc", "answer"), ("multirc", "paragraph")]
)
def test_a_field_that_is_missing_is_named(name: str, column: str, tmp_path: Path) -> None:
    write(tmp_path, name)
    rows = [example(name, number) for number in range(3)]
    del rows[1][column]
    _lines(tmp_path / f"{name}.train.jsonl", rows)
    with pytest.raises(DataError, match=rf"{name}\.train\.jsonl, line 2: there is no column '{column}'"):
        read_tasks([tmp_path])


def test_the_metrics_are_those_of_the_field() -> None:
    others = {name: form.metrics[0] for name, form in glue.FORMS.items() if form.metrics[0] != "accuracy"}
    assert others == {"cola": "mcc", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}


def test_the_seed_alone_cuts_the_selection_set(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    assert read_tasks([folder], seed=1) == read_tasks([folder], seed=1)
    assert read_tasks([folder], seed=1)[0].selection != read_tasks([folder], seed=2)[0].selection


def test_cola_is_reported_on_both_of_its_development_files(tmp_path: Path) -> None:
    (task,) = read_tasks([_cola(tmp_path)])
    assert len(task.train) + len(task.selection) == 40
    assert [row.text for row in task.test] == [
        *(f'in_domain_dev said "{row}' for row in range(6)),
        *(f'out_of_domain_dev said "{row}' for row in range(4)),
    ]
    assert task.labels[task.test[1].label] == "acceptable"


def test_sst2_selects_on_its_development_file_where_a_test_file_is_there(tmp_path: Path) -> None:
    (task,) = read_tasks([_sst2(tmp_path / "three")])
    assert [len(rows) for rows in task.sets.values()] == [20, 20, 20]
    assert {row.text.split()[0] for row in task.selection} == {"dev"}
    assert {row.text.split()[0] for row in task.test} == {"test"}
    (task,) = read_tasks([_sst2(tmp_path / "two", ("train", "dev"))])
    assert {row.text.split()[0] for row in task.selection} == {"train"}
    assert {row.text.split()[0] for row in task.test} == {"dev"}


def test_tasks_are_found_in_folders_of_their_names_in_the_tables_order(tmp_path: Path) -> None:
    _cola(tmp_path / "public" / "cola")
    _sst2(tmp_path / "public" / "sst2")
    _folder(tmp_path / "filtered", "qqp")
    _folder(tmp_path / "filtered", "rte")
    folders = [tmp_path / "public", tmp_path / "filtered"]
    assert [task.name for task in read_tasks(folders)] == ["cola", "sst2", "rte", "qqp"]
    assert [task.name for task in read_tasks(folders, ["qqp", "cola"])] == ["cola", "qqp"]


def test_a_training_text_that_is_reported_on_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = _pairs("rte", 40)
    _lines(tmp_path / "rte.train.jsonl", rows)
    _lines(tmp_path / "rte.valid.jsonl", [{**rows[3], "label": 0}, *_pairs("rte", 4, start=100)])
    (task,) = read_tasks([tmp_path])
    assert len(task.train) + len(task.selection) == 39
    assert "1 training example(s) left out" in task.source
    assert "left 3" not in {row.text for row in (*task.train, *task.selection)}


def _winograd(**changes: Any) -> dict[str, Any]:
    text = "He saw Pete, and Mark told him that he was late."
    return {
        "text": text, "span1_text": "Mark", "span1_index": 4, "span2_text": "he", "span2_index": 8, "label": True,
        **changes,
    }  # fmt: skip


def test_a_winograd_pair_resolves_the_pronoun_at_its_position(tmp_path: Path) -> None:
    _lines(tmp_path / "wsc.train.jsonl", [_winograd(text=f"{row} saw Pete, and Mark told him that he was late.",
                                                    label=row % 2) for row in range(20)])  # fmt: skip
    last = _winograd(span1_text="Pete", span2_text="him", span2_index=6, label=0)
    _lines(tmp_path / "wsc.valid.jsonl", [_winograd(), last])
    (task,) = read_tasks([tmp_path])
    text = "He saw Pete, and Mark told him that he was late."
    assert task.test == (
        Labelled(text, "Mark was late.", 1),
        Labelled(text, "Pete that he was late.", 0),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"span2_index": 90}, r"line 2: column 'span2_index' holds 90; it must be the number of a word"),
        ({"span2_index": 2}, r"line 2: column 'span2_text' is 'he', but word 2 of 'text' is 'Pete,'"),
        ({"span1_text": ""}, r"line 2: column 'span1_text' holds ''"),
    ],
)
def test_winograd_spans_that_are_none_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    _lines(tmp_path / "wsc.train.jsonl", [_winograd(), _winograd(**changes)])
    _lines(tmp_path / "wsc.valid.jsonl", [_winograd()])
    with pytest.raises(DataError, match=message):
        read_tasks([tmp_path])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"sentence1": "a", "label": 0}, r"rte\.train\.jsonl, line 2: there is no column 'sentence2'; did you mean"),
        ({"sentence1": "a", "sentence2": " ", "label": 0}, r"line 2: column 'sentence2' holds ' '"),
        ({"sentence1": "a", "sentence2": "b"}, r"line 2: there is no column 'label'"),
        ({"sentence1": "a", "sentence2": "b", "label": 7}, r"'label' holds 7; it must be one of 0 \(entailment\), 1"),
        ({"sentence1": "a", "sentence2": "b", "label": -1}, r"'label' holds -1"),
    ],
)
def test_a_fault_is_named_by_file_line_and_column(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    good = {"sentence1": "a", "sentence2": "b", "label": "not_entailment"}
    _lines(tmp_path / "rte.train.jsonl", [good, row])
    _lines(tmp_path / "rte.valid.jsonl", [good])
    with pytest.raises(DataError, match=message):
        read_tasks([tmp_path])


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    _cola(tmp_path)
    _table(tmp_path / "in_domain_dev.tsv", [("gj04", "1", "", "Fine."), ("gj04", "1", "Two tabs are missing.")])
    with pytest.raises(DataError, match=r"in_domain_dev\.tsv, line 2: 3 columns, but cola has 4 \(source, label"):
        read_tasks([tmp_path])


def test_a_table_in_another_encoding_is_refused(tmp_path: Path) -> None:
    _sst2(tmp_path)
    (tmp_path / "dev.tsv").write_bytes("entrée\t1\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"dev\.tsv is not UTF-8"):
        read_tasks([tmp_path])


def test_what_is_not_there_is_said_with_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown GLUE task 'colla'; did you mean cola"):
        read_tasks([tmp_path], ["colla"])
    with pytest.raises(DataError, match=r"no files of cola in .*; it needs cola\.train and .*; or in_domain_train"):
        read_tasks([_folder(tmp_path)], ["rte", "cola"])
    with pytest.raises(DataError, match=r"no files of mnli-mm.*mnli\.train and mnli-mm\.valid or .*mismatched"):
        read_tasks([write(tmp_path / "one", "mnli")], ["mnli-mm"])
    with pytest.raises(DataError, match="there is no folder"):
        read_tasks([tmp_path / "nowhere"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no GLUE task in"):
        read_tasks([tmp_path / "empty"])
