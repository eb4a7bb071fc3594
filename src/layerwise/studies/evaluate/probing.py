"""A probe of hidden states: which surface and linguistic features are read from each, beside its nulls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import judge_effect
from layerwise.page.formatting import ACCURACY, PERCENT, lookup_format
from layerwise.page.kind import Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Lines
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import PROBING, RANDOM_TWIN, SHUFFLED

NULLS = {SHUFFLED: "shuffled labels", RANDOM_TWIN: "untrained twin"}
FEATURES = {"part_of_speech": "part of speech", "length": "length of a word", "frequency": "frequency of a word"}
THE_MODEL = "this model"
"""What the model of a run is called that has one."""
POINTS = PERCENT.replace(unit=" points", signed=True)


def by_state(data: ReportData) -> Iterator[Score]:
    """The accuracy of every arm by state, on the mean over its seeds; nulls on the mean over all models."""
    run = data.rows.where(measure=PROBING, metric="accuracy")
    for against in (None, *NULLS):
        own = run.where(against=against)
        for arm in own.axis("arm") or (None,) if against is None else (None,):
            of_arm = own if arm is None else own.where(arm=arm)
            for task in of_arm.axis("task"):
                for rows in of_arm.where(task=task).by("state").values():
                    yield replace(mean(rows), arm=None if against else arm or THE_MODEL)


def mean(rows: Sequence[Score]) -> Score:
    if len(rows) == 1:
        return rows[0]
    value, low, high = (sum(getattr(row, name) or 0.0 for row in rows) / len(rows) for name in ("value", "low", "high"))
    return replace(rows[0], value=value, low=low, high=high, seed=None)


def findings(data: ReportData) -> Iterator[str]:
    """Where each feature is read best, and whether that takes training; and which side gains more by it."""
    run = data.rows.where(measure=PROBING)
    for arm in run.axis("arm") or (None,):
        own = run if arm is None else run.where(arm=arm)
        of = "" if arm is None else f" of {arm}"
        for task in own.where(metric="accuracy").axis("task"):
            yield f"{lookup_format(FEATURES)(task)}{of}: {_best(own.where(task=task))}"
        yield from _sides(own, of)


def _best(rows: Rows) -> str:
    states = [mean(each) for each in rows.where(metric="accuracy", against=None).by("state").values()]
    best = max(states, key=lambda row: row.value)
    text = f"read best at state {best.state}, {ACCURACY.text(best)}"
    beyond = [*rows.where(metric="accuracy_above", state=best.state)]
    if not beyond:
        return f"{text}; there is no untrained twin beside it."
    gained = mean(beyond)
    verdict = "" if judge_effect(gained, 0.05) != "open" else ", so that nothing shows that it takes training"
    return f"{text}; {POINTS.text(gained)} beside the untrained twin's{verdict}."


def _sides(rows: Rows, of: str) -> Iterator[str]:
    differences = [mean(each) for each in rows.where(metric="difference").by("state").values()]
    for side, other, sign in (("linguistic", "surface", 1), ("surface", "linguistic", -1)):
        states = [row for row in differences if judge_effect(row, 0.05) != "open" and sign * row.value > 0]
        if states:
            shown = ", ".join(str(row.state) for row in states)
            most = max(states, key=lambda row: sign * row.value)
            yield (
                f"Training{of} gives {side} features more than {other} ones at the states {shown}: "
                f"{POINTS.text(most)} at state {most.state} (linguistic less surface)."
            )
    if differences and all(judge_effect(row, 0.05) == "open" for row in differences):
        yield f"At every state it is inconclusive whether training{of} gives linguistic or surface features more."


PROBING_KIND = Kind(
    name=PROBING,
    measures=(PROBING,),
    answer=join_statements(findings),
    sections=(
        Section(
            anchor=PROBING,
            parts=(
                Lines(
                    name="states",
                    derive=by_state,
                    x="state",
                    series="arm",
                    choices={"feature": "task"},
                    words=lookup_format(FEATURES),
                    nulls=lambda name: NULLS.get(name, name),
                    across="hidden state (0: before the first layer)",
                    at="state {}",
                    show=ACCURACY,
                    height=400,
                    named=True,
                ),
                Text(findings),
                Pivot(
                    name="by-state",
                    derive=by_state,
                    rows={"feature": "task", "side": "kind", "arm": "arm"},
                    across="state",
                    show=PERCENT.replace(unit="", bounds=False, decimals=0),
                    where={"against": None},
                    words=lookup_format(FEATURES),
                    terminal=False,
                    folded=True,
                ),
            ),
        ),
    ),
)
