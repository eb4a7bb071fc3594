"""What each layer is worth."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures import layer_bars, window_map
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.page.chapter import Chapter, Heading, card, cards, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import element
from layerwise.report.sweep.layers import neighbour_swaps, repeated_windows, single_skips, skipped_windows

SMALLEST_MAP = 12  # windows of two layers or more, below which a map shows nothing
PANELS = (
    ("Drop one layer", "without layer {0}", single_skips),
    ("Swap a layer with the next", "layers {0} and {1} swapped", neighbour_swaps),
)
MAPS = (
    ("dropped", skipped_windows),
    ("repeated", repeated_windows),
    ("repeated three times", partial(repeated_windows, times=3)),
)
HEADING = Heading("layers", "What each layer is worth", "Layers")


def importance(evidence: Evidence) -> Chapter:
    """Bars for single layers and neighbouring pairs, and the maps of windows where they were run."""
    tasks = tuple(task for task in evidence.tasks if evidence.has(task, DELTA))
    bars = _bars(evidence, tasks) if tasks else {}
    by_verb = {verb: find(evidence) for verb, find in MAPS}
    maps = {
        verb: _map(evidence, tasks, verb, windows)
        for verb, windows in by_verb.items()
        if tasks and sum(first < last for first, last in windows) >= SMALLEST_MAP
    }
    if not bars and not maps:
        return HEADING.missing(
            "No single layer was dropped and no neighbours were swapped in this run (family leave_one_out)."
        )
    body = []
    if bars:
        body += [
            lead("The loss that one layer prevents, and the loss of putting two neighbours in the wrong order."),
            *(picture.controls() for picture in bars.values()),
            cards(bars, "grid pair"),
            note(
                "Strong bars differ from zero after correction for the number of plans; pale bars do not. Effects of"
                " single layers do not add up: a set of layers has to be measured as a set."
            ),
        ]
    if maps:
        shown = [
            card(f"Every window of layers, {verb}", picture.controls(), picture.html())
            for verb, picture in maps.items()
        ]
        body.append(element("div", *shown, class_="grid pair spaced"))
        body.append(note("White is no effect, orange worse, blue better; the colour is the square root of the effect."))
    return HEADING.chapter(tuple(body), (*bars.values(), *maps.values()))


def _bars(evidence: Evidence, tasks: tuple[str, ...]) -> dict[str, Picture]:
    """The two panels, on one vertical axis for each task."""
    panels = [(name, title, plans) for name, title, find in PANELS if (plans := find(evidence))]
    spans = [_span(evidence, task, [plans for _, _, plans in panels]) for task in tasks]
    return {
        name: Picture(
            f"layers-{number}",
            f"{name}: effects by depth",
            {(index,): layer_bars(evidence, task, plans, title, spans[index]) for index, task in enumerate(tasks)},
            (Choice("Task", tasks),),
            rooted=True,
            leader=None if number == 0 else "layers-0",
        )
        for number, (name, title, plans) in enumerate(panels)
    }


def _span(evidence: Evidence, task: str, panels: list[dict[int, str]]) -> tuple[float, float] | None:
    scores = [evidence.effect(plan, task) for plans in panels for plan in plans.values()]
    return limits(bound for score in scores if score for bound in (score.value, score.low, score.high))


def _map(evidence: Evidence, tasks: tuple[str, ...], verb: str, windows: Mapping[tuple[int, int], str]) -> Picture:
    figures: dict[tuple[int, ...], Figure] = {
        (index,): window_map(evidence, task, windows, verb) for index, task in enumerate(tasks)
    }
    return Picture(
        f"windows-{verb.replace(' ', '-')}", f"Effect of every window {verb}", figures, (Choice("Task", tasks),)
    )
