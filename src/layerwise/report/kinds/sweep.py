"""A sweep: many plans, what each does to the loss, and what it costs to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from layerwise.plan import Plan
from layerwise.report.claims.painters import PER_LAYER
from layerwise.report.data import ReportData
from layerwise.report.derived.changes import SWAPPED, changed, single
from layerwise.report.derived.curves import PUBLISHED, at_half, averaged, curve_families, curves, levels, order_strategy
from layerwise.report.derived.loops import best, by_window, numbered, over_windows
from layerwise.report.derived.similarity import matrix, mirrored
from layerwise.report.derived.zones import PlanZones, plan_zones
from layerwise.report.kind import Beside, Column, Kind, Part, Pivot, Plans, Says, Section, Tabled
from layerwise.report.kinds.sweep_findings import ABSENCE, SIGNED, findings, ranked
from layerwise.report.marks import Bars, Dots, Heat, Lines, Scatter, Slots, Style
from layerwise.report.page.group import STOPPED
from layerwise.report.page.number_format import probability, tidy, verdict
from layerwise.report.page.palette import series_slots
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, label
from layerwise.report.show import ABSENT, COUNT, DIFFERENCE, PERCENT, Show
from layerwise.results.rows import Score, main_metric, read_continuations
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    ALL,
    BENCHMARK,
    CHANCE,
    CONTRAST,
    DELTA,
    EFFECT,
    EXACT,
    GAINED,
    LOOPED,
    NLL,
    NORMALISED,
    ORDER,
    SIMILARITY,
    STATES,
    ZONES,
)

MEASURED = {
    DELTA: ("Δ NLL", DIFFERENCE), EXACT: ("exact match", Show(axis="exact match (share of answers)")),
    "token_accuracy": ("token accuracy", Show(axis="token accuracy (share of tokens)")),
}  # fmt: skip
"""What curves show: its name and its quantity."""
SIZES = {"kendall": "pairs of layers the other way round", "repeat_blocks": "layers repeated"}
"""What the families count that count no affected layers."""
UNSEEN, TRAINED = "below the minimum detectable effect", "as trained"
PRICES: Mapping[str, Callable[[Any], int]] = {
    "layer evaluations": lambda record: record.evaluations, "sequential stages": lambda record: record.stages,
}  # fmt: skip
LEAST = "least loss at that price"
MAPS = {
    "cosine": "Cosine, all tokens", "cosine_no_sink": "Cosine, without the sink token", "cka": "CKA, unbiased",
    "cosine_flattened": "Cosine of flattened states, as published",
}  # fmt: skip
SINK = "Difference: what the sink adds"
PARALLEL = {
    LOOPED: "The mean fed back, so many loops in all", GAINED: "One pass, the mean update times a gain",
}  # fmt: skip
BEST_OF = {LOOPED: "The best number of loops of each window", GAINED: "The best gain of each window"}
MIDDLES = {"mean": "mean of the benchmarks", "median": "median of the benchmarks"}
MOST_CURVES, MOST_MAPS, SMALLEST_MAP = 8, 8, 12
"""Strategies that an eye can follow; plans whose states are drawn; windows of two layers or more that fill a map."""
SMALL = 215  # height of one of the small multiples
BRIEF = 40  # characters of an answer that needs its question
TASK = {"Task": "task"}


def _slots(data: ReportData, **more: int) -> Slots:
    """The colour of every strategy, the same in all figures of a run."""
    return lambda names: {name: (series_slots(data.strategies) | more).get(name, 0) for name in names}


def degradation(data: ReportData) -> Iterator[Score]:
    """The curves of every family by what was measured, beside the smallest detectable effects and the model as
    trained."""
    trained = str(Plan.identity(data.depth)) if data.depth else ""
    for metric in MEASURED:
        rows = Rows(replace(row, measure=metric) for row in curves(data, metric))
        yield from rows
        for task, of in rows.by("task").items():
            for own in of.by("part").values():
                whole = data.effect(trained, task, metric)
                if metric != DELTA and whole is not None:
                    yield from levels(own, {TRAINED: whole.value})
                for size in own.where(seed=None).by("amount").values() if metric == DELTA else ():
                    known = [row.mde for row in size if row.mde is not None]
                    yield from levels(size, {UNSEEN: (-median(known), median(known))} if known else {})


def _families(data: ReportData) -> tuple[list[str], list[str]]:
    """Families drawn as curves, and those with more strategies than an eye can follow, drawn as a grid."""
    strategies = {name: {each.strategy for each in data.swept if each.family == name} for name in curve_families(data)}
    named = [family for family in strategies if family not in (LOOPED, GAINED)]
    rich = [family for family in named if len(strategies[family]) > MOST_CURVES]
    return [family for family in named if family not in rich], rich


def _curve_parts(data: ReportData) -> Iterator[Part]:
    drawn, rich = _families(data)
    look: dict[str, Any] = {
        "derive": degradation, "x": "amount", "across": "layers affected", "at": "{}", "series": "condition",
        "slots": _slots(data), "faint": "seed", "nulls": str, "rooted": True,
        "words": lambda name: MEASURED[name][0] if name in MEASURED else label(str(name)),
    }  # fmt: skip
    if drawn:
        shows = {metric: {"show": show, "nats": metric == DELTA} for metric, (_, show) in MEASURED.items()}
        yield Beside((
            Lines(
                name="curves", title="Degradation curves with intervals", where={"part": drawn}, height=460,
                choices={"Family": "part", "Measure": "measure", **TASK}, legend="Strategies", note="curves",
                by_choice={**shows, **{family: {"across": words} for family, words in SIZES.items()}}, **look,
            ),
            Lines(
                name="curves-task", title="Task by task", each="task", height=SMALL, show=DIFFERENCE, nats=True,
                where={"part": drawn[0], "measure": DELTA, "task": data.named_tasks[:len(data.named_tasks) > 1 or 0]
                       and data.named_tasks}, **look,
            ),
        ))  # fmt: skip
    yield Heat(
        name="family", title="Effects of a family of many strategies", derive=curves, each="part", x="amount",
        where={"part": rich, "seed": None}, y="condition", across="layers affected", choices=TASK, diverging=True,
        root=True, show=DIFFERENCE, cell_words=lambda value: label(f"{value:g}" if isinstance(value, float) else value),
    )  # fmt: skip


def _detectable(rows: Rows) -> tuple[float, float] | None:
    """The smallest effect that would be found of any of the rows, to both sides of zero."""
    edge = min((row.mde for row in rows if row.mde is not None), default=None)
    return None if edge is None else (-edge, edge)


def _headline_parts(data: ReportData) -> Iterator[Part]:
    """The picture of the first answer, the answers, and what stands beside the others."""
    half = Rows(row for task in data.tasks for row in ranked(at_half(data), task))
    pictures: tuple[tuple[Rows, Part], ...] = (
        (single(data), Bars(
            name="layers-0", title="Drop one layer", derive=single, choices=TASK, at="without layer {}", height=220,
            show=DIFFERENCE, text=lambda row: str(row.plan), rooted=True, bent=True, note="layers",
        )),
        (half, Dots(
            name="ranking", title=f"{half[0].amount if half else 0:g} of {data.depth} layers affected", note="ranking",
            derive=lambda data: half, y="condition", series="condition", slots=_slots(data), choices=TASK, words=label,
            row_words=label, show=DIFFERENCE, allowed=_detectable,
        )),
        (Rows(against(data)), Dots(
            name="loops-against-gain", title="Is a loop more than a gain?", y="condition", derive=against,
            show=DIFFERENCE.but(axis="Δ NLL, best gain minus best number of loops"), note="against",
        )),
    )  # fmt: skip
    shown = [part for rows, part in pictures if rows]
    yield from (*shown[:1], Says(findings), *shown[1:])
    yield Plans("examples", note="staircase")


def priced(data: ReportData) -> Iterator[Score]:
    """The price and the effect of every plan, then of those that lose least at their price or below."""
    for task in data.tasks:
        effects = Rows(
            replace(score, plan=text, condition=record.strategy)
            for text, record in data.records.items()
            if (score := data.effect(text, task)) is not None
        )
        for name, price in PRICES.items():
            prices = {row.plan: float(price(data.records[str(row.plan)])) for row in effects}
            front: list[Score] = []
            for row in sorted(effects, key=lambda row: (prices[row.plan], row.value)):
                if not front or row.value < front[-1].value:
                    front.append(replace(row, condition=LEAST))
            for row in (*effects, *front):
                yield replace(row, part=name)
                yield replace(row, part=name, metric="price", value=prices[row.plan], low=None, high=None)


def benchmark_metrics(data: ReportData) -> dict[str, str]:
    """The metric that each benchmark is judged by."""
    scaled = data.rows.where(measure=BENCHMARK, condition=NORMALISED).by("task").items()
    return {task: main for task, own in scaled if task != ALL and (main := main_metric(own.axis("metric")))}


def benchmark_curves(data: ReportData) -> Iterator[Score]:
    """Benchmarks on the scale from chance, 0, to the model as trained, 1: what is taken over all, and each by its
    metric; of strategies with several sizes."""
    rows = data.rows.where(measure=BENCHMARK, condition=NORMALISED)
    shown = {(ALL, name): name for name in MIDDLES}
    shown |= {(task, metric): f"{task} ({metric})" for task, metric in benchmark_metrics(data).items()}
    records = [record for record in data.swept if record.family == PUBLISHED]
    for (task, metric), title in shown.items():
        of = rows.where(task=task, metric=metric).along("plan")
        drawn = [own for own in Rows(averaged(records, of.get)).by("condition").values() if len(own.axis("amount")) > 1]
        if drawn:
            named = Rows(replace(row, arm=title) for own in drawn for row in own)
            yield from (*named, *levels(named, {CHANCE: 0.0, TRAINED: 1.0}))


def falls(data: ReportData) -> Iterator[Score]:
    """Of every benchmark what guessing and the model as trained score, and how fast each strategy lets it fall."""
    rows, trained = data.rows.where(measure=BENCHMARK), str(Plan.identity(data.depth)) if data.depth else None
    fell = data.rows.where(measure=CONTRAST, claim="benchmark_fall")
    for task, metric in benchmark_metrics(data).items():
        whole = rows.one(plan=trained, task=task, metric=metric, condition=None)
        chance = rows.one(task=task, against=CHANCE)
        yield from (replace(chance, metric=CHANCE, low=None, high=None, condition=None),) if chance else ()
        yield from (replace(whole, metric=TRAINED),) if whole else ()
    for strategy in data.strategies:
        of = fell.where(condition=strategy)
        yield from (replace(row, condition=f"fall, {label(strategy)}") for row in of if of.where(task=ALL))


def _benchmark_parts(data: ReportData) -> Iterator[Part]:
    values = [row.value for row in benchmark_curves(data)]
    look: dict[str, Any] = {
        "derive": benchmark_curves, "x": "amount", "across": "layers affected", "at": "{}", "series": "condition",
        "slots": _slots(data), "faint": "seed", "nulls": str, "words": lambda name: MIDDLES.get(name, label(str(name))),
        # At least what is measured, but no interval as wide as a scale that is hardly known.
        "show": Show(axis="chance = 0, as trained = 1", span=(min(-0.25, *values, 0), max(1.25, *values, 0))),
    }  # fmt: skip
    yield Beside((
        Lines(name="benchmark", title="", where={"task": ALL}, each="arm", legend="Strategies", **look),
        Lines(name="benchmark-task", title="", each="arm", where={"task": tuple(benchmark_metrics(data))},
              height=SMALL + 20, note="benchmarks", **look),
    ))  # fmt: skip
    yield Pivot(
        title="How fast each falls", derive=falls, rows={"benchmark": "task"}, across="condition", terminal=False,
        columns=(Column("chance", CHANCE), Column(TRAINED, TRAINED)), note="falls", order=lambda line: line[0] == ALL,
        words=lambda name: "mean" if name == ALL else str(name),
    )  # fmt: skip


def _loop_parts(data: ReportData) -> Iterator[Part]:
    look: dict[str, Any] = {"x": "amount", "across": "layers in parallel", "each": "part", "choices": TASK}
    yield Beside((
        Heat(
            name="loops", title=PARALLEL[LOOPED], derive=numbered, y="other", down="loops, or gain", upwards=True,
            diverging=True, root=True, show=DIFFERENCE, cell_words=lambda value: f"{value:g}", note="loops",
            words=lambda name: PARALLEL.get(name, str(name)), **look,
        ),
        Lines(
            name="loops-best", title=BEST_OF[LOOPED], derive=best, nulls=str, at="{} layers", height=300,
            show=Show(axis="best number"), words=lambda name: BEST_OF.get(name, str(name)), **look,
        ),
    ))  # fmt: skip
    yield Says(_slope, terminal=False)


def against(data: ReportData) -> Iterator[Score]:
    """The best gain minus the best number of loops, window by window."""
    for size, row in by_window(data, "gain-loops").items():
        yield replace(row, condition=f"{size:g} layers")


def _slope(data: ReportData) -> Iterator[str]:
    """The slope with its interval, and how many windows are best at the end of what was run."""
    slope, ends = over_windows(data, "slope"), over_windows(data, "at_end")
    if slope is not None and ends is not None:
        more = f"A layer more in parallel takes {SIGNED.text(slope)} loops more: the dashed line."
        last = f" {counted(int(ends.value), 'window')} best at the greatest number that was run." if ends.value else ""
        yield f"{more} Less than ±{PER_LAYER:g} is none.{last}"


def alike(data: ReportData) -> Iterator[Score]:
    """The similarities of all pairs of states in both orders, and what the sink token adds to the cosine."""
    rows = data.rows.where(measure=SIMILARITY, metric=tuple(name for name in MAPS if matrix(data, name)))
    both = Rows(mirrored(rows))
    yield from both
    without = {(row.layer, row.other): row.value for row in both.where(metric="cosine_no_sink")}
    for row in both.where(metric="cosine"):
        if (row.layer, row.other) in without:
            less = row.value - without[row.layer, row.other]
            yield replace(row, metric=SINK, value=less, low=None, high=None)


def _alike_parts(data: ReportData) -> Iterator[Part]:
    rows = Rows(alike(data)).where(metric=tuple(MAPS))
    least = min(0.0, *(row.value for row in rows))
    look: dict[str, Any] = {
        "derive": alike, "across": "state", "down": "state", "height": 330, "square": True,
        "show": Show(decimals=3), "words": lambda name: MAPS.get(name, str(name)),
    }  # fmt: skip
    yield Beside((
        Heat(
            name="map", title="", where={"metric": tuple(MAPS)}, each="metric", least=least, most=1.0, note="alike",
            **look,
        ),
        Heat(name="map-difference", title=SINK, where={"metric": SINK}, diverging=True, **look),
        Lines(
            name="profile", title="Each state against the next", across="hidden state j, against j + 1", at="state {}",
            derive=lambda data: (row for row in rows if row.other == (row.layer or 0) + 1), series="metric", height=330,
            words=lambda name: MAPS.get(name, str(name)), show=Show(axis="similarity"), named=True,
            note="flattened" if rows.where(metric="cosine_flattened") else "",
        ),
    ))  # fmt: skip
    reach = [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high is not None]
    if reach:
        yield Says(lambda data: [f"Intervals over {data.units} reach at most ±{tidy(max(reach))}."], terminal=False)


def _zoned(data: ReportData) -> list[PlanZones]:
    return [each for each in plan_zones(data) if each.states]


def states(data: ReportData) -> Iterator[Score]:
    """The cosines and variances of the states under the first plans, each plan by its name, and their zones."""
    rows = data.rows.where(measure=STATES)
    for each in _zoned(data)[:MOST_MAPS]:
        own, name = rows.where(plan=each.plan), _name(data, each.plan)
        same = [Score(STATES, "cosine", 1.0, layer=at, other=at) for at in range(1, each.states + 1)]
        for row in (*mirrored(own.where(metric="cosine")), *same, *own.where(metric="variance")):
            yield replace(row, condition=name)
        for first, last in each.ranges if len(each.ranges) > 1 else ():
            yield Score(ZONES, "zone", 0.0, layer=first, other=last, condition=name)


def _name(data: ReportData, plan: str) -> str:
    record = data.records.get(plan)
    if record is not None and record.family == "identity":
        return "As trained"
    if record is not None and record.strategy != "given":
        return f"{label(record.strategy)}, {record.family}".replace("_", " ")
    return plan


def zone_table(data: ReportData) -> Table:
    """A row for each plan: its zones, what their borders are worth, and the p-value of more."""
    body = [
        (each.plan, called(data, each.plan) or ABSENT, each.in_words, each.borders_in_words, each.shown_p)
        for each in plan_zones(data)
    ]
    return Table(("plan", "strategy", "zones", "contrast of the borders", "p of more"), tuple(body), numeric_from=3)


def called(data: ReportData, plan: str) -> str:
    """What a plan is called in a table: as trained, its strategy, or nothing where somebody wrote it."""
    record = data.records.get(plan)
    if record is None or record.strategy == "given":
        return ""
    return TRAINED if record.family == "identity" else label(record.strategy)


def task_rows(data: ReportData) -> Iterator[Score]:
    """Of every task how much was measured, what the model as trained scores, and every strategy at half the depth."""
    trained = str(Plan.identity(data.depth)) if data.depth else ""
    for task in data.tasks:
        scores = [score for plan in data.records if (score := data.effect(plan, task)) is not None]
        for counts in ("documents", "tokens"):
            known = [count for score in scores if (count := getattr(score, counts)) is not None]
            yield from [Score(EFFECT, counts, float(max(known)), task=task)] if known else []
        whole = [data.effect(trained, task, metric) for metric in (NLL, EXACT)]
        yield from (replace(row, low=None, high=None) for row in whole if row is not None)
        yield from ranked(at_half(data), task)


def orders(data: ReportData) -> Iterator[Score]:
    """What absence and another order of the same layers cost, task by task."""
    strategy = order_strategy(data)
    shown = dict.fromkeys((ABSENCE, strategy, "reverse")) if strategy else {}
    for task in data.named_tasks:
        rows = at_half(data).where(task=task, seed=None)
        yield from (row for name in shown for row in rows.where(condition=name))


def plan_rows(data: ReportData) -> Table:
    """A row a plan: what it is, what it costs, and what it does on the main task."""
    head = ("plan", "strategy", "affected", "evaluations", "stages", "Δ NLL (nats per token)", "adjusted p", "verdict")
    body = []
    for plan, record in data.records.items():
        score = data.effect(plan, data.tasks[0]) if data.tasks else None
        costs = (str(record.affected), str(record.evaluations), str(record.stages))
        p = probability(score.p_adjusted if score else None)
        body.append((plan, label(record.strategy), *costs, SIGNED.text(score), p, data.verdict(plan)))
    return Table(head, tuple(body), numeric_from=2)


def _texts(data: ReportData) -> Iterator[Part]:
    """A table for each prompt: the plan, and the text that greedy decoding adds under it."""
    written = read_continuations(data.notes)
    for prompt in dict.fromkeys(each.prompt for each in written):
        body = tuple(
            (each.plan, called(data, each.plan), f"{each.same} of {each.tokens}", each.text.strip("\n"))
            for each in written
            if each.prompt == prompt
        )
        table = Table(("plan", "strategy", TRAINED, "text"), body, numeric_from=4, code=(0, 3))
        yield Tabled(title=f"After “{' '.join(prompt.split())}”", table=partial(_given, table))


def _given(table: Table, data: ReportData) -> Table:
    return table


def _answer(data: ReportData) -> str:
    """The answer of the first question that the run resolves, else of the first that it asks, in one sentence; with the
    question where that says little by itself."""
    every = findings(data)
    resolved = [finding for finding in every if finding.state == "resolved"] or every
    if not resolved and data.records:
        return "Each plan below was run on the same text and compared with the model as trained."
    first = resolved[0].text.partition(". ")[0].rstrip(".") if resolved else ""
    return f"{resolved[0].question} {first}." if 0 < len(first) < BRIEF else f"{first}." if first else ""


def _present(data: ReportData) -> bool:
    """A run with plans of its own; those by which a diagnosis asks about order, and the untouched model, are none."""
    return any(record.family not in {"identity", ORDER} for record in data.swept)


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(data.records):,}", "plans"
    yield f"{len(data.named_tasks) or len(data.tasks):,}", "tasks"


def _unfinished(data: ReportData) -> str | None:
    """Plans of the run without a loss: an interrupted run says so before anything else."""
    waiting = sum(not data.tasks or data.effect(plan, data.tasks[0], NLL) is None for plan in data.records)
    plans = counted(len(data.records), "plan")
    return f"{waiting:,} of {plans} have no effect yet: {STOPPED}" if waiting else None


def _layer_parts(data: ReportData) -> Iterator[Part]:
    windows = changed(data)
    plans = {done: {row.plan for row in own if row.layer != row.other} for done, own in windows.by("condition").items()}
    many = [done for done, own in plans.items() if len(own) >= SMALLEST_MAP and done != SWAPPED]
    yield Pivot(
        title="Layers", derive=single, where={"task": data.tasks[:1]}, rows={"layer dropped": "layer"}, folded=True,
        terminal=False,
        columns=(
            Column("Δ NLL (nats per token)", DELTA, SIGNED),
            Column("adjusted p", text=lambda rows: probability(rows[0].p_adjusted)),
            Column("verdict", text=lambda rows: verdict(rows[0], data.level)),
        ),
    )  # fmt: skip
    yield Bars(
        name="layers-1", title="Swap a layer with the next", derive=partial(single, done=SWAPPED), choices=TASK,
        at="layer {} and the next swapped", show=DIFFERENCE, text=lambda row: str(row.plan), rooted=True, note="bars",
    )  # fmt: skip
    yield Heat(
        name="windows", title=f"Every window of layers, {many[0] if many else ''}", derive=changed,
        where={"condition": many},
        each="condition", choices=TASK, across="first layer", down="last layer", upwards=True, diverging=True,
        root=True, show=DIFFERENCE, text=lambda row: str(row.plan), note="windows",
        words=lambda name: f"Every window of layers, {name}" if name in many else str(name),
    )  # fmt: skip


def _effects(data: ReportData) -> bool:
    return any(data.effect(plan, task) for plan in data.records for task in data.tasks)


SWEEP = Kind(
    name="sweep",
    measures=(EFFECT, SIMILARITY, STATES, ZONES, BENCHMARK),
    present=_present,
    answer=_answer,
    tiles=_tiles,
    unfinished=_unfinished,
    counts=("documents", "tokens"),
    claims=True,
    sections=(
        Section(
            anchor="headline", title="What was found", short="Findings", needs=lambda data: bool(findings(data)),
            missing="No finding: the run has no effects yet, or it was interrupted before the first one was scored.",
            parts=_headline_parts,
        ),
        Section(
            anchor="curves", title="How quality falls", short="Curves", parts=_curve_parts,
            needs=lambda data: any(_families(data)) and _effects(data),
            missing="No strategy of this run was measured at two sizes.",
        ),
        Section(
            anchor="layers", title="What each layer is worth", short="Layers", parts=_layer_parts,
            needs=lambda data: bool(changed(data)),
            missing="No single layer was dropped and no neighbours were swapped in this run (family leave_one_out).",
        ),
        Section(
            anchor=BENCHMARK, title="How benchmarks fall to chance", short="Benchmarks", parts=_benchmark_parts,
            needs=lambda data: any(benchmark_curves(data)) or any(falls(data)),
            missing="No benchmark that the model answers better than chance was measured (--tasks).",
        ),
        Section(
            anchor="loops", title="How many loops", short="Loops", parts=_loop_parts,
            needs=lambda data: any(numbered(data)),
            missing="No window was run with several loop counts or gains (families looped, gain_sweep).",
        ),
        Section(
            anchor="cost", title="What quality costs", short="Compute", needs=_effects,
            missing="No effect was measured, so there is nothing to match.",
            parts=lambda data: (
                Scatter(
                    name="cost", title="Effect of every plan against its price", derive=priced, point="plan",
                    series="condition", across={"metric": "price"}, upwards={"metric": DELTA}, show=DIFFERENCE, at="{}",
                    choices={"Price": "part", **TASK}, slots=_slots(data, **{LEAST: 5}), legend="Strategies",
                    words=lambda name: label(str(name)), rooted=True, height=400, note="cost",
                    styles={name: Style(bounds=False, size=7) for name in data.strategies}
                    | {LEAST: Style(line=True, bounds=False, size=4)},
                    by_choice={
                        price: {"show_across": COUNT.but(axis=price, reference=float(data.depth))} for price in PRICES
                    },
                ),
            ),
        ),
        Section(
            anchor=SIMILARITY, title="How alike hidden states are", short="Similarity", parts=_alike_parts,
            needs=lambda data: any(alike(data)), missing="Similarity was not measured in this run.",
        ),
        Section(
            anchor=ZONES, title="Zones of the depth", short="Zones", needs=lambda data: bool(_zoned(data)),
            missing="The hidden states under the plans were not compared in this run.",
            parts=(
                Heat(
                    name="zones", title="Cosine of the states", derive=states, where={"metric": ("cosine", "zone")},
                    each="condition", across="state", down="state", framed="zone", square=True, height=330, most=1.0,
                    show=Show(decimals=3), words=str,
                ),
                Lines(
                    name="variance", title="Variance over the width, mean over tokens", derive=states,
                    where={"metric": "variance"}, series="condition", across="hidden state", at="state {}", words=str,
                    show=Show(axis="variance"), named=True, rooted=True, bent=True,
                ),
                Tabled(title="Zones", table=zone_table, note="zones", terminal=False),
            ),
        ),
        Section(
            anchor="gallery", title="Every plan, drawn", short="Gallery", parts=(Plans("gallery"),),
            needs=lambda data: bool(data.records.keys() & data.schedules.keys()), missing="The run has no plans.",
        ),
        Section(
            anchor="tasks", title="Task by task", short="Tasks", missing="No task and no benchmark was measured.",
            needs=lambda data: any(task_rows(data)) or bool(data.rows.where(measure=BENCHMARK)),
            parts=lambda data: (
                Dots(
                    name="order", title="Order against absence", derive=orders, series="condition", slots=_slots(data),
                    show=DIFFERENCE, words=label, legend="Strategies", note="order",
                ),
                Pivot(
                    title="Tasks", derive=task_rows, rows={"task": "task"}, across="condition", show=SIGNED,
                    columns=(
                        Column("documents", "documents", COUNT), Column("tokens", "tokens", COUNT),
                        Column("NLL", NLL), Column("exact match", EXACT, PERCENT.but(decimals=1)),
                    ),
                    words=lambda name: f"Δ {label(name)}" if name in data.strategies else str(name), terminal=False,
                ),
                Pivot(
                    title="Benchmarks", rows={"plan": "plan", "benchmark": "task"}, across="condition", terminal=False,
                    derive=lambda data: (
                        replace(row, condition=label(" ".join(filter(None, (row.condition, row.metric)))))
                        for row in data.rows.where(measure=BENCHMARK, against=None)
                    ),
                ),
            ),
        ),
        Section(
            anchor="texts", title="What it writes", short="Texts", parts=_texts,
            needs=lambda data: any(_texts(data)), missing="No text was written under the plans (--prompt TEXT).",
        ),
        Section(
            anchor="plans", title="All plans", short="Table", needs=lambda data: bool(data.records),
            missing="The run has no plans.",
            parts=(Plans("table"), Tabled(title="Plans", table=plan_rows, page=False, terminal=False)),
        ),
    ),
)  # fmt: skip
