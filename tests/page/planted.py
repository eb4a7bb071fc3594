"""The planted golden runs, one per kind, with known truths.

Diagnosis: layer 0 matters most, 3 is harmful, 4 does nothing; recovery follows the initial damage alone.
Robustness: only variants trained on shuffled layers survive random order and merging; LayerDrop survives loss in part.
Pre-training: `elc` beats the backbone at equal tokens, not at equal seconds.
Growth: `importance` beats uniform at equal FLOPs, its permuted control does as well, its reversed one worse.
"""

from dataclasses import replace

from layerwise.page import ReportData
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
