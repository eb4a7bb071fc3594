"""Rehearsals: what is left of a swarm's quality and latency as its nodes die."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from layerwise.report.arms import arm_slots, in_reading_order
from layerwise.report.data import ReportData
from layerwise.report.kind import Column, Kind, Pivot, Says, Section
from layerwise.report.marks import Lines
from layerwise.report.show import Show, named
from layerwise.report.text.wording import listed
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import BASELINE, COMMONEST, NODES, REHEARSAL

QUALITY: Mapping[str, tuple[str, Show]] = {
    "accuracy": ("accuracy", Show(axis="accuracy (%)", scale=100.0, decimals=1)),
    "agreement": ("tokens as undisturbed", Show(axis="tokens as undisturbed (%)", scale=100.0, decimals=1)),
    "nll_added": ("nats per token added", Show(axis="nats per token added", decimals=2)),
}
"""The metrics of quality, each as it is called and shown."""

LATENCY = {"p50": "half of them", "p95": "95 %", "p99": "99 %"}
NAMES = {**LATENCY, **{metric: name for metric, (name, _) in QUALITY.items()}}
MILLISECONDS = Show(axis="milliseconds", scale=1000.0, decimals=1)
PLAIN = {
    metric: show.but(bounds=False)
    for metric, show in {
        "refused": Show(axis="refused (%)", scale=100.0, decimals=1),
        "missing": Show(axis="layers missing", decimals=2),
        "replays": Show(axis="replays a request", decimals=2),
    }.items()
}


def levels(data: ReportData) -> Rows:
    """The rows of every arm with so many dead nodes: arms in reading order, most replicas first, few dead first."""
    run = data.rows.where(measure=REHEARSAL, amount=PRESENT)
    arms, replicas = in_reading_order(run.axis("arm")), run.axis("condition")[::-1]
    return Rows(
        row
        for arm in arms
        for condition in replicas
        for row in sorted(run.where(arm=arm, condition=condition), key=lambda row: row.amount or 0.0)
    )


def curves(data: ReportData) -> Iterator[Score]:
    """Quality and latency as they are drawn, and what guessing the commonest class scores at every level."""
    rows = levels(data)
    for metric in (*QUALITY, *LATENCY):
        yield from rows.where(metric=metric, against=None)
    for row in data.rows.where(measure=REHEARSAL, against=COMMONEST)[:1]:
        for level in rows.where(metric="accuracy", arm=row.arm, against=None):
            yield replace(row, condition=level.condition, amount=level.amount)


def findings(data: ReportData) -> Iterator[str]:
    """For each arm what the loss of half of the nodes, or of the number next to it, costs; and what guessing scores."""
    rows = levels(data)
    nodes = data.rows.value(measure=REHEARSAL, metric=NODES) or 0.0
    deaths = [dead for dead in rows.axis("amount") if dead]
    if not deaths:
        return
    dead = min(sorted(deaths), key=lambda count: abs(2 * count - nodes))
    for arm in rows.axis("arm"):
        for condition in rows.where(arm=arm).axis("condition"):
            own = rows.where(arm=arm, condition=condition, amount=dead)
            yield from _costs(own, f"{arm}, {dead:g} of {nodes:g} nodes dead, {condition}", rows.axis("metric"))
    show = QUALITY["accuracy"][1]
    for value in dict.fromkeys(map(show.text, data.rows.where(measure=REHEARSAL, against=COMMONEST))):
        yield f"Always naming the commonest class scores {value} %."


def _costs(rows: Rows, where: str, measured: tuple[str, ...]) -> Iterator[str]:
    for metric, (name, show) in QUALITY.items():
        if metric not in measured:
            continue
        value = rows.one(metric=metric, against=None)
        if value is None:
            yield f"{where}: every request was refused."
            return
        text = f"{where}: {name} {show.text(value)}"
        lost = rows.one(metric=f"{metric}_lost")
        if lost is not None and metric != "nll_added":
            text += f", {show.text(lost)} {_resolved(lost, 'lost')}"
        above = rows.one(metric=f"{metric}_above", against=BASELINE)
        if above is not None:
            difference = show.but(signed=True).text(above)
            text += f"; {difference} against {BASELINE} {_resolved(above, 'by the same losses')}"
        yield text + "."


def _resolved(score: Score, words: str) -> str:
    if score.low is None or score.high is None:
        return f"{words} (the same in every draw)" if score.documents and score.documents > 1 else words
    return words if score.low > 0 or score.high < 0 else f"{words} (not resolvable in {score.documents} draws)"


def _answer(data: ReportData) -> str:
    """What the loss of half of the nodes costs the first arm, and the arms that lose less than the baseline or more."""
    sentences = list(findings(data))
    differing = [
        f"{row.arm} {'above' if row.value > 0 else 'below'} it ({row.condition}, {row.amount:g} dead)"
        for row in levels(data).where(metric="accuracy_above", against=BASELINE)
        if row.low is not None and row.high is not None and (row.low > 0 or row.high < 0)
    ]
    beside = [f"By the same losses, distinguished from {BASELINE}: {listed(differing)}."] if differing else []
    return " ".join([*sentences[:1], *beside])


def _tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    arms = len(levels(data).axis("arm"))
    yield f"{arms:,}", "arm" if arms == 1 else "arms"
    yield f"{data.rows.value(measure=REHEARSAL, metric=NODES) or 0:,.0f}", "nodes"


def _lines(name: str, title: str, question: str, metrics: Mapping[str, object], note: str = "") -> Lines:
    return Lines(
        name=name,
        title=title,
        derive=curves,
        where={"metric": tuple(metrics)},
        x="amount",
        series="arm",
        slots=arm_slots,
        legend="Arms",
        choices={"Replicas": "condition", question: "metric"},
        words=named(NAMES),
        across="dead nodes",
        at="{} nodes dead",
        height=400,
        nulls=lambda name: "always the commonest class",
        show=MILLISECONDS,
        note=note,
        by_choice={metric: {"show": show} for metric, (_, show) in QUALITY.items()},
    )


REHEARSAL_KIND = Kind(
    name=REHEARSAL,
    measures=(REHEARSAL,),
    answer=_answer,
    tiles=_tiles,
    sections=(
        Section(
            anchor=REHEARSAL,
            parts=(
                _lines("rehearsal-quality", "Quality by dead nodes", "Score", QUALITY),
                Says(findings),
                _lines("rehearsal-latency", "Latency by dead nodes", "Within", LATENCY, "curves"),
                Pivot(
                    name="every-number",
                    derive=levels,
                    folded=True,
                    words=named(NAMES),
                    rows={"arm": "arm", "replicas": "condition", "dead": "amount"},
                    columns=(
                        *(Column(show.axis, metric, show, {"against": None}) for metric, (_, show) in QUALITY.items()),
                        *(Column(f"{metric} (ms)", metric, MILLISECONDS.but(bounds=False)) for metric in LATENCY),
                        *(Column(show.axis, metric, show) for metric, show in PLAIN.items()),
                    ),
                ),
            ),
        ),
    ),
)
