"""What goes on inside: how loud each branch is at each position, what each layer is worth, and where outputs lie."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.chapters.chapter import Chapter, card, depth_key, lead, legend, note
from layerwise.report.chapters.robustness.absence import absent
from layerwise.report.data import Evidence
from layerwise.report.figures.cloud import cloud
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.lines import common_span, lined, telling
from layerwise.report.figures.places import place_grid
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Choice, Picture
from layerwise.report.quantity import PERCENT, scaled
from layerwise.report.robustness import CONDITIONS, WHOLE, Robustness
from layerwise.report.series import Line

ANCHOR, TITLE, SHORT = "inside", "What goes on inside", "Inside"
BRANCHES = {
    "attn": "What the attention adds",
    "mlp": "What the MLP adds",
    "share": "Update, as a share of the state",
}
UNITS = {"attn": "norm", "mlp": "norm", "share": "share"}
SOURCES = ("branches", "contribution", "embedding")
WORTH = {"accuracy_lost": ("points of accuracy lost without the layer", PERCENT)}
NATS = ("nats per token added without the layer", 1.0)


def inside(evidence: Evidence) -> Chapter:
    """Heat maps of the branches, the contribution of each layer, and the layout of one layer's outputs."""
    found = evidence.robustness
    parts = (_branches(found), _contribution(found), _embedding(found))
    pictures = tuple(picture for _, drawn in parts for picture in drawn)
    if not pictures:
        what = "Nothing was measured inside the models of this run (branches, contribution, embedding)."
        return absent(evidence, ANCHOR, TITLE, SHORT, what)
    left_out = (note(said.text) for said in evidence.data.notes if said.measure in SOURCES)
    body = (
        lead("Described, not judged: what training for any order does to the layers themselves."),
        *(piece for written, _ in parts for piece in written),
        *left_out,
    )
    return Chapter(ANCHOR, TITLE, SHORT, body, pictures)


Part = tuple[tuple[Safe, ...], list[Picture]]


def _branches(found: Robustness) -> Part:
    metrics = [metric for metric in BRANCHES if found.arms_with("branches", metric)]
    heading = element("h3", "Layers by the positions they stand at")
    if not metrics:
        return (heading, note("The norms of the branches were not measured (branches).")), []
    arms = found.arms_with("branches")
    choice = (Choice("Arm", arms),)
    pictures: list[Picture] = []
    for metric in metrics:
        grids = {arm: found.pairs("branches", metric, arm) for arm in arms}
        most = max((score.value for grid in grids.values() for score in grid.values()), default=1.0)
        variants: dict[tuple[int, ...], Figure] = {
            (at,): place_grid(grid, depth=found.depth, most=most, what=UNITS[metric])
            for at, grid in enumerate(grids.values())
            if grid
        }
        leader = pictures[0].name if pictures else None
        pictures.append(Picture(f"branches-{metric}", BRANCHES[metric], variants, choice, leader=leader))
    cards = (card(picture.alternative, picture.html()) for picture in pictures)
    told = note(
        "Mean norm of a branch's output, and of a layer's update over the state it read. The dotted line is the order"
        " of training; each figure has one scale for all arms."
    )
    return (heading, pictures[0].controls(), element("div", *cards, class_="grid"), told), pictures


def _contribution(found: Robustness) -> Part:
    heading = element("h3", "What each layer is worth")
    metric = "nll_added" if found.is_language else "accuracy_lost"
    axis, scale = WORTH.get(metric, NATS)
    drawn = {condition: _worth(found, f"{metric}.{condition}", scale) for condition in CONDITIONS}
    shown = {condition: lines for condition, lines in drawn.items() if lines}
    if not shown:
        return (heading, note("No layer was left out alone (contribution).")), []
    span = common_span([line.rows for lines in shown.values() for line in lines])
    tell = telling("without layer {}", axis, found.level)
    upwards = axis.partition(" without")[0]
    pictures: list[Picture] = []
    for condition, lines in shown.items():
        figure = lined(lines, across="layer", upwards=upwards, tell=tell, span=span, reference=0.0)
        name, words = f"contribution-{condition}", f"Without one layer, {CONDITIONS[condition]}"
        leader = pictures[0].name if pictures else None
        pictures.append(Picture(name, words, {(): figure}, rooted=True, leader=leader))
    arms = {line.name for lines in shown.values() for line in lines}
    slots = {arm: slot for arm, slot in arm_slots(found.arms).items() if arm in arms}
    cards = (card(picture.alternative, picture.html()) for picture in pictures)
    chips = legend(slots, tuple(picture.name for picture in pictures))
    told = note("With all layers minus without this one: above zero the layer is missed.")
    return (heading, pictures[0].controls(), chips, element("div", *cards, class_="grid pair"), told), pictures


def _worth(found: Robustness, metric: str, scale: float) -> list[Line]:
    slots = arm_slots(found.arms)
    lines = []
    for arm in found.arms:
        rows = {
            int(layer): scaled(score, scale)
            for layer, score in found.subjects("contribution", metric, arm).items()
            if layer.isdecimal()
        }
        lines += [Line(arm, rows, slots[arm])] if rows else []
    return lines


def _embedding(found: Robustness) -> Part:
    heading = element("h3", "Where the outputs of one layer lie")
    arms = [arm for arm in found.arms_with("embedding", "x") if found.pairs("embedding", "y", arm)]
    if not arms:
        return (heading, note("No outputs were laid out (embedding); the layout needs the extra umap.")), []
    layers = {arm: found.score("embedding", "layer", WHOLE, arm) for arm in arms}
    named = sorted({int(score.value) for score in layers.values() if score is not None})
    which = f"layer {named[0]}" if len(named) == 1 else "one layer"
    variants: dict[tuple[int, ...], Figure] = {
        (at,): cloud(found.pairs("embedding", "x", arm), found.pairs("embedding", "y", arm), depth=found.depth)
        for at, arm in enumerate(arms)
    }
    title = f"Outputs of {which}, by the position at which it ran"
    picture = Picture("embedding", title, variants, (Choice("Arm", tuple(arms)),))
    told = note(
        "UMAP: like outputs stand near each other; distances across the picture, and between arms, mean nothing."
        " Colours that part say that the layer answers differently at each position."
    )
    key = element("div", depth_key(found.depth, noun="position"), class_="spaced")
    return (heading, picture.controls(), card(title, picture.html(), key), told), [picture]
