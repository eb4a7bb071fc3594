"""Models under plans as rows of text: shared by the page and the terminal."""

from __future__ import annotations

from layerwise.plan.member import GIVEN
from layerwise.report.finetuned.lookup import ALL, NORMALISED, FineTunedPlans
from layerwise.report.page.number_format import between, fixed
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import Curve, Point, curves_of
from layerwise.results.rows import Score

Column = tuple[str, str]
"""A task and one of its metrics."""


def columns(run: FineTunedPlans, suite: str, arm: str) -> tuple[Column, ...]:
    """The main metric of every task, then what is made of all of them."""
    own = [(task, run.metric(suite, task)) for task in run.tasks(suite)]
    over = [(ALL, f"{NORMALISED}{how}") for how in ("mean", "median")]
    return tuple(column for column in (*own, *over) if run.has(suite, arm, *column))


def strategy_curves(run: FineTunedPlans, suite: str, arm: str, family: str, column: Column) -> tuple[Curve, ...]:
    """The curves of a family, a strategy each, in one metric of one task."""
    records = (record for record in run.records if record.family == family)
    return curves_of(records, lambda plan: run.score(suite, arm, plan, *column))


def plan_rows(run: FineTunedPlans, suite: str, arm: str) -> Table:
    """The model as trained, every plan that was given, and every strategy at each size, a row each."""
    shown = columns(run, suite, arm)
    head = ("plan", "layers affected", "plans", *(heading(column) for column in shown))
    body = []
    if run.trained is not None:
        body.append(("as trained", "0", "1", *(_text(run.score(suite, arm, run.trained, *each)) for each in shown)))
    for record in run.records:
        if record.family == GIVEN:
            cells = (_text(run.score(suite, arm, record.plan, *each)) for each in shown)
            body.append((record.plan, "–", "1", *cells))
    for family in run.families:
        body += _family_rows(run, suite, arm, family, shown)
    return Table(head, tuple(body))


def heading(column: Column) -> str:
    """A task and its metric as they are read.

    >>> heading(("rte", "accuracy")), heading(("all", "mean")), heading(("all", "normalised_median"))
    ('rte, accuracy', 'mean', 'normalised median')
    """
    task, metric = column
    return label(metric) if task == ALL else f"{task}, {label(metric)}"


def _family_rows(
    run: FineTunedPlans, suite: str, arm: str, family: str, shown: tuple[Column, ...]
) -> list[tuple[str, ...]]:
    by_column = [strategy_curves(run, suite, arm, family, column) for column in shown]
    points: dict[tuple[str, int], list[Point | None]] = {}
    for at, curves in enumerate(by_column):
        for curve in curves:
            for point in curve.points:
                points.setdefault((curve.strategy, point.affected), [None] * len(shown))[at] = point
    rows = []
    for (strategy, affected), cells in points.items():
        plans = max(len({record.plan for record in point.records}) for point in cells if point is not None)
        rows.append((label(strategy), str(affected), str(plans), *map(_text, cells)))
    return rows


def _text(score: Score | Point | None) -> str:
    if score is None:
        return "–"
    return fixed(score.value, 3) if score.low is None else between(score.value, score.low, score.high)
