"""What changing a layer's weights costs, by the size of the change; and what turning a branch up or down costs."""

from __future__ import annotations

from statistics import median

from layerwise.plan import PARTS, Part
from layerwise.report.chapters.chapter import Chapter, card, depth_key, lead, missing, note
from layerwise.report.data import Evidence
from layerwise.report.diagnosis import NULL, Diagnosis
from layerwise.report.figures.fans import fan
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import common_span, lined, telling
from layerwise.report.markup import Safe, element
from layerwise.report.picture import Picture
from layerwise.report.series import Band, Line, Rows
from layerwise.report.wording import label
from layerwise.results.rows import Score

MEASURE = "manipulation"
GATE = "gate"
GATES = {None: "Gate of the whole layer", "attn": "Gate of the attention", "mlp": "Gate of the MLP"}
SMALL = 260
Curves = dict[int, Rows]


def manipulation(evidence: Evidence) -> Chapter:
    """All strategies at equal size, each strategy layer by layer, and the gates."""
    title, short = "What a change of weights costs", "Manipulation"
    found = evidence.diagnosis
    strategies = [name for name in _strategies(found) if name != GATE]
    gates = {part: curves for part in (None, *PARTS) if (curves := _curves(found, GATE, part))}
    if not strategies and not gates:
        return Chapter(MEASURE, title, short, (missing("No layer's weights were changed in this run (manipulation)."),))
    body: list[Safe] = [
        lead("Compared at equal size ‖ΔW‖/‖W‖: a tenth of the weights is a tenth, whatever is done to them.")
    ]
    pictures: list[Picture] = []
    if strategies:
        together, single = _together(found, strategies), _single(found, strategies)
        pictures += [together, *single.values()]
        body += [
            together.controls(),
            card("The median layer under each strategy", together.html()),
            element("h3", "Each strategy, a line a layer, on one scale"),
            element("div", depth_key(found.depth), class_="spaced"),
            element("div", *(card(label(name), picture.html()) for name, picture in single.items()), class_="grid"),
        ]
    if gates:
        turned = _gates(found, gates)
        pictures += turned.values()
        body += [
            element("h3", "Turning a branch up and down: what it adds, times α"),
            *(picture.controls() for picture in turned.values()),
            element("div", *(card(name, picture.html()) for name, picture in turned.items()), class_="grid"),
        ]
    body.append(
        note(
            "In the median figure the ribbon holds the middle half of the layers. Grey about zero: where a change"
            " without any effect would fall, for the median layer. α = 1 is the untouched model and α = 0 skips; the"
            " gate is exact, where scaling every matrix by 0.9 scales a branch by far less than 0.9."
        )
    )
    return Chapter(MEASURE, title, short, tuple(body), tuple(pictures))


def _strategies(found: Diagnosis) -> list[str]:
    return list(dict.fromkeys(metric.partition(":")[0] for metric in found.metrics(MEASURE) if ":" in metric))


def _curves(found: Diagnosis, strategy: str, part: Part | None = None, null: str = "") -> Curves:
    """Layer to its effects by size; with `null`, the rows of that null."""
    curves: dict[int, dict[float, Score]] = {}
    for metric in found.metrics(MEASURE, f"{strategy}:"):
        size = float(metric.partition(":")[2])
        for layer, score in found.layers(MEASURE, f"{metric}{null}", part=part).items():
            curves.setdefault(layer, {})[size] = score
    return {layer: dict(sorted(rows.items())) for layer, rows in sorted(curves.items())}


def _together(found: Diagnosis, strategies: list[str]) -> Picture:
    lines = [Line(label(name), _typical(_curves(found, name)), slot) for slot, name in enumerate(strategies)]
    tell = telling("size {}, median of the layers", "nats per token", found.level, nats=True)
    figure = lined(
        lines,
        _null(found, strategies[0]),
        across="size of the change, ‖ΔW‖ / ‖W‖",
        upwards=DELTA_AXIS,
        tell=tell,
        sizes=True,
        legend=True,
    )
    return Picture(
        "manipulation", "Effect of each strategy by size, median of the layers", {(): figure}, rooted=True, bent=True
    )


def _typical(curves: Curves) -> Rows:
    """The median layer at each size; its bounds hold the middle half of the layers."""
    by_size: dict[float, list[float]] = {}
    for rows in curves.values():
        for size, score in rows.items():
            by_size.setdefault(size, []).append(score.value)
    typical = {}
    for size, values in sorted(by_size.items()):
        ordered = sorted(values)
        quarter = len(ordered) // 4
        bounds = (ordered[quarter], ordered[-1 - quarter]) if len(ordered) > 3 else (None, None)
        typical[size] = Score(MEASURE, "all", "all", "median", median(ordered), *bounds)
    return typical


def _single(found: Diagnosis, strategies: list[str]) -> dict[str, Picture]:
    curves = {name: _curves(found, name) for name in strategies}
    span = common_span([rows for group in curves.values() for rows in group.values()])
    return {
        name: Picture(
            f"manipulation-{name}",
            f"Effect of {label(name)} by size, a line a layer",
            {(): _fan(found, group, _null(found, name), span, "size {}", sizes=True)},
            leader="manipulation",
        )
        for name, group in curves.items()
    }


def _gates(found: Diagnosis, gates: dict[Part | None, Curves]) -> dict[str, Picture]:
    span = common_span([rows for group in gates.values() for rows in group.values()])
    first = f"gate-{next(iter(gates)) or 'layer'}"
    return {
        GATES[part]: Picture(
            name := f"gate-{part or 'layer'}",
            f"{GATES[part]}: effect by α, a line a layer",
            {(): _fan(found, group, _null(found, GATE, part), span, "α = {}", sizes=False)},
            rooted=True,
            bent=True,
            leader=None if name == first else first,
        )
        for part, group in gates.items()
    }


def _fan(
    found: Diagnosis,
    curves: Curves,
    bands: tuple[Band, ...],
    span: tuple[float, float] | None,
    what: str,
    *,
    sizes: bool,
) -> Figure:
    tell = telling(what, "nats per token", found.level, nats=True)
    return fan(curves, bands, depth=found.depth, tell=tell, span=span, height=SMALL, sizes=sizes)


def _null(found: Diagnosis, strategy: str, part: Part | None = None) -> tuple[Band, ...]:
    """The null band at each size: that of the median layer, for every layer has its own."""
    bands: dict[float, list[Score]] = {}
    for rows in _curves(found, strategy, part, f"{NULL}no_effect").values():
        for size, score in rows.items():
            bands.setdefault(size, []).append(score)
    middle = {
        size: sorted(scores, key=lambda score: score.high or 0.0)[len(scores) // 2] for size, scores in bands.items()
    }
    return (Band("no effect", dict(sorted(middle.items()))),) if middle else ()
