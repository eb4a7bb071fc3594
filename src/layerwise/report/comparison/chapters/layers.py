"""What each layer is worth, over relative depth, one colour a model."""

from __future__ import annotations

from layerwise.report.comparison.compared import Compared
from layerwise.report.comparison.overlay import PANELS, layer_lines, layer_tasks
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import common_span, hover_text
from layerwise.report.figures.overlay import over_depth
from layerwise.report.page.chapter import Chapter, Heading, cards, lead, legend, note
from layerwise.report.page.figure_slot import Choice, Picture, led
from layerwise.report.page.wording import listed

HEADING = Heading("layers", "What each layer is worth, by relative depth", "Layers")
HEIGHT = 380


def layers(compared: Compared) -> Chapter:
    """Leaving a layer out, and swapping it with the next, with all models in each figure."""
    tasks = layer_tasks(compared)
    pictures = _pictures(compared, tasks)
    if not pictures:
        return HEADING.missing("No single layer was left out in any of the runs (family leave_one_out).")
    owned = {line.name for panel in PANELS for task in tasks[:1] for line in layer_lines(compared, panel, task)}
    without = [name for name in compared.names if name not in owned]
    missing = f" No single layer was changed in {listed(without)}." if without else ""
    body = [
        lead("The loss that one layer prevents. 0 % is the first layer of each model, 100 % its last."),
        legend(compared.slots, tuple(picture.name for picture in pictures.values()), noun="Models"),
        next(iter(pictures.values())).controls(),
        cards(pictures, "grid pair"),
        note(
            "In a deeper model one layer is a smaller share of the depth: that it costs less is no finding by itself."
            f" Effects of single layers do not add up.{missing}"
        ),
    ]
    return HEADING.chapter(body, pictures.values())


def _pictures(compared: Compared, tasks: tuple[str, ...]) -> dict[str, Picture]:
    lines = {(panel, task): layer_lines(compared, panel, task) for panel in PANELS for task in tasks}
    spans = {
        task: common_span([line.rows for panel in PANELS for line in lines[panel, task]]) for task in tasks
    }  # fmt: skip

    def drawn(panel: str) -> dict[tuple[int, ...], Figure]:
        return {
            (at,): over_depth(
                lines[panel, task], across="relative depth of the layer", upwards=DELTA_AXIS,
                describe=hover_text("at {} % of the depth", "nats per token", compared.level, nats=True),
                height=HEIGHT, span=spans[task],
            )
            for at, task in enumerate(tasks)
            if lines[panel, task]
        }  # fmt: skip

    return led(
        {
            panel: Picture(f"layers-{number}", panel, drawn(panel), (Choice("Task", tasks),), rooted=True, bent=True)
            for number, panel in enumerate(PANELS)
        }
    )
