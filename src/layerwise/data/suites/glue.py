"""GLUE and SuperGLUE tasks from local files, each as a `Task` whose reported examples choose nothing.

Five forms are read: the BabyLM evaluation's, with the columns that `FORMS` names and `label`, a number or a name; the
tables of GLUE and the JSON lines of SuperGLUE as they are published; the parquet files of both on the Hugging Face hub;
and the tables of the authors of CoLA and SST-2.
`layerwise.data.suites.glue_layouts` says which files each needs.

Which file does what: a validation file is only reported on, and a tenth of the training file, drawn by a seed with
every label in its share, selects. CoLA in its authors' form reports on both of its development files together, which
is GLUE's validation set. SST-2 has a labelled test file in that form: that one is reported on, and `dev.tsv` selects.
`mnli-mm` is taught on mnli's training file and reported on the mismatched one, whose texts are of other kinds.
Training examples whose text is also in another set are left out, and counted in the task's `source`.

A question is the first text of a pair, and what answers it the second. MultiRC asks of an answer whether it is right:
the first text is "Question: ... Answer: ...", as in the BabyLM evaluation. WSC is put otherwise than there: see
`_resolved`. STS-B is a regression: a score from 0 to 5 is learned by its squared error and scored by correlation.

The BabyLM files hold only examples whose words are frequent in a small corpus, so a number made with them compares with
other numbers made with them, and not with published GLUE.

Wang et al. 2019 (GLUE, SuperGLUE); Warstadt et al. 2019 (CoLA), 2023 (BabyLM); Socher et al. 2013 (SST).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from layerwise.bounded import shown
from layerwise.data.suites.classification import Labelled, Task, cut, without
from layerwise.data.suites.folders import below
from layerwise.data.suites.glue_forms import FORMS, Form
from layerwise.data.suites.glue_layouts import Files, find_files, needed, present
from layerwise.data.suites.records import FileRecord
from layerwise.errors import DataError, near_matches

GLUE = "glue"


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
    taught, incomplete = _read(files.train, name, files)
    test = tuple(row for path in files.test for row in _read(path, name, files)[0])
    if files.selection is None:
        train, selection = cut(without(taught, test), seed, by_label=bool(files.form.labels))
        chosen, drawn = f"a tenth of {files.train.name} (seed {seed})", len(selection)
    else:
        selection = without(_read(files.selection, name, files)[0], test)
        train = without(taught, (*test, *selection))
        chosen, drawn = files.selection.name, 0
    reported = " and ".join(path.name for path in files.test)
    source = f"taught on {files.train.name}, selected on {chosen}, reported on {reported}"
    left_out = len(taught) - drawn - len(train)
    if left_out:
        source += f"; {left_out} training example(s) left out because their text is in another set"
    if incomplete:
        source += f"; {incomplete} training example(s) left out because a question or the label is missing"
    form = FORMS[name]
    main, *also = form.metrics
    return Task(GLUE, name, form.labels, main, train, selection, test, source, tuple(also))


def _listed(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders)) or "no folder at all"


def _read(path: Path, name: str, files: Files) -> tuple[tuple[Labelled, ...], int]:
    """The examples of one file, and how many rows were left out because they are not whole."""
    form, rows = files.form, files.read(path, name, files.form)
    examples = tuple(
        Labelled(
            form.first(row),
            _resolved(row) if name == "wsc" else None if form.pair is None else row.text(form.pair),
            _label(row, form),
        )
        for row in rows.records
    )
    return examples, rows.left_out


def _label(row: FileRecord, form: Form) -> float:
    if form.label not in row.columns:
        raise DataError(f"{row.location}: there is no column {form.label!r}; {near_matches(form.label, row.columns)}")
    value: Any = row.columns[form.label]
    if form.scores is not None:
        return _score(row, value, form.label, form.scores)
    names = form.labels
    text = str(int(value)) if isinstance(value, bool) else value if isinstance(value, str) else shown(value)
    numbers = {**{name: at for at, name in enumerate(names)}, **{str(at): at for at in range(len(names))}}
    if text not in numbers:
        known = ", ".join(f"{at} ({name})" for at, name in enumerate(names))
        raise DataError(f"{row.location}: column {form.label!r} holds {shown(value)}; it must be one of {known}")
    return numbers[text]


def _score(row: FileRecord, value: Any, column: str, bounds: tuple[float, float]) -> float:
    """The score of an example of a regression."""
    try:
        score = math.nan if isinstance(value, bool) or not isinstance(value, str | int | float) else float(value)
    except (ValueError, OverflowError):
        score = math.nan
    least, most = bounds
    if not least <= score <= most:
        raise DataError(
            f"{row.location}: column {column!r} holds {shown(value)}; it must be a number from {least:g} to {most:g}"
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
