"""What changing a layer's weights costs, by the size of the change; and what turning a branch up or down costs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import TypeVar

from layerwise.plan import SUBLAYERS, Sublayer
from layerwise.report.claims.contrasts import CONTRAST
from layerwise.report.claims.heterogeneity import MANIPULATION, manipulations
from layerwise.report.diagnosis.lookup import NULL, DiagnosisScores
from layerwise.report.diagnosis.tables import joint_rows
from layerwise.report.evidence import Evidence
from layerwise.report.figures.axis import Band, Line, Rows
from layerwise.report.figures.curve_fan import fan
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import DELTA_AXIS
from layerwise.report.figures.lines import common_span, hover_text, lined
from layerwise.report.page.chapter import Chapter, Heading, card, cards, depth_key, lead, note, spaced
from layerwise.report.page.figure_slot import Picture, led
from layerwise.report.page.markup import Safe, element
from layerwise.report.page.wording import label
from layerwise.results.rows import Score

MEASURE = "manipulation"
GATE = "gate"
GATES = {None: "Gate of the whole layer", "attn": "Gate of the attention", "mlp": "Gate of the MLP"}
SMALL = 260
Curves = dict[int, Rows]
Key = TypeVar("Key")
HEADING = Heading(MEASURE, "What a change of weights costs", "Manipulation")


def manipulation(evidence: Evidence) -> Chapter:
    """All strategies at equal size, each strategy layer by layer, and the gates."""
    run = evidence.diagnosis
    strategies = [name for name in _strategies(run) if name != GATE]
    gates = {part: curves for part in (None, *SUBLAYERS) if (curves := _curves(run, GATE, part))}
    if not strategies and not gates:
        return HEADING.missing("No layer's weights were changed in this run (manipulation).")
    body: list[Safe] = [
        lead("Compared at equal size ‖ΔW‖/‖W‖: a tenth of the weights is a tenth, whatever is done to them.")
    ]
    pictures: list[Picture] = []
    if strategies:
        together, single = _together(run, strategies), _single(run, strategies)
        pictures += [together, *single.values()]
        body += [
            together.controls(),
            card("The median layer under each strategy", together.html()),
            element("h3", "Each strategy, a line a layer, on one scale"),
            spaced(depth_key(run.depth)),
            cards(single),
        ]
    if gates:
        turned = _gates(run, gates)
        pictures += turned.values()
        body += [
            element("h3", "Turning a branch up and down: what it adds, times α"),
            *(picture.controls() for picture in turned.values()),
            cards(turned),
        ]
    body += _together_as_a_set(run)
    body.append(
        note(
            "In the median figure the ribbon holds the middle half of the layers. Grey about zero: where a change"
            " without any effect would fall, for the median layer. α = 1 is the untouched model and α = 0 skips; the"
            " gate is exact, where scaling every matrix by 0.9 scales a branch by far less than 0.9."
        )
    )
    return HEADING.chapter(tuple(body), tuple(pictures))


def _together_as_a_set(run: DiagnosisScores) -> tuple[Safe, ...]:
    """The layers that cost little one by one, moved all at once."""
    rows = joint_rows(run, MANIPULATION, manipulations(run), "strategy and size")
    if not rows.body:
        return ()
    members = sorted(int(metric) for owner, metric, task in run.rows if owner == CONTRAST and task == "members")
    return (
        element("h3", f"Layers {', '.join(map(str, members))} together, each of which costs little when it is skipped"),
        spaced(rows.html()),
    )


def _strategies(run: DiagnosisScores) -> list[str]:
    return list(dict.fromkeys(metric.partition(":")[0] for metric in run.metrics(MEASURE) if ":" in metric))


def _curves(run: DiagnosisScores, strategy: str, part: Sublayer | None = None, null: str = "") -> Curves:
    """Layer to its effects by size; with `null`, the rows of that null."""
    curves: dict[int, dict[float, Score]] = {}
    for metric in run.metrics(MEASURE, f"{strategy}:"):
        size = float(metric.partition(":")[2])
        for layer, score in run.layers(MEASURE, f"{metric}{null}", part=part).items():
            curves.setdefault(layer, {})[size] = score
    return {layer: dict(sorted(rows.items())) for layer, rows in sorted(curves.items())}


def _together(run: DiagnosisScores, strategies: list[str]) -> Picture:
    lines = [Line(label(name), _typical(_curves(run, name)), slot) for slot, name in enumerate(strategies)]
    describe = hover_text("size {}, median of the layers", "nats per token", run.level, nats=True)
    figure = lined(
        lines,
        _null(run, strategies[0]),
        across="size of the change, ‖ΔW‖ / ‖W‖",
        upwards=DELTA_AXIS,
        describe=describe,
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


def _single(run: DiagnosisScores, strategies: list[str]) -> dict[str, Picture]:
    figures = _fans(run, {name: (_curves(run, name), _null(run, name)) for name in strategies}, "size {}", sizes=True)
    return {
        label(name): Picture(
            f"manipulation-{name}",
            f"Effect of {label(name)} by size, a line a layer",
            {(): figure},
            leader="manipulation",
        )
        for name, figure in figures.items()
    }


def _gates(run: DiagnosisScores, gates: dict[Sublayer | None, Curves]) -> dict[str, Picture]:
    drawn = {part: (curves, _null(run, GATE, part)) for part, curves in gates.items()}
    pictures = {
        GATES[part]: Picture(
            f"gate-{part or 'layer'}",
            f"{GATES[part]}: effect by α, a line a layer",
            {(): figure},
            rooted=True,
            bent=True,
        )
        for part, figure in _fans(run, drawn, "α = {}", sizes=False).items()
    }
    return led(pictures)


def _fans(
    run: DiagnosisScores, groups: Mapping[Key, tuple[Curves, tuple[Band, ...]]], what: str, *, sizes: bool
) -> dict[Key, Figure]:
    """A fan for each group of curves, all on one vertical axis."""
    span = common_span([rows for curves, _ in groups.values() for rows in curves.values()])
    describe = hover_text(what, "nats per token", run.level, nats=True)
    return {
        key: fan(curves, bands, depth=run.depth, describe=describe, span=span, height=SMALL, sizes=sizes)
        for key, (curves, bands) in groups.items()
    }


def _null(run: DiagnosisScores, strategy: str, part: Sublayer | None = None) -> tuple[Band, ...]:
    """The null band at each size: that of the median layer, for every layer has its own."""
    bands: dict[float, list[Score]] = {}
    for rows in _curves(run, strategy, part, f"{NULL}no_effect").values():
        for size, score in rows.items():
            bands.setdefault(size, []).append(score)
    middle = {
        size: sorted(scores, key=lambda score: score.high or 0.0)[len(scores) // 2] for size, scores in bands.items()
    }
    return (Band("no effect", dict(sorted(middle.items()))),) if middle else ()
