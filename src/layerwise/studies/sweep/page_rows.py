"""Compute the rows that the figures of a sweep show."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from statistics import fmean, median

from layerwise.page.data import ReportData
from layerwise.page.derived.curves import (
    average_draws,
    compute_curves,
    make_level_rows,
    means_over_draws,
    read_half_depth,
)
from layerwise.page.derived.zones import SIMILARITIES, PlanZones, mirror_pairs, read_similarities, read_zones
from layerwise.page.formatting import label
from layerwise.plan import Plan
from layerwise.plan.painters import PUBLISHED
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import PlanRecord, Score, select_main_metric
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ALL, CONTRAST, GAINED, LOOP_COUNT, LOOPED

BEST = {LOOPED: "best_loops", GAINED: "best_gain"}
"""Metric of the best number of loops, or the best gain, for each family."""
FITTED = "line through the best"


def select_numbered(data: ReportData) -> Iterator[Score]:
    """Yield the effects of parallel layers on each task. `strength` is the number of loops or the gain."""
    for record in data.swept:
        number = record.strategy.partition("=")[2]
        if record.family not in BEST or not number.isdecimal():
            continue
        for task in data.tasks:
            score = data.effect(record.plan, task)
            if score is not None and math.isfinite(score.value):
                yield replace(score, family=record.family, affected=record.affected, strength=int(number))


def find_best(data: ReportData) -> Iterator[Score]:
    """Yield the best number of loops, or the best gain, for each window size and task.

    Only the values on the whole text have intervals. For loops on the whole text, a line fitted to the best numbers by
    window size is also yielded.
    """
    for family, own_rows in Rows(select_numbered(data)).by("family").items():
        for task, rows in own_rows.by("task").items():
            is_first = task == data.tasks[0]
            bounds = group_by_window(data, BEST[family]) if is_first else {}
            widths = {width: own for width, own in rows.by("affected").items() if len(own.axis("strength")) > 1}
            for width, own in widths.items():
                least = min(own, key=lambda row: (row.value, row.strength))
                bound, columns = bounds.get(width), {"task": task, "family": family, "affected": width}
                low, high = (bound.low, bound.high) if bound else (None, None)
                yield Score(CONTRAST, "best", least.strength or 0.0, low, high, **columns)
                if is_first and family == LOOPED and (fitted := fit_line(data)) is not None:
                    yield Score(CONTRAST, "best", fitted[0] + fitted[1] * width, **columns, against=FITTED)


def group_by_window(data: ReportData, metric: str) -> dict[float, Score]:
    rows = data.rows.where(measure=CONTRAST, claim=LOOP_COUNT, metric=metric, affected=PRESENT)
    return dict(sorted(rows.along("affected").items()))


def select_over_windows(data: ReportData, metric: str) -> Score | None:
    return data.rows.one(measure=CONTRAST, claim=LOOP_COUNT, metric=metric, task=ALL, affected=None)


def fit_line(data: ReportData) -> tuple[float, float] | None:
    slope, counts = select_over_windows(data, "slope"), group_by_window(data, BEST[LOOPED])
    if slope is None or not counts:
        return None
    return fmean(score.value for score in counts.values()) - slope.value * fmean(counts), slope.value


CURVED = (vocab.DELTA, vocab.EXACT, "token_accuracy")
UNSEEN, TRAINED = "below the minimum detectable effect", "original model"
LEAST = "lowest loss at this cost"
PRICES: Mapping[str, Callable[[PlanRecord], int]] = {
    "layer evaluations": lambda record: record.evaluations,
    "sequential stages": lambda record: record.stages,
}
MIDDLES = ("mean", "median")
"""Averages over benchmarks. The paper shows only the median, which hides a benchmark that collapses."""
MAX_MAPS = 8


def read_original(data: ReportData) -> str:
    return str(Plan.identity(data.depth)) if data.depth else ""


def select_ranked(rows: Rows, task: str | None) -> list[Score]:
    return sorted(rows.where(task=task, seed=None), key=lambda row: row.value)


def rank_strategies(data: ReportData) -> Iterator[Score]:
    for task in data.tasks:
        yield from select_ranked(read_half_depth(data), task)


def list_degradation(data: ReportData) -> Iterator[Score]:
    for metric in CURVED:
        rows = Rows(replace(row, measure=metric) for row in compute_curves(data, metric))
        yield from rows
        for own in (of for by_task in rows.by("task").values() for of in by_task.by("family").values()):
            whole = data.effect(read_original(data), own[0].task, metric)
            if metric != vocab.DELTA and whole is not None:
                yield from make_level_rows(own, {TRAINED: whole.value})
            for size in own.where(seed=None).by("affected").values() if metric == vocab.DELTA else ():
                edge = median(limits) if (limits := [row.mde for row in size if row.mde is not None]) else None
                yield from make_level_rows(size, {UNSEEN: (-edge, edge)} if edge is not None else {})


def list_costs(data: ReportData) -> Iterator[Score]:
    for task in data.tasks:
        effects = [
            replace(score, plan=plan, strategy=record.strategy)
            for plan, record in data.records.items()
            if (score := data.effect(plan, task)) is not None
        ]
        for name, price in PRICES.items():
            prices = {row.plan: float(price(data.records[str(row.plan)])) for row in effects}
            front: list[Score] = []
            for row in sorted(effects, key=lambda row: (prices[row.plan], row.value)):
                if not front or row.value < front[-1].value:
                    front.append(replace(row, strategy=LEAST))
            for row in (*effects, *front):
                yield replace(row, unit=name)
                yield replace(row, unit=name, metric="cost", value=prices[row.plan], low=None, high=None)


def list_benchmark_metrics(data: ReportData) -> dict[str, str]:
    scaled = data.rows.where(measure=vocab.BENCHMARK, condition=vocab.NORMALIZED).by("task").items()
    return {
        task: main for task, own in scaled if task != vocab.ALL and (main := select_main_metric(own.axis("metric")))
    }


def list_benchmark_curves(data: ReportData) -> Iterator[Score]:
    """Yield benchmark curves on a scale from 0 (chance) to 1 (the original model).

    There are curves for the averages over benchmarks and for each metric; `variant` is the name of the metric.
    """
    rows = data.rows.where(measure=vocab.BENCHMARK, condition=vocab.NORMALIZED)
    shown = {(vocab.ALL, middle): f"{middle} of the benchmarks" for middle in MIDDLES}
    shown |= {(task, metric): f"{label(task)} ({metric})" for task, metric in list_benchmark_metrics(data).items()}
    records = [record for record in data.swept if record.family == PUBLISHED]
    for (task, metric), title in shown.items():
        of = rows.where(task=task, metric=metric).along("plan")
        means = means_over_draws(data, vocab.BENCHMARK_STRATEGIES, task, metric if task == ALL else vocab.NORMALIZED)
        by_strategy = Rows(average_draws(records, of.get, means)).by("strategy")
        drawn = [own for own in by_strategy.values() if len(own.axis("affected")) > 1]
        if drawn:
            named = Rows(replace(row, variant=title) for own in drawn for row in own)
            yield from (*named, *make_level_rows(named, {vocab.CHANCE: 0.0, TRAINED: 1.0}))


def list_falls(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.BENCHMARK)
    for task, metric in list_benchmark_metrics(data).items():
        whole = rows.where(plan=read_original(data), task=task, metric=metric, condition=None)
        yield from (replace(row, metric=TRAINED) for row in whole)
        yield from (
            replace(row, metric=vocab.CHANCE, low=None, high=None, condition=None)
            for row in rows.where(task=task, against=vocab.CHANCE)
        )
    for strategy in data.strategies:
        of = data.rows.where(measure=vocab.CONTRAST, claim="benchmark_fall", strategy=strategy)
        yield from (replace(row, condition=f"fall, {label(strategy)}") for row in of if of.where(task=vocab.ALL))


def select_against(data: ReportData) -> Iterator[Score]:
    for size, row in group_by_window(data, "gain-loops").items():
        yield replace(row, condition=f"{size:g} layers")


def list_alike(data: ReportData) -> Iterator[Score]:
    measured = tuple(metric for metric in SIMILARITIES if read_similarities(data, metric) is not None)
    return mirror_pairs(data.rows.where(measure=vocab.SIMILARITY, metric=measured))


def list_zoned(data: ReportData) -> list[PlanZones]:
    return [each for each in read_zones(data) if each.states]


def list_states(data: ReportData) -> Iterator[Score]:
    for each in list_zoned(data)[:MAX_MAPS]:
        own, record = data.rows.where(measure=vocab.STATES, plan=each.plan), data.records.get(each.plan)
        strategy = f"{name_strategy(data, each.plan)}, {record.family}".replace("_", " ") if record else ""
        name = (
            "Original model"
            if each.plan == read_original(data)
            else strategy
            if name_strategy(data, each.plan)
            else each.plan
        )
        same = [Score(vocab.STATES, "cosine", 1.0, state=at, to_state=at) for at in range(1, each.states + 1)]
        for row in (*mirror_pairs(own.where(metric="cosine")), *same, *own.where(metric="variance")):
            yield replace(row, condition=name)
        for first, last in each.ranges if len(each.ranges) > 1 else ():
            yield Score(vocab.ZONES, "zone", 0.0, state=first, to_state=last, condition=name)


def name_strategy(data: ReportData, plan: str) -> str:
    record = data.records.get(plan)
    if record is None or record.strategy == "given":
        return ""
    return TRAINED if record.family == "identity" else label(record.strategy)


def list_task_rows(data: ReportData) -> Iterator[Score]:
    for task in data.tasks:
        scores = [score for plan in data.records if (score := data.effect(plan, task)) is not None]
        for counts in ("documents", "tokens"):
            counted = [count for score in scores if (count := getattr(score, counts)) is not None]
            yield from [Score(vocab.EFFECT, counts, float(max(counted)), task=task)] if counted else []
        whole = [data.effect(read_original(data), task, metric) for metric in (vocab.NLL, vocab.EXACT)]
        yield from (replace(row, low=None, high=None) for row in whole if row is not None)
    yield from rank_strategies(data)
