"""More sections for the page of a robustness run: merging, layer positions, and measurements inside the models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from layerwise.page.data import ReportData
from layerwise.page.derived import robustness as outcome
from layerwise.page.figures.frame import Figure, make_figure, scatter
from layerwise.page.figures.palette import assign_colors, depth_color
from layerwise.page.formatting import ABSENT, ACCURACY, Format, format_count, format_p, lookup_format
from layerwise.page.kind import Column, Part, Pivot, Section, SideBySide, Text, list_notes
from layerwise.page.marks import Dots, Heat, Lines, Mark
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

WAYS = (vocab.MEMBERS, vocab.BEST_MEMBER, vocab.ENSEMBLE, vocab.MERGED)
SOURCES = (vocab.BRANCHES, vocab.ATTENTION, vocab.CONTRIBUTION, vocab.POSITION_IMPORTANCE, vocab.OUTPUT_LAYOUT)
MANY_DOTS = 1_000
CORRELATION = Format(decimals=2)
EXACT = Format(scale=100.0, decimals=2, unit=" %", bounds=False)
"""Format with enough decimals to distinguish accuracies near 100 %."""

BRANCH_MAPS = {
    "attn": "Update by the attention",
    "mlp": "Update by the MLP",
    "share": "Update as a share of the state",
}
ATTENTION_MAPS = {
    "entropy": "Entropy of attention",
    "first": "Attention to the first token",
    "distance": "Distance of attention",
}


def _drawn(data: ReportData) -> Iterator[Score]:
    draws = outcome.group_by_variant(data.rows.where(measure=vocab.MERGES, metric="accuracy"))
    members = outcome.select_variants(data, measure=vocab.MERGING, metric="accuracy", strategy=vocab.MEMBERS)
    for condition in reversed(outcome.CONDITIONS):
        for variant, own in draws.where(order=condition).by("variant").items():
            merged = [replace(row, strategy=vocab.MERGED) for row in own]
            yield from (*merged, median_draw(merged), *members.where(variant=variant, order=condition))


def median_draw(draws: Sequence[Score]) -> Score:
    middle = median(row.value for row in draws)
    return replace(draws[0], value=middle, low=None, high=None, plan=None, seed=None)


def _ways(data: ReportData) -> Iterator[Score]:
    rows = outcome.select_variants(data, measure=vocab.MERGING, metric=outcome.quantity(data).metric, strategy=WAYS)
    for way in WAYS:
        for condition in outcome.CONDITIONS:
            yield from rows.where(strategy=way, order=condition)


def _merging(data: ReportData) -> Iterator[Part]:
    lead, show = outcome.quantity(data), outcome.lead_show(data)
    draws_show = ACCURACY if lead.is_loss or show.reference is None else ACCURACY.replace(reference=show.reference)
    yield Dots(
        name="merging-ways",
        derive=_ways,
        y="variant",
        series="strategy",
        slots={way: at for at, way in enumerate(WAYS)},
        legend="Models",
        words=lookup_format(outcome.CONDITIONS),
        choices={"Order": "order"},
        show=show,
    )
    yield Dots(
        name="merging-draws",
        derive=_drawn,
        y="variant",
        series="strategy",
        slots={vocab.MERGED: 0, vocab.MEMBERS: 1},
        legend="Models",
        faint="plan",
        words=lookup_format(outcome.CONDITIONS),
        choices={"Order": "order"},
        show=draws_show,
    )
    metric, difference = ("nll_above", outcome.NATS_ABOVE) if lead.is_loss else ("accuracy_above", outcome.POINTS)
    alone = {"against": None}
    yield Pivot(
        name="failed-or-replaced-node",
        derive=_replaced,
        terminal=False,
        words=lookup_format(outcome.CONDITIONS),
        rows={"variant": "variant", "order": "order"},
        columns=(
            Column("node failed", lead.metric, lead.show, {"strategy": vocab.NODE_FAILED, **alone}),
            Column("node replaced", lead.metric, lead.show, {"strategy": vocab.NODE_REPLACED, **alone}),
            Column("difference", metric, difference, {"strategy": vocab.NODE_REPLACED, "against": vocab.NODE_FAILED}),
        ),
    )
    order = partial(_reading, list(outcome.group_by_variant(data.rows.where(measure=vocab.MERGING)).axis("variant")))
    yield Pivot(
        name="merging",
        where={"measure": vocab.MERGING},
        rows={"variant": "variant", "models": "strategy", "order": "order"},
        folded=True,
        words=lookup_format(outcome.CONDITIONS),
        order=order,
        terminal=not outcome.lead_rows(data),
        columns=(
            Column(lead.name, lead.metric, lead.show, alone),
            Column("sd of draws", f"{lead.metric}_spread", lead.show.replace(bounds=False)),
            Column("top-5 accuracy", "accuracy_top5", ACCURACY),
        ),
    )


def _reading(variants: list[str], line: tuple[str, str, str]) -> tuple[int, int, int]:
    parts = (vocab.MEMBERS, vocab.BEST_MEMBER, vocab.ENSEMBLE, vocab.MERGED, vocab.NODE_FAILED, vocab.NODE_REPLACED)
    axes = (variants, parts, tuple(outcome.CONDITIONS))
    variant, part, condition = (
        axis.index(value) if value in axis else len(axis) for axis, value in zip(axes, line, strict=True)
    )
    return variant, part, condition


def _replaced(data: ReportData) -> Rows:
    rows = outcome.group_by_variant(
        data.rows.where(measure=vocab.MERGING, strategy=(vocab.NODE_FAILED, vocab.NODE_REPLACED))
    )
    return rows if rows.where(against=vocab.NODE_FAILED) else Rows()


MERGING_SECTION = Section(
    anchor=vocab.MERGING, parts=_merging, needs=lambda data: bool(any(_ways(data)) or any(_drawn(data)))
)


def _placed(data: ReportData) -> Iterator[Score]:
    rows = outcome.group_by_variant(data.rows.where(measure=vocab.POSITION, metric="accuracy"))
    for row in rows.where(against=None):
        yield row if row.seed is None else replace(row, variant=f"{row.variant}/{row.seed}", seed=None)
    guesses = rows.where(against=vocab.CHANCE)
    for position in (None, *guesses.axis("position")):
        yield from guesses.where(position=position)[:1]


POSITION_SECTION = Section(
    anchor=vocab.POSITION,
    needs={"measure": vocab.POSITION, "against": None},
    parts=(
        Lines(
            name="position",
            derive=_placed,
            where={"position": PRESENT},
            x="position",
            series="variant",
            slots=assign_colors,
            legend="Models",
            words=str,
            across="position",
            at="position {}",
            show=ACCURACY,
            nulls=str,
        ),
        Pivot(
            name="over-all-positions",
            derive=_placed,
            where={"position": None},
            terminal=False,
            rows={"model": "variant", "null": "against"},
            columns=(Column("accuracy", "accuracy", EXACT),),
        ),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Layout(Mark):
    """A scatter plot in which similar outputs are near each other. The axes have no meaning and are not drawn."""

    def figure(self, rows: Rows, data: ReportData, slots: Mapping[str, int], all_rows: Rows) -> Figure | None:
        across, upwards = (
            {(int(row.example or 0), row.layer or 0, row.position or 0): row.value for row in rows.where(metric=axis)}
            for axis in "xy"
        )
        points, by_layer = [point for point in across if point in upwards], rows[0].condition == "layer"
        dots = scatter(
            x=[across[point] for point in points],
            y=[upwards[point] for point in points],
            mode="markers",
            marker={
                "color": [depth_color(layer if by_layer else position, data.depth) for _, layer, position in points],
                "size": 5 if len(points) < MANY_DOTS else 3.5,
                "opacity": 0.8,
                "line": {"width": 0},
            },
            text=[f"example {image}, layer {layer} at position {position}" for image, layer, position in points],
        )
        bare = {"showgrid": False, "zeroline": False, "showticklabels": False, "showline": False, "ticks": ""}
        return make_figure(420, [dots], x=bare, y={**bare, "scaleanchor": "x"}, margin={"l": 8, "r": 8, "t": 8, "b": 8})


def _points(data: ReportData) -> Iterator[Score]:
    rows = outcome.group_by_variant(data.rows.where(measure=vocab.OUTPUT_LAYOUT, metric=("x", "y"), example=PRESENT))
    for color in ("position", "layer") if len(rows.axis("layer")) > 1 else ("position",):
        yield from (replace(row, condition=color) for row in rows)


def _inside(data: ReportData) -> Iterator[Part]:
    yield from _maps(data, vocab.BRANCHES, BRANCH_MAPS)
    yield from _maps(data, vocab.ATTENTION, ATTENTION_MAPS)
    yield Text(_even_attention, terminal=False)
    yield from _contribution(data)
    yield from _maps(data, vocab.POSITION_IMPORTANCE, {"nll_added": "Loss increase without the layer"})
    yield Pivot(
        name="what-it-adds-and-what-it-is",
        rows={"variant": "variant"},
        terminal=False,
        derive=lambda data: outcome.group_by_variant(data.rows.where(measure=vocab.POSITION_IMPORTANCE, layer=None)),
        columns=(
            Column("rank correlation", "relation", CORRELATION, {"against": None}),
            Column("shuffled positions", text=_band),
            Column("p", "relation", format_p, {"against": None}),
        ),
    )
    yield Layout(
        name="embedding",
        derive=_points,
        words=str,
        note=_describe_layout(data),
        choices={"Variant": "variant", "Color": "condition"},
    )
    yield Pivot(
        name="what-the-nearest-outputs",
        rows={"variant": "variant", "null": "against"},
        terminal=False,
        where={"measure": vocab.OUTPUT_LAYOUT, "metric": ("same_position", "same_layer")},
        columns=(
            Column("ran at the same position", "same_position", ACCURACY),
            Column("are of the same layer", "same_layer", ACCURACY),
        ),
    )
    yield Text(list_notes(*SOURCES), terminal=False)


def _maps(data: ReportData, measure: str, titles: Mapping[str, str]) -> Iterator[Part]:
    rows = outcome.select_variants(data, measure=measure, layer=PRESENT, position=PRESENT)
    marks: list[Mark] = []
    for name, title in titles.items():
        column = "part" if name in ("attn", "mlp") else "metric"
        own = rows.where(**{column: name})
        marks.append(
            Heat(
                name=f"{measure}-{name}",
                title=title,
                derive=partial(_own, own),
                x="position",
                y="layer",
                across="position",
                down="layer",
                choices={"Variant": "variant"},
                words=str,
                least=0.0,
                diagonal=True,
                most=max((row.value for row in own), default=1.0),
                height=330,
                note="" if marks else measure,
            )
        )
    yield SideBySide(tuple(marks))


def _own(rows: Rows, data: ReportData) -> Rows:
    return rows


def _contribution(data: ReportData) -> Iterator[Part]:
    lead = outcome.quantity(data)
    yield Lines(
        name="contribution",
        each="order",
        series="variant",
        slots=assign_colors,
        derive=lambda data: outcome.select_variants(data, measure=vocab.CONTRIBUTION, metric=lead.cost),
        legend="Variants",
        words=lookup_format(outcome.CONDITIONS),
        show=lead.added.replace(axis=f"{lead.added.axis} without the layer"),
        at="without layer {}",
        sqrt_scale="optional",
    )


def _even_attention(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.ATTENTION, against=vocab.UNIFORM_ATTENTION)
    words = (("weight on the first token", rows.where(metric="first")), ("distance", rows.where(metric="distance")))
    levels = [f"{text} {own[0].value:.3g}" for text, own in words if own]
    if levels:
        yield f"Uniform attention has entropy 1, {' and '.join(levels)}."


def _band(rows: Rows) -> str:
    null = rows.one(metric="relation", against=vocab.SHUFFLED)
    if null is None or null.low is None or null.high is None:
        return ABSENT
    return f"{CORRELATION.number(null.low)} to {CORRELATION.number(null.high)}"


def _describe_layout(data: ReportData) -> str:
    rows = data.rows.where(measure=vocab.OUTPUT_LAYOUT)
    first = next(iter(outcome.group_by_variant(rows.where(metric="x")).axis("variant")), None)
    points, images = (
        int(row.value) if (row := rows.one(metric=metric, variant=first)) and math.isfinite(row.value) else 0
        for metric in ("points", "images")
    )
    laid = f"the {points:,} layer outputs of {format_count(images, 'example')}" if points else "layer outputs"
    drawn = max(map(len, rows.where(metric="x").by("variant").values()), default=0)
    shown = f" {drawn:,} of them are shown." if drawn < points else ""
    return (
        f"UMAP of {laid}.{shown} Similar outputs are near each other. Large distances, and distances between variants, "
        "have no meaning. Violet is the first layer or position, yellow the last. Separate colors show that layers "
        "respond differently at each position."
    )


INSIDE_SECTION = Section(anchor="inside", needs={"measure": SOURCES}, parts=_inside)
