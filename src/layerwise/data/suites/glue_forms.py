"""What the columns, the labels and the metrics of the GLUE and SuperGLUE tasks are called, file by file.

`FORMS` are the columns of the BabyLM evaluation, which are those of the hub's data sets; `GLUE_FORMS` and
`SUPERGLUE_FORMS` name what differs in the files that the benchmarks themselves publish.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from layerwise.data.suites.records import FileRecord


@dataclass(frozen=True, slots=True)
class Form:
    """What a task's columns are called, its labels by number, and how the field scores it: first the main metric.

    `answer` is the column of an answer that stands behind the question in the first text, `label` that of the label. A
    regression has no labels and `scores`, the least and the greatest.
    """

    text: str
    pair: str | None
    labels: tuple[str, ...]
    metrics: tuple[str, ...] = ("accuracy",)
    answer: str | None = None
    label: str = "label"
    scores: tuple[float, float] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is read."""
        return tuple(name for name in (self.text, self.pair, self.answer, self.label) if name is not None)

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

_MNLI = replace(FORMS["mnli"], text="sentence1", pair="sentence2", label="gold_label")

GLUE_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "cola": FORMS["cola"],
        "sst2": FORMS["sst2"],
        "mrpc": replace(FORMS["mrpc"], text="#1 String", pair="#2 String", label="Quality"),
        "qqp": replace(FORMS["qqp"], label="is_duplicate"),
        "stsb": replace(FORMS["stsb"], label="score"),
        "mnli": _MNLI,
        "mnli-mm": _MNLI,
        "qnli": FORMS["qnli"],
        "rte": FORMS["rte"],
        "wnli": FORMS["wnli"],
    }
)
"""The tables of gluebenchmark.com: tab-separated, quotation marks are characters; all but CoLA's have a header."""

SUPERGLUE_FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "boolq": FORMS["boolq"],
        "multirc": FORMS["multirc"],
        "rte": replace(FORMS["rte"], text="premise", pair="hypothesis"),
        "wsc": FORMS["wsc"],
    }
)
"""The JSON lines of super.gluebenchmark.com; those of MultiRC and of WSC are nested, and are taken apart."""
