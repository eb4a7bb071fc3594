"""The page of `layerwise time`."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.page.data import ReportData
from layerwise.page.formatting import Format
from layerwise.page.kind import Column, Kind, Pivot, Section
from layerwise.page.marks import Dots
from layerwise.results import vocabulary as vocab

TIMES = Format(axis="milliseconds per pass", decimals=3)
RATIOS = Format(axis="ratio to the first plan", decimals=3)


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{max(row.documents or 0 for row in data.rows.where(measure=vocab.TIME)):,}", "rounds"


def _answer(data: ReportData) -> str:
    ratios = data.rows.where(measure=vocab.TIME, metric=vocab.RATIO)
    sentences = []
    for setting, rows in ratios.by("condition").items():
        first, *others = rows
        if others:
            best = min(others, key=lambda row: row.value)
            resolved = best.high is not None and best.high < 1.0
            verdict = "is the fastest plan" if resolved else "is not significantly faster than the first plan"
            sentences.append(
                f"{setting}: {best.plan} {verdict}; it takes {RATIOS.text(best)} times as long as {first.plan}."
            )
    return " ".join(sentences)


TIMING = Kind(
    name="timing",
    measures=(vocab.TIME,),
    answer=_answer,
    tiles=_tiles,
    sections=(
        Section(
            anchor=vocab.TIME,
            parts=(
                Dots(
                    name="times",
                    y="plan",
                    show=TIMES,
                    where={"measure": vocab.TIME, "metric": vocab.MILLISECONDS},
                    choices={"Setting": "condition"},
                    words=str,
                ),
                Pivot(
                    rows={"plan": "plan"},
                    where={"measure": vocab.TIME},
                    split="condition",
                    columns=(
                        Column("ms", vocab.MILLISECONDS, TIMES),
                        Column("ratio to the first plan", vocab.RATIO, RATIOS),
                    ),
                ),
            ),
        ),
    ),
)
