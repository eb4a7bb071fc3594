"""What the loss is without a layer, or with another one in its place: each layer whole, and its two halves."""

from __future__ import annotations

from layerwise.plan import PARTS, Part
from layerwise.report.chapters.chapter import Chapter, card, lead, legend, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import Diagnosis
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import common_span, lined, telling
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Choice, Picture
from layerwise.report.series import Band, Line, layer_bands

SILENCED = {"skip": "skipped", "mean_ablate": "mean of its output"}
REPLACED = {
    "neighbour_copy": "copy of a neighbour",
    "neighbour_average": "mean of neighbours",
    "random": "random weights",
}
SLOTS = {name: slot for slot, name in enumerate((*SILENCED, *REPLACED))}
NAMES = {None: "Whole layer silenced", "attn": "Attention alone silenced", "mlp": "MLP alone silenced"}


def ablation(evidence: Evidence) -> Chapter:
    """Silencing a layer and its halves on one scale, then replacing it, each intervention with its null."""
    title, short = "What each layer is worth", "Ablation"
    found = evidence.diagnosis
    tasks = found.tasks("ablation")
    if not tasks:
        return Chapter(
            "ablation", title, short, (missing("No layer was silenced or replaced in this run (ablation)."),)
        )
    silenced = _pictures(found, tasks, SILENCED, (None, *PARTS))
    replaced = _pictures(found, tasks, REPLACED, (None,), leader=next(iter(silenced.values()), None))
    pictures = {**silenced, **replaced}
    slots = {
        REPLACED.get(name) or SILENCED[name]: slot
        for name, slot in SLOTS.items()
        if found.layers("ablation", name, tasks[0])
    }
    halves = list(silenced.values())
    body: list[Safe] = [
        lead("The loss that a layer prevents, by depth: positive is worse without it. Silencing writes nothing."),
        legend(slots, tuple(picture.name for picture in pictures.values())),
        *(picture.controls() for picture in pictures.values()),
        element("div", *(card(name, picture.html()) for name, picture in silenced.items()), class_="grid"),
    ]
    if not any(found.layers("ablation", "skip", task, part) for task in tasks for part in PARTS) and halves:
        body.append(
            note("The halves of a layer were not measured: this model's layers cannot be split, or it was not asked.")
        )
    body += [
        element("div", card(f"{name}, on its own scale", picture.html()), class_="spaced")
        for name, picture in replaced.items()
    ]
    body.append(
        note(
            f"Ribbons are intervals by bootstrap over {evidence.units}. The grey band about zero is where interventions"
            " without any effect would fall, all layers at once; it is drawn by exchanging the signs of"
            f" {evidence.units}, so that a few of large effect widen it. Verdicts go by each layer's own interval: a"
            " layer inside the band may still be told apart from zero. A replacement writes something where silence"
            " writes nothing, so it may cost far more: it says what a wrong layer does, not what this one is worth. A"
            " mean that stands in for a layer's output is taken over the half of the text that it is not judged on."
        )
    )
    return Chapter("ablation", title, short, tuple(body), tuple(pictures.values()))


def _pictures(
    found: Diagnosis,
    tasks: tuple[str, ...],
    interventions: dict[str, str],
    parts: tuple[Part | None, ...],
    leader: Picture | None = None,
) -> dict[str, Picture]:
    """A picture for each part that was measured, all on one vertical axis a task; the first leads the others."""
    drawn: dict[Part | None, dict[tuple[int, ...], Figure]] = {part: {} for part in parts}
    for at, task in enumerate(tasks):
        lines = {part: _lines(found, interventions, task, part) for part in parts}
        span = common_span([line.rows for group in lines.values() for line in group])
        for part, group in lines.items():
            if group:
                drawn[part][at,] = _figure(found, group, task, part, span, height=260 if len(parts) > 1 else 330)
    pictures: dict[str, Picture] = {}
    kind = "silenced" if interventions is SILENCED else "replaced"
    for part, variants in drawn.items():
        if variants:
            title = NAMES[part] if kind == "silenced" else "Whole layer replaced"
            first = leader or next(iter(pictures.values()), None)
            pictures[title] = Picture(
                f"ablation-{kind}{f'-{part}' if part else ''}",
                f"{title}: effect by depth",
                variants,
                (Choice("Task", tasks),),
                rooted=True,
                bent=True,
                leader=first.name if first else None,
            )
    return pictures


def _lines(found: Diagnosis, interventions: dict[str, str], task: str, part: Part | None) -> list[Line]:
    rows = {name: found.layers("ablation", name, task, part) for name in interventions}
    return [Line(interventions[name], layers, SLOTS[name]) for name, layers in rows.items() if layers]


def _figure(
    found: Diagnosis, lines: list[Line], task: str, part: Part | None, span: tuple[float, float] | None, height: int
) -> Figure:
    tell = telling(f"layer {{}}{f', {part}' if part else ''}", "nats per token", found.level, nats=True)
    return lined(
        lines, _null(found, task, part), across="layer", upwards=DELTA_AXIS, tell=tell, height=height, span=span
    )


def _null(found: Diagnosis, task: str, part: Part | None) -> tuple[Band, ...]:
    """The null of skipping stands for all interventions: drawn once, not five times."""
    return layer_bands(found, "ablation", "skip", task, part)[:1]
