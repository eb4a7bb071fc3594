"""A search: the front that was reached, and the chosen plan beside its controls on text that chose nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from statistics import mean

from layerwise.page.data import ReportData
from layerwise.page.derived.power import describe_tokens_needed
from layerwise.page.finding import Effect, describe_loss_change, is_equal, judge_effect
from layerwise.page.formatting import (
    ABSENT,
    COUNT,
    DIFFERENCE,
    NUMBER,
    STOPPED,
    Format,
    format_adjusted_p,
    format_number,
    format_perplexity,
    lookup_format,
)
from layerwise.page.kind import Column, CustomTable, Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Heat, Scatter, Style
from layerwise.page.sections.quantized_layers import bits_parts
from layerwise.page.table import Table
from layerwise.plan import Plan
from layerwise.plan.checks import quantized_layers
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score, read_continuations
from layerwise.results.selection import PRESENT, Rows

TEXTS: Mapping[str, str] = {vocab.REPORT: "held-out text", vocab.SECOND: "second corpus"}
"""The texts on which nothing was chosen, as they are called."""

UNITS: Mapping[str, str] = {"layers": "layer evaluations", "ms": "milliseconds of a pass", "bytes": "bytes of weights"}
PRICES: Mapping[str, Format] = {
    "layers": COUNT.replace(whole=False),
    "ms": Format(decimals=2, unit=" ms"),
    "bytes": Format(scale=1e-6, decimals=2, unit=" MB"),
}
ARMS: Mapping[str, str] = {
    vocab.BEST_CHANGE: "best change of the trained order",
    "uniform": "uniform type",
    "first_and_last": "first and last layers",
    "imatrix": "importance matrix",
    "sweep_effect": "least skip effect",
    "block_influence": "Block Influence",
    "angular_distance": "angular distance",
    "deepest_keep_last": "deepest, last kept",
    vocab.RANDOM: "random sets",
}
"""The arms in reading order, as they are called."""

SLOTS = {
    "searched": 5,
    vocab.FRONT: 0,
    **{name: at for at, name in enumerate(ARMS, start=1)},
    vocab.CHOSEN: 1 + len(ARMS),
}
STYLES = {
    "searched": Style(faint=True, symbol="circle"),
    vocab.FRONT: Style(line=True),
    vocab.CHOSEN: Style(symbol="star", size=14),
}
BESIDE: Mapping[Effect, str] = {
    "worse": "better than",
    "better": "worse than",
    "open": "not distinguished from",
    "bare": "not distinguished from",
}
"""What the chosen plan is, by what an arm is beside it."""
MILLI = Format(decimals=3)


def chosen(data: ReportData) -> Score | None:
    """The row of the plan that was chosen; `None` of a search that was stopped before."""
    return data.rows.one(measure=vocab.SEARCH, metric=vocab.CHOSEN)


def arms(data: ReportData) -> dict[str, str]:
    """The plan that each arm chose, in reading order; the random sets are left out."""
    plans = data.rows.where(measure=vocab.SEARCH, metric=vocab.ARM, seed=None).along("arm")
    return {name: str(plans[name].plan) for name in ARMS if name in plans}


def front(data: ReportData, unit: str) -> tuple[str, ...]:
    run = data.rows.where(measure=vocab.SEARCH, unit=unit)
    prices = run.where(metric=vocab.PRICE).along("plan")
    plans = (plan for plan in run.where(metric=vocab.FRONT).axis("plan") if plan in prices)
    return tuple(sorted(plans, key=lambda plan: prices[plan].value))


def drawn(data: ReportData) -> Iterator[Score]:
    run, best = data.rows.where(measure=vocab.SEARCH), chosen(data)
    if best is None:
        return
    losses = run.where(metric=vocab.DELTA)
    searched = losses.where(task=vocab.SEARCH).along("plan")
    fresh = losses.where(task=vocab.REPORT).along("plan")
    for unit in _units(data):
        prices = run.where(metric=vocab.PRICE, unit=unit).along("plan")
        one = {name: (plan,) for name, plan in (*arms(data).items(), (vocab.CHOSEN, str(best.plan)))}
        for name, plans in {"searched": tuple(searched), vocab.FRONT: front(data, unit), **one}.items():
            for plan in (plan for plan in plans if plan in prices):
                # The original model has no row: losses are differences to it.
                trained = Score(vocab.SEARCH, vocab.DELTA, 0.0, plan=plan)
                loss = (searched if name == "searched" else fresh).get(plan, trained)
                yield from (replace(row, arm=name, unit=unit) for row in (prices[plan], loss))


def on_front(data: ReportData) -> Rows:
    best = chosen(data)
    unit = best.unit if best is not None and best.unit in _units(data) else "layers"
    run = data.rows.where(measure=vocab.SEARCH)
    plans = dict.fromkeys([*([] if best is None else [str(best.plan)]), *front(data, str(unit))])
    return Rows(row for plan in plans for row in run.where(plan=plan))


def beside(data: ReportData) -> Iterator[Score]:
    run, best = data.rows.where(measure=vocab.SEARCH), chosen(data)
    if best is None:
        return
    yield from (replace(row, arm=vocab.CHOSEN) for row in run.where(plan=best.plan, metric=(vocab.DELTA, vocab.GAP)))
    for name, plan in arms(data).items():
        yield from (replace(row, arm=ARMS[name]) for row in run.where(plan=plan, metric=vocab.DELTA))
        same = run.where(plan=plan, metric=vocab.DELTA, task=tuple(TEXTS)) if plan == best.plan else ()
        yield from (replace(row, metric="same", arm=ARMS[name]) for row in same)
        yield from (replace(row, arm=ARMS[name], plan=plan) for row in run.where(arm=name, metric=vocab.ABOVE_CHOSEN))
    sets = len(run.where(metric=vocab.ARM, arm=vocab.RANDOM))
    yield from (
        replace(row, arm=f"mean of {sets} {ARMS[vocab.RANDOM]}")
        for row in run.where(arm=vocab.RANDOM, metric=vocab.ABOVE_CHOSEN)
    )


def allocated(data: ReportData) -> Rows:
    rows = data.rows.where(measure=vocab.SEARCH, metric=vocab.BITS)
    arms = {name: rows.where(arm=name) for name in (vocab.CHOSEN, *ARMS)}
    means = {name: mean(row.value for row in own) for name, own in arms.items() if own}
    return Rows(replace(row, cost=row.value, value=row.value - means[name]) for name in means for row in arms[name])


def findings(data: ReportData) -> Iterator[str]:
    best = chosen(data)
    if best is None:
        return
    run = data.rows.where(measure=vocab.SEARCH)
    own = run.where(plan=best.plan)
    prices = own.where(metric=vocab.PRICE).along("unit")
    units = (unit for unit in _units(data) if unit in prices)
    listed = ", ".join(PRICES[unit].text(prices[unit]) + " layers" * (unit == "layers") for unit in units)
    chose = "no plan, since none was better than the original model: " if _is_trained(data) else ""
    yield f"Chosen within {best.against}: {chose}{best.plan} ({listed})."
    for text, name in TEXTS.items():
        fresh, again = (own.one(metric=metric, task=text) for metric in (vocab.DELTA, vocab.AGAIN))
        if fresh is not None:
            again_in = "" if again is None else f"; 95 % prediction interval: {DIFFERENCE.interval(again)}"
            perplexity = f" (perplexity {format_perplexity(fresh.value)})"
            yield f"On the {name} it {describe_loss_change(fresh)} nats per token{perplexity}{again_in}."
    searched, gap = own.one(metric=vocab.DELTA, task=vocab.SEARCH), own.one(metric=vocab.GAP)
    if searched is not None and gap is not None:
        curse = "the search flattered it" if (gap.low or 0.0) > 0 else "no sign of overfitting to the search text"
        changed = f"On the search text the loss changed by {DIFFERENCE.number(searched.value)}"
        yield f"{changed}: a gap of {DIFFERENCE.text(gap)}, {curse}."
    for text in TEXTS:
        for name in ARMS:
            yield from _against(run, name, text, arms(data).get(name) == best.plan, data.level)
    times = data.rows.where(measure=vocab.LATENCY, plan=best.plan)
    predicted, measured = (times.one(metric=metric) for metric in ("predicted", "measured"))
    if predicted is not None and measured is not None:
        off = f"{100 * (measured.value / predicted.value - 1):+.1f} %"
        both = f"{predicted.value:.2f} predicted, {measured.value:.2f} measured ({off})"
        yield f"Milliseconds ({measured.condition}): {both}."


def _samples(data: ReportData) -> Table:
    written = read_continuations(data.notes)
    body = tuple((each.plan, each.prompt.strip("\n"), each.text.strip("\n")) for each in written)
    return Table(("plan", "prompt", "text"), body, numeric_from=3, code=(0, 1, 2))


def _is_trained(data: ReportData) -> bool:
    best = chosen(data)
    if best is None or not (share := re.fullmatch(r"\w+=(.+)x", str(best.against))):
        return False
    plan = Plan.parse(str(best.plan))
    return float(share[1]) >= 1 and plan == Plan.identity(len(plan.steps()))


def _against(run: Rows, name: str, text: str, is_same: bool, level: float) -> Iterator[str]:
    row = run.one(metric=vocab.ABOVE_CHOSEN, arm=name, task=text)
    if is_same:
        yield from [f"{ARMS[name]}: the same plan."] if text == vocab.REPORT else []
    elif row is not None:
        better = run.value(metric=vocab.BETTER, arm=name, task=text)
        sets = "" if better is None else f"; {100 * better:.0f} % of the sets lose less"
        above = f"{DIFFERENCE.text(row)} above the chosen plan"
        more = describe_tokens_needed([row]) if judge_effect(row, level) not in ("better", "worse") else ""
        line = f"{ARMS[name]}, {TEXTS[text]}: {above}, {verdict(row, level)}"
        yield f"{line} (corrected p {format_adjusted_p(row)}){sets}{more}."


def _answer(data: ReportData) -> str:
    if chosen(data) is None:
        return ""
    rows = data.rows.where(measure=vocab.SEARCH, metric=vocab.ABOVE_CHOSEN, task=vocab.REPORT).along("arm")
    verdicts: dict[str, list[str]] = {}
    for name in (name for name in ARMS if name in rows):
        verdicts.setdefault(BESIDE[judge_effect(rows[name], data.level)], []).append(ARMS[name])
    compared = "; ".join(f"{word} {', '.join(names)}" for word, names in verdicts.items())
    return join_statements(findings, 2)(data) + (f" It is {compared}." if compared and not _is_trained(data) else "")


def _units(data: ReportData) -> tuple[str, ...]:
    present = data.rows.where(measure=vocab.SEARCH, metric=vocab.PRICE).axis("unit")
    best = chosen(data)
    limited = None if best is None else best.unit
    return tuple(unit for unit in sorted(UNITS, key=lambda unit: unit != limited) if unit in present)


def verdict(row: Score, level: float) -> str:
    effect = judge_effect(row, level)
    if effect in ("better", "worse"):
        return effect
    if is_equal(row):
        return f"equal within {vocab.EQUAL_NATS:g} nats"
    return "inconclusive" + ("" if row.mde is None else f" below {format_number(row.mde)} nats")


def _verdict_cell(rows: Rows) -> str:
    row, gap = (rows.one(metric=metric) for metric in (vocab.ABOVE_CHOSEN, vocab.GAP))
    if rows.where(metric="same"):
        return "the same plan"
    if row is not None:
        return verdict(row, 0.05)
    return "" if gap is None else f"gap {DIFFERENCE.text(gap)}"


def _of_text(text: str, name: str) -> tuple[Column, ...]:
    where = {"task": text}
    return (
        Column(name, vocab.DELTA, DIFFERENCE, where),
        Column(f"{name}: above the chosen", vocab.ABOVE_CHOSEN, DIFFERENCE, where),
        Column("adjusted p", vocab.ABOVE_CHOSEN, format_adjusted_p, where),
        Column("verdict", where=where, text=_verdict_cell),
    )


def _all_else(data: ReportData) -> Iterator[str]:
    for row in data.rows.where(measure=vocab.LATENCY, part=vocab.REST):
        yield f"All else takes {MILLI.number(row.value)} ms ({row.condition})."


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    best = chosen(data)
    yield ABSENT if best is None else str(best.against), "budget"
    searched = data.rows.where(measure=vocab.SEARCH, metric=vocab.DELTA, task=vocab.SEARCH).axis("plan")
    yield f"{len(searched):,}", "plans on all of the search text"


def _following(data: ReportData) -> Iterator[str]:
    best = chosen(data)
    if best is not None and not _is_trained(data):
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
    unfinished=lambda data: None if chosen(data) else f"no plan was chosen yet: {STOPPED}",
    following=_following,
    sections=(
        Section(
            anchor=vocab.SEARCH,
            needs=lambda data: chosen(data) is not None,
            parts=(
                Scatter(
                    name="search-front",
                    derive=drawn,
                    point="plan",
                    series="arm",
                    across={"metric": vocab.PRICE},
                    upwards={"metric": vocab.DELTA},
                    choices={"Price": "unit"},
                    at="{}",
                    slots=SLOTS,
                    styles=STYLES,
                    named=True,
                    focus=(vocab.FRONT, vocab.CHOSEN),
                    height=460,
                    words=lookup_format({**UNITS, **ARMS}),
                    show=DIFFERENCE,
                    by_choice={
                        "layers": {"show_across": PRICES["layers"].replace(axis=UNITS["layers"])},
                        "ms": {"show_across": NUMBER.replace(axis=UNITS["ms"])},
                        "bytes": {"show_across": PRICES["bytes"].replace(axis="megabytes of weights")},
                    },
                ),
                Text(findings),
                Pivot(
                    name="the-front-to-copy",
                    derive=on_front,
                    rows={"plan": "plan"},
                    columns=(
                        *(Column(unit, vocab.PRICE, show, {"unit": unit}) for unit, show in PRICES.items()),
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
            needs=lambda data: chosen(data) is not None,
            parts=(
                Pivot(
                    derive=beside,
                    rows={"": "arm", "plan": "plan"},
                    terminal=False,
                    note="controls",
                    columns=(
                        Column("search text", vocab.DELTA, DIFFERENCE, {"task": vocab.SEARCH}),
                        *(column for text, name in TEXTS.items() for column in _of_text(text, name)),
                    ),
                ),
            ),
        ),
        Section(
            anchor=vocab.BITS,
            needs=lambda data: bool(allocated(data)),
            parts=lambda data: (
                Heat(
                    name="allocation",
                    derive=allocated,
                    y="arm",
                    across="layer",
                    diverging=True,
                    numbers=True,
                    cell_words=lookup_format({**ARMS, vocab.CHOSEN: "chosen"}),
                    number=lambda row: f"{row.cost:.2g}",
                    show=Format(decimals=1, signed=True),
                    text=lambda row: row.condition or "as it is",
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
                Text(_all_else, terminal=False),
            ),
        ),
    ),
)
