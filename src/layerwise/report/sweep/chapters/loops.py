"""Parallel layers run several times over, and the gain in one pass beside them."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.report.evidence import DELTA, Evidence
from layerwise.report.figures.dot_plot import DotArm, dots
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.loops import largest_effect, loop_map
from layerwise.report.page.chapter import Chapter, Heading, card, lead, note
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import element
from layerwise.report.sweep.loops import (
    GAINED,
    LOOPED,
    LoopGrid,
    by_window,
    line,
    loop_grid,
    slope_in_words,
)

HEADING = Heading("loops", "How many loops", "Loops")
NOUNS = {LOOPED: "loops", GAINED: "gain"}
TITLES = {LOOPED: "The mean fed back, so many loops in all", GAINED: "One pass, the mean update times a gain"}


def loops(evidence: Evidence) -> Chapter:
    """The map of windows and loop counts, that of gains on the same scale, and the difference of their best."""
    tasks = tuple(task for task in evidence.tasks if evidence.has(task, DELTA))
    grids = {family: [loop_grid(evidence, family, task) for task in tasks] for family in NOUNS}
    drawn = {family: each for family, each in grids.items() if any(grid.effects for grid in each)}
    if not drawn:
        return HEADING.missing("No window was run with several loop counts or gains (families looped, gain_sweep).")
    pictures = _maps(evidence, tasks, drawn)
    shown = [card(TITLES[family], picture.html()) for family, picture in pictures.items()]
    compared = by_window(evidence, "gain-loops")
    extra = []
    if compared:
        rows = {f"{size} layers": score for size, score in compared.items()}
        figure = dots(
            [DotArm("best gain − best loops", 0, rows)], across="Δ NLL, best gain minus best number of loops",
            reference=0.0, signed=True,
        )  # fmt: skip
        extra = [Picture("loops-against-gain", "Best gain minus best number of loops, by window", {(): figure})]
        shown.append(card("Is a loop more than a gain?", extra[0].html(), wide=True))
    first = next(iter(pictures.values()))
    body = (
        lead(
            "M parallel layers pass on one M-th of their updates. More loops give more of them, and so does a gain in"
            " one pass: if a gain does as well, it is no matter of loops."
        ),
        first.controls(),
        element("div", *shown, class_="grid pair"),
        note(f"{_marks(evidence)} White is no effect, orange worse, blue better; the colour is its square root."),
        *((note(COMPARED),) if compared else ()),
    )
    return HEADING.chapter(body, (*pictures.values(), *extra))


COMPARED = (
    "The best number of loops and the best gain of each window are chosen on one half of the text and compared on the"
    " other, since the best of many is flattered by the text that chose it. Right of the line a loop is more than a"
    " gain."
)


def _maps(evidence: Evidence, tasks: tuple[str, ...], drawn: dict[str, list[LoopGrid]]) -> dict[str, Picture]:
    pictures: dict[str, Picture] = {}
    for number, (family, grids) in enumerate(drawn.items()):
        pictures[family] = Picture(
            f"loops-{NOUNS[family]}",
            f"Effect of every window of parallel layers and number of {NOUNS[family]}",
            {
                (index,): _map(evidence, family, index, [each[index] for each in drawn.values()], grid)
                for index, grid in enumerate(grids)
                if grid.effects
            },
            (Choice("Task", tasks),),
            leader=None if number == 0 else f"loops-{NOUNS[next(iter(drawn))]}",
        )
    return pictures


def _map(evidence: Evidence, family: str, task: int, beside: Sequence[LoopGrid], grid: LoopGrid) -> Figure:
    """The intervals and the line are of all the text, the first of the tasks."""
    largest = largest_effect(*beside)
    if task > 0:
        return loop_map(evidence, grid, NOUNS[family], largest=largest)
    metric = "best_loops" if family == LOOPED else "best_gain"
    fitted = line(evidence) if family == LOOPED else None
    return loop_map(evidence, grid, NOUNS[family], best=by_window(evidence, metric), line=fitted, largest=largest)


def _marks(evidence: Evidence) -> str:
    return (
        f"The diamond is the best of each window, with its interval over {evidence.units}. {slope_in_words(evidence)}"
    )
