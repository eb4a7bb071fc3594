"""A growth run that never happened: the planted golden run, and rows like its own.

The truth is planted: `importance` is better than uniform at equal FLOPs and at equal tokens, and no better at equal
seconds; its permuted control does as well and its reversed one worse, so that nothing is shown of layer roles. Every
arm keeps the budget, and `importance` chose a rate at the end of its sweep.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from layerwise.report import ReportData
from layerwise.results.rows import Score
from tools.golden.stored_run import read_run


@cache
def run() -> ReportData:
    """A study of eight arms with three seeds each, of a model of six layers."""
    return read_run(Path(__file__).parents[1] / "golden" / "growth-planted")


def study(*rows: Score) -> ReportData:
    """A run of these rows alone."""
    return ReportData({}, (), rows)


def without(*measures: str) -> ReportData:
    """The planted run with some measures never taken."""
    return study(*(row for row in run().scores if row.measure not in measures))


def difference(
    arm: str, against: str, value: float, half: float, terms: str = "flops", share: float | None = None
) -> Score:
    """A difference of two arms, distinguished from zero exactly when its interval leaves zero out."""
    p = 0.01 if abs(value) > half else 0.4
    return Score(
        "growth", "difference", value, value - half, value + half, p, p_adjusted=p, mde=1.25 * half, arm=arm,
        against=against, condition=terms, amount=share,
    )  # fmt: skip


def held_out(arm: str, value: float = 4.0, half: float | None = None, seed: int | None = 0) -> Score:
    """A loss on held-out text."""
    bounds = () if half is None else (value - half, value + half)
    return Score("held_out", "nll", value, *bounds, arm=arm, seed=seed)


def rate(arm: str, amount: float, metric: str = "nll", value: float = 1.0, setting: str = "learning_rate") -> Score:
    """A rate that was tried, or (`chosen`) taken."""
    return Score("rates", metric, value, arm=arm, amount=amount, condition=setting)
