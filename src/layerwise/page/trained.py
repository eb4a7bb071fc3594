"""Read the trained models of a run: variants, seeds, benchmark suites, and scores averaged over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from layerwise.page.data import ReportData
from layerwise.page.figures.palette import sort_variants
from layerwise.page.formatting import ABSENT, Format, format_large, make_variant_tiles
from layerwise.page.kind import Column
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import CHANCE, FINE_TUNED

SUITES = {vocab.PAIRS: "layerwise's minimal pairs", "blimp": "BLiMP", "supplement": "BLiMP supplement", "ewok": "EWoK"}
"""Names of suites of minimal pairs. All other suites are files of the user."""
TASKS = {vocab.GLUE: "GLUE", vocab.MSGS: "MSGS", vocab.OUR_MSGS: "layerwise's mixed signals"}
RATIO = "ratio"
"""Value of the column `against` that marks a ratio of costs."""
LOSS = Format(axis="nats per masked token", decimals=3)
THREE = Format(decimals=3, bounds=False)


def list_suites(data: ReportData) -> tuple[str, ...]:
    measures = data.rows.axis("measure")
    files = (measure for measure in measures if measure.startswith(f"{vocab.PAIRS} "))
    return (*(name for name in SUITES if name in measures), *files)


def format_suite(measure: str) -> str:
    return SUITES.get(measure) or TASKS.get(measure) or measure


def list_variants(data: ReportData) -> tuple[str, ...]:
    measures = (
        vocab.MASKED_LM,
        vocab.ALPHA,
        vocab.TRAINING,
        vocab.UNIFORMITY,
        vocab.STABILITY,
        vocab.BABYLM,
        vocab.ATTRIBUTION,
        *vocab.FINE_TUNED,
        *list_suites(data),
    )
    return sort_variants(
        variant for name in measures for variant in data.rows.where(measure=name, plan=None).axis("variant")
    )


def list_seeds(data: ReportData, variant: str) -> tuple[int, ...]:
    return tuple(sorted(data.rows.where(variant=variant, seed=PRESENT, plan=None).axis("seed")))


def average_by_variant(rows: Iterable[Score]) -> Rows:
    cells: dict[tuple[object, ...], list[Score]] = {}
    for row in rows:
        if row.variant is not None and row.tuning_seed is None:
            cells.setdefault((row.measure, *replace(row, seed=None).key), []).append(row)
    means = Rows(map(average_seeds, cells.values())).by("variant")
    return Rows(chain.from_iterable(means[variant] for variant in sort_variants(means)))


def average_seeds(rows: Sequence[Score]) -> Score:
    mean = next((row for row in rows if row.seed is None), rows[0])
    if mean.seed is None or len(rows) == 1:
        return replace(mean, seed=None)
    return replace(mean, seed=None, value=fmean(row.value for row in rows), low=None, high=None, p=None)


def add_ratios(rows: Iterable[Score], base: Mapping[str, Score]) -> Iterator[Score]:
    for row in rows:
        yield row
        other = base.get(row.metric)
        if other is not None and other is not row and other.value > 0.0:
            yield Score(row.measure, row.metric, row.value / other.value, variant=row.variant, against=RATIO)


def make_cost_columns(costs: Mapping[str, tuple[str, float]], ratio: Callable[[float], str]) -> tuple[Column, ...]:
    def text(metric: str, scale: float) -> Callable[[Rows], str]:
        def cell(rows: Rows) -> str:
            value, quotient = (rows.value(metric=metric, against=against) for against in (None, RATIO))
            if value is None:
                return ABSENT
            return format_large(scale * value) + ("" if quotient is None else f" [{ratio(quotient)}]")

        return cell

    return tuple(Column(head, text=text(metric, scale)) for metric, (head, scale) in costs.items())


def add_seeds(rows: Rows) -> Iterator[Score]:
    yield from average_by_variant(rows)
    for group in rows.where(seed=PRESENT, tuning_seed=None).by("variant").values():
        if len(group) > 1:
            yield from group


def find_baseline(data: ReportData) -> str | None:
    return vocab.BACKBONE if vocab.BACKBONE in list_variants(data) else None


def is_pretrained(data: ReportData) -> bool:
    return bool(data.rows.where(measure=(vocab.MASKED_LM, vocab.SEED_AGREEMENT)))


def make_tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    variants = list_variants(data)
    return (
        make_variant_tiles(variants, {variant: list_seeds(data, variant) for variant in variants}) if variants else ()
    )


def list_task_metrics(data: ReportData) -> list[tuple[str, str, str]]:
    rows = data.rows.where(measure=FINE_TUNED, plan=None, condition=None, against=None)
    names = ((row.measure, row.task, row.metric) for row in rows)
    return sorted(dict.fromkeys(names), key=lambda name: FINE_TUNED.index(name[0]))


def list_fine_tuned_scores(data: ReportData) -> Iterator[Score]:
    for suite, task, metric in list_task_metrics(data):
        rows = data.rows.where(measure=suite, task=task, metric=metric, plan=None, condition=None)
        yield from average_by_variant(rows.where(against=None))
        yield from _chances(rows)


def _chances(rows: Rows) -> Iterator[Score]:
    return (replace(row, variant=None, seed=None, tuning_seed=None) for row in rows.where(against=CHANCE)[:1])
