"""Pruning: what it costs to drop, all at once, the layers that a score calls least important.

Effects of single layers do not add up, so a ranking is only worth something if the *set* it chooses is: for k = 1, 2,
... the k least important layers of every score are dropped together, and the rest is run as a plan.

    skip, angular, ...    the k least important layers (`layerwise.measure.stats.agreement`); of equals the first ones
    angular               the k neighbours across which the state turns least (Gromov et al. 2024, arXiv 2403.17887,
                          section 3): one run of layers, as there, since its distance is that of a run
    deepest_keep_last     the k deepest layers but the last: the simple baseline of the same paper
    random                the null: sets of k layers drawn at random; value is their mean, low and high the least and
                          the most of n of them: another set falls between in (n - 1) / (n + 1) cases, 90 % of 20

Rows are `delta_nll` of each score (`arm`) and k (`amount`), a paired difference to the model as trained in nats per
token with its interval, and p-values corrected over the distinct sets of that k. Sets that several scores choose are
run once. A set that was chosen on a text looks better on that text than on another: where there is enough of it,
measure the scores on one half of the documents and prune on the other
(`layerwise.measure.language.evaluation_data.split`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from layerwise.errors import MeasureError
from layerwise.measure.interventions.ablation import refuse_shallow
from layerwise.measure.interventions.intervention import ResultCache
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, plan_records, sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.stats.agreement import Ranking, rankings
from layerwise.measure.stats.effects import ArmLosses, differences
from layerwise.measure.stats.grid import arrange
from layerwise.measure.stats.statistics import ratio
from layerwise.plan import Member, Plan, edits
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import DEEPEST_KEEP_LAST, DELTA_NLL, PRUNING, RANDOM
from layerwise.stack import Stack

ANGULAR = "angular"

RANDOM_SETS = 20
"""Random sets of each size: enough for a band, few enough to cost about as much as the scores themselves."""


def pruning(
    stack: Stack,
    data: EvalData,
    scores: Sequence[Score],
    *,
    seed: int = 0,
    cache: ResultCache | None = None,
    most: int | None = None,
    random_sets: int = RANDOM_SETS,
) -> tuple[list[Score], list[PlanRecord]]:
    """Drop the sets that every ranking in `scores` chooses, up to `most` layers (by default half of them).

    Returns the rows of the module and, for each set, why it was run (family `pruning`, strategy the score's name,
    `affected` how many layers were dropped). A ranking that lacks a layer chooses nothing. Losses that `cache` knows
    are not computed again. A set whose loss is not finite has no row, and `cache.log` is called. Raises `MeasureError`
    for fewer than 4 layers, and where the model's own loss is not finite.
    """
    refuse_shallow(stack)
    chosen = members(stack.depth, scores, most=most, random_sets=random_sets, seed=seed)
    losses = _losses(stack, data, chosen, cache or ResultCache())
    baseline = str(Plan.identity(stack.depth))
    rows: list[Score] = []
    for dropped, group in itertools.groupby(chosen, key=lambda member: member.affected):
        alike = list(group)
        rows += _by_score(losses, baseline, [member for member in alike if member.strategy != RANDOM], dropped, seed)
        rows += _random(losses, baseline, [member for member in alike if member.strategy == RANDOM], dropped)
    return rows, plan_records(chosen)


def members(
    depth: int,
    scores: Iterable[Score],
    *,
    most: int | None = None,
    random_sets: int = RANDOM_SETS,
    seed: int = 0,
) -> tuple[Member, ...]:
    """Every set that is dropped, as a plan of the layers that stay, ordered by the number that go.

    >>> rows = [Score("ablation", "skip", value, layer=layer) for layer, value in enumerate([9, 1, 2, 9])]
    >>> [(m.strategy, str(m.plan)) for m in members(4, rows, most=2, random_sets=0)]
    [('skip', '0 2 3'), ('deepest_keep_last', '0 1 3'), ('skip', '0 3'), ('deepest_keep_last', '0 3')]
    """
    rows = list(scores)
    largest = min(depth // 2 if most is None else most, depth - 1)
    sets = []
    for count in range(1, largest + 1):
        for strategy, dropped in _choices(depth, rows, count):
            sets.append(_dropping(depth, dropped, strategy))
        for draw, dropped in enumerate(_random_sets(depth, count, random_sets, seed)):
            sets.append(_dropping(depth, dropped, RANDOM, draw))
    return tuple(sets)


def _dropping(depth: int, dropped: tuple[int, ...], strategy: str, draw: int | None = None) -> Member:
    return Member(edits.skip(Plan.identity(depth), *dropped), PRUNING, strategy, len(dropped), draw)


def _choices(depth: int, rows: Sequence[Score], count: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What each score drops, by its name."""
    for name, ranking in rankings(rows).items():
        if len(ranking) == depth:
            yield name, _straightest(rows, count) if name == ANGULAR else _least(ranking, count)
    yield DEEPEST_KEEP_LAST, tuple(range(depth - 1 - count, depth - 1))


def _least(ranking: Ranking, count: int) -> tuple[int, ...]:
    return tuple(sorted(sorted(ranking, key=lambda layer: (ranking[layer], layer))[:count]))


def _straightest(rows: Sequence[Score], count: int) -> tuple[int, ...]:
    """The run of `count` layers across which the angular distance is least; the first of equals."""
    distances = {
        score.layer: score.value
        for score in rows
        if score.metric == "angular_distance" and score.layer is not None and score.amount == count
    }
    start = min(distances, key=lambda layer: (distances[layer], layer))
    return tuple(range(start, start + count))


def _random_sets(depth: int, count: int, wanted: int, seed: int) -> list[tuple[int, ...]]:
    """Distinct sets of `count` layers, drawn from `seed`; all of them where there are no more than `wanted`."""
    if math.comb(depth, count) <= wanted:
        return list(itertools.combinations(range(depth), count))
    draw = np.random.default_rng([seed, depth, count])
    sets: dict[tuple[int, ...], None] = {}
    while len(sets) < wanted:
        sets.setdefault(tuple(sorted(draw.choice(depth, size=count, replace=False).tolist())))
    return list(sets)


def _losses(stack: Stack, data: EvalData, chosen: Sequence[Member], cache: ResultCache) -> list[Loss]:
    """The losses of every set and of the model as trained, on the windows of `data`, known ones included."""
    windows = data.cells
    wanted = {str(Plan.identity(stack.depth)), *(str(member.plan) for member in chosen)}
    rows = [row for row in cache.known if row.plan in wanted and (row.task, row.document, row.window) in windows]
    done: dict[tuple[str, str, int], set[str]] = {}
    for row in rows:
        done.setdefault((row.task, row.document, row.window), set()).add(row.plan)

    def sink(fresh: Sequence[Loss]) -> None:
        rows.extend(fresh)
        cache.sink(fresh)

    def progress(meter: CostMeter, due: CostEstimate) -> None:
        cache.progress(_share(meter, due))

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(done.get((task, document, window), ()))

    try:
        sweep(stack, chosen, data, sink=sink, finished=finished, progress=progress)
    except MeasureError as error:
        if sum(row.plan == str(Plan.identity(stack.depth)) for row in rows) < len(windows):
            raise
        cache.log(str(error))
    return rows


def _share(meter: CostMeter, due: CostEstimate) -> float:
    """How much of a sweep is done, by tokens through layers and heads alike."""
    whole = due.layer_tokens + due.head_tokens
    return (meter.layer_tokens + meter.head_tokens) / whole if whole else 1.0


def _by_score(
    losses: Sequence[Loss], baseline: str, chosen: Sequence[Member], dropped: int, seed: int
) -> Iterator[Score]:
    """The rows of every score: sets are compared once each, and reported for all scores that chose them."""
    plans = dict.fromkeys(str(member.plan) for member in chosen)
    arms = [ArmLosses(plan, DELTA_NLL, {"plan": plan, "amount": float(dropped)}) for plan in plans]
    by_plan: dict[str | None, list[Score]] = {}
    for score in differences(PRUNING, losses, baseline, arms, seed=seed, by_task=False):
        by_plan.setdefault(score.plan, []).append(score)
    for member in chosen:
        for score in by_plan.get(str(member.plan), ()):
            yield replace(score, arm=member.strategy)


def _random(losses: Sequence[Loss], baseline: str, chosen: Sequence[Member], dropped: int) -> list[Score]:
    """The row of the random sets: the mean of their effects, the least and the most of them."""
    rows_of: dict[str, list[Loss]] = {}
    for row in losses:
        rows_of.setdefault(row.plan, []).append(row)
    plans = [str(member.plan) for member in chosen]
    whole = [plan for plan in plans if len(rows_of.get(plan, ())) == len(rows_of[baseline])]
    if not whole:
        return []
    grid = arrange(row for plan in (baseline, *whole) for row in rows_of[plan])
    means = dict(zip(grid.plans, ratio(grid.nll, grid.tokens).tolist(), strict=True))
    effects = np.array([means[plan] - means[baseline] for plan in whole])
    mean, low, high = (float(each) for each in (effects.mean(), effects.min(), effects.max()))
    return [
        Score(
            PRUNING,
            DELTA_NLL,
            mean,
            low,
            high,
            arm=RANDOM,
            amount=float(dropped),
            documents=grid.documents(),
            tokens=int(grid.tokens.sum()),
        )
    ]
