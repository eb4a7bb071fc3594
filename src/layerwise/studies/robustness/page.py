"""The page of a robustness run: a matrix of variants and conditions, then a section for each type of change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from layerwise.page.data import ReportData
from layerwise.page.derived import robustness as outcome
from layerwise.page.figures.frame import common_span
from layerwise.page.figures.palette import assign_colors
from layerwise.page.formatting import ABSENT, ACCURACY, Format, describe_incomplete, format_count, lookup_format
from layerwise.page.kind import Column, CustomTable, Kind, Part, Pivot, Section, SideBySide, Text, load_texts
from layerwise.page.marks import Dots, Lines
from layerwise.page.sections.training import TESTED_SECTION, find_unfinished_trainings, make_training_tiles
from layerwise.page.table import Table, Tone
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.training_record import RETRAINED
from layerwise.studies.robustness.page_inside import INSIDE_SECTION, MERGING_SECTION, POSITION_SECTION, median_draw

KEPT_HEIGHT, NODES_HEIGHT = 420, 380
PUBLISHED: dict[str, tuple[str, str]] = {
    "baseline": ("82.61 ± 0.08", "0.13 ± 0.03"),
    "layershuffle": ("75.22 ± 0.28", "62.77 ± 0.41"),
    "layershuffle-position": ("75.28 ± 0.18", "63.61 ± 0.23"),
    "layershuffle-predict": ("74.41 ± 0.20", "61.18 ± 1.06"),
}
"""Accuracy of ViT-B/16 on ImageNet, in order and in random order, in percent (Freiberger et al. 2024, Table 1)."""


def _common(show: Format, rows: Iterable[Score]) -> Format:
    return show if show.span else show.replace(span=common_span(map(show.scale_score, rows), show.reference))


def _matrix(data: ReportData) -> Table:
    matrix, lead = outcome.survival(data), outcome.quantity(data)
    body: list[tuple[str, ...]] = []
    tones = {}
    for line, (variant, cells) in enumerate(matrix.cells.items()):
        texts = [variant]
        for at, each in enumerate(matrix.conditions, start=1):
            row = outcome.select_variants(data, metric=lead.metric, **each.where).one(variant=variant)
            texts.append(ABSENT if row is None else lead.show.text(row))
            cell = cells.get(each)
            if cell is None:
                why = "not measured" if row is None else "no interval, since at least 8 orders or windows are needed"
                tones[line, at] = Tone("unmeasured", 0.0, f"{variant}, {each.name}: {why}")
                continue
            verdict = "not distinguishable from chance" if cell.at_chance else cell.fate
            share = f"{verdict}; {100 * cell.share:.0f} % of the way from chance to the best variant in order"
            outlined = " at-chance" if cell.at_chance else ""
            tones[line, at] = Tone(
                cell.fate.replace(" ", "-") + outlined, cell.share, f"{variant}, {each.name}: {share}"
            )
        body.append(tuple(texts))
    return Table(("variant", *(each.name for each in matrix.conditions)), tuple(body), tones=tones)


def _measured(data: ReportData) -> Iterator[Score]:
    for variant, cells in outcome.survival(data).cells.items():
        for each in cells:
            rows = data.rows.where(**each.where, variant=variant, seed=None)
            yield from (replace(row, condition=each.name) for row in rows)


def _survival(data: ReportData) -> Iterator[Part]:
    lead, (metric, difference) = outcome.quantity(data), outcome.above(data)
    yield CustomTable(
        title=f"Survival by condition: {_measured_in(data)}", table=_matrix, terminal=False, note="survival"
    )
    yield Text(outcome.fates, terminal=False)
    yield Pivot(
        name="every-number",
        derive=_measured,
        rows={"variant": "variant", "condition": "condition"},
        folded=True,
        columns=(
            *([] if lead.metric == "accuracy" else [Column(lead.name, lead.metric, lead.show, {"against": None})]),
            Column("accuracy", "accuracy", ACCURACY, {"against": None}),
            Column("top-5 accuracy", "accuracy_top5", ACCURACY, {"against": None}),
            Column(f"{difference.axis} above the baseline", metric, difference, {"against": vocab.BASELINE}),
        ),
    )


def _measured_in(data: ReportData) -> str:
    reference = outcome.lead_show(data).reference
    return outcome.quantity(data).show.axis + ("" if reference is None else f", where chance is {reference:.3g}")


def _compared(data: ReportData) -> Rows:
    return outcome.group_by_variant(
        data.rows.where(measure=vocab.ROBUSTNESS, seed=None, variant=PRESENT, **outcome.EVERY_LAYER)
    )


def _order_columns(data: ReportData) -> tuple[Column, Column, Column]:
    lead, (metric, difference) = outcome.quantity(data), outcome.above(data)
    in_order, shuffled = (
        Column(words, lead.metric, lead.show, {"order": condition, "against": None})
        for condition, words in outcome.CONDITIONS.items()
    )
    where = {"order": vocab.RANDOM_ORDER, "against": vocab.BASELINE}
    return in_order, shuffled, Column("Δ in random order", metric, difference, where)


def _draws(data: ReportData) -> Iterator[Score]:
    rows = outcome.group_by_variant(data.rows.where(measure=vocab.ORDERS, metric=outcome.quantity(data).metric))
    for own in rows.by("variant").values():
        several = len(own.axis("seed")) > 1
        yield from (replace(row, plan=f"{row.plan} (seed {row.seed})") if several else row for row in own)
        yield median_draw(own)


def _orders(data: ReportData) -> Iterator[Part]:
    lead, (metric, difference) = outcome.quantity(data), outcome.above(data)
    plans = data.rows.where(measure=vocab.ORDERS).axis("plan")
    show = _common(outcome.lead_show(data), data.rows.where(measure=vocab.ORDERS, metric=lead.metric))
    yield SideBySide(
        (
            Dots(
                name="robustness-orders",
                derive=outcome.lead_rows,
                y="variant",
                series="order",
                slots={vocab.SEQUENTIAL: 0, vocab.RANDOM_ORDER: 1},
                show=show,
                words=lookup_format(outcome.CONDITIONS),
                legend="Orders",
            ),
            Dots(
                name="robustness-fixed-orders",
                title=f"{format_count(len(plans), 'fixed order')}, one by one",
                derive=_draws,
                y="variant",
                series="variant",
                slots=assign_colors,
                faint="plan",
                show=show,
                words=str,
            ),
        )
    )
    in_order, shuffled, against = _order_columns(data)
    spreads = (
        Column(f"sd, {words}", f"{lead.metric}_spread", lead.show.replace(bounds=False), {"order": condition})
        for condition, words in outcome.CONDITIONS.items()
    )
    published = (
        ()
        if lead.is_loss
        else (
            Column(f"published, {words}", text=partial(_published, at=at))
            for at, words in enumerate(outcome.CONDITIONS.values())
        )
    )
    before = Column("Δ in order", metric, difference, {"order": vocab.SEQUENTIAL, "against": vocab.BASELINE})
    yield Pivot(
        name="order",
        title=f"Scores by order: {_measured_in(data)}, and Δ from the baseline in {difference.axis}",
        derive=_compared,
        rows={"variant": "variant"},
        terminal=4,
        columns=(in_order, shuffled, against, before, *spreads, *published),
    )
    yield Text(_unchanged, terminal=False)


def _published(rows: Rows, at: int) -> str:
    return PUBLISHED.get(str(rows[0].variant), (ABSENT, ABSENT))[at]


def _unchanged(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.IDENTITY)
    draws, same = (sum(row.value for row in rows.where(metric=metric)) for metric in ("draws", "identical"))
    if same:
        yield f"{same:,.0f} of {draws:,.0f} random orders happened to be the original order; they are excluded."


def _kept(data: ReportData) -> Iterator[Part]:
    yield Lines(
        name="kept",
        derive=_kept_rows,
        each="order",
        x="kept",
        series="variant",
        slots=assign_colors,
        legend="Variants",
        choices={"Layers kept": "strategy"},
        words=lookup_format(outcome.CONDITIONS),
        show=_common(outcome.lead_show(data), _kept_rows(data)),
        across="layers kept",
        at="{} layers kept",
        height=KEPT_HEIGHT,
        reach=(data.depth + 0.3, 0.7),
        note=_describe_ribbons(data),
    )
    yield Pivot(
        name="every-size",
        derive=lambda data: sorted(_kept_rows(data), key=lambda row: -(row.kept or 0)),
        rows={"variant": "variant", "order": "order"},
        across="kept",
        split="strategy",
        show=outcome.quantity(data).show.replace(bounds=False),
        folded=True,
        words=lookup_format(outcome.CONDITIONS),
    )


def _describe_ribbons(data: ReportData) -> str:
    texts, is_retrained = load_texts("robustness"), any(row.variant == RETRAINED for row in _kept_rows(data))
    return " ".join([texts["layers-kept/kept"], *([texts["layers-kept/retrained"]] if is_retrained else [])])


def _kept_rows(data: ReportData) -> Iterator[Score]:
    for condition in outcome.CONDITIONS:
        yield from (replace(row, strategy=outcome.RULES[str(row.strategy)]) for row in outcome.kept(data, condition))


def _nodes(data: ReportData) -> Iterator[Part]:
    added = outcome.quantity(data).added
    yield Lines(
        name="nodes",
        derive=outcome.node_costs,
        each="order",
        x="failed",
        series="layout",
        slots={outcome.IN_BLOCKS: 0, outcome.AROUND: 1, outcome.ANYWHERE: 2, outcome.ALONE: 3},
        legend="Lost layers",
        choices={"Variant": "variant", "Nodes": "nodes"},
        words=lookup_format(outcome.CONDITIONS),
        show=added,
        across="failed nodes",
        at="{} of the nodes failed",
        height=NODES_HEIGHT,
    )
    yield Text(outcome.node_sentences, terminal=False)
    yield Pivot(
        name="every-number",
        derive=outcome.worst_nodes,
        folded=True,
        across="layout",
        show=added,
        words=lookup_format(outcome.CONDITIONS),
        rows={"variant": "variant", "failed nodes": "failed", "nodes": "nodes", "order": "order"},
    )


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield from make_training_tiles(data)
    counts = data.rows.where(measure=vocab.ROBUSTNESS, documents=PRESENT).axis("documents")
    if counts:
        yield f"{max(counts):,}", "documents" if outcome.quantity(data).is_loss else "images"


def _unfinished(data: ReportData) -> str | None:
    families = data.manifest.get("families")
    names = [str(name) for name in families] if isinstance(families, list | tuple) else []
    missing = [name for name in names if name in outcome.MEASURES and name not in outcome.present(data)]
    return describe_incomplete((find_unfinished_trainings(data), "training run"), (missing, "part"))


def _following(data: ReportData) -> Iterator[str]:
    fewest = outcome.fewest_layers(data)
    if fewest is not None:
        variant, plan = fewest
        yield (
            f"{variant} survives with {len(plan.order())} of {data.depth} layers. To write it: layerwise save MODEL "
            f'--plan "{plan}" --output FOLDER'
        )
    if outcome.present(data) & {vocab.ROBUSTNESS, vocab.ORDERS} and not data.rows.where(measure=MERGING_SECTION.anchor):
        yield "Models of several seeds can be merged: layerwise robustness merge RUN"


ROBUSTNESS_KIND = Kind(
    name="robustness",
    rank=3,
    measures=outcome.MEASURES,
    has_published=True,
    answer=outcome.summary,
    tiles=_tiles,
    unfinished=_unfinished,
    following=_following,
    sections=(
        Section(anchor=vocab.ROBUSTNESS, parts=_survival, needs=lambda data: bool(outcome.survival(data).cells)),
        Section(
            anchor=vocab.ORDERS,
            parts=_orders,
            needs=lambda data: bool(outcome.lead_rows(data) or data.rows.where(measure=vocab.ORDERS)),
        ),
        Section(
            anchor="layers-kept",
            parts=_kept,
            needs=lambda data: any(any(outcome.kept(data, condition)) for condition in outcome.CONDITIONS),
        ),
        Section(anchor=vocab.NODES, parts=_nodes, needs=lambda data: any(outcome.node_costs(data))),
        MERGING_SECTION,
        POSITION_SECTION,
        INSIDE_SECTION,
        TESTED_SECTION,
    ),
)
