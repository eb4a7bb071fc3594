"""The page of `layerwise search`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean

from layerwise.page.data import ReportData
from layerwise.page.derived.power import BEYOND_REASON
from layerwise.page.finding import Effect, describe_loss_change, is_equal, judge_effect
from layerwise.page.formatting import (
    ABSENT,
    COUNT,
    DIFFERENCE,
    NUMBER,
    STOPPED,
    Format,
    excludes_zero,
    format_adjusted_p,
    format_number,
    format_perplexity,
    join_words,
    lookup_format,
)
from layerwise.page.kind import Column, CustomTable, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Heat, Scatter, Style
from layerwise.page.sections.quantized_layers import bits_parts
from layerwise.page.table import Table
from layerwise.plan import Plan
from layerwise.plan.checks import quantized_layers
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import estimate_tokens_needed
from layerwise.results.rows import Score, read_continuations
from layerwise.results.selection import PRESENT, Rows

TEXTS: Mapping[str, str] = {vocab.REPORT: "held-out text", vocab.SECOND: "second corpus"}
TEXT_NAMES: Mapping[str, str] = {vocab.REPORT: "held-out text", vocab.SECOND: "the second corpus"}
UNITS: Mapping[str, str] = {"layers": "layer evaluations", "ms": "milliseconds of a pass", "bytes": "bytes of weights"}
COSTS: Mapping[str, Format] = {
    "layers": COUNT.replace(whole=False),
    "ms": Format(decimals=2, unit=" ms"),
    "bytes": Format(scale=1e-6, decimals=2, unit=" MB"),
}
CONTROLS: Mapping[str, str] = {
    vocab.BEST_CHANGE: "best change of the original order",
    "uniform": "uniform type",
    "first_and_last": "first and last layers",
    "imatrix": "importance matrix",
    "sweep_effect": "smallest skip effect",
    "block_influence": "Block Influence",
    "angular_distance": "angular distance",
    "deepest_keep_last": "deepest layers but the last",
    vocab.RANDOM: "random plans",
}
"""Labels of the controls, in the order of the page."""

SLOTS = {
    "searched": 5,
    vocab.FRONT: 0,
    **{name: at for at, name in enumerate(CONTROLS, start=1)},
    vocab.CHOSEN: 1 + len(CONTROLS),
}
STYLES = {
    "searched": Style(faint=True, symbol="circle"),
    vocab.FRONT: Style(line=True),
    vocab.CHOSEN: Style(symbol="star", size=14),
}
COMPARISONS: Mapping[Effect, str] = {
    "worse": "It has a lower loss than {}.",
    "better": "It has a higher loss than {}.",
    "open": "The text is too short to separate it from {}.",
    "bare": "The text is too short to separate it from {}.",
}
"""Maps the effect of a control, relative to the selected plan, to a sentence about the selected plan."""
SELECTED = "selected plan"
MILLI = Format(decimals=3)


def find_selected(data: ReportData) -> Score | None:
    return data.rows.one(measure=vocab.SEARCH, metric=vocab.CHOSEN)


def list_controls(data: ReportData) -> dict[str, str]:
    """Map each control, except the random plans, to its plan, in the order of the page."""
    plans = data.rows.where(measure=vocab.SEARCH, metric=vocab.CONTROL_PLAN, seed=None).along("variant")
    return {name: str(plans[name].plan) for name in CONTROLS if name in plans}


def list_front(data: ReportData, unit: str) -> tuple[str, ...]:
    run = data.rows.where(measure=vocab.SEARCH, unit=unit)
    costs = run.where(metric=vocab.COST).along("plan")
    plans = (plan for plan in run.where(metric=vocab.FRONT).axis("plan") if plan in costs)
    return tuple(sorted(plans, key=lambda plan: costs[plan].value))


def derive_scatter(data: ReportData) -> Iterator[Score]:
    run, best = data.rows.where(measure=vocab.SEARCH), find_selected(data)
    if best is None:
        return
    losses = run.where(metric=vocab.DELTA)
    searched = losses.where(task=vocab.SEARCH).along("plan")
    held_out = losses.where(task=vocab.REPORT).along("plan")
    for unit in _units(data):
        costs = run.where(metric=vocab.COST, unit=unit).along("plan")
        single = {name: (plan,) for name, plan in (*list_controls(data).items(), (vocab.CHOSEN, str(best.plan)))}
        for name, plans in {"searched": tuple(searched), vocab.FRONT: list_front(data, unit), **single}.items():
            for plan in (plan for plan in plans if plan in costs):
                # The original model has no row, because losses are differences to it.
                original = Score(vocab.SEARCH, vocab.DELTA, 0.0, plan=plan)
                loss = (searched if name == "searched" else held_out).get(plan, original)
                yield from (replace(row, variant=name, unit=unit) for row in (costs[plan], loss))


def derive_front(data: ReportData) -> Rows:
    best = find_selected(data)
    unit = best.unit if best is not None and best.unit in _units(data) else "layers"
    run = data.rows.where(measure=vocab.SEARCH)
    plans = dict.fromkeys([*([] if best is None else [str(best.plan)]), *list_front(data, str(unit))])
    return Rows(row for plan in plans for row in run.where(plan=plan))


def derive_controls(data: ReportData) -> Iterator[Score]:
    run, best = data.rows.where(measure=vocab.SEARCH), find_selected(data)
    if best is None:
        return
    yield from (replace(row, variant=SELECTED) for row in run.where(plan=best.plan, metric=(vocab.DELTA, vocab.GAP)))
    for name, plan in list_controls(data).items():
        yield from (replace(row, variant=CONTROLS[name]) for row in run.where(plan=plan, metric=vocab.DELTA))
        same = run.where(plan=plan, metric=vocab.DELTA, task=tuple(TEXTS)) if plan == best.plan else ()
        yield from (replace(row, metric="same", variant=CONTROLS[name]) for row in same)
        yield from (
            replace(row, variant=CONTROLS[name], plan=plan)
            for row in run.where(variant=name, metric=vocab.ABOVE_CHOSEN)
        )
    sets = len(run.where(metric=vocab.CONTROL_PLAN, variant=vocab.RANDOM))
    yield from (
        replace(row, variant=f"mean of {sets} {CONTROLS[vocab.RANDOM]}")
        for row in run.where(variant=vocab.RANDOM, metric=vocab.ABOVE_CHOSEN)
    )


def derive_allocation(data: ReportData) -> Rows:
    rows = data.rows.where(measure=vocab.SEARCH, metric=vocab.BITS)
    layers = {name: rows.where(variant=name) for name in (vocab.CHOSEN, *CONTROLS)}
    means = {name: mean(row.value for row in own) for name, own in layers.items() if own}
    return Rows(replace(row, cost=row.value, value=row.value - means[name]) for name in means for row in layers[name])


def write_findings(data: ReportData) -> Iterator[str]:
    best = find_selected(data)
    if best is None:
        return
    run = data.rows.where(measure=vocab.SEARCH)
    selected = run.where(plan=best.plan)
    costs = selected.where(metric=vocab.COST).along("unit")
    units = (unit for unit in _units(data) if unit in costs)
    listed = ", ".join(COSTS[unit].text(costs[unit]) + " layers" * (unit == "layers") for unit in units)
    original = "the original model, because no plan was better: " if _is_original(data) else ""
    yield f"Selected plan for the budget {best.against}: {original}{best.plan} ({listed})."
    for text in TEXTS:
        change, again = (selected.one(metric=metric, task=text) for metric in (vocab.DELTA, vocab.AGAIN))
        if change is not None:
            interval = "" if again is None else f", with a 95 % prediction interval of {DIFFERENCE.interval(again)}"
            perplexity = f" (perplexity {format_perplexity(change.value)})"
            yield f"On {TEXT_NAMES[text]}, it {describe_loss_change(change)} nats/token{perplexity}{interval}."
    searched, gap = selected.one(metric=vocab.DELTA, task=vocab.SEARCH), selected.one(metric=vocab.GAP)
    if searched is not None and gap is not None:
        bias = "overfitting to the search text" if (gap.low or 0.0) > 0 else "no sign of overfitting to the search text"
        changed = f"On the search text, its loss change is {DIFFERENCE.number(searched.value)}"
        yield f"{changed}. The gap between the two texts is {DIFFERENCE.text(gap)}: {bias}."
    for text in TEXTS:
        for name in CONTROLS:
            yield from _compare_control(run, name, text, list_controls(data).get(name) == best.plan, data.level)
    times = data.rows.where(measure=vocab.LATENCY, plan=best.plan)
    predicted, measured = (times.one(metric=metric) for metric in ("predicted", "measured"))
    if predicted is not None and measured is not None:
        off = f"{100 * (measured.value / predicted.value - 1):+.1f} %"
        both = f"{predicted.value:.2f} predicted, {measured.value:.2f} measured ({off})"
        yield f"Milliseconds of a forward pass ({measured.condition}): {both}."


def _samples(data: ReportData) -> Table:
    written = read_continuations(data.notes)
    body = tuple((each.plan, each.prompt.strip("\n"), each.text.strip("\n")) for each in written)
    return Table(("plan", "prompt", "text"), body, numeric_from=3, code=(0, 1, 2))


def _is_original(data: ReportData) -> bool:
    best = find_selected(data)
    if best is None or not (share := re.fullmatch(r"\w+=(.+)x", str(best.against))):
        return False
    plan = Plan.parse(str(best.plan))
    return float(share[1]) >= 1 and plan == Plan.identity(len(plan.steps()))


def _compare_control(run: Rows, name: str, text: str, is_same: bool, level: float) -> Iterator[str]:
    row = run.one(metric=vocab.ABOVE_CHOSEN, variant=name, task=text)
    if is_same:
        yield from [f"The control “{CONTROLS[name]}” is the selected plan."] if text == vocab.REPORT else []
    elif row is not None:
        better = run.value(metric=vocab.BETTER, variant=name, task=text)
        sets = "" if better is None else f" {100 * better:.0f} % of the random plans have a lower loss."
        above = f"{_name_loss(name)} is {DIFFERENCE.text(row)} nats/token above that of the selected plan"
        yield f"On {TEXT_NAMES[text]}, {above}, which is {_explain_verdict(row, level)}{sets}"


def _name_loss(control: str) -> str:
    return f"the {'mean ' * (control == vocab.RANDOM)}loss of {_name_controls([CONTROLS[control]])}"


def _name_controls(names: Sequence[str]) -> str:
    return f"the control{'s' * (len(names) != 1)} {join_words([f'“{name}”' for name in names])}"


def _answer(data: ReportData) -> str:
    if find_selected(data) is None:
        return ""
    rows = data.rows.where(measure=vocab.SEARCH, metric=vocab.ABOVE_CHOSEN, task=vocab.REPORT).along("variant")
    verdicts: dict[str, list[str]] = {words: [] for words in COMPARISONS.values()}
    for name in (name for name in CONTROLS if name in rows):
        verdicts[COMPARISONS[judge_effect(rows[name], data.level)]].append(CONTROLS[name])
    compared = [f" {words.format(_name_controls(names))}" for words, names in verdicts.items() if names]
    return join_statements(write_findings, 2)(data) + "".join([] if _is_original(data) else compared)


def _units(data: ReportData) -> tuple[str, ...]:
    present = data.rows.where(measure=vocab.SEARCH, metric=vocab.COST).axis("unit")
    best = find_selected(data)
    limited = None if best is None else best.unit
    return tuple(unit for unit in sorted(UNITS, key=lambda unit: unit != limited) if unit in present)


def describe_verdict(row: Score, level: float) -> str:
    effect = judge_effect(row, level)
    if effect in ("better", "worse"):
        return effect
    if is_equal(row):
        return f"equal within {vocab.EQUAL_NATS:g} nats"
    return "inconclusive" + ("" if row.mde is None else f" (detectable: {format_number(row.mde)} nats or more)")


def _explain_verdict(row: Score, level: float) -> str:
    """Write the end of a sentence about a control: the verdict or, if inconclusive, how much text would settle it."""
    p = f"adjusted p {format_adjusted_p(row)}"
    if judge_effect(row, level) in ("better", "worse") or is_equal(row):
        return f"{describe_verdict(row, level)} ({p})."
    if row.mde is None:
        verdict = f"inconclusive ({p})."
    else:
        limit = format_number(row.mde)
        verdict = f"inconclusive ({p}), because this text can only detect differences above {limit} nats/token."
    if excludes_zero(row):
        verdict += f" The interval excludes zero, but the adjusted p-value, which decides, is not below {level:g}."
    tokens = estimate_tokens_needed(row)
    if tokens is None:
        return verdict
    if tokens > BEYOND_REASON * (row.tokens or 0):
        return f"{verdict} Even {BEYOND_REASON:,} times as much text would not settle it."
    return f"{verdict} About {float(f'{tokens:.2g}'):,.0f} tokens should settle it."


def _verdict_cell(rows: Rows) -> str:
    row, gap = (rows.one(metric=metric) for metric in (vocab.ABOVE_CHOSEN, vocab.GAP))
    if rows.where(metric="same"):
        return "the same plan"
    if row is not None:
        return describe_verdict(row, 0.05)
    return "" if gap is None else f"gap to search text {DIFFERENCE.text(gap)}"


def _list_text_columns(text: str, name: str) -> tuple[Column, ...]:
    where = {"task": text}
    return (
        Column(name, vocab.DELTA, DIFFERENCE, where),
        Column(f"{name}: above the selected plan", vocab.ABOVE_CHOSEN, DIFFERENCE, where),
        Column("adjusted p", vocab.ABOVE_CHOSEN, format_adjusted_p, where),
        Column("verdict", where=where, text=_verdict_cell),
    )


def _describe_rest(data: ReportData) -> Iterator[str]:
    for row in data.rows.where(measure=vocab.LATENCY, part=vocab.REST):
        yield f"Everything outside the layers takes {MILLI.number(row.value)} ms ({row.condition})."


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    best = find_selected(data)
    yield ABSENT if best is None else str(best.against), "budget"
    searched = data.rows.where(measure=vocab.SEARCH, metric=vocab.DELTA, task=vocab.SEARCH).axis("plan")
    yield f"{len(searched):,}", "plans on all of the search text"


def _suggest_next(data: ReportData) -> Iterator[str]:
    best = find_selected(data)
    if best is not None and not _is_original(data):
        given = data.manifest.get("experiment")
        options = given if isinstance(given, Mapping) else {}
        others = options.get("source", ()) if Plan.parse(str(best.plan)).sources() else ()
        models = " ".join(map(str, (data.manifest.get("model", "MODEL"), *others)))
        is_file = models.endswith(".gguf")
        if quantized_layers(Plan.parse(str(best.plan))):
            yield f'For llama-quantize: layerwise plan "{best.plan}" --to tensor-types'
            if not is_file:
                return
        elif not others:
            yield f'Heal it: layerwise heal {models} --plan "{best.plan}"'
        if not others:
            yield f'Benchmark it: layerwise sweep {models} --text FILE --plan "{best.plan}" --tasks NAMES'
        target = "NAME.gguf" if is_file else "FOLDER"
        yield f'Save it: layerwise save {models} --plan "{best.plan}" --output {target}'


SEARCH_KIND = Kind(
    name=vocab.SEARCH,
    measures=(vocab.SEARCH, vocab.SEARCH_ROUND, vocab.LATENCY),
    answer=_answer,
    tiles=_tiles,
    counts=("documents", "tokens", "window"),
    unfinished=lambda data: None if find_selected(data) else f"no plan has been selected yet: {STOPPED}",
    following=_suggest_next,
    sections=(
        Section(
            anchor=vocab.SEARCH,
            needs=lambda data: find_selected(data) is not None,
            parts=(
                Scatter(
                    name="search-front",
                    derive=derive_scatter,
                    point="plan",
                    series="variant",
                    across={"metric": vocab.COST},
                    upwards={"metric": vocab.DELTA},
                    choices={"Cost": "unit"},
                    at="{}",
                    slots=SLOTS,
                    styles=STYLES,
                    named=True,
                    focus=(vocab.FRONT, vocab.CHOSEN),
                    height=460,
                    words=lookup_format({**UNITS, **CONTROLS, vocab.CHOSEN: SELECTED}),
                    show=DIFFERENCE,
                    by_choice={
                        "layers": {"show_across": COSTS["layers"].replace(axis=UNITS["layers"])},
                        "ms": {"show_across": NUMBER.replace(axis=UNITS["ms"])},
                        "bytes": {"show_across": COSTS["bytes"].replace(axis="megabytes of weights")},
                    },
                ),
                Text(write_findings),
                Pivot(
                    name="the-front-to-copy",
                    derive=derive_front,
                    rows={"plan": "plan"},
                    columns=(
                        *(Column(unit, vocab.COST, show, {"unit": unit}) for unit, show in COSTS.items()),
                        Column("search text", vocab.DELTA, DIFFERENCE, {"task": vocab.SEARCH}),
                        *(Column(name, vocab.DELTA, DIFFERENCE, {"task": text}) for text, name in TEXTS.items()),
                        Column("95 % prediction interval", vocab.AGAIN, DIFFERENCE.interval, {"task": vocab.REPORT}),
                    ),
                ),
            ),
        ),
        Section(
            anchor="search_samples",
            needs=lambda data: bool(read_continuations(data.notes)),
            parts=(CustomTable(name="samples", table=_samples, terminal=False),),
        ),
        Section(
            anchor="search_confirmed",
            needs=lambda data: find_selected(data) is not None,
            parts=(
                Pivot(
                    derive=derive_controls,
                    rows={"": "variant", "plan": "plan"},
                    terminal=False,
                    note="controls",
                    columns=(
                        Column("search text", vocab.DELTA, DIFFERENCE, {"task": vocab.SEARCH}),
                        *(column for text, name in TEXTS.items() for column in _list_text_columns(text, name)),
                    ),
                ),
            ),
        ),
        Section(
            anchor=vocab.BITS,
            needs=lambda data: bool(derive_allocation(data)),
            parts=lambda data: (
                Heat(
                    name="allocation",
                    derive=derive_allocation,
                    y="variant",
                    across="layer",
                    diverging=True,
                    numbers=True,
                    cell_words=lookup_format({**CONTROLS, vocab.CHOSEN: "selected"}),
                    number=lambda row: f"{row.cost:.2g}",
                    show=Format(decimals=1, signed=True),
                    text=lambda row: row.condition or "not quantized",
                ),
                *bits_parts(data),
            ),
        ),
        Section(
            anchor=vocab.LATENCY,
            parts=(
                Pivot(
                    where={"measure": vocab.LATENCY, "layer": PRESENT},
                    rows={"layer": "layer"},
                    terminal=False,
                    order=lambda line: line[0],
                    columns=(
                        Column("ms", vocab.MILLISECONDS, MILLI, {"part": None}),
                        Column("attn alone", vocab.MILLISECONDS, MILLI, {"part": "attn"}),
                        Column("mlp alone", vocab.MILLISECONDS, MILLI, {"part": "mlp"}),
                    ),
                ),
                Text(_describe_rest, terminal=False),
            ),
        ),
    ),
)
