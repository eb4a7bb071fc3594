"""GLUE and SuperGLUE tasks from local files, each as a `Task` whose reported examples choose nothing.

`FORMS` names the columns of the BabyLM evaluation's files and of the hub's data sets; `glue_files` says which files
each task needs. A validation file is only reported on, and a tenth of the training file selects. Training examples
whose text is also in another set are left out. MultiRC's first text is "Question: ... Answer: ...", as in the BabyLM
evaluation; for WSC see `_resolved`; STS-B is a regression. BabyLM's files hold only examples whose words are frequent
in a small corpus, so numbers made with them do not compare with published GLUE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from layerwise.bounded import shown
from layerwise.data.suites.classification import Labelled, Task, cut, without
from layerwise.data.suites.glue_files import Files, find_files, needed, present, read_rows
from layerwise.data.suites.records import FileRecord, below
from layerwise.errors import DataError, near_matches

GLUE = "glue"


@dataclass(frozen=True, slots=True)
class Form:
    """What a task's columns are called, its labels by number, and how the field scores it: first the main metric.

    `answer` is the column of an answer that stands behind the question in the first text. A regression has no labels
    and `scores`, the least and the greatest.
    """

    text: str
    pair: str | None
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    answer: str | None = None
    scores: tuple[float, float] | None = None

    def first(self, row: FileRecord) -> str:
        """The first text of an example. Raises `DataError`, with file, line and column, where there is none."""
        text = row.text(self.text)
        return text if self.answer is None else f"Question: {text} Answer: {row.text(self.answer)}"


_ENTAILED = ("entailment", "not_entailment")

FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "cola": Form("sentence", None, ("unacceptable", "acceptable"), ("mcc", "accuracy")),
        "sst2": Form("sentence", None, ("negative", "positive")),
        "mrpc": Form("sentence1", "sentence2", ("not_equivalent", "equivalent"), ("f1", "accuracy")),
        "rte": Form("sentence1", "sentence2", _ENTAILED),
        "wsc": Form("text", None, ("false", "true")),
        "mnli": Form("premise", "hypothesis", ("entailment", "neutral", "contradiction")),
        "mnli-mm": Form("premise", "hypothesis", ("entailment", "neutral", "contradiction")),
        "qqp": Form("question1", "question2", ("not_duplicate", "duplicate"), ("f1", "accuracy")),
        "qnli": Form("question", "sentence", _ENTAILED),
        "boolq": Form("question", "passage", ("false", "true")),
        "multirc": Form("question", "paragraph", ("false", "true"), answer="answer"),
        "stsb": Form("sentence1", "sentence2", (), ("pearson", "spearman"), scores=(0.0, 5.0)),
        "wnli": Form("sentence1", "sentence2", ("not_entailment", "entailment")),
    }
)
"""The tasks, in the order in which they are reported."""


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
    files = {name: find_files(name, searched) for name in names or FORMS}
    missing = [name for name, paths in files.items() if paths is None]
    if names and missing:
        name = missing[0]
        raise DataError(f"no files of {name} in {_listed(searched)}; {present(name, searched)} {needed(name)}")
    tasks = [_task(name, paths, seed) for name in FORMS if (paths := files.get(name)) is not None]
    if not tasks:
        raise DataError(
            f"no GLUE task in {_listed(searched)}; give a folder that holds, for one of {', '.join(FORMS)}, "
            f"{needed('TASK')}"
        )
    return tasks


def find_tasks(folder: Path, names: Sequence[str] | None = None, *, seed: int = 0) -> list[Task]:
    """The tasks of `read_tasks` whose files lie in `folder`, or below it in a folder whose name begins with "glue".

    Raises `DataError` as `read_tasks` does.
    """
    folders = (folder, *(path for path in below(folder) if path.name.startswith("glue") and path.is_dir()))
    return read_tasks(folders, names, seed=seed)


def _task(name: str, files: Files, seed: int) -> Task:
    """The task from its files, its three sets made disjoint at the cost of the training set."""
    form = FORMS[name]
    taught, test = (_examples(path, name) for path in files)
    train, selection = cut(without(taught, test), seed, by_label=bool(form.labels))
    source = f"taught on {files.train.name}, selected on a tenth of {files.train.name} (seed {seed}), "
    source += f"reported on {files.test.name}"
    left_out = len(taught) - len(selection) - len(train)
    if left_out:
        source += f"; {left_out} training example(s) left out because their text is in another set"
    main, *also = form.metrics
    return Task(GLUE, name, form.labels, main, train, selection, test, source, tuple(also))


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders)) or "no folder at all"


def _examples(path: Path, name: str) -> tuple[Labelled, ...]:
    rows, form = read_rows(path, name), FORMS[name]
    if name == "rte" and "premise" in rows[0].columns:  # SuperGLUE's columns, and not GLUE's
        form = replace(form, text="premise", pair="hypothesis")
    return tuple(
        Labelled(
            form.first(row),
            _resolved(row) if name == "wsc" else None if form.pair is None else row.text(form.pair),
            _label(row, form),
        )
        for row in rows
    )


def _label(row: FileRecord, form: Form) -> float:
    value = row.cell("label")
    if form.scores is not None:
        return _score(row, value, form.scores)
    names = form.labels
    text = str(int(value)) if isinstance(value, bool) else value if isinstance(value, str) else shown(value)
    numbers = {**{name: at for at, name in enumerate(names)}, **{str(at): at for at in range(len(names))}}
    if text not in numbers:
        known = ", ".join(f"{at} ({name})" for at, name in enumerate(names))
        raise DataError(f"{row.location}: column 'label' holds {shown(value)}; it must be one of {known}")
    return numbers[text]


def _score(row: FileRecord, value: Any, bounds: tuple[float, float]) -> float:
    """The score of an example of a regression."""
    try:
        score = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        score = math.nan
    least, most = bounds
    if not least <= score <= most:
        raise DataError(
            f"{row.location}: column 'label' holds {shown(value)}; it must be a number from {least:g} to {most:g}"
        )
    return score


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
