"""Page section on attribution of decisions to words, by variant."""

from __future__ import annotations

from collections.abc import Iterator

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, to_verdict
from layerwise.page.formatting import SIGNED, Format, format_fixed, is_resolved, join_words
from layerwise.page.kind import Column, Pivot, Section, Text
from layerwise.page.trained import average_by_variant, find_baseline
from layerwise.results import vocabulary as vocab

PER_CENT = Format(scale=100.0)


def attribution_findings(data: ReportData) -> Iterator[Finding]:
    run = average_by_variant(data.rows.where(measure=vocab.ATTRIBUTION, metric="preference"))
    rows = data.rows.where(
        measure=vocab.STUDY, metric="difference", task="linguistic attribution", against=find_baseline(data)
    ).where(unit=vocab.TOKENS)
    show = SIGNED.replace(scale=100.0)
    for task in run.axis("task"):
        null = run.where(task=task, against=vocab.SHUFFLED).along("arm")
        shares = "; ".join(
            f"{row.arm} {show.text(row)}"
            + (f" (shuffled labels {show.text(null[str(row.arm)])})" if row.arm in null else "")
            for row in run.where(task=task, against=None)
        )
        differ = [str(row.arm) for row in rows if is_resolved(row, data.level)]
        others = (
            f". Different from {find_baseline(data)}: {join_words(differ) or 'none with this many seeds'}"
            if rows
            else ""
        )
        answer = f"Attribution on linguistic minus surface words, beyond their share of the tokens: {shares}{others}."
        yield Finding(
            f"Which words determine the decision ({task})?", answer, to_verdict(bool(differ) if rows else None)
        )


def attribution_notes(data: ReportData) -> Iterator[str]:
    gaps = data.rows.where(measure=vocab.ATTRIBUTION, metric="gap")
    if gaps:
        yield f"Completeness error: at most {format_fixed(100 * max(row.value for row in gaps), 2)} %."


def _column(head: str, metric: str, against: str | None = None) -> Column:
    show = PER_CENT.replace(signed=metric == "preference", bounds=against != vocab.TOKENS)
    return Column(head, metric, show, where={"against": against})


ATTRIBUTED = Section(
    anchor=vocab.ATTRIBUTION,
    parts=(
        Text(attribution_findings),
        Pivot(
            name="attribution",
            derive=lambda data: average_by_variant(data.rows.where(measure=vocab.ATTRIBUTION)),
            rows={"variant": "arm"},
            split="task",
            terminal=False,
            columns=(
                _column("linguistic words", "linguistic"),
                _column("of tokens", "linguistic", vocab.TOKENS),
                _column("shuffled labels", "linguistic", vocab.SHUFFLED),
                _column("surface words", "surface"),
                _column("of tokens", "surface", vocab.TOKENS),
                _column("shuffled labels", "surface", vocab.SHUFFLED),
                _column("preference", "preference"),
                _column("shuffled labels", "preference", vocab.SHUFFLED),
            ),
        ),
        Text(attribution_notes, terminal=False),
    ),
)
