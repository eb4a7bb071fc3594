"""What is drawn over one another: curves over percent of depth, and the importance of layers over relative depth.

A strategy that affects 6 of 12 layers and one that affects 15 of 30 stand at 50 percent of the depth (affected / depth,
figure 12 of the Painters). Layer l of L stands at 100 l / (L - 1) percent: the first at 0, the last at 100. Nothing is
interpolated and nothing smoothed: every number is a row, or the mean over the plans that a run has at one size, as in
the report of the run itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from layerwise.report.comparison.compared import Compared, ComparedRun
from layerwise.report.derived.changes import DROPPED, SWAPPED, single
from layerwise.report.derived.curves import averaged, curve_families
from layerwise.report.evidence import ALL_TASKS, DELTA
from layerwise.report.figures.axis import Line
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ABLATION, BENCHMARK, NORMALISED, SKIPPING

NOT_OF_LAYERS = frozenset({"kendall"})
"""Families whose sizes are no numbers of layers."""
MOST_CURVES = 8
"""More strategies than this are a grid in the report of a run, and no curves."""
HALF = 50.0


@dataclass(frozen=True, slots=True)
class Overlaid:
    """One number of one model at so many percent of its depth: a point of a curve, or what changing one layer costs.

    `measure` is `curve` or `layer`; `family` and `strategy` are those of the plans, `task` and `metric` those of
    the rows. Effects are in nats per token, normalised benchmark scores 0 for chance and 1 for the model as trained.
    """

    model: str
    measure: str
    family: str
    strategy: str
    task: str
    metric: str
    percent: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class CurveMeasure:
    """What the vertical axis of the curves shows: the measure, task and metric of the rows.

    The task `all` is the whole text of each run, by whatever name its rows have it.
    """

    measure: str
    task: str
    metric: str

    @property
    def is_share(self) -> bool:
        """Whether it is a score of which more is better, and no loss."""
        return self.metric != DELTA


def curve_measures(compared: Compared) -> tuple[CurveMeasure, ...]:
    """What any of the runs has curves of: the loss by task, exact matches, and normalised benchmark scores."""
    measures: dict[CurveMeasure, None] = {}
    for metric in (DELTA, "exact_match"):
        for task in _tasks(compared):
            if any(run.evidence.has(task_of(run, task), metric) for run in compared.runs):
                measures[CurveMeasure("effect", task, metric)] = None
    for run in compared.runs:
        for score in run.evidence.run.rows.where(measure=BENCHMARK, condition=NORMALISED):
            measures[CurveMeasure(BENCHMARK, score.task, score.metric)] = None
    return tuple(measures)


def _tasks(compared: Compared) -> tuple[str, ...]:
    """The whole text, and then its tasks in the runs that have several."""
    several = (task for run in compared.runs if ALL_TASKS in run.evidence.tasks for task in run.evidence.named_tasks)
    return tuple(dict.fromkeys((ALL_TASKS, *several)))


def task_of(run: ComparedRun, task: str) -> str:
    """What a run calls a task: the whole text goes by the name of its one task where it has no other."""
    return run.evidence.main_task or task if task == ALL_TASKS else task


def strategies(compared: Compared) -> tuple[tuple[str, str], ...]:
    """The families and strategies that any run has a curve of, in the order of the runs.

    Families whose sizes are no numbers of layers, or that have more strategies than an eye can follow, are left out.
    """
    kept = {family: names for family, names in _strategies(compared).items() if _is_drawn(family, names)}
    return tuple((family, name) for family, names in kept.items() for name in names)


def left_out(compared: Compared) -> tuple[str, ...]:
    """The families of curves that are not drawn over one another."""
    return tuple(family for family, names in _strategies(compared).items() if not _is_drawn(family, names))


def _strategies(compared: Compared) -> dict[str, tuple[str, ...]]:
    """The families that any run has a curve of, each with its strategies in the order of the runs."""
    named: dict[str, dict[str, None]] = {}
    for run in compared.runs:
        for family in curve_families(run.evidence.run):
            records = (record for record in run.evidence.data.plans if record.family == family)
            named.setdefault(family, {}).update(dict.fromkeys(record.strategy for record in records))
    return {family: tuple(names) for family, names in named.items()}


def _is_drawn(family: str, names: Sequence[str]) -> bool:
    return family not in NOT_OF_LAYERS and len(names) <= MOST_CURVES


def curve_lines(compared: Compared, family: str, strategy: str, measure: CurveMeasure) -> tuple[Line, ...]:
    """The curve of a strategy in every run that has it, over percent of depth."""
    lines = []
    for run in compared.runs:
        plans = run.evidence.data.plans
        records = [record for record in plans if (record.family, record.strategy) == (family, strategy)]
        points = Rows(averaged(records, _lookup(run, measure))).where(seed=None).along("amount")
        rows = {percent(int(size), run): replace(point, task=measure.task) for size, point in points.items()}
        if rows:
            lines.append(Line(run.name, rows, run.slot))
    return tuple(lines)


def percent(affected: int, run: ComparedRun) -> float:
    """The share of the depth that so many layers are, in percent."""
    return 100.0 * affected / run.evidence.depth


def layer_lines(compared: Compared, panel: str, task: str) -> tuple[Line, ...]:
    """What one of `PANELS` costs at each layer in every run that measured it, over relative depth in percent.

    A pair of neighbours stands half-way between the two.
    """
    shift = 0.5 if panel == SWAP else 0.0
    lines = []
    for run in compared.runs:
        last = max(1, run.evidence.depth - 1)
        rows = {100.0 * (layer + shift) / last: score for layer, score in PANELS[panel](run, task).items()}
        if rows:
            lines.append(Line(run.name, rows, run.slot))
    return tuple(lines)


def importance(run: ComparedRun, task: str) -> dict[int, Score]:
    """Layer to what leaving it out alone costs, nats per token: from an ablation, or from the plans of a sweep."""
    skips = run.evidence.rows.where(**SKIPPED, task=task)
    ablated = dict(sorted((row.layer, row) for row in skips if row.layer is not None))
    return ablated or _effects(run, DROPPED, task)


def swaps(run: ComparedRun, task: str) -> dict[int, Score]:
    """Layer to what swapping it with the next one costs, nats per token."""
    return _effects(run, SWAPPED, task)


SKIPPED: Mapping[str, Any] = {"measure": ABLATION, "metric": SKIPPING, "part": None, "against": None}
"""The rows of an ablation that say what each layer is worth."""
LEAVE_OUT, SWAP = "Leave one layer out", "Swap a layer with the next"
PANELS: Mapping[str, Callable[[ComparedRun, str], dict[int, Score]]] = {LEAVE_OUT: importance, SWAP: swaps}
"""What is done to single layers, each with the scores of a run on a task by layer."""
FAMILY = {LEAVE_OUT: ("leave_one_out", "skip"), SWAP: ("swap_adjacent", "swap")}
"""The family and strategy by which a row of each of `PANELS` is known."""


def layer_tasks(compared: Compared) -> tuple[str, ...]:
    """The tasks on which any run has changed single layers, the whole text first."""
    ablated = (task for run in compared.runs for task in run.evidence.rows.where(**SKIPPED).axis("task"))
    tasks = dict.fromkeys((*_tasks(compared), *ablated))
    return tuple(
        task for task in tasks if any(scores(run, task) for run in compared.runs for scores in PANELS.values())
    )


def _effects(run: ComparedRun, done: str, task: str) -> dict[int, Score]:
    rows = single(run.evidence.run, done).where(task=task_of(run, task))
    return {row.layer: row for row in rows if row.layer is not None and math.isfinite(row.value)}


def at_half(line: Line) -> tuple[float, Score]:
    """The percent of depth nearest to a half at which a model was measured, and its number there."""
    nearest = min(line.rows, key=lambda share: (abs(share - HALF), share))
    return nearest, line.rows[nearest]


def overlaid(compared: Compared) -> Iterator[Overlaid]:
    """Every number that the curves and the importance of layers show."""
    for measure in curve_measures(compared):
        for family, strategy in strategies(compared):
            for line in curve_lines(compared, family, strategy, measure):
                yield from _rows(line, "curve", family, strategy, measure.task, measure.metric)
    for panel, (family, strategy) in FAMILY.items():
        for task in layer_tasks(compared):
            for line in layer_lines(compared, panel, task):
                yield from _rows(line, "layer", family, strategy, task, DELTA)


def _rows(line: Line, measure: str, family: str, strategy: str, task: str, metric: str) -> Iterator[Overlaid]:
    for share, score in line.rows.items():
        yield Overlaid(
            line.name, measure, family, strategy, task, metric, share, score.value, score.low, score.high
        )  # fmt: skip


def _lookup(run: ComparedRun, measure: CurveMeasure) -> Callable[[str], Score | None]:
    if measure.measure != BENCHMARK:
        return lambda plan: run.evidence.effect(plan, task_of(run, measure.task), measure.metric)
    rows = run.evidence.run.rows.where(measure=BENCHMARK, condition=NORMALISED, task=measure.task)
    return lambda plan: rows.one(plan=plan, metric=measure.metric)
