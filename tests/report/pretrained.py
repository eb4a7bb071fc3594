"""A pre-training that never happened, with rows of every measure of it: the planted golden run.

The truth is planted: `elc` is a little better than the backbone at equal tokens and no better at equal seconds;
its seeds share a pattern beyond their start; agreement is known far above chance and islands not at all; the greatest
weights are not the greatest effects.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from layerwise.report import ReportData
from tools.golden.stored_run import read_run


@cache
def run() -> ReportData:
    """The whole run: four arms of three seeds each, evaluated, studied and pruned."""
    return read_run(Path(__file__).parents[1] / "golden" / "pretraining-planted")


def only(data: ReportData, *measures: str) -> ReportData:
    """The same run with these measures alone."""
    return ReportData(data.manifest, (), tuple(score for score in data.scores if score.measure in measures))


def without(data: ReportData, *measures: str) -> ReportData:
    """The same run with some measures never taken."""
    return only(data, *{score.measure for score in data.scores} - set(measures))
