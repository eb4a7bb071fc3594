"""Chapter 4: what each layer is worth."""

from __future__ import annotations

from layerwise.report.chapters.chapter import Chapter, lead, missing, note
from layerwise.report.data import DELTA, Evidence
from layerwise.report.figures import importance as importance_figure
from layerwise.report.figures import window_map
from layerwise.report.layers import neighbour_swaps, single_skips, skipped_windows
from layerwise.report.markup import element
from layerwise.report.picture import Choice, Picture

SMALLEST_MAP = 6  # windows wider than one layer, below which a map shows nothing


def importance(evidence: Evidence) -> Chapter:
    """Bars for single layers and neighbouring pairs, and the map of windows where they were run."""
    title, short = "What each layer is worth", "Layers"
    tasks = tuple(task for task in evidence.tasks if evidence.has(task, DELTA))
    if not tasks or not (single_skips(evidence) or neighbour_swaps(evidence)):
        text = "No single layer was dropped and no neighbours were swapped in this run (family leave_one_out)."
        return Chapter("layers", title, short, (missing(text),))
    bars = Picture(
        "importance",
        "Effect of dropping each layer and of swapping neighbours",
        {(index,): importance_figure(evidence, task) for index, task in enumerate(tasks)},
        (Choice("Task", tasks),),
        rooted=True,
    )
    body = [
        lead("The loss that one layer prevents, and the loss of putting two neighbours in the wrong order."),
        bars.html(),
        note(
            "Strong bars differ from zero after correction over the layers; pale bars do not. Effects of single layers"
            " do not add up: a set of layers has to be measured as a set."
        ),
    ]
    pictures = [bars]
    if sum(first < last for first, last in skipped_windows(evidence)) >= SMALLEST_MAP:
        windows = Picture(
            "windows",
            "Effect of dropping every contiguous window of layers",
            {(index,): window_map(evidence, task) for index, task in enumerate(tasks)},
            (Choice("Task", tasks),),
        )
        body += [element("h3", "Every contiguous window, dropped"), windows.html()]
        pictures.append(windows)
    return Chapter("layers", title, short, tuple(body), tuple(pictures))
