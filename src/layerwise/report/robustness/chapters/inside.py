"""What goes on inside: what each layer adds, attends to and is worth at each position, and where its outputs lie."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Line
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, lead, legend, note
from layerwise.report.page.figure_slot import Picture
from layerwise.report.page.markup import element
from layerwise.report.quantity import PERCENT, scaled
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.chapters.layout import layout
from layerwise.report.robustness.chapters.position_maps import Part, attention, branches, worth
from layerwise.report.robustness.lookup import CONDITIONS, RobustnessScores

HEADING = Heading("inside", "What goes on inside", "Inside")
SOURCES = ("branches", "attention", "contribution", "worth", "embedding")
WORTH = {"accuracy_lost": ("points of accuracy lost without the layer", PERCENT)}
NATS = ("nats per token added without the layer", 1.0)


def inside(evidence: Evidence) -> Chapter:
    """Heat maps by layer and position, the contribution of each layer, and the layout of outputs in the plane."""
    run = evidence.robustness
    parts = (branches(run), attention(run), _contribution(run), worth(run), layout(run))
    pictures = tuple(picture for _, drawn in parts for picture in drawn)
    if not pictures:
        return absent(
            evidence, HEADING, "Nothing was measured inside the models of this run (branches, contribution, embedding)."
        )
    left_out = (note(each.text) for each in evidence.data.notes if each.measure in SOURCES)
    body = (
        lead("Described, without a verdict: what training for any order does to the layers themselves."),
        *(piece for written, _ in parts for piece in written),
        *left_out,
    )
    return HEADING.chapter(body, pictures)


def _contribution(run: RobustnessScores) -> Part:
    heading = element("h3", "What each layer is worth")
    metric = "nll_added" if run.is_language else "accuracy_lost"
    axis, scale = WORTH.get(metric, NATS)
    drawn = {condition: _worth(run, f"{metric}.{condition}", scale) for condition in CONDITIONS}
    shown = {condition: lines for condition, lines in drawn.items() if lines}
    if not shown:
        return (heading, note("No layer was left out alone (contribution).")), []
    span = common_span([line.rows for lines in shown.values() for line in lines])
    describe = hover_text("without layer {}", axis, run.level)
    upwards = axis.partition(" without")[0]
    pictures: list[Picture] = []
    for condition, lines in shown.items():
        figure = lined(lines, across="layer", upwards=upwards, describe=describe, span=span, reference=0.0)
        name, words = f"contribution-{condition}", f"Without one layer, {CONDITIONS[condition]}"
        leader = pictures[0].name if pictures else None
        pictures.append(Picture(name, words, {(): figure}, rooted=True, leader=leader))
    arms = {line.name for lines in shown.values() for line in lines}
    slots = {arm: slot for arm, slot in arm_slots(run.arms).items() if arm in arms}
    cards = (card(picture.alternative, picture.html()) for picture in pictures)
    chips = legend(slots, tuple(picture.name for picture in pictures))
    caption = note("With all layers minus without this one: above zero the layer is missed.")
    return (heading, pictures[0].controls(), chips, element("div", *cards, class_="grid pair"), caption), pictures


def _worth(run: RobustnessScores, metric: str, scale: float) -> list[Line]:
    slots = arm_slots(run.arms)
    lines = []
    for arm in run.arms:
        rows = {
            int(layer): scaled(score, scale)
            for layer, score in run.subjects("contribution", metric, arm).items()
            if layer.isdecimal()
        }
        lines += [Line(arm, rows, slots[arm])] if rows else []
    return lines
