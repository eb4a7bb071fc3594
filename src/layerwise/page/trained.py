"""Models that a run trained: their arms and seeds, the suites they know, and their rows by arm."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean

from layerwise.page.arms import in_reading_order
from layerwise.page.data import ReportData
from layerwise.page.kind import Column
from layerwise.page.show import ABSENT, Show
from layerwise.page.text.number_format import large
from layerwise.page.text.wording import arm_tiles
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SUITES = {vocab.PAIRS: "Minimal pairs of our own", "blimp": "BLiMP", "supplement": "BLiMP supplement", "ewok": "EWoK"}
"""Suites of minimal pairs: the better of two sentences must be the likelier. Others are files of a user."""
TASKS = {vocab.GLUE: "GLUE", vocab.MSGS: "MSGS", vocab.OUR_MSGS: "Mixed signals of our own"}
RATIO = "ratio"
"""What a ratio stands against in a table of costs."""
LOSS = Show(axis="nats per masked token", decimals=3)
THREE = Show(decimals=3, bounds=False)


def suites(data: ReportData) -> tuple[str, ...]:
    measures = data.rows.axis("measure")
    files = (measure for measure in measures if measure.startswith(f"{vocab.PAIRS} "))
    return (*(name for name in SUITES if name in measures), *files)


def suite_name(measure: str) -> str:
    """A suite as it is read; a user's file goes by its own name."""
    return SUITES.get(measure) or TASKS.get(measure) or measure


def arms(data: ReportData) -> tuple[str, ...]:
    measures = (
        vocab.MASKED_LM,
        vocab.ALPHA,
        vocab.TRAINING,
        vocab.UNIFORMITY,
        vocab.STABILITY,
        vocab.BABYLM,
        vocab.ATTRIBUTION,
        *vocab.FINE_TUNED,
        *suites(data),
    )
    return in_reading_order(arm for name in measures for arm in data.rows.where(measure=name, plan=None).axis("arm"))


def seeds(data: ReportData, arm: str) -> tuple[int, ...]:
    return tuple(sorted(data.rows.where(arm=arm, seed=PRESENT, plan=None).axis("seed")))


def by_arm(rows: Iterable[Score]) -> Rows:
    cells: dict[tuple[object, ...], list[Score]] = {}
    for row in rows:
        if row.arm is not None and row.tuning_seed is None:
            cells.setdefault((row.measure, *replace(row, seed=None).key), []).append(row)
    means = Rows(map(over_seeds, cells.values())).by("arm")
    return Rows(chain.from_iterable(means[arm] for arm in in_reading_order(means)))


def over_seeds(own: Sequence[Score]) -> Score:
    whole = next((row for row in own if row.seed is None), own[0])
    if whole.seed is None or len(own) == 1:
        return replace(whole, seed=None)
    return replace(whole, seed=None, value=fmean(row.value for row in own), low=None, high=None, p=None)


def with_ratios(rows: Iterable[Score], base: Mapping[str, Score]) -> Iterator[Score]:
    for row in rows:
        yield row
        other = base.get(row.metric)
        if other is not None and other is not row and other.value > 0.0:
            yield Score(row.measure, row.metric, row.value / other.value, arm=row.arm, against=RATIO)


def cost_columns(costs: Mapping[str, tuple[str, float]], ratio: Callable[[float], str]) -> tuple[Column, ...]:
    def text(metric: str, scale: float) -> Callable[[Rows], str]:
        def cell(rows: Rows) -> str:
            own, beside = (rows.value(metric=metric, against=against) for against in (None, RATIO))
            return ABSENT if own is None else large(scale * own) + ("" if beside is None else f" [{ratio(beside)}]")

        return cell

    return tuple(Column(head, text=text(metric, scale)) for metric, (head, scale) in costs.items())


def with_seeds(rows: Rows) -> Iterator[Score]:
    yield from by_arm(rows)
    for own in rows.where(seed=PRESENT, tuning_seed=None).by("arm").values():
        if len(own) > 1:
            yield from own


def reference(data: ReportData) -> str | None:
    return vocab.BACKBONE if vocab.BACKBONE in arms(data) else None


def is_pretrained(data: ReportData) -> bool:
    return bool(data.rows.where(measure=(vocab.MASKED_LM, vocab.SEED_AGREEMENT)))


def tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    named = arms(data)
    return arm_tiles(named, {arm: seeds(data, arm) for arm in named}) if named else ()
