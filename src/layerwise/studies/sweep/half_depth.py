"""Compare the strategies of a sweep at the window of half the depth, and average random orders over their draws.

Rows of the claim `strategies`, in nats/token, with intervals over documents and draws:
    delta_nll, exact_match, ...  mean over the draws of a strategy at every size of window, on every task
    step                         loss of a strategy minus that of the next milder one, corrected over the steps
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from layerwise.measure.stats.grid import Grid, arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan
from layerwise.plan.painters import half_window
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import ALL, DELTA, EXACT, STEP, STRATEGIES
from layerwise.studies.sweep.strategies import Costs, Statistic, Strategies, mean_cost

ALPHA = 0.05
TOKEN_ACCURACY = "token_accuracy"


def strategy_contrasts(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, answer_tasks: Collection[str], *, seed: Seed = 0
) -> list[Score]:
    """Return the rows of the module; none without the original model's losses."""
    grid, whole = arrange(losses), str(Plan.identity(depth))
    if whole not in grid.plans:
        return []
    measured = [record for record in records if record.plan in set(grid.plans)]
    tasks = {task: grid.of_task(task) for task in grid.tasks()}
    parts = {ALL: grid, **tasks} if len(tasks) > 1 else tasks
    rows = [row for task, part in parts.items() for row in _average(task, part, measured, whole, answer_tasks, seed)]
    half = half_window(measured, depth)
    if half is not None:
        at_half = [each for each in measured if (each.family, each.affected) == (half.family, half.affected)]
        task, part = next(iter(parts.items()))
        own = _select_plans(part, {whole, *(each.plan for each in at_half)})
        rows += _compare(task, Strategies.of(own, at_half, whole, seed=seed))
    return rows


def _select_plans(grid: Grid, plans: Collection[str]) -> Grid:
    kept = [at for at, plan in enumerate(grid.plans) if plan in plans]
    return replace(grid, plans=tuple(grid.plans[at] for at in kept), nll=grid.nll[kept], hits=grid.hits[kept])


def _average(
    task: str, grid: Grid, records: Sequence[PlanRecord], whole: str, answer_tasks: Collection[str], seed: Seed
) -> Iterator[Score]:
    plans: dict[tuple[str, str, int], set[str]] = {}
    for each in records:
        plans.setdefault((each.family, each.strategy, each.affected), set()).add(each.plan)
    drawn = [each for each in records if len(plans[each.family, each.strategy, each.affected]) > 1]
    if not drawn:
        return
    grid = _select_plans(grid, {whole, *(each.plan for each in drawn)})
    quantities = {DELTA: (grid, whole), TOKEN_ACCURACY: (replace(grid, nll=grid.hits), None)}
    if task in answer_tasks:
        exact = (grid.hits == grid.tokens).astype(np.float64)
        quantities[EXACT] = (replace(grid, nll=exact, tokens=np.ones_like(grid.tokens)), None)
    for metric, (own, baseline) in quantities.items():
        strategies = Strategies.of(own, drawn, baseline, seed=seed)
        for curve, windows in strategies.rows.items():
            for size in windows:
                columns = {"task": task, "family": curve[0], "strategy": curve[1], "affected": size}
                row = strategies.row(STRATEGIES, metric, mean_cost(curve, [size]), **columns)
                # Shares that are equal in every unit have no interval, rather than one of no width.
                yield replace(row, low=None, high=None, mde=None) if row.low == row.high else row


def _compare(task: str, strategies: Strategies) -> Iterator[Score]:
    """Compare neighbors in the order of harm; of strategies with the same plans only the first."""
    costs, means, seen = strategies.costs(), {}, set()
    for curve, windows in strategies.rows.items():
        ((size, rows),) = windows.items()
        if frozenset(rows) not in seen:
            seen.add(frozenset(rows))
            means[curve, size] = float(costs(curve, [size])[0])
    steps = list(pairwise(sorted(means, key=means.__getitem__)))
    for (milder, _), (harsher, size) in steps:
        first, second = mean_cost(harsher, [size]), mean_cost(milder, [size])

        def step(costs: Costs, first: Statistic = first, second: Statistic = second) -> Numbers:
            return np.asarray(first(costs) - second(costs))

        columns = {"family": harsher[0], "strategy": harsher[1], "affected": size, "against": milder[1]}
        yield strategies.row(STRATEGIES, STEP, step, level=1 - ALPHA / len(steps), task=task, **columns)
