"""Where the outputs of layers lie: the plane that UMAP lays them out in, and what the nearest of them share."""

from __future__ import annotations

from layerwise.report.figures.figure import Figure
from layerwise.report.figures.scatter import layout_scatter
from layerwise.report.page.chapter import card, depth_key, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import fixed
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, listed
from layerwise.report.robustness.chapters.position_maps import Part
from layerwise.report.robustness.lookup import WHOLE, RobustnessScores

SHARED = {"same_position": "ran at the same position", "same_layer": "are of the same layer"}


def layout(run: RobustnessScores) -> Part:
    """A dot for each output that is drawn, coloured by its position or by its layer, and a row an arm of what the
    nearest outputs of other images share."""
    heading = element("h3", "Where the outputs of layers lie")
    arms = [arm for arm in run.arms_with("embedding", "x") if run.points("y", arm)]
    if not arms:
        return (heading, note("No outputs were laid out (embedding); the layout needs the extra umap.")), []
    points = {arm: (run.points("x", arm), run.points("y", arm)) for arm in arms}
    layers = sorted({layer for across, _ in points.values() for _, layer, _ in across})
    several = len(layers) > 1
    colours = ("position", "layer") if several else ("position",)
    variants: dict[tuple[int, ...], Figure] = {
        (at, by): layout_scatter(across, upwards, depth=run.depth, by_layer=colour == "layer")
        for at, (across, upwards) in enumerate(points.values())
        for by, colour in enumerate(colours)
    }
    which = (
        "all layers" if len(layers) == run.depth else f"layer{'s' * several} {listed([str(each) for each in layers])}"
    )
    title = f"Outputs of {which}, by the position at which they ran"
    picture = Picture("embedding", title, variants, (Choice("Arm", tuple(arms)), Choice("Colour", colours)))
    shown = max(len(across) for across, _ in points.values())
    caption = note(
        f"UMAP of {_laid_out(run, arms)}, {shown:,} of which are drawn: like outputs stand near each other; distances"
        " across the picture, and between arms, mean nothing. Colours that part say that layers answer differently at"
        " each position."
    )
    key = spaced(depth_key(run.depth, noun="position"))
    return (
        heading, picture.controls(), card(title, picture.html(), key, wide=several), caption, *_neighbours(run, arms),
    ), [picture]  # fmt: skip


def _laid_out(run: RobustnessScores, arms: list[str]) -> str:
    counts = {metric: run.score("embedding", metric, WHOLE, arms[0]) for metric in ("points", "images")}
    points, images = (0 if score is None else int(score.value) for score in counts.values())
    return f"{counted(points, 'output')} for {counted(images, 'example')}" if points else "outputs"


def _neighbours(run: RobustnessScores, arms: list[str]) -> tuple[Safe, ...]:
    """What the nearest outputs of other images share, which the picture cannot say."""
    metrics = [metric for metric in SHARED if any(run.score("embedding", metric, WHOLE, arm) for arm in arms)]
    if not metrics:
        return ()
    body = []
    for arm in arms:
        scores = [run.score("embedding", metric, WHOLE, arm) for metric in metrics]
        body.append((arm, *("–" if score is None else f"{fixed(100 * score.value, 1)} %" for score in scores)))
    chances = [run.score("embedding", f"{metric}@chance", WHOLE, arms[0]) for metric in metrics]
    body.append(("chance", *("–" if score is None else f"{fixed(100 * score.value, 1)} %" for score in chances)))
    table = Table(("arm", *(SHARED[metric] for metric in metrics)), tuple(body))
    return (
        spaced(table.html()),
        note("Of the 15 outputs of other examples that are nearest to an output, where it is and not in the picture."),
    )
