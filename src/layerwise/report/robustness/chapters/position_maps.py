"""Heat maps by layer and position: what a layer adds, where it attends, and what it is worth where it stands."""

from __future__ import annotations

from collections.abc import Mapping

from layerwise.report.figures.figure import Figure
from layerwise.report.figures.heatmaps import position_grid
from layerwise.report.page.chapter import card, note, spaced
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.number_format import probability
from layerwise.report.page.table import Table
from layerwise.report.robustness.lookup import WHOLE, RobustnessScores

Part = tuple[tuple[Safe, ...], list[Picture]]
"""What a part of a chapter says, and its pictures."""

Maps = Mapping[str, tuple[str, str]]
"""Metric to the title of its map and the words before a number."""

BRANCHES: Maps = {
    "attn": ("What the attention adds", "norm"),
    "mlp": ("What the MLP adds", "norm"),
    "share": ("Update, as a share of the state", "share"),
}
ATTENTION: Maps = {
    "entropy": ("How widely it attends", "entropy"),
    "first": ("Attention to the first token", "share"),
    "distance": ("How far it attends", "distance"),
}
WORTH: Maps = {"nll_added": ("Nats lost without the layer there", "nats")}


def branches(run: RobustnessScores) -> Part:
    """The norms of the branches."""
    return _maps(
        run, "branches", BRANCHES, "Layers by the positions they stand at",
        "Mean norm of a branch's output, and of a layer's update over the state it read. The dotted line is the order"
        " of training; each figure has one scale for all arms.",
        "The norms of the branches were not measured (branches).",
    )  # fmt: skip


def attention(run: RobustnessScores) -> Part:
    """Entropy, attention to the first token, and distance."""
    even = {
        metric: next(iter(run.pairs("attention", f"{metric}@uniform", arm).values()), None)
        for arm in run.arms_with("attention")[:1]
        for metric in ATTENTION
    }
    levels = [f"{words} {score.value:.3g}" for words, score in (
        ("to the first token", even.get("first")), ("over a distance of", even.get("distance")),
    ) if score is not None]  # fmt: skip
    spread = f" Attention that is spread evenly is of entropy 1, {' and '.join(levels)}." if levels else ""
    return _maps(
        run, "attention", ATTENTION, "Where layers attend, by the positions they stand at",
        "Means over heads, queries and examples. Entropy as a share of that of attention spread evenly; the first token"
        f" is the class token of a ViT; the distance is in patches, or in tokens of a text.{spread}",
        "Attention was not measured (attention).",
    )  # fmt: skip


def worth(run: RobustnessScores) -> Part:
    """What a layer is worth at each position, and whether it is quiet where it is worth nothing."""
    written, pictures = _maps(
        run, "worth", WORTH, "What each layer is worth, by the position it stands at",
        "The loss without the layer less the loss with it, in the same orders: where it is dark the layer is not"
        " missed, or the model does better without it.",
        "What layers are worth at each position was not measured (worth).",
    )  # fmt: skip
    rows = []
    for arm in run.arms_with("worth", "relation"):
        score, null = (run.score("worth", metric, WHOLE, arm) for metric in ("relation", "relation@shuffled"))
        if score is not None:
            bounds = "" if score.low is None or score.high is None else f" [{score.low:.2f}, {score.high:.2f}]"
            value = f"{score.value:.2f}{bounds}".replace("-", "−")
            band = (
                "–"
                if null is None or null.low is None or null.high is None
                else f"{null.low:.2f} to {null.high:.2f}".replace("-", "−")
            )
            rows.append((arm, value, band, "–" if score.p is None else probability(score.p)))
    if not rows:
        return written, pictures
    table = Table(("arm", "rank correlation", "shuffled positions", "p"), tuple(rows))
    caption = note(
        "Is a layer quiet where it is worth nothing? The rank correlation, over the positions of a layer and on the"
        " mean over layers, of its update (as a share of the state) with what it is worth there; beside it the band"
        " that shuffled positions keep to. A verdict with its nulls stands among the claims."
    )
    return (*written, spaced(table.html()), caption), pictures


def _maps(run: RobustnessScores, measure: str, maps: Maps, title: str, caption: str, missing: str) -> Part:
    heading = element("h3", title)
    metrics = [metric for metric in maps if run.arms_with(measure, metric)]
    if not metrics:
        return (heading, note(missing)), []
    arms = run.arms_with(measure)
    choice = (Choice("Arm", arms),)
    pictures: list[Picture] = []
    for metric in metrics:
        words, unit = maps[metric]
        grids = {arm: run.pairs(measure, metric, arm) for arm in arms}
        most = max((score.value for grid in grids.values() for score in grid.values()), default=1.0)
        variants: dict[tuple[int, ...], Figure] = {
            (at,): position_grid(grid, depth=run.depth, most=most, what=unit)
            for at, grid in enumerate(grids.values())
            if grid
        }
        leader = pictures[0].name if pictures else None
        pictures.append(Picture(f"{measure}-{metric}", words, variants, choice, leader=leader))
    cards = (card(picture.alternative, picture.html()) for picture in pictures)
    return (heading, pictures[0].controls(), element("div", *cards, class_="grid"), note(caption)), pictures
