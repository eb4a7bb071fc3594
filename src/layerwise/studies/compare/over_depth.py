"""Curves of several models, and the importance of their layers, over percent of depth.

A plan that changes n of L layers is at 100 n / L (as in figure 12 of "Transformer Layers as Painters"), and layer l is
at 100 l / (L - 1). Values are not interpolated or smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import product

from layerwise.page.data import ReportData
from layerwise.page.derived.curves import DROPPED, SWAPPED, MeanOf, average_draws, means_over_draws, read_single_changes
from layerwise.page.formatting import label
from layerwise.plan.painters import PUBLISHED, curve_families
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

Runs = Mapping[str, ReportData]
"""Maps the name of each model to its run."""
ScoreOf = Callable[[str], Score | None]

MAX_CURVES = 8
"""Maximum number of strategies of a family that are drawn as curves."""
HALF = 50.0
CHANGES = {DROPPED: ("leave_one_out", "skip", 0.0), SWAPPED: ("swap_adjacent", "swap", 0.5)}
"""Family and strategy of plans that change a single layer, and the position of the change relative to the layer."""


def name_quantity(row: Score) -> str:
    """Return the name of the quantity of a curve: the loss, the loss on a task, or a benchmark score.

    >>> name_quantity(Score(vocab.CURVE, vocab.DELTA, 0.1)), name_quantity(Score(vocab.SCORE_CURVE, "mean", 0.9))
    ('loss', 'mean of the benchmarks')
    """
    if row.measure == vocab.SCORE_CURVE:
        return (
            f"{label(row.metric)} of the benchmarks"
            if row.task == vocab.ALL
            else f"{row.task}, {label(row.metric)} (normalized)"
        )
    what = "loss" if row.metric == vocab.DELTA else label(row.metric)
    return what if row.task == vocab.ALL else f"{what}, {row.task}"


def format_strategy(row: Score) -> str:
    """Return the name of a row's strategy, followed by its family unless this is the published family ("painters").

    >>> format_strategy(Score(vocab.CURVE, vocab.DELTA, 0.1, family="every_window", strategy="skip"))
    'skip (every window)'
    """
    own = label(str(row.strategy))
    return own if row.family == PUBLISHED else f"{own} ({label(str(row.family))})"


def _list_tasks(runs: Runs) -> tuple[str, ...]:
    several = (task for run in runs.values() if vocab.ALL in run.tasks for task in run.tasks)
    return tuple(dict.fromkeys((vocab.ALL, *several)))


def find_own_task(run: ReportData, task: str) -> str:
    return next(iter(run.tasks), task) if task == vocab.ALL else task


def list_drawn_families(runs: Runs) -> dict[str, bool]:
    strategies: dict[str, dict[str, None]] = {}
    for run in runs.values():
        curved = curve_families(run.swept)
        for record in run.swept:
            if record.family in curved:
                strategies.setdefault(record.family, {})[record.strategy] = None
    return {family: len(own) <= MAX_CURVES for family, own in strategies.items()}


def compute_curves(runs: Runs) -> Iterator[Score]:
    families = [family for family, is_drawn in list_drawn_families(runs).items() if is_drawn]
    for name, run in runs.items():
        records = [record for record in run.swept if record.family in families]
        for (measure, task, metric), score_of, mean_of in _compute_score_curves(run, _list_tasks(runs)):
            for row in average_draws(records, score_of, mean_of):
                if row.seed is None:  # single draws are in the mean
                    yield Score(
                        measure,
                        metric,
                        row.value,
                        row.low,
                        row.high,
                        task=task,
                        mde=row.mde,
                        variant=name,
                        family=row.family,
                        strategy=row.strategy,
                        percent=100.0 * (row.affected or 0) / run.depth,
                    )


def _compute_score_curves(
    run: ReportData, tasks: Iterable[str]
) -> Iterator[tuple[tuple[str, str, str], ScoreOf, MeanOf]]:
    for metric, task in product((vocab.DELTA, vocab.EXACT), tasks):
        own = find_own_task(run, task)
        means = means_over_draws(run, vocab.STRATEGIES, own, metric)
        yield (vocab.CURVE, task, metric), partial(run.effect, task=own, metric=metric), means
    rows = run.rows.where(measure=vocab.BENCHMARK, condition=vocab.NORMALIZED)
    for task, metric in dict.fromkeys((row.task, row.metric) for row in rows):
        kind = metric if task == vocab.ALL else vocab.NORMALIZED
        means = means_over_draws(run, vocab.BENCHMARK_STRATEGIES, task, kind)
        yield (vocab.SCORE_CURVE, task, metric), rows.where(task=task, metric=metric).along("plan").get, means


def list_layer_effects(runs: Runs) -> Iterator[Score]:
    """Yield the loss increase in nats/token of skipping each layer, and of swapping each layer with the next."""
    ablated = (task for run in runs.values() for task in _list_ablated(run).axis("task"))
    tasks = tuple(dict.fromkeys((*_list_tasks(runs), *ablated)))
    changed = {(name, done): read_single_changes(run, done) for name, run in runs.items() for done in CHANGES}
    for done, (family, strategy, behind) in CHANGES.items():
        for task in tasks:
            for name, run in runs.items():
                own = _list_ablated(run).where(task=task) if done == DROPPED else Rows()
                own = own or changed[name, done].where(task=find_own_task(run, task))
                for layer, score in sorted(own.along("layer").items()):
                    if math.isfinite(score.value):
                        at = 100.0 * (layer + behind) / max(1, run.depth - 1)
                        yield replace(
                            score,
                            measure=vocab.LAYER,
                            claim=None,
                            task=task,
                            metric=vocab.DELTA,
                            variant=name,
                            layer=None,
                            plan=None,
                            family=family,
                            strategy=strategy,
                            percent=at,
                        )


def _list_ablated(run: ReportData) -> Rows:
    return run.rows.where(measure=vocab.ABLATION, metric=vocab.SKIPPING, part=None, against=None, layer=PRESENT)


def read_at_half(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=(vocab.CURVE, vocab.SCORE_CURVE))
    first = {column: getattr(rows[0], column) for column in ("measure", "task", "metric")} if rows else {}
    rows = rows.where(**first)
    for family, strategy, name in dict.fromkeys((row.family, row.strategy, row.variant) for row in rows):
        own = rows.where(family=family, strategy=strategy, variant=name)
        yield min(own, key=lambda row: (abs((row.percent or 0.0) - HALF), row.percent))
