"""The page of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from markupsafe import Markup

from layerwise.errors import PlanError
from layerwise.page.data import ReportData
from layerwise.page.derived.curves import SWAPPED, compute_curves, read_changes, read_half_depth, read_single_changes
from layerwise.page.derived.zones import SIMILARITIES, read_zones
from layerwise.page.figures.palette import depth_color, series_slots
from layerwise.page.finding import Verdict
from layerwise.page.formatting import (
    ABSENT,
    COUNT,
    DIFFERENCE,
    PERCENT,
    SIGNED,
    STOPPED,
    Format,
    format_count,
    format_number,
    format_p_value,
    format_perplexity,
    label,
    lookup_format,
)
from layerwise.page.kind import Column, CustomHtml, CustomTable, Kind, Part, Pivot, Section, SideBySide, Text
from layerwise.page.marks import Bars, Dots, Heat, Lines, Scatter, Slots, Style
from layerwise.page.markup import html_part
from layerwise.page.sections.quantized_layers import BITS
from layerwise.page.table import Table
from layerwise.page.writers.plans import draw_wiring
from layerwise.plan.painters import curve_families
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score, read_continuations
from layerwise.results.selection import Rows
from layerwise.studies.sweep import page_rows as swept
from layerwise.studies.sweep.findings import list_findings
from layerwise.studies.sweep.page_rows import find_best, select_numbered, select_over_windows

CURVED: Mapping[str, tuple[str, Format]] = {
    vocab.DELTA: ("Δ NLL", DIFFERENCE),
    vocab.EXACT: ("exact match", Format(axis="exact match (share of answers)")),
    "token_accuracy": ("token accuracy", Format(axis="token accuracy (share of tokens)")),
}
SIZES = {
    "repeat_blocks": "layers repeated",
    "damped_repeats": "layers repeated",
    "bits": "layers quantized",
    "bits_noise": "layers with noise",
}
"""Axis titles for families in which `affected` is not a number of affected layers."""
PARALLEL = {
    vocab.LOOPED: "Parallel layers, looped",
    vocab.GAINED: "One pass with a gain",
}
BEST_OF = {vocab.LOOPED: "Best number of loops for each layer window", vocab.GAINED: "Best gain for each layer window"}
MAX_CURVES, MIN_MAP = 8, 12
"""Maximum number of strategies in a figure, and minimum number of windows in a map."""
BRIEF = 40  # characters below which an answer needs its question
TASK = {"Task": "task"}
SIZED: dict[str, Any] = {
    "x": "affected",
    "across": "layers affected",
    "at": "{}",
    "series": "strategy",
    "faint": "seed",
    "nulls": str,
}
"""Settings of figures with curves over the number of affected layers."""
EFFECT: dict[str, Any] = {"diverging": True, "sqrt_colors": True, "show": DIFFERENCE, "choices": TASK}


def _list_slots(data: ReportData, **more: int) -> Slots:
    return lambda names: {name: (series_slots(data.strategies) | more).get(name, 0) for name in names}


def _describe_detectable(rows: Rows) -> tuple[float, float] | None:
    edge = min((row.mde for row in rows if row.mde is not None), default=None)
    return None if edge is None else (-edge, edge)


def _make_headline(data: ReportData) -> Iterator[Part]:
    half = next(swept.rank_strategies(data), None)
    shown: list[Part] = []
    if read_single_changes(data):
        shown.append(
            Bars(
                name="layers-0",
                derive=read_single_changes,
                choices=TASK,
                at="without layer {}",
                height=220,
                show=DIFFERENCE,
                text=lambda row: str(row.plan),
                sqrt_scale="default",
            )
        )
    if half is not None:
        shown.append(
            Dots(
                name="ranking",
                title=f"{half.affected} of {data.depth} layers affected",
                derive=swept.rank_strategies,
                y="strategy",
                series="strategy",
                slots=_list_slots(data),
                choices=TASK,
                words=label,
                row_words=label,
                show=DIFFERENCE,
                allowed=_describe_detectable,
            )
        )
    if any(swept.select_against(data)):
        show = DIFFERENCE.replace(axis="Δ NLL, best gain minus best number of loops")
        shown.append(Dots(name="loops-against-gain", derive=swept.select_against, y="condition", show=show))
    yield from (*shown[:1], Text(list_findings), *shown[1:], CustomHtml(_draw_examples, name="staircase"))


def _list_families(data: ReportData) -> tuple[list[str], list[str]]:
    families = [family for family in curve_families(data.swept) if family not in (vocab.LOOPED, vocab.GAINED)]
    strategies = {name: {each.strategy for each in data.swept if each.family == name} for name in families}
    rich = [family for family in families if len(strategies[family]) > MAX_CURVES]
    return [family for family in families if family not in rich], rich


def _list_curves(data: ReportData) -> Iterator[Part]:
    drawn, rich = _list_families(data)
    words = {metric: name for metric, (name, _) in CURVED.items()}
    quantities = {metric: {"show": show} for metric, (_, show) in CURVED.items()}
    yield Lines(
        name="curves",
        derive=swept.list_degradation,
        where={"family": drawn},
        choices={"Family": "family", "Measure": "measure", **TASK},
        height=460,
        by_choice={**quantities, **{family: {"across": across} for family, across in SIZES.items()}},
        legend="Strategies",
        slots=_list_slots(data),
        words=lambda name: words.get(name, label(str(name))),
        sqrt_scale="optional",
        **SIZED,
    )
    yield Heat(
        name="family",
        derive=compute_curves,
        where={"family": rich, "seed": None},
        each="family",
        x="affected",
        y="strategy",
        across="layers affected",
        cell_words=lambda value: label(lookup_format({})(value)),
        **EFFECT,
    )


def _list_layers(data: ReportData) -> Iterator[Part]:
    windows = {
        done: len({row.plan for row in own if row.layer != row.to_layer})
        for done, own in read_changes(data).by("condition").items()
        if done != SWAPPED
    }
    maps = {done: f"Every layer window, {done}" for done, count in windows.items() if count >= MIN_MAP}
    yield Bars(
        name="layers-1",
        derive=partial(read_single_changes, done=SWAPPED),
        choices=TASK,
        at="layer {} and the next swapped",
        show=DIFFERENCE,
        text=lambda row: str(row.plan),
        sqrt_scale="optional",
    )
    yield Heat(
        name="windows",
        title="".join(list(maps.values())[:1]),
        derive=read_changes,
        where={"condition": tuple(maps)},
        each="condition",
        across="first layer",
        down="last layer",
        upwards=True,
        text=lambda row: str(row.plan),
        words=lookup_format(maps),
        **EFFECT,
    )


def _list_benchmarks(data: ReportData) -> Iterator[Part]:
    values = [row.value for row in swept.list_benchmark_curves(data)]
    # The range covers the values but not every wide interval.
    show = Format(axis="chance = 0, original = 1", span=(min(-0.25, *values, 0), max(1.25, *values, 0)))
    yield Lines(
        name="benchmark",
        derive=swept.list_benchmark_curves,
        each="variant",
        height=300,
        slots=_list_slots(data),
        show=show,
        legend="Strategies",
        **SIZED,
    )
    yield Pivot(
        name="falls",
        derive=swept.list_falls,
        rows={"benchmark": "task"},
        across="condition",
        terminal=False,
        columns=(Column("chance", vocab.CHANCE), Column(swept.TRAINED, swept.TRAINED)),
        words=lookup_format({vocab.ALL: "mean"}),
        order=lambda line: line[0] == vocab.ALL,
    )


def _fit_slope(data: ReportData) -> Iterator[str]:
    slope, ends = select_over_windows(data, "slope"), select_over_windows(data, "at_end")
    if slope is not None and ends is not None:
        yield f"Each additional parallel layer changes the best number of loops by {SIGNED.text(slope)} (dashed line)."
        if ends.value:
            yield f"In {format_count(int(ends.value), 'layer window')}, the largest number of loops tried is best."


def _draw_similarity(data: ReportData) -> Iterator[Part]:
    rows = Rows(swept.list_alike(data))
    yield Heat(
        name="map",
        derive=swept.list_alike,
        each="metric",
        x="state",
        y="to_state",
        across="state",
        down="state",
        height=330,
        square=True,
        least=min(0.0, *(row.value for row in rows)),
        most=1.0,
        show=Format(decimals=3),
        words=lookup_format(SIMILARITIES),
    )
    reach = [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high is not None]
    if reach:
        width = format_number(max(reach))
        yield Text(
            lambda data: [f"Each value has a 95 % interval over {data.units}; the widest is about ±{width}."],
            terminal=False,
        )


def make_zone_table(data: ReportData) -> Table:
    body = [
        (each.plan, swept.name_strategy(data, each.plan) or ABSENT, each.in_words, each.borders_in_words, each.shown_p)
        for each in read_zones(data)
    ]
    return Table(
        ("plan", "strategy", "zones", "contrast of the borders", "p (more zones)"), tuple(body), numeric_from=3
    )


def list_plan_rows(data: ReportData) -> Table:
    tasks = data.named_tasks if len(data.tasks) > 1 else ()
    body = []
    for plan, record in data.records.items():
        score = data.effect(plan, data.tasks[0]) if data.tasks else None
        costs = (f"{count:,}" for count in (record.affected, record.evaluations, record.stages))
        change = (SIGNED.text(score), ABSENT if score is None else format_perplexity(score.value))
        p = format_p_value(score.p_adjusted if score else None)
        of_tasks = (SIGNED.text(data.effect(plan, task)) for task in tasks)
        body.append((plan, label(record.strategy), data.verdict(plan), *costs, *change, p, *of_tasks))
    head: tuple[str, ...]
    head = ("plan", "strategy", "verdict", "affected", "evaluations", "stages", "Δ NLL (nats/token)")
    more = ("perplexity ratio", "adjusted p", *(f"Δ {task}" for task in tasks))
    return Table(
        (*head, *more), tuple(body), numeric_from=3, code=(0,), picture=partial(_draw_plan, data), is_sortable=True
    )


def _draw_plan(data: ReportData, plan: str) -> Markup:
    try:
        return draw_wiring(data.schedules[plan], data.depth)
    except (KeyError, PlanError) as error:
        return html_part("no_wiring", text="?" if isinstance(error, KeyError) else "…")


def _draw_examples(data: ReportData) -> Markup:
    rows = swept.select_ranked(read_half_depth(data), next(iter(data.tasks), None))
    plans = {row.strategy: read_half_depth(data).where(strategy=row.strategy).axis("plan")[0] for row in rows}
    wirings = {
        label(str(strategy)): draw_wiring(plan, data.depth)
        for strategy, text in plans.items()
        if (plan := data.schedules.get(text)) is not None
    }
    return html_part("examples", wirings=wirings) if wirings else Markup()


def _draw_key(data: ReportData) -> Markup:
    return html_part("depth_key", layers=[depth_color(layer, data.depth) for layer in range(data.depth)])


def _list_benchmark_rows(data: ReportData) -> Iterator[Score]:
    for row in data.rows.where(measure=vocab.BENCHMARK, against=None):
        yield replace(row, condition=label(" ".join(filter(None, (row.condition, row.metric)))))


def _list_texts(data: ReportData) -> Iterator[Part]:
    written = read_continuations(data.notes)
    for prompt in dict.fromkeys(each.prompt for each in written):
        body = tuple(
            (each.plan, swept.name_strategy(data, each.plan), f"{each.same} of {each.tokens}", each.text.strip("\n"))
            for each in written
            if each.prompt == prompt
        )
        table = Table(("plan", "strategy", "matching tokens", "text"), body, numeric_from=4, code=(0, 3))
        yield CustomTable(title=f"After “{' '.join(prompt.split())}”", table=lambda data, table=table: table)  # type: ignore[misc]


def _summarize(data: ReportData) -> str:
    every = list_findings(data)
    answers = [finding for finding in every if finding.verdict is Verdict.SUPPORTED] or every
    if not answers:
        return "Each plan was run on the same text and compared with the original model." if data.records else ""
    first = answers[0].answer.partition(". ")[0].rstrip(".")
    return f"{answers[0].question} {first}." if len(first) < BRIEF else f"{first}."


def _list_tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(data.records):,}", "plans"
    if (tasks := len(data.named_tasks) or len(data.tasks)) > 1:
        yield f"{tasks:,}", "tasks"


def _list_unfinished(data: ReportData) -> str | None:
    waiting = sum(not data.tasks or data.effect(plan, data.tasks[0], vocab.NLL) is None for plan in data.records)
    plans = format_count(len(data.records), "plan")
    return f"{waiting:,} of {plans} have no effect yet: {STOPPED}" if waiting else None


def _has_effects(data: ReportData) -> bool:
    return any(data.effect(plan, task) for plan in data.records for task in data.tasks)


LOOPS: dict[str, Any] = {"x": "affected", "across": "layers in parallel", "each": "family"}
SWEEP = Kind(
    name="sweep",
    rank=0,
    measures=(vocab.EFFECT, vocab.SIMILARITY, vocab.STATES, vocab.ZONES, vocab.BENCHMARK),
    present=lambda data: any(record.family != "identity" for record in data.swept),
    answer=_summarize,
    tiles=_list_tiles,
    unfinished=_list_unfinished,
    counts=("documents", "tokens", "window"),
    has_published=True,
    sections=(
        Section(anchor="headline", needs=lambda data: bool(list_findings(data)), parts=_make_headline),
        Section(
            anchor="curves", needs=lambda data: any(_list_families(data)) and _has_effects(data), parts=_list_curves
        ),
        Section(anchor="layers", needs=lambda data: bool(read_changes(data)), parts=_list_layers),
        BITS,
        Section(
            anchor=vocab.BENCHMARK,
            parts=_list_benchmarks,
            needs=lambda data: any(swept.list_benchmark_curves(data)) or any(swept.list_falls(data)),
        ),
        Section(
            anchor="loops",
            needs=lambda data: any(select_numbered(data)),
            parts=(
                SideBySide(
                    (
                        Heat(
                            name="loops",
                            title=PARALLEL[vocab.LOOPED],
                            derive=select_numbered,
                            y="strength",
                            down="loops, or gain",
                            upwards=True,
                            cell_words=lookup_format({}),
                            words=lookup_format(PARALLEL),
                            **LOOPS,
                            **EFFECT,
                        ),
                        Lines(
                            name="loops-best",
                            title=BEST_OF[vocab.LOOPED],
                            derive=find_best,
                            choices=TASK,
                            nulls=str,
                            at="{} layers",
                            height=300,
                            show=Format(axis="best number"),
                            words=lookup_format(BEST_OF),
                            **LOOPS,
                        ),
                    )
                ),
                Text(_fit_slope, terminal=False),
            ),
        ),
        Section(
            anchor="cost",
            needs=_has_effects,
            parts=lambda data: (
                Scatter(
                    name="cost",
                    derive=swept.list_costs,
                    point="plan",
                    series="strategy",
                    across={"metric": "cost"},
                    upwards={"metric": vocab.DELTA},
                    show=DIFFERENCE,
                    at="{}",
                    choices={"Compute": "unit", **TASK},
                    slots=_list_slots(data, **{swept.LEAST: 5}),
                    legend="Strategies",
                    words=lambda name: label(str(name)),
                    sqrt_scale="optional",
                    height=400,
                    styles={name: Style(bounds=False, size=7) for name in data.strategies}
                    | {swept.LEAST: Style(line=True, bounds=False, size=4)},
                    by_choice={
                        price: {"show_across": COUNT.replace(axis=price, reference=float(data.depth))}
                        for price in swept.PRICES
                    },
                ),
            ),
        ),
        Section(anchor=vocab.SIMILARITY, needs=lambda data: any(swept.list_alike(data)), parts=_draw_similarity),
        Section(
            anchor=vocab.ZONES,
            needs=lambda data: bool(swept.list_zoned(data)),
            parts=(
                Heat(
                    name="zones",
                    derive=swept.list_states,
                    where={"metric": ("cosine", "zone")},
                    each="condition",
                    x="state",
                    y="to_state",
                    across="state",
                    down="state",
                    framed="zone",
                    square=True,
                    height=330,
                    most=1.0,
                    words=str,
                    show=Format(decimals=3),
                ),
                Lines(
                    name="variance",
                    derive=swept.list_states,
                    where={"metric": "variance"},
                    series="condition",
                    words=str,
                    x="state",
                    across="hidden state",
                    at="state {}",
                    show=Format(axis="variance"),
                    named=True,
                    sqrt_scale="default",
                ),
                CustomTable(name="table", table=make_zone_table, terminal=False),
            ),
        ),
        Section(
            anchor="tasks",
            needs=lambda data: any(swept.list_task_rows(data)) or any(_list_benchmark_rows(data)),
            parts=lambda data: (
                Pivot(
                    name="table",
                    derive=swept.list_task_rows,
                    rows={"task": "task"},
                    across="strategy",
                    show=SIGNED,
                    columns=(
                        Column("documents", "documents", COUNT),
                        Column("tokens", "tokens", COUNT),
                        Column("NLL", vocab.NLL),
                        Column("exact match", vocab.EXACT, PERCENT.replace(decimals=1)),
                    ),
                    words=lookup_format({name: f"Δ {label(name)}" for name in data.strategies}),
                    terminal=False,
                ),
                Pivot(
                    name="benchmarks",
                    rows={"plan": "plan", "benchmark": "task"},
                    across="condition",
                    terminal=False,
                    derive=_list_benchmark_rows,
                ),
            ),
        ),
        Section(anchor="texts", needs=lambda data: any(_list_texts(data)), parts=_list_texts),
        Section(
            anchor="plans",
            needs=lambda data: bool(data.records),
            parts=(CustomHtml(_draw_key), CustomTable(name="table", table=list_plan_rows, terminal=False)),
        ),
    ),
)
