"""How much of each task a model learns with its layers in another order, side by side, again, or without some."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.figures.curves import score_curves
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.finetuned.lookup import ALL, NORMALISED, PLANS, FineTunedPlans
from layerwise.report.finetuned.tables import Column, columns, heading, plan_rows, strategy_curves
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.palette import series_slots
from layerwise.report.page.wording import label
from layerwise.report.pretraining.lookup import TASKS

HEADING = Heading(PLANS, "What the models can be taught under a plan", "Plans in fine-tuning")
SMALL = 215  # height of one of the small multiples


def fine_tuned_plans(evidence: Evidence) -> Chapter:
    """For every suite a figure to choose from, the tasks side by side, and a table."""
    run = evidence.finetuned
    if not run.suites:
        return HEADING.missing(
            "No model was fine-tuned under a plan: layerwise evaluate MODEL --suite glue --plan does."
        )
    body: list[Safe] = [
        lead("The plan is active in fine-tuning and in the test: what can be learned with these layers.")
    ]
    pictures: list[Picture] = []
    for suite in run.suites:
        body.append(element("h3", TASKS[suite]))
        drawn = _pictures(run, suite)
        if drawn:
            main, *small = drawn.values()
            slots = {name: slot for name, slot in series_slots(run.strategies).items() if name in run.drawn}
            body += [legend(slots, tuple(picture.name for picture in drawn.values())), main.controls()]
            body.append(card(None, main.html()))
            if small:
                titles = list(drawn)[1:]
                cards = (card(title, picture.html()) for title, picture in zip(titles, small, strict=True))
                body += [element("h3", _title_of_small(run)), element("div", *cards, class_="grid")]
            pictures += drawn.values()
        for arm in run.arms:
            heading_of_arm = (element("h4", arm),) if len(run.arms) > 1 else ()
            body += [*heading_of_arm, spaced(plan_rows(run, suite, arm).html())]
    body.append(
        note(
            "Dotted: the model as trained, fine-tuned alike. Dashed: what always giving the commonest answer scores."
            " Normalised is 0 at chance and 1 at the model as trained, where that is distinguished from chance; the"
            " error of the model as trained is not in the intervals. They are over pre-trained models where there are"
            " several, else over fine-tunings, else over examples. A strategy with several plans at one size is their"
            " mean, and its band holds both errors."
        )
    )
    return HEADING.chapter(tuple(body), tuple(pictures))


def _title_of_small(run: FineTunedPlans) -> str:
    of = f" ({run.arms[0]}, {label(run.families[0])})" if len(run.arms) > 1 or len(run.families) > 1 else ""
    return f"Task by task, from chance, 0, to the model as trained, 1{of}"


def _pictures(run: FineTunedPlans, suite: str) -> dict[str, Picture]:
    """The figure with its choices, then a small one for each task, all on one scale; nothing without a family."""
    shown = tuple(dict.fromkeys(each for arm in run.arms for each in _views(run, suite, arm)))
    variants: dict[tuple[int, ...], Figure] = {}
    for at_arm, arm in enumerate(run.arms):
        for at_family, family in enumerate(run.families):
            for at, column in enumerate(shown):
                figure = _figure(run, suite, arm, family, column)
                if figure is not None:
                    variants[at_arm, at_family, at] = figure
    if not variants:
        return {}
    choices = (
        Choice("Arm", run.arms),
        Choice("Family", tuple(label(family) for family in run.families)),
        Choice("Score", tuple(heading(column) for column in shown)),
    )
    main = Picture(f"{PLANS}-{suite}", f"{TASKS[suite]} by the number of layers affected", variants, choices)
    return {"": main, **_small(run, suite)}


def _small(run: FineTunedPlans, suite: str) -> dict[str, Picture]:
    """The tasks side by side on the scale from chance to the model as trained, of the first arm and family."""
    arm, family = run.arms[0], run.families[0]
    tasks = [each for each in _views(run, suite, arm) if each[0] != ALL and each[1].startswith(NORMALISED)]
    points = [
        point
        for column in tasks
        for curve in strategy_curves(run, suite, arm, family, column)
        for point in curve.points
    ]
    span = limits([1.0, *(value for point in points for value in (point.value, point.low, point.high))])
    if len(tasks) < 2 or span is None:
        return {}
    return {
        heading(column): Picture(
            f"{PLANS}-{suite}-{number}",
            f"{heading(column)} by the number of layers affected",
            {(): figure},
            leader=f"{PLANS}-{suite}",
        )
        for number, column in enumerate(tasks)
        if (figure := _figure(run, suite, arm, family, column, SMALL, span)) is not None
    }


def _views(run: FineTunedPlans, suite: str, arm: str) -> tuple[Column, ...]:
    """What is drawn: what is made of all tasks first, then every task as it is and on the scale from chance."""
    own = columns(run, suite, arm)
    over = [column for column in own if column[0] == ALL]
    tasks = [column for column in own if column[0] != ALL]
    scaled = [(task, NORMALISED + metric) for task, metric in tasks if run.has(suite, arm, task, NORMALISED + metric)]
    return (*over, *tasks, *scaled)


def _figure(
    run: FineTunedPlans,
    suite: str,
    arm: str,
    family: str,
    column: Column,
    height: int = 460,
    span: tuple[float, float] | None = None,
) -> Figure | None:
    drawn = strategy_curves(run, suite, arm, family, column)
    if not drawn:
        return None
    levels = run.level(suite, arm, *column)
    return score_curves(drawn, series_slots(run.strategies), heading(column), levels=levels, height=height, span=span)
