"""What another order costs: every arm in order and in random order, and how far one order is from the next."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.frame import limits
from layerwise.report.figures.levels import Level, levels
from layerwise.report.figures.strip_plot import Strip, strips
from layerwise.report.page.chapter import Chapter, Heading, cards, folded, lead, note, spaced
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import Safe
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.chapters.published import PUBLISHED, PUBLISHED_SPREAD, SOURCE
from layerwise.report.robustness.lookup import CONDITIONS, IN_ORDER, RANDOM_ORDER, RobustnessScores

HEADING = Heading("orders", "What another order costs", "Order")
Span = tuple[float, float] | None
SLOTS = {IN_ORDER: 0, RANDOM_ORDER: 1}


def orders(evidence: Evidence) -> Chapter:
    """A dumbbell for each arm, the fixed orders as a swarm, the published table, and the draws that were no change."""
    run = evidence.robustness
    measured = [arm for arm in run.arms if any(run.lead(arm, condition) for condition in CONDITIONS)]
    draws = {arm: _draws(run, arm) for arm in run.arms_with("orders", run.quantity.metric)}
    span = run.quantity.span or limits([run.reference, *(value for own in draws.values() for value in own.values())])
    drawn = (_dumbbells(run, measured, span), _fixed(run, draws, span))
    pictures = tuple(picture for picture in drawn if picture is not None)
    if not pictures:
        return absent(evidence, HEADING, "No order was tried in this run (orders).")
    better = "higher is better" if run.quantity.greater_is_better else "lower is better"
    chance = "" if run.reference is None else " The dotted line is chance."
    body = (
        lead(f"The same weights, their layers in the order of training and in orders drawn at random; {better}."),
        cards(pictures, "grid pair"),
        note(
            "The means are over a new random order for every batch, the same orders for every arm. Of the fixed orders"
            f" each is one dot, on all examples; the tick is their median.{chance}"
        ),
        *_table(run, measured),
        *_identity(run),
    )
    return HEADING.chapter(body, pictures)


def _dumbbells(run: RobustnessScores, arms: list[str], span: Span) -> Picture | None:
    if not arms:
        return None
    marks = [
        Level(name, {arm: run.quantity.shown(score) for arm in arms if (score := run.lead(arm, condition))}, slot)
        for (condition, name), slot in zip(CONDITIONS.items(), SLOTS.values(), strict=True)
    ]
    figure = levels(marks, across=run.quantity.axis, reference=run.reference, span=span)
    return Picture("robustness-orders", "In order, and in random order", {(): figure})


def _fixed(run: RobustnessScores, draws: dict[str, dict[str, float]], span: Span) -> Picture | None:
    metric, slots = run.quantity.metric, arm_slots(run.arms)
    rows = [Strip(arm, own, slots[arm]) for arm, own in draws.items()]
    if not rows:
        return None
    plans = {plan for arm in run.arms for own in run.seeded("orders", metric, arm).values() for plan in own}
    figure = strips(rows, across=run.quantity.axis, reference=run.reference, span=span)
    return Picture("robustness-fixed-orders", f"{counted(len(plans), 'fixed order')}, one by one", {(): figure})


def _draws(run: RobustnessScores, arm: str) -> dict[str, float]:
    seeds = run.seeded("orders", run.quantity.metric, arm)
    return {
        f"{plan} ({name})" if len(seeds) > 1 else plan: run.quantity.scale * score.value
        for name, rows in seeds.items()
        for plan, score in rows.items()
    }


def _table(run: RobustnessScores, arms: list[str]) -> tuple[Safe, ...]:
    """The two conditions and the paired difference to the baseline, beside the published numbers."""
    published = not run.is_language and any(arm in PUBLISHED for arm in arms)
    spreads = {
        condition: run.subjects("robustness", f"{run.quantity.metric}@spread", condition) for condition in CONDITIONS
    }
    spread = any(spreads.values())
    head = ["arm", *CONDITIONS.values(), *(f"Δ {words}" for words in CONDITIONS.values())]
    head += [f"sd, {words}" for words in CONDITIONS.values()] if spread else []
    head += ["published, in order", "published, in random order"] if published else []
    rows = []
    for arm in arms:
        row = [arm, *(run.quantity.text(run.lead(arm, condition)) for condition in CONDITIONS)]
        for condition in CONDITIONS:
            row.append(run.above.text(run.score("robustness", run.above.metric, arm, condition), signed=True))
        if spread:
            each = (spreads[condition].get(arm) for condition in CONDITIONS)
            row += ["–" if score is None else run.quantity.bare(score) for score in each]
        if published:
            row += _published(arm)
        rows.append(tuple(row))
    if not rows:
        return ()
    explanation = (
        f"Δ is the paired difference to the baseline, in {run.above.axis}: the same examples in the same orders."
    )
    if published:
        explanation += f" Published: {SOURCE}, in percent, mean and sd of five. Compare the shape, not the digits."
    if spread:
        explanation += " sd is the standard deviation over seeds."
    return (spaced(Table(tuple(head), tuple(rows)).html()), note(explanation))


def _published(arm: str) -> list[str]:
    if arm not in PUBLISHED:
        return ["–", "–"]
    pairs = zip(PUBLISHED[arm], PUBLISHED_SPREAD[arm], strict=True)
    return [f"{value:.2f} ± {spread:.2f}" for value, spread in pairs]


def _identity(run: RobustnessScores) -> tuple[Safe, ...]:
    """Random draws that happened to change nothing, which no other number of the report holds."""
    rows = []
    for arm in run.arms_with("identity"):
        for condition, same in run.conditions("identity", "identical", arm).items():
            drawn = run.score("identity", "draws", arm, condition)
            accuracy = run.score("identity", run.quantity.metric, arm, condition)
            if same.value:
                total = "–" if drawn is None else f"{drawn.value:,.0f}"
                rows.append((arm, condition, total, f"{same.value:,.0f}", run.quantity.text(accuracy)))
    if not run.arms_with("identity"):
        return ()
    if not rows:
        return (note("None of the random draws happened to be the order of training."),)
    head = ("arm", "condition", "draws", "of them in order", run.quantity.name)
    explanation = "Random draws that happened to be the order of training are counted here and nowhere else."
    return (
        folded("Draws that changed nothing", Table(head, tuple(rows), numeric_from=2).html()),
        note(explanation),
    )
