"""Chapter 2: how quality falls as a strategy touches more layers."""

from __future__ import annotations

import plotly.graph_objects as go

from layerwise.report.chapters.chapter import Chapter, lead, legend, missing, note
from layerwise.report.curves import curve_families, curves
from layerwise.report.data import Evidence
from layerwise.report.figures import degradation as degradation_figure
from layerwise.report.figures import multiples
from layerwise.report.figures.curves import METRICS
from layerwise.report.markup import element
from layerwise.report.palette import series_slots
from layerwise.report.picture import Choice, Picture
from layerwise.report.wording import label

METRIC_NAMES = {"delta_nll": "Δ NLL", "exact_match": "exact match", "token_accuracy": "token accuracy"}


def degradation(evidence: Evidence) -> Chapter:
    """One large figure to choose from, and the same curves task by task on one scale."""
    title, short = "How quality falls", "Curves"
    main = _main(evidence)
    if main is None:
        return Chapter("curves", title, short, (missing("No strategy of this run was measured at two sizes."),))
    families = curve_families(evidence)
    drawn = {record.strategy for record in evidence.data.plans if record.family in families}
    slots = {name: slot for name, slot in series_slots(evidence.strategies).items() if name in drawn}
    body = [
        lead("Each curve is one strategy; to the right it touches more layers. Lower is better."),
        legend(slots, ("curves", "multiples")),
        main.html(),
        note(
            "Bands are intervals by bootstrap over documents; where a strategy was drawn several times the line is the"
            " mean of its draws (dots) and the band holds both errors. Grey: below the minimum detectable effect."
        ),
    ]
    pictures = [main]
    if len(evidence.named_tasks) > 1:
        small = Picture(
            "multiples", "Degradation curves task by task", {(): multiples(evidence, families[0])}, rooted=True
        )
        body += [element("h3", f"Task by task ({label(families[0])})"), small.html()]
        pictures.append(small)
    return Chapter("curves", title, short, tuple(body), tuple(pictures))


def _main(evidence: Evidence) -> Picture | None:
    families = curve_families(evidence)
    metrics = [metric for metric in METRICS if any(evidence.has(task, metric) for task in evidence.tasks)]
    variants: dict[tuple[int, ...], go.Figure] = {
        (at_family, at_metric, at_task): degradation_figure(evidence, family, task, metric)
        for at_family, family in enumerate(families)
        for at_metric, metric in enumerate(metrics)
        for at_task, task in enumerate(evidence.tasks)
        if curves(evidence, family, task, metric)
    }
    if not variants:
        return None
    choices = (
        Choice("Family", tuple(label(family) for family in families)),
        Choice("Measure", tuple(METRIC_NAMES[metric] for metric in metrics)),
        Choice("Task", evidence.tasks),
    )
    return Picture("curves", "Degradation curves with intervals", variants, choices, rooted=True)
