"""The page of `layerwise compare` for lm-eval evaluations: differences from the first model on the same documents."""

from __future__ import annotations

import math
from collections.abc import Iterator

from layerwise.page.data import ReportData
from layerwise.page.formatting import (
    ABSENT,
    Format,
    format_adjusted_p,
    format_mde,
    format_p,
    join_words,
    label,
    lookup_format,
)
from layerwise.page.kind import Column, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Dots
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

CHANGE = Format(axis="difference", signed=True, reference=0.0)
BADGES = {"worse": "contradicted", "better": "supported", "alike": "supported", "inconclusive": "inconclusive"}
OWN = {"measure": vocab.PAIRED}
TASK = lookup_format({vocab.ALL: "all tasks"})
MAX_NAMED = 5  # differences in a sentence


def name_row(rows: Rows) -> str:
    words = [f"{row.metric} of {TASK(row.task)} ({row.variant}, {CHANGE.text(row)})" for row in rows[:MAX_NAMED]]
    return join_words([*words, *([f"{len(rows) - MAX_NAMED} more"] if len(rows) > MAX_NAMED else [])])


def list_findings(data: ReportData) -> Iterator[str]:
    """State whether a score is shown to be worse than tolerated, then list the other differences."""
    rows, losses = (data.rows.where(measure=each) for each in (vocab.PAIRED, vocab.TOLERANCE))
    exceeded, unsettled = (losses.where(verdict=each) for each in (vocab.EXCEEDED, vocab.INCONCLUSIVE))
    if exceeded:
        yield f"FAILS: scores shown to have lost more than {exceeded[0].margin:g}: {name_row(exceeded)}."
    elif losses:
        yield f"Passes: no score is shown to have lost more than {losses[0].margin:g}."
    counts = [f"{len(rows.where(verdict=each))} {label(each)}" for each in vocab.PAIRED_DECISIONS]
    margin = data.manifest["margin"]
    yield f"Of {len(rows)} differences from {rows[0].against}, with a margin of ±{margin}: {join_words(counts)}."
    for decision in (vocab.WORSE, vocab.BETTER):
        if own := rows.where(verdict=decision):
            yield f"Shown to be {decision}: {name_row(own)}."
    if unsettled and not exceeded:
        yield f"Inconclusive scores, which may have lost more than tolerated: {name_row(unsettled)}."
    yield from (note.text for note in data.notes)


def _list_differences(data: ReportData) -> Iterator[Dots | Pivot | Text]:
    margin = float(str(data.manifest["margin"]))

    def needed(row: Score) -> str:
        if row.verdict != vocab.INCONCLUSIVE or row.mde is None:
            return ABSENT
        exact = data.rows.where(measure=vocab.NEEDED, task=row.task, metric=row.metric, variant=row.variant)
        if exact:
            return f"{exact[0].value:,.0f}"
        return f"{math.ceil(max(1.0, row.mde / margin) ** 2 * (row.documents or 0)):,}"

    several = len(data.rows.where(**OWN).axis("variant")) > 1
    yield Dots(
        name="differences",
        where=OWN,
        series="variant",
        each="metric",
        show=CHANGE,
        words=str,
        row_words=TASK,
        legend="Models" if several else "",
    )
    yield Pivot(
        name="table",
        where=OWN,
        rows={"task": "task", "metric": "metric", **({"model": "variant"} if several else {})},
        words=TASK,
        badges=BADGES,
        columns=(
            Column("decision", show=lambda row: label(str(row.verdict))),
            Column("difference", show=CHANGE),
            Column("p", show=format_p),
            Column("p, corrected", show=format_adjusted_p),
            Column("detectable", show=format_mde),
            Column("documents", show=lambda row: f"{row.documents:,}"),
            Column(f"needed for {margin:g}", show=needed),
        ),
    )
    yield Text(list_findings)
    yield Pivot(
        name="scores",
        where={"measure": vocab.EVALUATED},
        rows={"task": "task", "metric": "metric"},
        across="variant",
        terminal=False,
    )


PAIRED_KIND = Kind(
    name="paired",
    measures=(vocab.PAIRED,),
    answer=join_statements(list_findings, 2),
    sections=(Section(anchor=vocab.PAIRED, parts=_list_differences),),
)
