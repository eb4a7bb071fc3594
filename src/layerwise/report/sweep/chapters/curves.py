"""How quality falls as a strategy touches more layers."""

from __future__ import annotations

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures import degradation as degradation_figure
from layerwise.report.figures import strategy_map
from layerwise.report.figures.curves import METRICS
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.palette import series_slots
from layerwise.report.page.wording import label
from layerwise.report.sweep.curves import curve_families, curves
from layerwise.report.sweep.loops import FAMILIES

METRIC_NAMES = {DELTA: "Δ NLL", "exact_match": "exact match", "token_accuracy": "token accuracy"}
SMALL = 215  # height of one of the small multiples
MOST_CURVES = 8
HEADING = Heading("curves", "How quality falls", "Curves")


def degradation(evidence: Evidence) -> Chapter:
    """One large figure to choose from, the same curves task by task on one scale, and families too rich for curves."""
    drawn, rich = _families(evidence)
    main = _main(evidence, drawn)
    grids = [_grid(evidence, family) for family in rich if evidence.tasks]
    if main is None and not grids:
        return HEADING.missing("No strategy of this run was measured at two sizes.")
    body: list[Safe] = []
    pictures: list[Picture] = []
    if main is not None:
        small = _multiples(evidence, drawn[0])
        body = _curves_body(evidence, drawn, main, small)
        pictures = [main, *small.values()]
    for family, grid in zip(rich, grids, strict=True):
        body += [element("h3", f"Family {label(family)}"), grid.controls(), card(None, grid.html())]
    return HEADING.chapter(tuple(body), (*pictures, *grids))


def _curves_body(evidence: Evidence, families: tuple[str, ...], main: Picture, small: dict[str, Picture]) -> list[Safe]:
    shown = {record.strategy for record in evidence.data.plans if record.family in families}
    slots = {name: slot for name, slot in series_slots(evidence.strategies).items() if name in shown}
    figures = (main.name, *(picture.name for picture in small.values()))
    body = [
        lead("Each curve is one strategy; to the right it touches more layers. Lower is better."),
        legend(slots, figures),
        main.controls(),
        card(None, main.html()),
        note(
            f"Bands are intervals by bootstrap over {evidence.units}. Where a strategy has several plans at one size,"
            " the line is their mean (the dots are the plans) and the band holds both errors. Grey about zero: the"
            " smallest detectable effect, found in four cases of five. A smaller one may be found too; its own band"
            " decides."
        ),
    ]
    if small:
        cards = (card(task, picture.html()) for task, picture in small.items())
        body += [
            element("h3", f"Task by task: Δ NLL against layers affected, on one scale ({label(families[0])})"),
            element("div", *cards, class_="grid"),
        ]
    return body


def _families(evidence: Evidence) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Families drawn as curves, and those with more strategies than an eye can follow, drawn as a grid.

    Loops and gains have a chapter of their own.
    """
    families = tuple(family for family in curve_families(evidence) if family not in FAMILIES)
    strategies = {
        family: {record.strategy for record in evidence.data.plans if record.family == family} for family in families
    }
    rich = tuple(family for family in families if len(strategies[family]) > MOST_CURVES)
    return tuple(family for family in families if family not in rich), rich


def _main(evidence: Evidence, families: tuple[str, ...]) -> Picture | None:
    metrics = [metric for metric in METRICS if any(evidence.has(task, metric) for task in evidence.tasks)]
    variants: dict[tuple[int, ...], Figure] = {
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


def _multiples(evidence: Evidence, family: str) -> dict[str, Picture]:
    """A small figure for each task, all with the vertical axis that holds every task; none for a single task."""
    drawn = {task: curves(evidence, family, task) for task in evidence.named_tasks}
    points = [point for lines in drawn.values() for curve in lines for point in curve.points]
    span = limits(value for point in points for value in (point.value, point.low, point.high))
    if len(drawn) < 2 or span is None:
        return {}
    return {
        task: Picture(
            f"curves-{number}",
            f"Degradation curves on {task}",
            {(): degradation_figure(evidence, family, task, height=SMALL, span=span)},
            leader="curves",
        )
        for number, (task, lines) in enumerate(drawn.items())
        if lines
    }


def _grid(evidence: Evidence, family: str) -> Picture:
    figures: dict[tuple[int, ...], Figure] = {
        (index,): strategy_map(evidence, family, task) for index, task in enumerate(evidence.tasks)
    }
    name = f"family-{evidence.families.index(family)}"
    return Picture(name, f"Effects of the family {label(family)}", figures, (Choice("Task", evidence.tasks),))
