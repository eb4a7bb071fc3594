"""Learned layer weights, and results on minimal pairs after removing some of these weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import Finding, to_verdict
from layerwise.page.formatting import SIGNED, format_adjusted_p, format_mde, format_p, is_resolved, label
from layerwise.page.kind import Column, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Dots
from layerwise.page.sections.layer_weights import RIGHT, WEIGHTS
from layerwise.page.trained import format_suite, is_pretrained, make_tiles
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ALL, ALPHA, EDGES, ORIGINAL, RANDOM

NATS = SIGNED.replace(unit=" nats")
MARGIN = SIGNED.replace(axis="change of the margin (nats)", reference=0.0)


def _edge_phenomena(rows: Rows, level: float) -> str:
    margins = rows.where(metric="margin", against=None)
    resolved = [row for row in margins if row.task != ALL and is_resolved(row, level)]
    tested = sum(row.task != ALL for row in margins)
    phenomena = "; ".join(
        f"{label(row.task)} {NATS.text(row)}" for row in sorted(resolved, key=lambda row: -abs(row.value))
    )
    return f" {len(resolved)} of {tested} phenomena change{': ' * bool(phenomena)}{phenomena}." if tested else ""


def edge_findings(data: ReportData) -> Iterator[Finding]:
    rows = data.rows.where(measure=EDGES)
    for change in rows.where(metric="margin", task=ALL, against=None):
        group = rows.where(variant=change.variant, seed=change.seed, suite=change.suite, condition=change.condition)
        random = group.one(metric="margin", task=ALL, against=RANDOM)
        is_decided = is_resolved(change, data.level)
        edges, every = group.value(metric="edges"), group.value(metric="edges_of_model")
        remaining = "" if edges is None or every is None else f" with {edges:g} of {every:g} edges left"
        words = "" if is_decided else ", which is inconclusive"
        control = ""
        if random is not None:
            control = f"; without as many random edges, it changes by {NATS.text(random)} (p = {format_p(random)})"
        answer = f"The margin changes by {NATS.text(change)}{remaining}{words}{control}."
        answer += _edge_phenomena(group, data.level)
        removed = str(change.condition)
        without = f"the weakest {removed} of its edges" if removed.endswith("%") else f"the edges {removed}"
        question = (
            f"What does {change.variant}/{change.seed} lose on {format_suite(str(change.suite))} without {without}?"
        )
        yield Finding(question, answer, to_verdict(is_decided))


def changes(data: ReportData) -> Iterator[Score]:
    for row in edge_rows(data):
        if row.metric == "margin" and row.against is None:
            yield replace(row, task="all pairs" if row.task == ALL else label(row.task))


def edge_rows(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=EDGES, metric=("accuracy", "margin")):
        yield replace(row, variant=f"{row.variant}/{row.seed}", seed=None)


WIRING = Kind(
    name="wiring",
    rank=7,
    measures=(EDGES, ALPHA),
    present=lambda data: (
        bool(data.rows.where(measure=EDGES)) or (bool(data.rows.where(measure=ALPHA)) and not is_pretrained(data))
    ),
    tiles=make_tiles,
    answer=join_statements(edge_findings),
    sections=(
        Section(
            anchor=EDGES,
            parts=(
                Dots(
                    name="edge-cuts",
                    derive=changes,
                    each="suite",
                    series="condition",
                    legend="Without",
                    choices={"Model": "variant"},
                    words=format_suite,
                    show=MARGIN,
                ),
                Text(edge_findings),
                Pivot(
                    name="edges",
                    derive=edge_rows,
                    rows={"suite": "suite", "model": "variant", "without": "condition", "phenomenon": "task"},
                    words=format_suite,
                    columns=(
                        Column("original", "accuracy", RIGHT, where={"against": ORIGINAL}),
                        Column("without", "accuracy", RIGHT, where={"against": None}),
                        Column("margin (nats)", "margin", SIGNED, where={"against": None}),
                        Column("p, corrected", "margin", format_adjusted_p, where={"against": None}),
                        Column("random edges (nats)", "margin", SIGNED, where={"against": RANDOM}),
                        Column("detectable", "margin", format_mde, where={"against": None}),
                    ),
                    folded=True,
                ),
            ),
        ),
        WEIGHTS,
    ),
)
