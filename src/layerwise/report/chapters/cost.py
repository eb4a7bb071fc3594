"""Chapter 3: the same effects against what a plan costs to run."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, lead, legend, missing, note
from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures import cost as cost_figure
from layerwise.report.palette import series_slots
from layerwise.report.picture import Choice, Picture


def cost(evidence: Evidence) -> Chapter:
    """Quality against layer evaluations and against sequential stages."""
    title, short = "What quality costs", "Compute"
    tasks = tuple(task for task in evidence.tasks if evidence.has(task, DELTA))
    if not tasks:
        return Chapter("cost", title, short, (missing("No effect was measured, so there is nothing to match."),))
    picture = Picture(
        "cost",
        "Effect against layer evaluations and against sequential stages",
        {(index,): cost_figure(evidence, task) for index, task in enumerate(tasks)},
        (Choice("Task", tasks),),
        rooted=True,
    )
    body = (
        lead("Every plan, priced twice: layer evaluations are the work, sequential stages the waiting."),
        legend(series_slots(evidence.strategies), ("cost",)),
        picture.html(),
        note(
            "The stepped line is the least loss found at that cost or below. It is the best of many plans on the same"
            " documents and so a little flattered: confirm a plan on fresh text before relying on it. The dotted line"
            " is the depth of the model."
        ),
    )
    return Chapter("cost", title, short, body, (picture,))
