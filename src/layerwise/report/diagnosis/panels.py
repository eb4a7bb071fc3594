"""Figures that most chapters of a diagnosis share: a metric by depth over its nulls, and levels by tensor type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from layerwise.plan import SUBLAYERS, Sublayer
from layerwise.report.diagnosis.lookup import NULL, WHOLE, DiagnosisScores
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.levels import Level
from layerwise.report.figures.lines import hover_text, lined
from layerwise.report.series import Line, layer_bands, null_name
from layerwise.results.rows import Score

HALVES: dict[Sublayer | None, str] = {None: "whole layer", "attn": "attention", "mlp": "MLP"}
EVERY = "all tensor types"


def type_name(task: str) -> str:
    """A tensor type as it is read."""
    return EVERY if task == WHOLE else task


def by_depth(
    run: DiagnosisScores,
    measure: str,
    metric: str,
    name: str,
    slot: int = 0,
    *,
    task: str = WHOLE,
    halves: bool = False,
    unit: str = "",
    nats: bool = False,
    hollow: frozenset[float] = frozenset(),
    across: str = "layer",
    **figure: Any,
) -> Figure | None:
    """A metric by depth over its nulls; `None` where it was not measured.

    With `halves` there is a line for the whole layer, for its attention and for its MLP. `figure` goes to `lined`.
    """
    parts = {part: run.layers(measure, metric, task, part) for part in ((None, *SUBLAYERS) if halves else (None,))}
    lines = [
        Line(HALVES[part] if halves else name, rows, slot + at, hollow)
        for at, (part, rows) in enumerate(parts.items())
        if rows
    ]
    if not lines:
        return None
    bands = layer_bands(run, measure, metric, task)
    hover = hover_text(f"{across} {{}}", unit, run.level, nats=nats)
    return lined(lines, bands, across=across, describe=hover, **figure)


def null_levels(scores: Mapping[str, Mapping[str, Score]]) -> list[Level]:
    """The nulls that have rows, each with a mark of its own."""
    return [Level(null_name(null), rows, slot, null=True) for slot, (null, rows) in enumerate(scores.items()) if rows]


def by_type(
    run: DiagnosisScores, measure: str, metric: str, types: Iterable[str], subject: str = WHOLE
) -> dict[str, Score]:
    """Tensor type to the score of a subject."""
    scores = {task: run.score(measure, subject, metric, task) for task in types}
    return {type_name(task): score for task, score in scores.items() if score is not None}


def null_metric(metric: str, null: str) -> str:
    """The metric of the rows of a null."""
    return f"{metric}{NULL}{null}"
