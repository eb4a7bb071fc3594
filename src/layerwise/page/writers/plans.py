"""The plans of a sweep on the page: a few pictures, and a table that is plain HTML; a script sorts and filters it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from layerwise.errors import PlanError
from layerwise.page.data import ReportData
from layerwise.page.derived.curves import at_half
from layerwise.page.figures.palette import EMBEDDING, depth_colour
from layerwise.page.show import SIGNED
from layerwise.page.text.markup import Safe, element, measured
from layerwise.page.text.number_format import in_perplexity, is_resolved, probability, tidy, verdict
from layerwise.page.text.wording import counted, label
from layerwise.page.writers.chapter import depth_key
from layerwise.plan import Plan
from layerwise.results.rows import PlanRecord, Score

GLYPH_WIDTH, GLYPH_HEIGHT = 110, 14
MAX_DRAWN_STEPS = 500

FAINTEST = 0.3  # a weight near zero still has to be seen


def examples(data: ReportData) -> Iterator[Safe]:
    rows = sorted(at_half(data).where(task=data.tasks[:1], seed=None), key=lambda row: row.value)
    plans = {row.condition: at_half(data).where(condition=row.condition).axis("plan")[0] for row in rows}
    shown = [
        element("figure", wiring(plan, data.depth), element("figcaption", label(str(strategy))))
        for strategy, text in plans.items()
        if (plan := data.schedules.get(text)) is not None
    ]
    if shown:
        yield element("h3", "What each strategy does")
        yield element("div", *shown, class_="examples")


def _main(data: ReportData, plan: str) -> Score | None:
    return data.effect(plan, data.tasks[0]) if data.tasks else None


def _faint(data: ReportData, score: Score | None) -> str:
    return "" if score is not None and is_resolved(score, data.level) else " faint"


def _picture(data: ReportData, text: str) -> Safe:
    try:
        return wiring(data.schedules[text], data.depth)
    except (KeyError, PlanError) as error:  # a row of a foreign store; a matrix of thousands of steps
        return element("span", "?" if isinstance(error, KeyError) else "…", class_="wiring")


def table(data: ReportData) -> Iterator[Safe]:
    """The table under its filters; its first effect column is the whole text, then one column for each task."""
    yield depth_key(
        data.depth,
        element("span", element("i", class_="embedding"), " embedding"),
        element("span", "fainter: a smaller weight"),
    )
    strategies = [element("option", label(name), value=name) for name in data.strategies]
    yield element(
        "div",
        element("label", "Find ", element("input", type="search", id="find", placeholder="plan or strategy")),
        element("label", "Strategy ", element("select", element("option", "all", value=""), *strategies, id="only")),
        element("label", element("input", type="checkbox", id="resolved"), " only effects distinguished from zero"),
        element("output", counted(len(data.records), "plan"), id="count", aria_live="polite"),
        class_="filters",
    )
    tasks = data.named_tasks if len(data.tasks) > 1 else ()
    kinds = {"plan": "text", "strategy": "text", **dict.fromkeys(("affected", "evaluations", "stages"), "number")}
    kinds |= {f"Δ NLL, {(*data.tasks, 'all')[0]}": "number", "perplexity": "number", "interval": "number"}
    kinds |= {"adjusted p": "number", "verdict": "text", **{f"Δ {task}": "number task" for task in tasks}}
    head = [
        element(
            "th",
            element("button", title, type="button"),
            scope="col",
            data_kind=kind.split()[0],
            aria_sort="none",
            class_=kind,
        )
        for title, kind in kinds.items()
    ]
    scores = [score for plan in data.records if (score := _main(data, plan)) is not None]
    bounds = [abs(bound) for score in scores for bound in (score.value, score.low, score.high) if bound is not None]
    scale = max(filter(math.isfinite, bounds), default=1.0) or 1.0
    rows = [_row(data, record, tasks, scale) for record in data.records.values()]
    caption = element("caption", "Every plan of this run. Press a heading to sort.", class_="visually-hidden")
    yield element(
        "div",
        element(
            "table",
            caption,
            element("thead", element("tr", *head)),
            element("tbody", *rows),
            id="plan-table",
            class_="sortable",
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="Table of all plans",
    )


def _row(data: ReportData, record: PlanRecord, tasks: tuple[str, ...], scale: float) -> Safe:
    main = _main(data, record.plan)
    value, p = (main.value, main.p_adjusted) if main else (None, None)
    slots = f"{counted(record.weights, 'layer')} touched, {counted(record.slots, 'KV slot')}"
    cells = [
        element(
            "th", _picture(data, record.plan), element("code", record.plan), scope="row", class_="plan", title=slots
        ),
        element("td", label(record.strategy)),
        *(_number(count, f"{count:,}") for count in (record.affected, record.evaluations, record.stages)),
        _number(value, SIGNED.text(main)),
        _number(value, "–" if value is None else in_perplexity(value)),
        element("td", _glyph(data, main, scale), data_value=_sortable(value)),
        _number(p, probability(p)),
        element("td", data.verdict(record.plan), class_="verdict"),
        *(_task_cell(data, data.effect(record.plan, task)) for task in tasks),
    ]
    resolved = "yes" if main and not _faint(data, main) else "no"
    return element("tr", *cells, data_strategy=record.strategy, data_resolved=resolved)


def _task_cell(data: ReportData, score: Score | None) -> Safe:
    if score is None:
        return element("td", "–", class_="number task")
    return element(
        "td",
        tidy(score.value, signed=True),
        class_=f"number task{_faint(data, score)}",
        data_value=_sortable(score.value),
        title=f"{SIGNED.text(score)}; {verdict(score, data.level)}",
    )


def _number(value: float | None, shown: str) -> Safe:
    return element("td", measured(shown), class_="number", data_value=_sortable(value))


def _sortable(value: float | None) -> str | None:
    return None if value is None or not math.isfinite(value) else repr(float(value))


def _glyph(data: ReportData, score: Score | None, scale: float) -> Safe:
    if score is None or not math.isfinite(score.value):
        return Safe("")
    zero, middle = GLYPH_WIDTH * 0.2, GLYPH_HEIGHT / 2

    def across(value: float) -> float:
        root = math.copysign(math.sqrt(abs(value) / scale), value)
        return round(min(GLYPH_WIDTH - 3.0, max(3.0, zero + root * (GLYPH_WIDTH * 0.8 - 4))), 1)

    shapes: list[Safe] = [element("path", d=f"M{zero:g} 0v{GLYPH_HEIGHT}", class_="zero")]
    if score.low is not None and score.high is not None:
        shapes.append(element("path", d=f"M{across(score.low):g} {middle:g}H{across(score.high):g}", class_="whisker"))
    shapes.append(element("circle", cx=f"{across(score.value):g}", cy=f"{middle:g}", r="3"))
    look = {"viewBox": f"0 0 {GLYPH_WIDTH} {GLYPH_HEIGHT}", "aria_hidden": "true"}
    return element("svg", *shapes, class_=f"glyph{_faint(data, score)}", **look)


def wiring(plan: Plan, depth: int, *, title: str | None = None) -> Safe:
    """Return the wiring of a plan as an SVG: the matrix A of x_j = sum_i A[j,i] d_i, one column for every update d_i.

    Rows are steps from top to bottom, the last one the output; a filled cell means step j reads update i, fainter for
    smaller weights. The embedding column is gray, the others have the color of their layer (violet to yellow).
    Neighboring equal cells are merged into rectangles, and one color into one path: about 2 kB for 30 layers.
    A plan of more than `MAX_DRAWN_STEPS` steps has no picture.
    """
    if plan.cost().evaluations > MAX_DRAWN_STEPS:
        return Safe("")
    rows = plan.matrix()
    size = len(rows)
    colours = [EMBEDDING, *(depth_colour(layer, depth) for layer in plan.order())]
    paths: dict[tuple[str, float], list[str]] = defaultdict(list)
    for column in range(size):
        for first, last, weight in _runs([row[column] for row in rows]):
            paths[colours[column], _opacity(weight)].append(f"M{column} {first}h1v{last - first}h-1z")
    shapes = [
        element("path", d="".join(drawn), fill=colour, opacity=None if opacity == 1.0 else f"{opacity:g}")
        for (colour, opacity), drawn in paths.items()
    ]
    return element(
        "svg",
        element("title", title) if title else Safe(""),
        *shapes,
        viewBox=f"0 0 {size} {size}",
        class_="wiring",
        role="img" if title else None,
        aria_hidden=None if title else "true",
        shape_rendering="crispEdges",
    )


def _runs(column: Sequence[float]) -> list[tuple[int, int, float]]:
    """First row, row after the last, and weight of every run of equal weights that are not zero.

    >>> _runs([0.0, 1.0, 1.0, 0.5])
    [(1, 3, 1.0), (3, 4, 0.5)]
    """
    runs: list[tuple[int, int, float]] = []
    start = 0
    for row in range(1, len(column) + 1):
        if row == len(column) or column[row] != column[start]:
            if column[start] != 0.0:
                runs.append((start, row, column[start]))
            start = row
    return runs


def _opacity(weight: float) -> float:
    return round(min(1.0, FAINTEST + (1.0 - FAINTEST) * abs(weight)), 2)
