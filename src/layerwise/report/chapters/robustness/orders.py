"""What another order costs: every arm in order and in any order, and how far one order is from the next."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, lead, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.chapters.robustness.published import PUBLISHED, SOURCE
from layerwise.report.data import Evidence
from layerwise.report.figures.frame import limits
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.strips import Strip, strips
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Picture
from layerwise.report.robustness import ANY_ORDER, CONDITIONS, IN_ORDER, Robustness
from layerwise.report.table import simple_table
from layerwise.report.wording import counted

ANCHOR, TITLE, SHORT = "orders", "What another order costs", "Order"
Span = tuple[float, float] | None
SLOTS = {IN_ORDER: 0, ANY_ORDER: 1}


def orders(evidence: Evidence) -> Chapter:
    """A dumbbell for each arm, the fixed orders as a swarm, the published table, and the draws that were no change."""
    found = evidence.robustness
    measured = [arm for arm in found.arms if any(found.lead(arm, condition) for condition in CONDITIONS)]
    draws = {arm: _draws(found, arm) for arm in found.arms_with("orders", found.quantity.metric)}
    span = found.quantity.span or limits(
        [found.reference, *(value for own in draws.values() for value in own.values())]
    )
    drawn = (_dumbbells(found, measured, span), _fixed(found, draws, span))
    pictures = tuple(picture for picture in drawn if picture is not None)
    if not pictures:
        return absent(evidence, ANCHOR, TITLE, SHORT, "No order was tried in this run (orders).")
    better = "higher is better" if found.quantity.greater_is_better else "lower is better"
    chance = "" if found.reference is None else " The dotted line is chance."
    body = (
        lead(f"The same weights, their layers in the order of training and in orders drawn at random; {better}."),
        element("div", *(card(picture.alternative, picture.html()) for picture in pictures), class_="grid pair"),
        note(
            "The means are over a new random order for every batch, the same orders for every arm. Of the fixed orders"
            f" each is one dot, on all examples; the tick is their median.{chance}"
        ),
        *_table(found, measured),
        *_identity(found),
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, pictures)


def _dumbbells(found: Robustness, arms: list[str], span: Span) -> Picture | None:
    if not arms:
        return None
    marks = [
        Level(name, {arm: found.quantity.shown(score) for arm in arms if (score := found.lead(arm, condition))}, slot)
        for (condition, name), slot in zip(CONDITIONS.items(), SLOTS.values(), strict=True)
    ]
    figure = levels(marks, across=found.quantity.axis, reference=found.reference, span=span)
    return Picture("robustness-orders", "In order, and in any order", {(): figure})


def _fixed(found: Robustness, draws: dict[str, dict[str, float]], span: Span) -> Picture | None:
    metric, slots = found.quantity.metric, arm_slots(found.arms)
    rows = [Strip(arm, own, slots[arm]) for arm, own in draws.items()]
    if not rows:
        return None
    plans = {plan for arm in found.arms for own in found.seeded("orders", metric, arm).values() for plan in own}
    figure = strips(rows, across=found.quantity.axis, reference=found.reference, span=span)
    return Picture("robustness-fixed-orders", f"{counted(len(plans), 'fixed order')}, one by one", {(): figure})


def _draws(found: Robustness, arm: str) -> dict[str, float]:
    seeds = found.seeded("orders", found.quantity.metric, arm)
    return {
        f"{plan} ({name})" if len(seeds) > 1 else plan: found.quantity.scale * score.value
        for name, rows in seeds.items()
        for plan, score in rows.items()
    }


def _table(found: Robustness, arms: list[str]) -> tuple[Safe, ...]:
    """The two conditions and the paired difference to the baseline, beside the published numbers."""
    published = not found.is_language and any(arm in PUBLISHED for arm in arms)
    head = ["arm", *CONDITIONS.values(), *(f"Δ {words}" for words in CONDITIONS.values())]
    head += ["published, in order", "published, in any order"] if published else []
    rows = []
    for arm in arms:
        row = [arm, *(found.quantity.told(found.lead(arm, condition)) for condition in CONDITIONS)]
        for condition in CONDITIONS:
            row.append(found.above.told(found.score("robustness", found.above.metric, arm, condition), signed=True))
        if published:
            row += [f"{value:.2f}" for value in PUBLISHED[arm]] if arm in PUBLISHED else ["–", "–"]
        rows.append(row)
    if not rows:
        return ()
    told = f"Δ is the paired difference to the baseline, in {found.above.axis}: the same examples in the same orders."
    if published:
        told += f" Published: {SOURCE}, in percent. Compare the shape, not the digits."
    return (element("div", simple_table(head, rows), class_="spaced"), note(told))


def _identity(found: Robustness) -> tuple[Safe, ...]:
    """Random draws that happened to change nothing, which no other number of the report holds."""
    rows = []
    for arm in found.arms_with("identity"):
        for condition, same in found.conditions("identity", "identical", arm).items():
            drawn = found.score("identity", "draws", arm, condition)
            accuracy = found.score("identity", found.quantity.metric, arm, condition)
            if same.value:
                total = "–" if drawn is None else f"{drawn.value:,.0f}"
                rows.append((arm, condition, total, f"{same.value:,.0f}", found.quantity.told(accuracy)))
    if not found.arms_with("identity"):
        return ()
    if not rows:
        return (note("None of the random draws happened to be the order of training."),)
    head = ("arm", "condition", "draws", "of them in order", found.quantity.name)
    told = "Random draws that happened to be the order of training are counted here and nowhere else."
    return (
        element("details", element("summary", "Draws that changed nothing"), simple_table(head, rows, numeric_from=2)),
        note(told),
    )
