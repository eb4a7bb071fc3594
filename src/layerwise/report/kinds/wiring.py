"""A learned wiring: what each edge is worth, what is left when most are cut, which phenomenon an edge carries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.report.data import ReportData
from layerwise.report.finding import Finding, settled
from layerwise.report.kind import Beside, Column, Kind, Pivot, Says, Section, in_text
from layerwise.report.kinds.pretraining import WEIGHTS
from layerwise.report.marks import Dots, Heat, Scatter
from layerwise.report.show import SIGNED, Show, adjusted_p
from layerwise.report.text.number_format import is_resolved
from layerwise.report.text.wording import counted, label
from layerwise.report.trained import is_pretrained, suite_name, tiles
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows

SHOWN = 5
"""Confirmed effects that a sentence names."""
CUTS = {None: "cut by measured effect", vocab.SIZE: "cut by size", vocab.RANDOM: "cut at random"}
LOST = SIGNED.but(axis="nats lost", reference=0.0)
NATS = SIGNED.but(unit=" nats")
WEIGHT, EFFECT = Show(axis="size of the weight"), SIGNED.but(axis="nats lost by cutting it alone")


def model_name(row: Score) -> str:
    """The model of a row of a wiring; a run of one model does not name it."""
    return "" if row.arm is None else f"{row.arm}/{row.seed}"


def by_edge(data: ReportData) -> Iterator[Score]:
    """The size of every weight and its effect, each with the edge as its task and the model as its arm."""
    for row in data.rows.where(measure=vocab.EDGES, other=PRESENT):
        value = abs(row.value) if row.metric == "weight" else row.value
        yield replace(row, task=vocab.edge_name(row), value=value, arm=model_name(row) or "the model", seed=None)


def cuts(data: ReportData) -> Iterator[Score]:
    """What the sparse wiring loses, and as many edges cut otherwise, with the way of cutting as the task."""
    for row in data.rows.where(measure=vocab.EDGES, metric="difference", condition=vocab.PRUNED):
        task = CUTS.get(row.against, str(row.against))
        yield replace(row, task=f"{model_name(row)} {task}".strip(), arm=task, seed=None, against=None)


def edge_findings(data: ReportData) -> Iterator[Finding]:
    """Whether size tells effect, and what the sparse wiring loses beside as many edges cut otherwise."""
    run = data.rows.where(measure=vocab.EDGES)
    for agreed in run.where(metric="rank_correlation"):
        known = is_resolved(agreed, data.level)
        words = "" if known else " Not distinguished from none at all."
        answer = f"Rank correlation of size with measured effect {SIGNED.text(agreed)}.{words}"
        yield Finding(f"Do great weights have great effects{_of(agreed)}?", answer, settled(known))
    for lost in run.where(metric="difference", condition=vocab.PRUNED, against=None):
        yield _pruned(lost, run.where(condition=vocab.PRUNED, arm=lost.arm, seed=lost.seed), data)


def _pruned(lost: Score, run: Rows, data: ReportData) -> Finding:
    kept, spared = run.one(metric="edges"), run.one(metric="less_than_by_size")
    first = "" if kept is None else f"{counted(int(kept.value), 'edge')} kept: "
    others = {way: run.one(metric="difference", against=way) for way in (vocab.SIZE, vocab.RANDOM)}
    clauses = [f"{first}{NATS.text(lost)}"]
    clauses += [f"as many {CUTS[way]} {SIGNED.text(row)}" for way, row in others.items() if row is not None]
    if spared is not None:
        gain = "better than by size" if spared.value > 0.0 else "worse than by size"
        known = is_resolved(spared, data.level)
        clauses.append(gain if known else "not distinguishable from cutting by size")
    state = settled(None if lost.low is None else is_resolved(lost, data.level))
    return Finding(f"What does the sparse wiring lose{_of(lost)}?", f"{'; '.join(clauses)}.", state)


def _of(row: Score) -> str:
    return f" ({model_name(row)})" if model_name(row) else ""


def effects(data: ReportData) -> Iterator[Score]:
    """The effect of every edge on every phenomenon: the edge as its plan, the suite and the model as its condition."""
    for row in data.rows.where(measure=vocab.EDGE_PHENOMENA, metric=("effect", "confirmed")):
        yield replace(row, plan=vocab.edge_name(row), condition=_where(row))


def _where(row: Score) -> str:
    return ", ".join(filter(None, (suite_name(row.condition or ""), model_name(row))))


def phenomenon_findings(data: ReportData) -> Iterator[Finding]:
    """For each suite and model the edges that are confirmed to carry a phenomenon, and the kind of features."""
    contrasts = Rows(
        replace(row, condition=_where(row))
        for row in data.rows.where(measure=vocab.EDGE_PHENOMENA, metric=("contrast", "rank_correlation"))
    )
    for where, rows in Rows(effects(data)).by("condition").items():
        confirmed = [row for row in rows.where(metric="confirmed") if is_resolved(row, data.level)]
        confirmed.sort(key=lambda row: -abs(row.value))
        tested = rows.where(metric="effect")
        edges = counted(max(len(own) for own in tested.by("task").values()), "edge")
        count = f"{counted(len(confirmed), 'effect')} of {edges} times {len(tested.axis('task'))} phenomena confirmed"
        shown = "; ".join(f"{vocab.edge_name(row)} for {row.task} {NATS.text(row)}" for row in confirmed[:SHOWN])
        more = f", and {len(confirmed) - SHOWN} more" if len(confirmed) > SHOWN else ""
        answer = f"{count} on pairs or sentences that did not choose{f': {shown}' if shown else ''}{more}."
        yield Finding(f"Which edges carry which phenomenon ({where})?", answer, settled(bool(confirmed)))
        yield from _contrast(where, contrasts.where(condition=where), data)


def _contrast(where: str, rows: Rows, data: ReportData) -> Iterator[Finding]:
    contrast, depth = rows.where(metric="contrast"), rows.one(metric="rank_correlation")
    if not contrast:
        return
    known = [row for row in contrast if is_resolved(row, data.level)]
    sides = {"linguistic": [row for row in known if row.value > 0], "surface": [row for row in known if row.value <= 0]}
    served = "; ".join(
        f"{side} features more: {', '.join(map(vocab.edge_name, own)) or 'no edge'}" for side, own in sides.items()
    )
    ordered = depth is not None and is_resolved(depth, data.level)
    words = "" if ordered else ", not distinguishable from none"
    reader = "" if depth is None else f"; with the depth of the reader {SIGNED.text(depth)}{words}"
    question = f"Do early layers serve surface features and later ones linguistic features ({where})?"
    yield Finding(question, f"Edges that serve {served}{reader}.", settled(bool(known) or ordered))


def _answer(data: ReportData) -> str:
    """What the sparse wiring loses, else what the edges carry, else whether size tells effect."""
    findings = (*reversed(list(edge_findings(data))), *phenomenon_findings(data))
    return "".join(map(in_text, findings[:1]))


WIRING = Kind(
    name="wiring",
    measures=(vocab.EDGES, vocab.EDGE_PHENOMENA, vocab.ALPHA),
    present=lambda data: (
        bool(data.rows.where(measure=(vocab.EDGES, vocab.EDGE_PHENOMENA)))
        or (bool(data.rows.where(measure=vocab.ALPHA)) and not is_pretrained(data))
    ),
    tiles=tiles,
    answer=_answer,
    sections=(
        Section(
            anchor=vocab.EDGES,
            parts=(
                Beside(
                    (
                        Scatter(
                            name="edges",
                            derive=by_edge,
                            point="task",
                            across={"metric": "weight"},
                            upwards={"metric": "effect"},
                            show_across=WEIGHT,
                            show=EFFECT,
                            choices={"Model": "arm"},
                            words=str,
                            rooted=True,
                            height=400,
                            at="{}",
                            depth_of=lambda row: row.other - 1 if row.other else None,
                        ),
                        Dots(name="edges-cut", derive=cuts, series="arm", words=str, show=LOST),
                    )
                ),
                Says(edge_findings),
            ),
        ),
        WEIGHTS,
        Section(
            anchor=vocab.EDGE_PHENOMENA,
            parts=lambda data: (
                Heat(
                    name="phenomena",
                    derive=effects,
                    where={"metric": "effect"},
                    x="plan",
                    y="task",
                    across="edge: reader <- source",
                    each="condition",
                    words=str,
                    show=NATS,
                    cell_words=label,
                    diverging=True,
                    root=True,
                    upwards=True,
                    text=lambda row: f"p {adjusted_p(row)}",
                ),
                Says(phenomenon_findings),
                Pivot(
                    name="confirmed",
                    derive=effects,
                    where={"metric": "confirmed"},
                    folded=True,
                    terminal=False,
                    rows={"edge": "plan", "suite": "condition", "phenomenon": "task"},
                    columns=(
                        Column("nats", "confirmed", SIGNED),
                        Column("p", show=adjusted_p),
                        Column("", show=lambda row: f"{'' if is_resolved(row, data.level) else 'not '}confirmed"),
                    ),
                ),
            ),
        ),
    ),
)
