"""Runs that never happened, one of each kind: the planted golden runs, whose truth is known, and parts of them.

*Diagnosis* (6 layers): layer 0 matters most, layer 3 is harmful, layer 4 does nothing, weights know nothing of each
other, recovery follows the initial damage alone, and any change of weights costs what its size costs.
*Robustness* (3 layers): every arm is good in order, only those trained on shuffled layers survive random order and
merging, and LayerDrop survives the loss of layers in part.
*Pre-training* (4 layers): `elc` is a little better than the backbone at equal tokens and no better at equal seconds.
*Growth* (6 layers): `importance` is better than uniform at equal FLOPs, its permuted control does as well and its
reversed one worse; it chose a rate at the end of its sweep.
"""

from __future__ import annotations

from dataclasses import replace

from layerwise.report import ReportData
from layerwise.results.rows import Score
from tools.golden.outputs import stored

DIAGNOSIS, ROBUSTNESS, LANGUAGE, PRETRAINING, GROWTH = (
    stored(f"{name}-planted") for name in ("diagnosis", "robustness", "robustness-language", "pretraining", "growth")
)


def of(*rows: Score) -> ReportData:
    return ReportData({}, (), rows)


def only(data: ReportData, *measures: str) -> ReportData:
    return replace(data, plans=(), scores=tuple(row for row in data.scores if row.measure in measures))


def without(data: ReportData, *measures: str) -> ReportData:
    return replace(data, scores=tuple(row for row in data.scores if row.measure not in measures))


def without_intervals(data: ReportData) -> ReportData:
    bare = (replace(score, low=None, high=None, p=None, p_adjusted=None, mde=None) for score in data.scores)
    return replace(data, scores=tuple(bare))


def row(measure: str, metric: str, value: float, half: float | None = None, **more: object) -> Score:
    bounds = () if half is None else (value - half, value + half)
    return replace(Score(measure, metric, value, *bounds), **more)  # type: ignore[arg-type]
