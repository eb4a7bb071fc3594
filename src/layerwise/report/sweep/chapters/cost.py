"""The same effects against what a plan costs to run."""

from __future__ import annotations

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures import PRICES
from layerwise.report.figures import cost as cost_figure
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import element
from layerwise.report.page.palette import series_slots

HEADING = Heading("cost", "What quality costs", "Compute")


def cost(evidence: Evidence) -> Chapter:
    """Quality against layer evaluations and against sequential stages."""
    tasks = tuple(task for task in evidence.tasks if evidence.has(task, DELTA))
    if not tasks:
        return HEADING.missing("No effect was measured, so there is nothing to match.")
    pictures = {price: _picture(evidence, tasks, number, price) for number, price in enumerate(PRICES)}
    cards = (card(f"Against {price}", picture.html()) for price, picture in pictures.items())
    body = (
        lead("Every plan, priced twice: layer evaluations are the work, sequential stages the waiting."),
        legend(series_slots(evidence.strategies), tuple(picture.name for picture in pictures.values())),
        *(picture.controls() for picture in pictures.values()),
        element("div", *cards, class_="grid pair"),
        note(
            "The stepped line is the least loss found at that price or below. It is the best of many plans on the same"
            " documents and so a little flattered: confirm a plan on fresh text before relying on it. The dotted line"
            " is the depth of the model."
        ),
    )
    return HEADING.chapter(body, tuple(pictures.values()))


def _picture(evidence: Evidence, tasks: tuple[str, ...], number: int, price: str) -> Picture:
    return Picture(
        f"cost-{number}",
        f"Effect of every plan against {price}",
        {(index,): cost_figure(evidence, task, price) for index, task in enumerate(tasks)},
        (Choice("Task", tasks),),
        rooted=True,
        leader=None if number == 0 else "cost-0",
    )
