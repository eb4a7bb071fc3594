"""The page of `layerwise train growth`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from statistics import fmean
from typing import Any

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.finding import Finding, judge_effect
from layerwise.page.formatting import (
    ABSENT,
    COUNT,
    NATS,
    PERCENT,
    SIGNED,
    Format,
    format_adjusted_p,
    format_fixed,
    format_large,
    format_mde,
    format_p,
    format_value,
    join_words,
    lookup_format,
    make_variant_tiles,
)
from layerwise.page.kind import Column, CustomTable, Kind, Part, Pivot, Section, Text, load_texts
from layerwise.page.marks import Lines
from layerwise.page.sections.training import LOSSES, LossByStep, describe_unfinished, read_losses
from layerwise.page.table import Table
from layerwise.page.trained import add_ratios, make_cost_columns
from layerwise.plan.schedule.serialization import write_layers
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.studies.train_growth.findings import describe_tuning, list_growth_findings, make_verdict

LOSS = NATS.replace(axis="nats/token", decimals=3)
FULL = 0.999
"""Minimum share of the full cost that counts as the full cost, because float sums are not exact."""
COSTS: Mapping[str, tuple[str, float]] = {
    "steps": ("steps", 1.0),
    vocab.TOKENS: ("tokens", 1.0),
    vocab.FLOPS: ("FLOPs", 1.0),
    "seconds": ("wall-clock seconds", 1.0),
    "step_seconds": ("step (ms)", 1000.0),
    "peak_bytes": ("peak memory (MiB)", 2.0**-20),
    "parameters": ("parameters", 1.0),
}


AXES: dict[str, str] = {vocab.FLOPS: "FLOPs", vocab.SECONDS: "training seconds"}
"""Costs that the loss is plotted against. The first cost determines the verdict."""


@dataclass(frozen=True, kw_only=True)
class LossByCost(Lines):
    """Plot of the held-out loss of every training run by cost. A line joins the runs of one variant."""

    def _ticks(self, xs: set[float], small: bool) -> dict[str, Any]:
        return {"exponentformat": "power"}


def draw_loss_by_cost(data: ReportData) -> Iterator[Score]:
    for terms in AXES:
        for training in growth.trainings(data):
            loss, cost = growth.held_out(data, training), _read_cost(data, training, terms)
            if loss is not None and cost is not None:
                yield replace(loss, seed=None, variant=training.variant, cost=cost, unit=terms)


def _read_cost(data: ReportData, training: growth.Training, terms: str) -> float | None:
    at = growth.against(data, training, terms=terms, metric=vocab.AT)
    if at is not None:
        return at.value
    metrics = ("flops",) if terms == vocab.FLOPS else ("steps", "step_seconds")
    spent = [growth.figure(data, metric, training) for metric in metrics]
    return None if None in spent else prod(each.value for each in spent if each is not None)


def _list_variants(data: ReportData) -> Iterator[Score]:
    for training in growth.trainings(data):
        loss, rows = growth.held_out(data, training), growth.compared_rows(data, training)
        if loss is not None or rows:
            count = len(growth.seeds(data, training))
            counts = [Score(vocab.HELD_OUT, "seeds", float(count))] if count else []
            shown = (*counts, *filter(None, (loss,)), *rows)
            yield from (replace(row, variant=training.name) for row in shown)


VARIANTS = (
    Column("seeds", "seeds", COUNT),
    Column("held-out loss (nats)", "nll", LOSS),
    *(
        Column(f"Δ {words}", vocab.DIFFERENCE, SIGNED, {"unit": terms})
        for terms, words in growth.COMPARED_COSTS.items()
    ),
    Column("FLOPs saved", text=growth.saving_text, where={"unit": vocab.FLOPS}),
    Column("seconds saved", text=growth.saving_text, where={"unit": vocab.SECONDS}),
    Column("time saved, same steps", vocab.TIME_SAVED, PERCENT, {"unit": vocab.TOKENS}),
    Column("loss ratio, same steps", vocab.LOSS_RATIO, where={"unit": vocab.TOKENS}),
    Column("loss ratio, whole budget", vocab.LOSS_RATIO, where={"unit": vocab.BUDGET}),
)


def _list_differences(data: ReportData) -> Iterator[Score]:
    for terms in growth.COMPARED_COSTS:
        for row in data.rows.where(measure=vocab.GROWTH, metric=(vocab.DIFFERENCE, vocab.AT), unit=terms):
            yield replace(row, variant=growth.Training(str(row.variant), row.share).name)


def _list_costs(data: ReportData) -> Iterator[Score]:
    budget = growth.figure(data, vocab.FLOPS, growth.UNIFORM)
    for training in growth.trainings(data):
        spent = (growth.figure(data, metric, training) for metric in COSTS)
        shown = (replace(row, variant=training.name) for row in spent if row is not None)
        yield from add_ratios(shown, {} if budget is None else {vocab.FLOPS: budget})


def make_phase_table(data: ReportData) -> Table:
    body = []
    for variant in growth.list_schedules(data):
        first = 0
        rows = data.rows.where(measure=(vocab.SCHEDULE, vocab.ACCOUNTING), variant=variant)
        for end, phase in sorted(rows.by("step").items()):
            spent = {row.part if row.layer is None else row.layer: row.value for row in phase.where(metric=vocab.SHARE)}
            predicted, measured = (phase.value(metric=metric) for metric in (vocab.PREDICTED, vocab.MEASURED))
            shown = [ABSENT if share is None else format_fixed(share, 3) for share in (predicted, measured)]
            off = ABSENT
            if predicted and measured is not None:
                off = f"{format_fixed(100.0 * (measured / predicted - 1.0), 1, signed=True)} %"
            steps = f"{first:,}–{end - 1:,}"
            body.append((variant, str(phase[0].phase), steps, draw_learning(spent), *shown, off))
            first = end
    head = ("variant", "phase", "steps", "learns", "FLOPs of a step", "time of a step", "time relative to FLOPs")
    return Table(head, tuple(body), numeric_from=4)


def draw_learning(spent: Mapping[int | str | None, float]) -> str:
    """Describe which parts are trained in a phase or, if layers are drawn at random, their mean cost.

    >>> draw_learning({0: 2 / 3, 1: 1.0, 2: 1.0, 3: 1.0, "embedding": 1.0, "head": 1.0})
    'layers 1-3, embedding, head'
    >>> draw_learning({0: 0.9, 1: 0.7})
    'layers at random, 0.80 of their full cost'
    """
    layers = {part: share for part, share in spent.items() if isinstance(part, int)}
    learns = tuple(layer for layer, share in sorted(layers.items()) if share >= FULL)
    parts = [f"{'layer' if len(learns) == 1 else 'layers'} {write_layers(learns)}"] if learns else []
    if any(abs(3 * share - round(3 * share)) > 1.0 - FULL for share in layers.values()):
        parts = [f"layers at random, {format_fixed(fmean(layers.values()), 2)} of their full cost"]
    ends = (part for part in (vocab.EMBEDDING_PART, vocab.HEAD_PART) if spent.get(part, 0.0) >= FULL)
    return ", ".join([*parts, *ends]) or "nothing"


def _format_verdict(data: ReportData) -> Iterator[Finding | str]:
    yield make_verdict(data) or load_texts("growth")["growth/missing"]


def _describe_columns(data: ReportData) -> str:
    texts = load_texts("growth")
    notes = [texts["growth/variants"]]
    if _has_several_lengths(data):
        notes.append(texts["growth/several-lengths"])
    if data.rows.where(measure=vocab.GROWTH, metric=vocab.LOSS_RATIO):
        notes.append(texts["growth/loss-ratio"])
    return " ".join(notes)


def _has_several_lengths(data: ReportData) -> bool:
    return any(training.variant == vocab.UNIFORM_TRAINING for training in growth.lengths(data))


def _list_readings(data: ReportData) -> Iterator[str]:
    if not _has_several_lengths(data):
        yield load_texts("growth")["growth/one-length"]


def list_next_steps(data: ReportData) -> Iterator[str]:
    variant = growth.planned(data)
    if variant is None:
        yield "Next: train uniform, the controls and other schedules: layerwise run growth"
        return
    at_end = [tuning for tuning in growth.tunings(data) if tuning.at_end]
    if at_end:
        further = sorted({each.chosen * (0.5 if each.chosen == min(each.losses) else 2.0) for each in at_end})
        who, rates = join_words([each.variant for each in at_end]), ",".join(f"{rate:g}" for rate in further)
        yield f"Next: try further rates for {who}: layerwise train growth --learning-rates {rates}"
    score = growth.against(data, growth.Training(variant))
    if score is not None and judge_effect(score, data.level) == "better" and variant == growth.PUBLISHED:
        yield "Next: test if it matters which layers train when: layerwise train growth --schedules importance,permuted"


def _list_all_variants(data: ReportData) -> tuple[str, ...]:
    return (*growth.list_schedules(data), *data.rows.where(measure=(vocab.GROWTH, vocab.RATES)).axis("variant"))


def _list_main_parts(data: ReportData) -> Iterable[Part]:
    yield LossByCost(
        name="courses",
        derive=draw_loss_by_cost,
        series="variant",
        known_series=_list_all_variants,
        x="cost",
        height=460,
        legend="Variants",
        choices={"Cost": "unit"},
        by_choice={terms: {"across": axis, "at": f"{{:.3g}} {axis}"} for terms, axis in AXES.items()},
        words=lookup_format(AXES),
        show=Format(axis="held-out loss (nats/token)"),
    )
    yield Text(_format_verdict, terminal=False)
    yield Pivot(
        name="variants",
        rows={"variant": "variant"},
        derive=_list_variants,
        columns=VARIANTS,
        terminal=5,
        note=_describe_columns(data),
    )
    yield Text(lambda run: (each for each in list_growth_findings(run) if each != make_verdict(run)))
    yield Text(lambda run: [describe_tuning(run)])
    yield Text(_list_readings, terminal=False)


def _list_detail_parts(data: ReportData) -> Iterable[Part]:
    yield LossByStep(
        name="training",
        derive=read_losses,
        series="variant",
        known_series=_list_all_variants,
        legend="Variants",
        choices={"Loss": "metric"},
        words=lookup_format(LOSSES),
    )
    yield Pivot(
        name="every-difference",
        derive=_list_differences,
        folded=True,
        rows={"variant": "variant", "compared with": "against", "matched on": "unit"},
        words=lookup_format(AXES),
        columns=(
            Column("cost", vocab.AT, lambda row: format_large(row.value)),
            Column("difference (nats)", vocab.DIFFERENCE, SIGNED),
            Column("p", vocab.DIFFERENCE, format_p),
            Column("adjusted p", vocab.DIFFERENCE, format_adjusted_p),
            Column("detectable above (nats)", vocab.DIFFERENCE, format_mde),
        ),
    )
    yield CustomTable(name="phases", table=make_phase_table, folded=True)
    yield Pivot(
        name="importance",
        where={"measure": vocab.IMPORTANCE, "metric": "skip"},
        rows={"layer": "layer"},
        folded=True,
        columns=(Column("loss increase when skipped (nats)", "skip", SIGNED),),
    )
    chosen = {(tuning.variant, tuning.chosen) for tuning in growth.tunings(data)}
    yield Pivot(
        name="rates",
        where={"measure": vocab.RATES, "learning_rate": PRESENT},
        folded=True,
        rows={"variant": "variant", "learning rate": "learning_rate"},
        words=format_value,
        columns=(
            Column("validation loss (nats)", "nll", LOSS),
            Column("", show=lambda row: "chosen" if (row.variant, row.learning_rate) in chosen else ""),
        ),
    )
    columns = make_cost_columns(COSTS, lambda share: f"{format_fixed(100.0 * share, 1)} %")
    yield Pivot(name="costs", derive=_list_costs, rows={"variant": "variant"}, columns=columns, folded=True)


def _list_tiles(data: ReportData) -> Iterable[tuple[str, str]]:
    variants = growth.list_schedules(data)
    return make_variant_tiles(variants, {variant: growth.seeds(data, growth.Training(variant)) for variant in variants})


GROWTH_KIND = Kind(
    name="growth",
    rank=2,
    measures=(vocab.GROWTH,),
    present=growth.is_growth,
    answer=lambda data: "".join(each if isinstance(each, str) else each.answer for each in _format_verdict(data)),
    tiles=_list_tiles,
    unfinished=describe_unfinished,
    following=list_next_steps,
    has_published=True,
    sections=(
        Section(anchor=vocab.GROWTH, needs=growth.is_growth, parts=_list_main_parts),
        Section(anchor="details", needs=growth.is_growth, parts=_list_detail_parts),
    ),
)
