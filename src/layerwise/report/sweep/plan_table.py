"""The table of every plan: what it is, what it costs, what it does, and the verdict in words.

The rows are plain HTML, so the table reads without scripts and prints; a script only sorts and filters them. Every cell
that sorts by number carries the number itself.
"""

from __future__ import annotations

import math

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.lines import in_perplexity
from layerwise.report.page.markup import Safe, element, measured
from layerwise.report.page.number_format import between, is_resolved, probability, tidy, verdict
from layerwise.report.page.wording import label
from layerwise.results.rows import PlanRecord, Score

GLYPH_WIDTH, GLYPH_HEIGHT = 110, 14


def plan_table(evidence: Evidence) -> Safe:
    """The whole table; its first effect column is the main task, then one column for each task."""
    columns = _columns(evidence)
    head = element("tr", *(_heading(title, kind) for title, kind in columns))
    scale = _scale(evidence)
    rows = [_row(evidence, record, scale) for record in evidence.records.values()]
    return element(
        "div",
        element(
            "table",
            element("caption", "Every plan of this run. Press a heading to sort.", class_="visually-hidden"),
            element("thead", head),
            element("tbody", *rows),
            id="plan-table",
            class_="sortable",
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="Table of all plans",
    )


def _columns(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    tasks = evidence.named_tasks if len(evidence.tasks) > 1 else ()
    return (
        ("plan", "text"),
        ("strategy", "text"),
        ("affected", "number"),
        ("evaluations", "number"),
        ("stages", "number"),
        (f"Δ NLL, {evidence.main_task or 'all'}", "number"),
        ("perplexity", "number"),
        ("interval", "number"),
        ("adjusted p", "number"),
        ("verdict", "text"),
        *((f"Δ {task}", "number task") for task in tasks),
    )


def _heading(title: str, kind: str) -> Safe:
    button = element("button", title, type="button")
    return element("th", button, scope="col", data_kind=kind.split()[0], aria_sort="none", class_=kind)


def _row(evidence: Evidence, record: PlanRecord, scale: float) -> Safe:
    level = evidence.data.level
    main = evidence.effect(record.plan, evidence.main_task, DELTA) if evidence.main_task else None
    resolved = main is not None and is_resolved(main, level)
    cells = [
        element("th", element("code", record.plan), scope="row", class_="plan"),
        element("td", label(record.strategy)),
        *(_number(value, f"{value:,}") for value in (record.affected, record.evaluations, record.stages)),
        _number(main.value if main else None, between(main.value, main.low, main.high, signed=True) if main else "–"),
        _number(main.value if main else None, in_perplexity(main.value) if main else "–"),
        element("td", _glyph(main, scale, level), data_value=_sortable(main.value if main else None)),
        _number(main.p_adjusted if main else None, probability(main.p_adjusted if main else None)),
        element("td", evidence.verdict(record.plan), class_="verdict"),
    ]
    if len(evidence.tasks) > 1:
        cells.extend(_task_cell(evidence, record.plan, task) for task in evidence.named_tasks)
    return element(
        "tr",
        *cells,
        data_strategy=record.strategy,
        data_resolved="yes" if resolved else "no",
    )


def _task_cell(evidence: Evidence, plan: str, task: str) -> Safe:
    score = evidence.effect(plan, task, DELTA)
    if score is None:
        return element("td", "–", class_="number task")
    faint = "" if is_resolved(score, evidence.data.level) else " faint"
    hover = f"{between(score.value, score.low, score.high, signed=True)}; {verdict(score, evidence.data.level)}"
    return element(
        "td",
        tidy(score.value, signed=True),
        class_=f"number task{faint}",
        data_value=_sortable(score.value),
        title=hover,
    )


def _number(value: float | None, shown: str) -> Safe:
    return element("td", measured(shown), class_="number", data_value=_sortable(value))


def _sortable(value: float | None) -> str | None:
    return None if value is None or not math.isfinite(value) else repr(float(value))


def _scale(evidence: Evidence) -> float:
    """The largest bound of any interval on the main task: the glyphs' edge."""
    bounds = [
        abs(bound)
        for plan in evidence.records
        if evidence.main_task and (score := evidence.effect(plan, evidence.main_task, DELTA))
        for bound in (score.value, score.low, score.high)
        if bound is not None and math.isfinite(bound)
    ]
    return max(bounds, default=1.0) or 1.0


def _glyph(score: Score | None, scale: float, level: float) -> Safe:
    """The interval as a little picture; distance from the zero line is the square root of the effect."""
    if score is None or not math.isfinite(score.value):
        return Safe("")
    zero = GLYPH_WIDTH * 0.2
    middle = GLYPH_HEIGHT / 2

    def across(value: float) -> float:
        root = math.copysign(math.sqrt(abs(value) / scale), value)
        return round(min(GLYPH_WIDTH - 3.0, max(3.0, zero + root * (GLYPH_WIDTH * 0.8 - 4))), 1)

    shapes: list[Safe] = [element("path", d=f"M{zero:g} 0v{GLYPH_HEIGHT}", class_="zero")]
    if score.low is not None and score.high is not None:
        shapes.append(element("path", d=f"M{across(score.low):g} {middle:g}H{across(score.high):g}", class_="whisker"))
    shapes.append(element("circle", cx=f"{across(score.value):g}", cy=f"{middle:g}", r="3"))
    state = "glyph" if is_resolved(score, level) else "glyph faint"
    return element("svg", *shapes, class_=state, viewBox=f"0 0 {GLYPH_WIDTH} {GLYPH_HEIGHT}", aria_hidden="true")
