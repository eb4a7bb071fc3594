"""GLUE and SuperGLUE tasks from local files, each as a `Task` whose reported examples choose nothing.

Two forms are read. The first is that of the BabyLM evaluation, one object a line with the columns that `FORMS` names
and `label`, a number or a name; each file may be packed (`.gz`):

    2024, 2025   TASK.train.jsonl and TASK.valid.jsonl
    2023         TASK.train.json and TASK.validation.json; of mnli, validation_matched.json

`mnli-mm` is taught on mnli's training file and reported on mnli-mm.valid.jsonl (2023: mnli.validation_mismatched.json),
whose texts are of other kinds. The second form is that in which the authors published two of the tasks, tab-separated
without a header:

    cola    in_domain_train.tsv, in_domain_dev.tsv, out_of_domain_dev.tsv    source, label, mark, sentence
    sst2    train.tsv, dev.tsv, and test.tsv where there is one              sentence, label

Which file does what: a validation file is only reported on, and a tenth of the training file, drawn by a seed with
every label in its share, selects. CoLA reports on both of its development files together, which is GLUE's validation
set. SST-2 has a labelled test file in this form: that one is reported on, and `dev.tsv` selects. Training examples
whose text is also in another set are left out, and counted in the task's `source`.

A question is the first text of a pair, and what answers it the second. MultiRC asks of an answer whether it is right:
the first text is "Question: ... Answer: ...", as in the BabyLM evaluation. WSC is put otherwise than there: see
`_resolved`.

The BabyLM files hold only examples whose words are frequent in a small corpus, so a number made with them compares with
other numbers made with them, and not with published GLUE.

Wang et al. 2019 (GLUE, SuperGLUE); Warstadt et al. 2019 (CoLA), 2023 (BabyLM); Socher et al. 2013 (SST).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from layerwise.bounded import TEXT_SIZE, Unreadable, decoded, read_bytes, shown
from layerwise.data.suites.classification import Labelled, Task, cut, without
from layerwise.data.suites.records import FileRecord, read_records
from layerwise.errors import DataError, near_matches

GLUE = "glue"
_KINDS = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
_MISMATCHED = "mnli-mm"


@dataclass(frozen=True, slots=True)
class Form:
    """What a task's columns are called, its labels by number, and how the field scores it: first the main metric.

    `answer` is the column of an answer that stands behind the question in the first text.
    """

    text: str
    pair: str | None
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    answer: str | None = None

    def first(self, row: FileRecord) -> str:
        """The first text of an example. Raises `DataError`, with file, line and column, where there is none."""
        text = row.text(self.text)
        return text if self.answer is None else f"Question: {text} Answer: {row.text(self.answer)}"


class Files(NamedTuple):
    """The files a task is taught on, selected on (none: a part of the first) and reported on."""

    train: Path
    selection: Path | None
    test: tuple[Path, ...]


FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "cola": Form("sentence", None, ("unacceptable", "acceptable"), ("mcc", "accuracy")),
        "sst2": Form("sentence", None, ("negative", "positive")),
        "mrpc": Form("sentence1", "sentence2", ("not_equivalent", "equivalent"), ("f1", "accuracy")),
        "rte": Form("sentence1", "sentence2", ("entailment", "not_entailment")),
        "wsc": Form("text", None, ("false", "true")),
        "mnli": Form("premise", "hypothesis", ("entailment", "neutral", "contradiction")),
        "mnli-mm": Form("premise", "hypothesis", ("entailment", "neutral", "contradiction")),
        "qqp": Form("question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy")),
        "qnli": Form("question", "sentence", ("entailment", "not_entailment")),
        "boolq": Form("question", "passage", ("false", "true")),
        "multirc": Form("question", "paragraph", ("false", "true"), answer="answer"),
    }
)


def read_tasks(folders: Sequence[Path | str], names: Sequence[str] | None = None, *, seed: int = 0) -> list[Task]:
    """The tasks called `names`, or all that the folders hold, in the order of `FORMS`; `seed` cuts the selection sets.

    A task's files lie in one of the folders, or in a folder of the task's name in one. Raises `DataError` for an
    unknown name, for a task whose files are not there (it says which were looked for), and for what is wrong in a
    file, by line and column.
    """
    for name in names or ():
        if name not in FORMS:
            raise DataError(f"unknown GLUE task {name!r}; {near_matches(name, FORMS)}")
    searched = [Path(folder) for folder in folders]
    files = {name: _find_files(name, searched) for name in names or FORMS}
    missing = [name for name, paths in files.items() if paths is None]
    if names and missing:
        raise DataError(f"no files of {missing[0]} in {_listed(searched)}; it needs {_needed(missing[0])}")
    tasks = [_task(name, paths, seed) for name in FORMS if (paths := files.get(name)) is not None]
    if not tasks:
        raise DataError(
            f"no GLUE task in {_listed(searched)}; give a folder that holds, for one of {', '.join(FORMS)}, "
            f"{_needed('TASK')}"
        )
    return tasks


def _task(name: str, files: Files, seed: int) -> Task:
    """The task from its files, its three sets made disjoint at the cost of the training set."""
    taught = tuple(_read(files.train, name))
    test = tuple(row for path in files.test for row in _read(path, name))
    if files.selection is None:
        train, selection = cut(without(taught, test), seed)
        chosen, drawn = f"a tenth of {files.train.name} (seed {seed})", len(selection)
    else:
        selection = without(tuple(_read(files.selection, name)), test)
        train = without(taught, (*test, *selection))
        chosen, drawn = files.selection.name, 0
    reported = " and ".join(path.name for path in files.test)
    source = f"taught on {files.train.name}, selected on {chosen}, reported on {reported}"
    left_out = len(taught) - drawn - len(train)
    if left_out:
        source += f"; {left_out} training example(s) left out because their text is in another set"
    form = FORMS[name]
    main, *also = form.metrics
    return Task(GLUE, name, form.labels, main, train, selection, test, source, tuple(also))


def _find_files(name: str, folders: Sequence[Path]) -> Files | None:
    """The files of a task in the first of the folders that has them, or in a folder of the task's name there."""
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"there is no folder {folder}; give one that holds {_needed('TASK')}")
        for path in (folder, folder / name):
            files = _pieces(path, name) or _published(path, name)
            if files is not None:
                return files
    return None


def _pieces(folder: Path, name: str) -> Files | None:
    """The BabyLM form."""
    train, valid = (
        next((path for stem in stems for kind in _KINDS if (path := folder / f"{stem}{kind}").is_file()), None)
        for stems in _stems(name)
    )
    return None if train is None or valid is None else Files(train, None, (valid,))


def _stems(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the training and the validation file of a task may be called in the BabyLM form, without their endings."""
    valid = (f"{name}.valid", f"{name}.validation")
    if name == _MISMATCHED:
        return ("mnli.train",), (*valid, "mnli.validation_mismatched")
    return (f"{name}.train",), (*valid, "mnli.validation_matched") if name == "mnli" else valid


def _published(folder: Path, name: str) -> Files | None:
    """The authors' form."""
    stems = {"cola": ("in_domain_train", "in_domain_dev", "out_of_domain_dev"), "sst2": ("train", "dev", "test")}
    if name not in stems:
        return None
    first, second, third = (folder / f"{stem}.tsv" for stem in stems[name])
    if name == "cola":
        return Files(first, None, (second, third)) if first.is_file() and second.is_file() and third.is_file() else None
    if not (first.is_file() and second.is_file()):
        return None
    return Files(first, second, (third,)) if third.is_file() else Files(first, None, (second,))


def _needed(name: str) -> str:
    train, valid = _stems(name)
    pieces = f"{' or '.join(train)} and {' or '.join(valid)}, each {', '.join(_KINDS)}"
    published = {
        "cola": "in_domain_train.tsv, in_domain_dev.tsv and out_of_domain_dev.tsv",
        "sst2": "train.tsv and dev.tsv",
    }
    return f"{pieces}; or {published[name]}" if name in published else pieces


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders)) or "no folder at all"


def _read(path: Path, name: str) -> Iterator[Labelled]:
    """The examples of one file, in either form."""
    rows = _columns(path, name) if path.suffix == ".tsv" else read_records(path, kind=".jsonl")
    form = FORMS[name]
    for row in rows:
        text = form.first(row)
        pair = _resolved(row) if name == "wsc" else None if form.pair is None else row.text(form.pair)
        yield Labelled(text, pair, _label(row, form.labels))


def _columns(path: Path, name: str) -> Iterator[FileRecord]:
    """The rows of a table without a header: quotation marks are characters like any other."""
    columns = ("source", "label", "mark", "sentence") if name == "cola" else ("sentence", "label")
    try:
        lines = decoded(read_bytes(path, TEXT_SIZE)).split("\n")
    except Unreadable as fault:
        raise DataError(f"{path} {fault}; check the file, fetch it again, or convert it to UTF-8 text") from fault
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(columns):
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns, but {name} has {len(columns)} "
                f"({', '.join(columns)}), separated by tabs"
            )
        yield FileRecord(dict(zip(columns, cells, strict=True)), str(path), number)


def _label(row: FileRecord, names: Sequence[str]) -> int:
    if "label" not in row.columns:
        raise DataError(f"{row.location}: there is no column 'label'; {near_matches('label', row.columns)}")
    value: Any = row.columns["label"]
    text = str(int(value)) if isinstance(value, bool) else value if isinstance(value, str) else shown(value)
    numbers = {**{name: at for at, name in enumerate(names)}, **{str(at): at for at in range(len(names))}}
    if text not in numbers:
        known = ", ".join(f"{at} ({name})" for at, name in enumerate(names))
        raise DataError(f"{row.location}: column 'label' holds {shown(value)}; it must be one of {known}")
    return numbers[text]


def _resolved(row: FileRecord) -> str:
    """The second text of a Winograd example: the passage from its pronoun on, the candidate in the pronoun's place.

    `text` is the passage, `span1_text` the candidate and `span2_text` the pronoun, the word number `span2_index` of the
    passage split at white space. The label says whether the pronoun means the candidate, so whether the second text
    follows from the first; that also tells apart two pronouns that are spelt alike.
    """
    candidate, pronoun = row.text("span1_text"), row.text("span2_text")
    start = row.columns.get("span2_index")
    words = row.text("text").split()
    if type(start) is not int or not 0 <= start < len(words):
        raise DataError(
            f"{row.location}: column 'span2_index' holds {shown(start)}; it must be the number of a word of 'text', "
            f"from 0 to {len(words) - 1}"
        )
    end = start + len(pronoun.split())
    phrase = " ".join(words[start:end])
    if pronoun.lower() not in phrase.lower():
        raise DataError(
            f"{row.location}: column 'span2_text' is {pronoun!r}, but word {start} of 'text' is {phrase!r}; "
            "correct 'span2_index'"
        )
    at = phrase.lower().index(pronoun.lower())
    return " ".join([phrase[:at] + candidate + phrase[at + len(pronoun) :], *words[end:]])
