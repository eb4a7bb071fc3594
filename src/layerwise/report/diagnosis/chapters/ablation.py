"""What the loss is without a layer, or with another one in its place: each layer whole, and its two halves."""

from __future__ import annotations

from functools import partial

from layerwise.plan import SUBLAYERS, Sublayer
from layerwise.report.diagnosis.lookup import DiagnosisScores
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, cards, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture, led, variants
from layerwise.report.page.markup import Safe
from layerwise.report.series import Line, layer_bands

SILENCED = {"skip": "skipped", "mean_ablate": "mean of its output"}
REPLACED = {
    "neighbour_copy": "copy of a neighbour",
    "neighbour_average": "mean of neighbours",
    "random": "random weights",
}
SLOTS = {name: slot for slot, name in enumerate((*SILENCED, *REPLACED))}
NAMES = {None: "Whole layer silenced", "attn": "Attention alone silenced", "mlp": "MLP alone silenced"}
HEADING = Heading("ablation", "What each layer is worth", "Ablation")


def ablation(evidence: Evidence) -> Chapter:
    """Silencing a layer and its halves on one scale, then replacing it, each intervention with its null."""
    run = evidence.diagnosis
    tasks = run.tasks("ablation")
    if not tasks:
        return HEADING.missing("No layer was silenced or replaced in this run (ablation).")
    pictures = led({**_pictures(run, tasks, SILENCED, (None, *SUBLAYERS)), **_pictures(run, tasks, REPLACED, (None,))})
    silenced = {title: picture for title, picture in pictures.items() if title in NAMES.values()}
    slots = {
        REPLACED.get(name) or SILENCED[name]: slot
        for name, slot in SLOTS.items()
        if run.layers("ablation", name, tasks[0])
    }
    body: list[Safe] = [
        lead("The loss that a layer prevents, by depth: positive is worse without it. Silencing writes nothing."),
        legend(slots, tuple(picture.name for picture in pictures.values())),
        *(picture.controls() for picture in pictures.values()),
        cards(silenced),
    ]
    if not any(run.layers("ablation", "skip", task, part) for task in tasks for part in SUBLAYERS) and silenced:
        body.append(
            note(
                "The halves of a layer were not measured: the layers of this model cannot be split, or no half was"
                " requested."
            )
        )
    body += [
        spaced(card(f"{name}, on its own scale", picture.html()))
        for name, picture in pictures.items()
        if name not in silenced
    ]
    body.append(
        note(
            f"Ribbons are intervals by bootstrap over {evidence.units}. The grey band about zero is where interventions"
            " without any effect would fall, all layers at once; it is drawn by exchanging the signs of"
            f" {evidence.units}, so that a few of large effect widen it. Verdicts go by each layer's own interval: a"
            " layer inside the band may still be distinguished from zero. A replacement writes something where silence"
            " writes nothing, so it may cost far more: it says what a wrong layer does, not what this one is worth. A"
            " mean that stands in for a layer's output is taken over the half of the text that it is not evaluated on."
        )
    )
    return HEADING.chapter(tuple(body), tuple(pictures.values()))


def _pictures(
    run: DiagnosisScores, tasks: tuple[str, ...], interventions: dict[str, str], parts: tuple[Sublayer | None, ...]
) -> dict[str, Picture]:
    """A picture for each part that was measured, all on one vertical axis a task."""
    kind, height = ("silenced", 260) if interventions is SILENCED else ("replaced", 330)
    lines = {(task, part): _lines(run, interventions, task, part) for task in tasks for part in parts}
    spans = {task: common_span([line.rows for part in parts for line in lines[task, part]]) for task in tasks}

    def drawn(part: Sublayer | None, task: str) -> Figure | None:
        if not lines[task, part]:
            return None
        describe = hover_text(f"layer {{}}{f', {part}' if part else ''}", "nats per token", run.level, nats=True)
        # The null of skipping stands for all interventions: it is drawn once, not five times.
        null = layer_bands(run, "ablation", "skip", task, part)[:1]
        return lined(
            lines[task, part],
            null,
            across="layer",
            upwards=DELTA_AXIS,
            describe=describe,
            height=height,
            span=spans[task],
        )

    pictures = {}
    for part in parts:
        title = NAMES[part] if kind == "silenced" else "Whole layer replaced"
        name = f"ablation-{kind}{f'-{part}' if part else ''}"
        figures = variants(tasks, partial(drawn, part))
        choice = (Choice("Task", tasks),)
        pictures[title] = Picture(name, f"{title}: effect by depth", figures, choice, rooted=True, bent=True)
    return pictures


def _lines(run: DiagnosisScores, interventions: dict[str, str], task: str, part: Sublayer | None) -> list[Line]:
    rows = {name: run.layers("ablation", name, task, part) for name in interventions}
    return [Line(interventions[name], layers, SLOTS[name]) for name, layers in rows.items() if layers]
