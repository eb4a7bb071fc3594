"""Contrasts of a sweep: the claims of "Transformer Layers as Painters" (arXiv 2407.09298) about strategies.

The cost of a strategy is the mean of its effects on the paper's windows of more than one layer, in nats/token. The
difference of two costs a and b is 2 (a - b) / (|a| + |b|). See `layerwise.studies.sweep.strategies`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, pairwise

import numpy as np

from layerwise.measure.contrasts.contrast import Part, Resampled
from layerwise.measure.stats.grid import Grid, arrange
from layerwise.measure.stats.statistics import Numbers, Seed
from layerwise.plan import Plan
from layerwise.plan.painters import PAINTERS_LOOPS, PAINTERS_RANKING, half_window
from layerwise.results.rows import Loss, PlanRecord, Score
from layerwise.results.vocabulary import (
    ALL,
    CONTRAST,
    DELTA,
    EXACT,
    GAINED,
    LOG_RATIO,
    LOOP_COUNT,
    LOOPED,
    STEP,
    STRATEGIES,
)
from layerwise.studies.sweep.strategies import (
    Costs,
    Curve,
    Statistic,
    Strategies,
    compute_mean_cost,
    compute_relative_difference,
    divide_by_mean_size,
)

CONTRASTED = frozenset({"painters", LOOPED})
"""Families whose strategies are compared. The family `gain_sweep` serves as their baseline."""

MIN_WINDOWS = 2
"""Minimum number of windows for a comparison. Models with at least 5 layers have as many."""

MIN_COUNTS = 3
"""Minimum number of loop counts from which the best one is selected."""

NARROW = 4
MIN_DIVISOR = 1e-12
"""Lower bound of a divisor, in nats/token."""

ORDERS = ("reverse", "random")
RANKED_LEVEL = 0.99
"""Confidence level for each of the 15 pairs of strategies in the ranking."""

RANKING = "ranking"
PAIRS: Mapping[str, Sequence[tuple[str, str]]] = {
    "same_function": (("middle_repeat", "skip"),),
    "any_order": tuple(("skip", order) for order in ORDERS),
    "parallel": (("skip", "parallel"), ("parallel", "reverse")),
    "looping": (("parallel", "looped_parallel"),),
    RANKING: tuple((harsher, milder) for milder, harsher in combinations(PAINTERS_RANKING, 2)),
}
"""Pairs of a more harmful and a less harmful strategy that each claim compares."""

COMPARED: Mapping[str, tuple[str, ...]] = {
    **{claim: tuple(dict.fromkeys(chain.from_iterable(pairs))) for claim, pairs in PAIRS.items()},
    "all_needed": ("skip",),
}
"""Strategies that each claim compares on the same windows."""


def contrast_painters(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, *, seed: Seed = 0, unigram: float | None = None
) -> list[Score]:
    """Return the contrasts of all claims whose plans the sweep contains.

    If `unigram` is given (the loss of a unigram model in nats/token), windows for which a plan has a higher loss are
    excluded. In this case, the rows `excluded` and `windows` give the numbers of excluded and of other windows.
    """
    strategies = Strategies.from_grid(arrange(losses), records, str(Plan.identity(depth)), seed=seed, unigram=unigram)
    return compute_rows(strategies, depth)


def compute_rows(strategies: Strategies, depth: int, claims: Iterable[str] = (*COMPARED, LOOP_COUNT)) -> list[Score]:
    compute: dict[str, Callable[[], Iterator[Score]]] = {
        **{claim: partial(_compare_pairs, strategies, claim) for claim in PAIRS},
        "all_needed": partial(_compare_widths, strategies, depth),
        LOOP_COUNT: partial(contrast_loops, strategies),
    }
    return [row for claim in claims for row in (*compute[claim](), *_count_windows(strategies, claim))]


def _count_windows(strategies: Strategies, claim: str) -> Iterator[Score]:
    looped = [curve for curve in strategies.rows if curve[0] == LOOPED]
    curves = looped if claim == LOOP_COUNT else map(_name_curve, COMPARED[claim])
    measured = strategies.list_compared(*curves, best=claim == LOOP_COUNT).values()
    counts = {"excluded": len(measured) - sum(measured), "windows": sum(measured)}
    for name, count in counts.items() if counts["excluded"] else ():
        yield Score(CONTRAST, name, float(count), claim=claim)


def _compare_pairs(strategies: Strategies, claim: str) -> Iterator[Score]:
    windows = _list_windows(strategies, claim)
    if not windows:
        return
    means = {name: compute_mean_cost(_name_curve(name), windows) for name in COMPARED[claim]}
    for harsher, milder in PAIRS[claim]:
        level = RANKED_LEVEL if claim == RANKING else 0.95
        yield strategies.row(claim, f"{harsher}:{milder}", _subtract_costs(means[harsher], means[milder]), level=level)
    if claim == "same_function":
        yield strategies.row(claim, "middle_repeat", means["middle_repeat"])
    elif claim == "any_order":
        for order in ORDERS:
            yield strategies.row(claim, order, _take_share(means[order], means["skip"]))
    elif claim == "looping":
        curves = ("gain_sweep", f"gain={PAINTERS_LOOPS}"), _name_curve("looped_parallel")
        shared = strategies.windows(*curves)
        if len(shared) >= MIN_WINDOWS:
            gain, looped = (compute_mean_cost(curve, shared) for curve in curves)
            yield strategies.row(claim, "gain:looped_parallel", _subtract_costs(gain, looped))
    elif claim == RANKING:
        for name, mean in means.items():
            yield strategies.row(claim, name, mean)
        harms = [means[name] for name in PAINTERS_RANKING]
        yield _widen_by_a_pair(strategies.row(claim, "tau", partial(_compute_tau, harms)))


def _compute_tau(harms: Sequence[Statistic], costs: Costs) -> Numbers:
    drawn = [harm(costs) for harm in harms]
    return np.asarray(np.mean([np.sign(harsher - milder) for milder, harsher in combinations(drawn, 2)], axis=0))


def _widen_by_a_pair(tau: Score) -> Score:
    """Widen the interval of Kendall's tau by one pair, because clear differences give equal tau in all resamples."""
    if tau.low is None or tau.high is None:
        return tau
    pair = 2 / len(PAIRS[RANKING])
    return replace(tau, low=max(-1.0, min(tau.low, tau.value - pair)), high=min(1.0, max(tau.high, tau.value + pair)))


def _compare_widths(strategies: Strategies, depth: int) -> Iterator[Score]:
    windows, skip = _list_windows(strategies, "all_needed"), _name_curve("skip")
    if not windows:
        return
    widest = windows[-1]
    narrow = [size for size in windows[:-1] if size <= max(windows[0], depth / NARROW)]

    def saved(costs: Costs) -> Numbers:
        few, whole = costs(skip, narrow).sum(axis=-1) / sum(narrow), costs(skip, [widest])[..., 0] / widest
        return np.asarray(1 - few / np.maximum(whole, MIN_DIVISOR))

    def rise(costs: Costs) -> Numbers:
        return np.asarray(costs(skip, [widest])[..., 0] - costs(skip, narrow).mean(axis=-1))

    yield strategies.row("all_needed", "saved", saved)
    yield strategies.row("all_needed", "rise", rise)


def _name_curve(strategy: str) -> Curve:
    return "painters", strategy


def _list_windows(strategies: Strategies, claim: str) -> tuple[int, ...]:
    windows = strategies.windows(*map(_name_curve, COMPARED[claim]))
    return windows if len(windows) >= MIN_WINDOWS else ()


def _subtract_costs(harsher: Statistic, milder: Statistic) -> Statistic:
    return lambda costs: compute_relative_difference(harsher(costs), milder(costs))


def _take_share(part: Statistic, other: Statistic) -> Statistic:
    def share(costs: Costs) -> Numbers:
        own, against = part(costs), other(costs)
        return divide_by_mean_size(own, own, against)

    return share


def contrast_loops(strategies: Strategies) -> Iterator[Score]:
    """Yield rows about the best number of loops (Sun et al., figure 10), which is selected again in each resample.

    slope                    slope of the best number of loops over window sizes (least squares)
    at_end                   number of windows for which the largest number of loops is best
    best_loops, best_gain    best number of loops, and best gain, for a window of `affected` layers
    gain-loops               cost of one pass with the best gain minus that of the best number of loops, in nats/token;
                             both are selected on one half of the documents and compared on the other half
    """
    loops = _number_curves(strategies, LOOPED)
    windows = strategies.windows(*loops.values(), best=True)
    if len(loops) < MIN_COUNTS or len(windows) < MIN_WINDOWS:
        return
    centered = np.array(windows, dtype=float) - np.mean(windows)

    def best(costs: Costs) -> Numbers:
        return np.stack([_find_best(costs, size, loops) for size in windows], axis=-1)

    yield strategies.row(LOOP_COUNT, "slope", lambda costs: np.asarray(best(costs) @ centered / (centered @ centered)))
    yield strategies.row(LOOP_COUNT, "at_end", lambda costs: np.asarray((best(costs) == max(loops)).sum(axis=-1)))
    gained = _number_curves(strategies, GAINED).items()
    gains = {size: {number: curve for number, curve in gained if size in strategies.rows[curve]} for size in windows}
    numbered = {"best_loops": dict.fromkeys(windows, loops), **({"best_gain": gains} if all(gains.values()) else {})}
    for metric, by_window in numbered.items():
        for size, curves in by_window.items():
            statistic = partial(_find_best, size=size, curves=curves)
            yield strategies.row(LOOP_COUNT, metric, statistic, affected=size)
    if not all(gains.values()) or not strategies.has_halves:
        return

    def subtract(choose: Costs, report: Costs, size: int) -> Numbers:
        gained, looped = (_report_best(choose, report, size, curves) for curves in (gains[size], loops))
        return np.subtract(gained, looped)

    for size in windows:
        yield strategies.row_by_halves(LOOP_COUNT, "gain-loops", partial(subtract, size=size), affected=size)


def _number_curves(strategies: Strategies, family: str) -> dict[int, Curve]:
    curves = {int(name.partition("=")[2]): (owner, name) for owner, name in strategies.rows if owner == family}
    return dict(sorted(curves.items()))


def _stack_costs(costs: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    return np.stack([costs(curve, [size])[..., 0] for curve in curves.values()])


def _find_best(costs: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    numbers = np.array(list(curves), dtype=np.float64)
    return np.asarray(numbers[_stack_costs(costs, size, curves).argmin(axis=0)])


def _report_best(choose: Costs, report: Costs, size: int, curves: Mapping[int, Curve]) -> Numbers:
    own, other = (_stack_costs(costs, size, curves) for costs in (choose, report))
    return np.asarray(np.take_along_axis(other, own.argmin(axis=0)[None], axis=0)[0])


ALPHA = 0.05
TOKEN_ACCURACY = "token_accuracy"


def contrast_at_half_depth(
    losses: Iterable[Loss], records: Iterable[PlanRecord], depth: int, answer_tasks: Collection[str], *, seed: Seed = 0
) -> list[Score]:
    """Average random orders over their draws, and compare strategies on the window of half the depth.

    The rows of the claim `strategies` have intervals over documents and draws:
        delta_nll, exact_match, ...  mean over the draws of a strategy, for every window size and task
        step                         loss of a strategy minus that of the next less harmful strategy, in nats/token;
                                     the intervals are corrected for the number of steps
    """
    grid, whole = arrange(losses), str(Plan.identity(depth))
    if whole not in grid.plans:
        return []
    measured = [record for record in records if record.plan in set(grid.plans)]
    tasks = {task: grid.of_task(task) for task in grid.tasks()}
    parts = {ALL: grid, **tasks} if len(tasks) > 1 else tasks
    rows = [
        row
        for task, part in parts.items()
        for row in _average_over_draws(task, part, measured, whole, answer_tasks, seed)
    ]
    half = half_window(measured, depth)
    if half is not None:
        at_half = [each for each in measured if (each.family, each.affected) == (half.family, half.affected)]
        task, part = next(iter(parts.items()))
        own = _select_plans(part, {whole, *(each.plan for each in at_half)})
        rows += _compare_neighbors(task, Strategies.from_grid(own, at_half, whole, seed=seed))
    return rows


def _select_plans(grid: Grid, plans: Collection[str]) -> Grid:
    kept = [at for at, plan in enumerate(grid.plans) if plan in plans]
    return replace(grid, plans=tuple(grid.plans[at] for at in kept), nll=grid.nll[kept], hits=grid.hits[kept])


def _average_over_draws(
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
        strategies = Strategies.from_grid(own, drawn, baseline, seed=seed)
        for curve, windows in strategies.rows.items():
            for size in windows:
                columns = {"task": task, "family": curve[0], "strategy": curve[1], "affected": size}
                row = strategies.row(STRATEGIES, metric, compute_mean_cost(curve, [size]), **columns)
                # If all units have the same share, there is no interval.
                yield replace(row, low=None, high=None, mde=None) if row.low == row.high else row


def _compare_neighbors(task: str, strategies: Strategies) -> Iterator[Score]:
    costs, means, seen = strategies.costs(), {}, set()
    for curve, windows in strategies.rows.items():
        ((size, rows),) = windows.items()
        if frozenset(rows) not in seen:
            seen.add(frozenset(rows))
            means[curve, size] = float(costs(curve, [size])[0])
    steps = list(pairwise(sorted(means, key=means.__getitem__)))
    for (milder, _), (harsher, size) in steps:
        first, second = compute_mean_cost(harsher, [size]), compute_mean_cost(milder, [size])

        def step(costs: Costs, first: Statistic = first, second: Statistic = second) -> Numbers:
            return np.asarray(first(costs) - second(costs))

        columns = {"family": harsher[0], "strategy": harsher[1], "affected": size, "against": milder[1]}
        yield strategies.row(STRATEGIES, STEP, step, level=1 - ALPHA / len(steps), task=task, **columns)


ORDER = "order_by_task"

NOT_REASONING = frozenset({"copy"})
"""Tasks with answers that do not need reasoning."""

MIN_RATIO_EFFECT = 1e-9
"""Lower bound of an effect in a ratio, in nats/token."""


def contrast_order(
    losses: Sequence[Loss],
    records: Iterable[PlanRecord],
    depth: int,
    answer_tasks: Collection[str],
    *,
    seed: Seed = 0,
    unigram: float | None = None,
) -> list[Score]:
    """Compare the cost of layer order on reasoning tasks with that on ordinary text.

    It is measured on the window of the Painters' family that is nearest to half of the depth. Let o be the mean effect
    of other orders (reversed, random, parallel), and a the effect of skipping the window, in nats/token:
        order_less     o on reasoning - o on text (the published comparison)
        log_ratio      log(o / a) on reasoning - log(o / a) on text
    Effects are means over tasks, and documents are resampled within each task. The rows name the reasoning tasks in
    `task` and the others in `against`. Windows for which a plan has a higher loss than `unigram` are excluded.
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
    return contrast_order_by_task(losses, identity, plans, absent, answer_tasks, seed=seed)


def contrast_order_by_task(
    losses: Iterable[Loss],
    baseline: str,
    moved: Mapping[str, Sequence[str]],
    absent: str | None,
    answer_tasks: Collection[str],
    *,
    seed: Seed = 0,
) -> list[Score]:
    """Compare the cost of layer order on reasoning tasks with that on text, for given plans (see `contrast_order`).

    The plans `moved` run a window in another order, and the plan `absent` skips it. If `absent` is None, there is no
    `log_ratio`. Reasoning tasks are those in `answer_tasks` except `copy`.
    """
    orders = [list(drawn) for drawn in moved.values() if drawn]
    plans = [*(plan for drawn in orders for plan in drawn), *([] if absent is None else [absent])]
    grid = arrange(row for row in losses if row.plan in {baseline, *plans})
    reasoning = [task for task in grid.tasks() if task in answer_tasks and task not in NOT_REASONING]
    text = [task for task in grid.tasks() if task not in answer_tasks]
    if not reasoning or not text or not orders:
        return []
    draws = list(map(len, orders))
    parts = [_average_draws(Part.from_grid(grid.of_task(task), baseline, plans), draws) for task in (*reasoning, *text)]

    def average_kinds(effects: Numbers) -> tuple[Numbers, Numbers]:
        tasks = effects.reshape(*effects.shape[:-1], len(parts), -1)
        return tasks[..., : len(reasoning), :].mean(axis=-2), tasks[..., len(reasoning) :, :].mean(axis=-2)

    def less(effects: Numbers) -> Numbers:
        ours, theirs = average_kinds(effects)
        return np.asarray(ours[..., 0] - theirs[..., 0])

    def log_ratio(effects: Numbers) -> Numbers:
        ours, theirs = (np.log(np.maximum(kind, MIN_RATIO_EFFECT)) for kind in average_kinds(effects))
        return np.asarray(ours[..., 0] - ours[..., 1] - theirs[..., 0] + theirs[..., 1])

    statistics: dict[str, Callable[[Numbers], Numbers]] = {"order_less": less}
    if absent is not None:
        statistics[LOG_RATIO] = log_ratio
    columns = {"task": " and ".join(reasoning), "against": " and ".join(text)}
    return Resampled.from_parts(parts, seed=seed).rows(ORDER, statistics, **columns)


def _average_draws(part: Part, draws: Sequence[int]) -> Part:
    *drawn, absent = np.split(part.numerators, np.cumsum(draws))
    rows = [np.mean([each.mean(axis=0) for each in drawn], axis=0), *absent]
    return Part(np.stack(rows), part.denominators, part.documents, part.tokens)
