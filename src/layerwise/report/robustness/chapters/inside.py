"""What goes on inside: how loud each branch is at each position, what each layer is worth, and where outputs lie."""

from __future__ import annotations

from layerwise.report.arms import arm_slots
from layerwise.report.evidence import Evidence
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.heatmaps import position_grid
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.figures.scatter import layout_scatter
from layerwise.report.page.chapter import Chapter, Heading, card, depth_key, lead, legend, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.quantity import PERCENT, scaled
from layerwise.report.robustness.chapters.absence import absent
from layerwise.report.robustness.lookup import CONDITIONS, WHOLE, RobustnessScores
from layerwise.report.series import Line

HEADING = Heading("inside", "What goes on inside", "Inside")
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
    run = evidence.robustness
    parts = (_branches(run), _contribution(run), _embedding(run))
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


Part = tuple[tuple[Safe, ...], list[Picture]]


def _branches(run: RobustnessScores) -> Part:
    metrics = [metric for metric in BRANCHES if run.arms_with("branches", metric)]
    heading = element("h3", "Layers by the positions they stand at")
    if not metrics:
        return (heading, note("The norms of the branches were not measured (branches).")), []
    arms = run.arms_with("branches")
    choice = (Choice("Arm", arms),)
    pictures: list[Picture] = []
    for metric in metrics:
        grids = {arm: run.pairs("branches", metric, arm) for arm in arms}
        most = max((score.value for grid in grids.values() for score in grid.values()), default=1.0)
        variants: dict[tuple[int, ...], Figure] = {
            (at,): position_grid(grid, depth=run.depth, most=most, what=UNITS[metric])
            for at, grid in enumerate(grids.values())
            if grid
        }
        leader = pictures[0].name if pictures else None
        pictures.append(Picture(f"branches-{metric}", BRANCHES[metric], variants, choice, leader=leader))
    cards = (card(picture.alternative, picture.html()) for picture in pictures)
    caption = note(
        "Mean norm of a branch's output, and of a layer's update over the state it read. The dotted line is the order"
        " of training; each figure has one scale for all arms."
    )
    return (heading, pictures[0].controls(), element("div", *cards, class_="grid"), caption), pictures


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


def _embedding(run: RobustnessScores) -> Part:
    heading = element("h3", "Where the outputs of one layer lie")
    arms = [arm for arm in run.arms_with("embedding", "x") if run.pairs("embedding", "y", arm)]
    if not arms:
        return (heading, note("No outputs were laid out (embedding); the layout needs the extra umap.")), []
    layers = {arm: run.score("embedding", "layer", WHOLE, arm) for arm in arms}
    named = sorted({int(score.value) for score in layers.values() if score is not None})
    which = f"layer {named[0]}" if len(named) == 1 else "one layer"
    variants: dict[tuple[int, ...], Figure] = {
        (at,): layout_scatter(run.pairs("embedding", "x", arm), run.pairs("embedding", "y", arm), depth=run.depth)
        for at, arm in enumerate(arms)
    }
    title = f"Outputs of {which}, by the position at which it ran"
    picture = Picture("embedding", title, variants, (Choice("Arm", tuple(arms)),))
    caption = note(
        "UMAP: like outputs stand near each other; distances across the picture, and between arms, mean nothing."
        " Colours that part say that the layer answers differently at each position."
    )
    key = spaced(depth_key(run.depth, noun="position"))
    return (heading, picture.controls(), card(title, picture.html(), key), caption), [picture]
