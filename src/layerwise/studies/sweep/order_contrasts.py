"""Test whether a wrong order costs more on reasoning than on text, relative to skipping the same window.

With o the mean effect of other orders (reversed, shuffled, parallel) and a that of skipping, in nats/token:
    order_less     o of reasoning - o of text, the published comparison
    log_ratio      log(o / a) of reasoning - log(o / a) of text; effects below zero are replaced by a tiny one
Documents are resampled by task; a kind is the mean of its tasks. `task` is the reasoning, `against` the text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled, Statistic
from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import LOG_RATIO

ORDER = "order_by_task"

NOT_REASONING = frozenset({"copy"})
"""Tasks with answers that ask for no reasoning: the answer stands in the question."""

SMALLEST = 1e-9
"""Nats per token that an effect of zero or less counts as, where a ratio is asked for."""


def order_of_sweep(
    losses: Sequence[Loss],
    records: Iterable[PlanRecord],
    depth: int,
    answer_tasks: Collection[str],
    *,
    seed: Seed = 0,
    unigram: float | None = None,
) -> list[Score]:
    """Compute the rows from the published window nearest to half of the depth, where a sweep of `painters` ran it.

    With `unigram`, the loss of a unigram model, no window is compared where one of the plans loses more than it does.
    """
    grid, identity = arrange(losses), str(Plan.identity(depth))
    means = dict(zip(grid.plans, grid.nll.sum(axis=1) / grid.tokens.sum(), strict=True))
    strategies = ("skip", "reverse", "parallel", "random")
    own = [each for each in records if each.family == "painters" and each.plan in means]
    guessing = {each.affected for each in own if each.strategy in strategies and means[each.plan] > (unigram or np.inf)}
    sizes = {each.affected for each in own} - guessing
    if not sizes or identity not in means:
        return []
    size = min(sizes, key=lambda width: (abs(width - depth / 2), width))
    plans: dict[str, list[str]] = {}
    known = {identity}
    for strategy in strategies:
        drawn = dict.fromkeys(each.plan for each in own if (each.strategy, each.affected) == (strategy, size))
        plans[strategy] = [plan for plan in drawn if plan not in known]
        known.update(drawn)
    absent = next(iter(plans.pop("skip")), None)
    return order_by_task(losses, identity, plans, absent, answer_tasks, seed=seed)


def order_by_task(
    losses: Iterable[Loss],
    baseline: str,
    moved: Mapping[str, Sequence[str]],
    absent: str | None,
    answer_tasks: Collection[str],
    *,
    seed: Seed = 0,
) -> list[Score]:
    """Return the rows about order on tasks with answers (except `copy`) and on the other texts; none without both.

    `moved` are plans with the window in another order, `absent` skips it: without that there is no `log_ratio`.
    """
    orders = [list(drawn) for drawn in moved.values() if drawn]
    plans = [*(plan for drawn in orders for plan in drawn), *([] if absent is None else [absent])]
    grid = arrange(row for row in losses if row.plan in {baseline, *plans})
    reasoning = [task for task in grid.tasks() if task in answer_tasks and task not in NOT_REASONING]
    text = [task for task in grid.tasks() if task not in answer_tasks]
    if not reasoning or not text or not orders:
        return []
    draws = list(map(len, orders))
    parts = [_average_draws(Part.of_grid(grid.of_task(task), baseline, plans), draws) for task in (*reasoning, *text)]

    def average_kinds(effects: Numbers) -> tuple[Numbers, Numbers]:
        tasks = effects.reshape(*effects.shape[:-1], len(parts), -1)
        return tasks[..., : len(reasoning), :].mean(axis=-2), tasks[..., len(reasoning) :, :].mean(axis=-2)

    def less(effects: Numbers) -> Numbers:
        ours, theirs = average_kinds(effects)
        return np.asarray(ours[..., 0] - theirs[..., 0])

    def log_ratio(effects: Numbers) -> Numbers:
        ours, theirs = (np.log(np.maximum(kind, SMALLEST)) for kind in average_kinds(effects))
        return np.asarray(ours[..., 0] - ours[..., 1] - theirs[..., 0] + theirs[..., 1])

    statistics: dict[str, Statistic] = {"order_less": less}
    if absent is not None:
        statistics[LOG_RATIO] = log_ratio
    columns = {"task": " and ".join(reasoning), "against": " and ".join(text)}
    return Resampled.of(parts, seed=seed).rows(ORDER, statistics, **columns)


def _average_draws(part: Part, draws: Sequence[int]) -> Part:
    """Return the mean over orders, each the mean of its draws, and the effect of absence if it was measured."""
    *drawn, absent = np.split(part.numerators, np.cumsum(draws))
    rows = [np.mean([each.mean(axis=0) for each in drawn], axis=0), *absent]
    return Part(np.stack(rows), part.denominators, part.documents, part.tokens)
