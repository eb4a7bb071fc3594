"""Every plan as a picture of its wiring."""

from __future__ import annotations

from layerwise.errors import PlanError
from layerwise.report.evidence import Evidence
from layerwise.report.page.chapter import Chapter, Heading, depth_key, lead
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import between, is_resolved, tidy, verdict
from layerwise.report.page.wiring import wiring
from layerwise.report.page.wording import counted, label
from layerwise.report.sweep.layers import touched
from layerwise.results.rows import PlanRecord

SHOWN = 36  # tiles of one strategy before the rest is folded away
HEADING = Heading("gallery", "Every plan, drawn", "Gallery")


def gallery(evidence: Evidence) -> Chapter:
    """Tiles grouped by strategy; pressing one opens it large, with its effects on every task."""
    if not evidence.schedules:
        return HEADING.missing("The run has no plans.")
    grouped: dict[str, list[PlanRecord]] = {}
    for record in evidence.records.values():
        grouped.setdefault(record.strategy, []).append(record)
    body = (
        lead(
            "A plan's wiring: row by row what each step reads, column by column who wrote it. Each row is a step"
            " further in time and may read a column more, hence the staircase. Under it stand the layers that it"
            " touches and its effect."
        ),
        depth_key(
            evidence.depth,
            element("span", element("i", class_="embedding"), " embedding"),
            element("span", "fainter: a smaller weight"),
        ),
        *(_group(evidence, strategy, records) for strategy, records in grouped.items()),
        element("dialog", element("div", id="detail"), id="plan-dialog", aria_label="One plan"),
    )
    return HEADING.chapter(body)


def details(evidence: Evidence) -> list[dict[str, object]]:
    """What the dialog says about each plan, in the order of the records."""
    return [_detail(evidence, record) for record in evidence.records.values()]


def _detail(evidence: Evidence, record: PlanRecord) -> dict[str, object]:
    effects = []
    for task in evidence.tasks:
        score = evidence.effect(record.plan, task)
        if score is not None:
            shown = between(score.value, score.low, score.high, signed=True)
            effects.append([task, shown, verdict(score, evidence.data.level)])
    draw = "" if record.draw is None else f", draw {record.draw}"
    return {
        "plan": record.plan,
        "title": f"{label(record.strategy)}, {_touched(evidence, record)}{draw}",
        "cost": f"{counted(record.evaluations, 'layer evaluation')} in {counted(record.stages, 'stage')}, "
        f"{counted(record.weights, 'layer')} touched, {counted(record.slots, 'KV slot')}",
        "effects": effects,
    }


def _group(evidence: Evidence, strategy: str, records: list[PlanRecord]) -> Safe:
    numbers = {text: index for index, text in enumerate(evidence.records)}
    ordered = sorted(records, key=lambda record: (record.affected, record.draw or 0))
    tiles = [_tile(evidence, record, numbers[record.plan]) for record in ordered]
    rest = tiles[SHOWN:]
    more = element("details", element("summary", f"{len(rest)} more"), element("div", *rest, class_="tiles"))
    return element(
        "div",
        element("h3", label(strategy), " ", element("small", counted(len(tiles), "plan"))),
        element("div", *tiles[:SHOWN], class_="tiles"),
        *((more,) if rest else ()),
        class_="strategy",
    )


def _tile(evidence: Evidence, record: PlanRecord, number: int) -> Safe:
    score = evidence.effect(record.plan, evidence.main_task) if evidence.main_task else None
    shown = tidy(score.value, signed=True) if score is not None else evidence.verdict(record.plan)
    faint = "" if score is not None and is_resolved(score, evidence.data.level) else "faint"
    return element(
        "button",
        _picture(evidence, record),
        element("span", _touched(evidence, record), class_="size"),
        element("span", shown, class_=f"effect {faint}".strip()),
        type="button",
        class_="tile",
        data_plan=str(number),
        title=f"{record.plan}\n{label(record.strategy)}: {shown}{' nats per token' if score is not None else ''}",
    )


def _touched(evidence: Evidence, record: PlanRecord) -> str:
    """Which layers the plan touches; how many, where they are not told in a few words."""
    plan = evidence.schedules.get(record.plan)
    return (touched(plan, evidence.depth) if plan else "") or counted(record.affected, "layer")


def _picture(evidence: Evidence, record: PlanRecord) -> Safe:
    plan = evidence.schedules.get(record.plan)
    if plan is None:
        return element("span", "?", class_="wiring")
    try:
        return wiring(plan, evidence.depth)
    except PlanError:  # thousands of steps: its matrix is not written out
        return element("span", "…", class_="wiring")
