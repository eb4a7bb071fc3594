"""A learned wiring: what each edge is worth, what is left when most are cut, which phenomenon an edge carries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.finding import Finding, Number, State
from layerwise.report.kind import Beside, Column, Kind, Pivot, Says, Section
from layerwise.report.kinds.pretraining import SIGNED, WEIGHTS, is_pretrained, suite_name, tiles
from layerwise.report.marks import Dots, Heat, Scatter
from layerwise.report.page.number_format import is_resolved, probability
from layerwise.report.page.wording import counted, label
from layerwise.report.show import Show
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ALPHA,
    EDGE_PHENOMENA,
    EDGES,
    PRUNED,
    RANDOM,
    SIZE,
    edge_name,
)  # fmt: skip

SHOWN = 5
"""Confirmed effects that a sentence names."""
CUTS = {None: "cut by measured effect", SIZE: "cut by size", RANDOM: "cut at random"}
LOST = SIGNED.but(axis="nats lost", reference=0.0)
NATS = SIGNED.but(unit=" nats")
WEIGHT, EFFECT = Show(axis="size of the weight"), SIGNED.but(axis="nats lost by cutting it alone")


def model_name(row: Score) -> str:
    """The model of a row of a wiring; a run of one model does not name it."""
    return "" if row.arm is None else f"{row.arm}/{row.seed}"


def by_edge(data: ReportData) -> Iterator[Score]:
    """The size of every weight and its effect, each with the edge as its task and the model as its arm."""
    for row in data.rows.where(measure=EDGES, other=PRESENT):
        value = abs(row.value) if row.metric == "weight" else row.value
        yield replace(row, task=edge_name(row), value=value, arm=model_name(row) or "the model", seed=None)


def cuts(data: ReportData) -> Iterator[Score]:
    """What the sparse wiring loses, and as many edges cut otherwise, with the way of cutting as the task."""
    for row in data.rows.where(measure=EDGES, metric="difference", condition=PRUNED):
        task = CUTS.get(row.against, str(row.against))
        yield replace(row, task=f"{model_name(row)} {task}".strip(), arm=task, seed=None, against=None)


def edge_findings(data: ReportData) -> Iterator[Finding]:
    """Whether size tells effect, and what the sparse wiring loses beside as many edges cut otherwise."""
    run = data.rows.where(measure=EDGES)
    for agreed in run.where(metric="rank_correlation"):
        words = "" if is_resolved(agreed, data.level) else " Not distinguished from none at all."
        answer = ("Rank correlation of size with measured effect ", Number(SIGNED.text(agreed)), f".{words}")
        yield Finding(f"Do great weights have great effects{_of(agreed)}?", answer, _state(agreed, data))
    for lost in run.where(metric="difference", condition=PRUNED, against=None):
        yield _pruned(lost, run.where(condition=PRUNED, arm=lost.arm, seed=lost.seed), data)


def _pruned(lost: Score, run: Rows, data: ReportData) -> Finding:
    kept, spared = run.one(metric="edges"), run.one(metric="less_than_by_size")
    first = "" if kept is None else f"{counted(int(kept.value), 'edge')} kept: "
    pieces: list[str] = [first, Number(NATS.text(lost))]
    for way in (SIZE, RANDOM):
        other = run.one(metric="difference", against=way)
        if other is not None:
            pieces += [f"; as many {CUTS[way]} ", Number(SIGNED.text(other))]
    if spared is not None:
        gain = "better" if spared.value > 0.0 else "worse"
        alike = "not distinguishable from cutting by size"
        pieces.append(f"; {gain} than by size" if is_resolved(spared, data.level) else f"; {alike}")
    state: State = "described" if lost.low is None else _state(lost, data)
    return Finding(f"What does the sparse wiring lose{_of(lost)}?", (*filter(None, pieces), "."), state)


def _of(row: Score) -> str:
    return f" ({model_name(row)})" if model_name(row) else ""


def _state(row: Score, data: ReportData) -> State:
    return "resolved" if is_resolved(row, data.level) else "unresolved"


def effects(data: ReportData) -> Iterator[Score]:
    """The effect of every edge on every phenomenon: the edge as its plan, the suite and the model as its condition."""
    for row in data.rows.where(measure=EDGE_PHENOMENA, metric=("effect", "confirmed")):
        yield replace(row, plan=edge_name(row), condition=_where(row))


def _where(row: Score) -> str:
    return ", ".join(filter(None, (suite_name(row.condition or ""), model_name(row))))


def phenomenon_findings(data: ReportData) -> Iterator[Finding]:
    """For each suite and model the edges that are confirmed to carry a phenomenon, and the kind of features."""
    contrasts = Rows(
        replace(row, condition=_where(row))
        for row in data.rows.where(measure=EDGE_PHENOMENA, metric=("contrast", "rank_correlation"))
    )
    for where, rows in Rows(effects(data)).by("condition").items():
        confirmed = [row for row in rows.where(metric="confirmed") if is_resolved(row, data.level)]
        confirmed.sort(key=lambda row: -abs(row.value))
        tested = rows.where(metric="effect")
        edges = max(len(own) for own in tested.by("task").values())
        pieces: list[str] = [
            f"{counted(len(confirmed), 'effect')} of {counted(edges, 'edge')} times "
            f"{len(tested.axis('task'))} phenomena confirmed on pairs or sentences that did not choose"
        ]
        for at, row in enumerate(confirmed[:SHOWN]):
            pieces += ["; " if at else ": ", f"{edge_name(row)} for {row.task} ", Number(NATS.text(row))]
        pieces.append(f", and {len(confirmed) - SHOWN} more." if len(confirmed) > SHOWN else ".")
        state: State = "resolved" if confirmed else "unresolved"
        yield Finding(f"Which edges carry which phenomenon ({where})?", tuple(pieces), state)
        yield from _contrast(where, contrasts.where(condition=where), data)


def _contrast(where: str, rows: Rows, data: ReportData) -> Iterator[Finding]:
    contrast = rows.where(metric="contrast")
    if not contrast:
        return
    known = [row for row in contrast if is_resolved(row, data.level)]
    sides = {"linguistic": [row for row in known if row.value > 0], "surface": [row for row in known if row.value <= 0]}
    served = "; ".join(
        f"{side} features more: {', '.join(map(edge_name, own)) or 'no edge'}" for side, own in sides.items()
    )
    pieces: list[str] = [f"Edges that serve {served}"]
    depth = rows.one(metric="rank_correlation")
    if depth is not None:
        words = "" if is_resolved(depth, data.level) else ", not distinguishable from none"
        pieces += ["; with the depth of the reader ", Number(SIGNED.text(depth)), words]
    settled = bool(known) or (depth is not None and is_resolved(depth, data.level))
    question = f"Do early layers serve surface features and later ones linguistic features ({where})?"
    yield Finding(question, (*filter(None, pieces), "."), "resolved" if settled else "unresolved")


def _p(rows: Rows) -> str:
    return probability(rows[0].p_adjusted)


def _confirmation(row: Score, data: ReportData) -> str:
    return "confirmed" if is_resolved(row, data.level) else "not confirmed"


def _answer(data: ReportData) -> str:
    """What the sparse wiring loses, else what the edges carry, else whether size tells effect."""
    findings = [*reversed(list(edge_findings(data))), *phenomenon_findings(data)]
    return f"{findings[0].question} {findings[0].text}" if findings else ""


WIRING = Kind(
    name="wiring",
    measures=(EDGES, EDGE_PHENOMENA, ALPHA),
    present=lambda data: (
        bool(data.rows.where(measure=(EDGES, EDGE_PHENOMENA)))
        or (bool(data.rows.where(measure=ALPHA)) and not is_pretrained(data))
    ),
    tiles=tiles,
    answer=_answer,
    sections=(
        Section(
            anchor=EDGES, title="What each edge is worth", short="Edges",
            missing="No edge was cut in this run (edges): layerwise diagnose layer-weights does.",
            parts=(
                Beside(
                    (
                        Scatter(
                            name="edges", title="Weight against effect, a dot an edge", derive=by_edge, point="task",
                            across={"metric": "weight"}, upwards={"metric": "effect"}, show_across=WEIGHT, show=EFFECT,
                            choices={"Model": "arm"}, words=str, rooted=True, height=400, at="{}",
                            depth_of=lambda row: row.other - 1 if row.other else None,
                            note="weight-and-effect",
                        ),
                        Dots(
                            name="edges-cut", title="What the sparse wiring loses", derive=cuts, series="arm",
                            words=str, show=LOST, note="cut",
                        ),
                    )
                ),
                Says(edge_findings),
            ),
        ),
        WEIGHTS,
        Section(
            anchor=EDGE_PHENOMENA, title="What each edge carries", short="Phenomena",
            missing=(
                "No edge was cut for a phenomenon in this run (edge_phenomena): layerwise diagnose layer-weights RUN "
                "--suite pairs."
            ),
            parts=lambda data: (
                Heat(
                    name="phenomena", title="Every edge and phenomenon", derive=effects, where={"metric": "effect"},
                    x="plan", y="task", across="edge: reader <- source", each="condition", words=str, show=NATS,
                    cell_words=label, diverging=True, root=True, upwards=True, note="map",
                    text=lambda row: f"p {probability(row.p_adjusted)}",
                ),
                Says(phenomenon_findings),
                Pivot(
                    title="Every confirmed effect", derive=effects, where={"metric": "confirmed"}, folded=True,
                    terminal=False, rows={"edge": "plan", "suite": "condition", "phenomenon": "task"},
                    columns=(
                        Column("nats", "confirmed", SIGNED), Column("p", text=_p),
                        Column("", text=lambda rows: _confirmation(rows[0], data)),
                    ),
                ),
            ),
        ),
    ),
)  # fmt: skip
