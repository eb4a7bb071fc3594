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
    identity, measured = str(Plan.identity(depth)), _mean_losses(losses)
    plans: dict[str, list[str]] = {"skip": [], "reverse": [], "parallel": [], "random": []}
    own = [each for each in records if each.family == "painters" and each.plan in measured]
    guessing = {each.affected for each in own if each.strategy in plans and measured[each.plan] > (unigram or np.inf)}
    sizes = {each.affected for each in own} - guessing
    if not sizes or identity not in measured:
        return []
    size = min(sizes, key=lambda width: (abs(width - depth / 2), width))
    known = {identity}
    for strategy, chosen in plans.items():
        for record in own:
            if (record.strategy, record.affected) == (strategy, size) and record.plan not in known:
                known.add(record.plan)
                chosen.append(record.plan)
    absent = next(iter(plans.pop("skip")), None)
    return order_by_task(losses, identity, plans, absent, answer_tasks, seed=seed)


def _mean_losses(losses: Iterable[Loss]) -> dict[str, float]:
    sums: dict[str, tuple[float, int]] = {}
    for row in losses:
        nll, tokens = sums.get(row.plan, (0.0, 0))
        sums[row.plan] = (nll + row.nll, tokens + row.tokens)
    return {plan: nll / tokens for plan, (nll, tokens) in sums.items()}


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
    parts = [
        _orders(Part.of_grid(grid.of_task(task), baseline, plans), list(map(len, orders)))
        for task in (*reasoning, *text)
    ]
    sizes = len(reasoning), len(text)
    task, against = (" and ".join(kind) for kind in (reasoning, text))
    statistics: dict[str, Statistic] = {"order_less": lambda effects: _less(effects, *sizes)}
    if absent is not None:
        statistics[LOG_RATIO] = lambda effects: log_ratio(effects, *sizes)
    return Resampled.of(parts, seed=seed).rows(ORDER, statistics, task=task, against=against)


def _orders(part: Part, draws: Sequence[int]) -> Part:
    starts = [sum(draws[:number]) for number in range(len(draws))]
    means = [part.numerators[start : start + count].mean(axis=0) for start, count in zip(starts, draws, strict=True)]
    rows = [np.mean(means, axis=0), *part.numerators[sum(draws) :]]
    return Part(np.stack(rows), part.denominators, part.documents, part.tokens)


def _kinds(effects: Numbers, reasoning: int, text: int) -> tuple[Numbers, Numbers]:
    tasks = effects.reshape(*effects.shape[:-1], reasoning + text, -1)
    return tasks[..., :reasoning, :].mean(axis=-2), tasks[..., reasoning:, :].mean(axis=-2)


def _less(effects: Numbers, reasoning: int, text: int) -> Numbers:
    ours, theirs = _kinds(effects, reasoning, text)
    return np.asarray(ours[..., 0] - theirs[..., 0])


def log_ratio(effects: Numbers, reasoning: int, text: int) -> Numbers:
    """log (o / a) of reasoning less that of text, from effects (..., tasks * 2): o and a of each task in turn."""
    ours, theirs = (np.log(np.maximum(kind, SMALLEST)) for kind in _kinds(effects, reasoning, text))
    return np.asarray(ours[..., 0] - ours[..., 1] - theirs[..., 0] + theirs[..., 1])
