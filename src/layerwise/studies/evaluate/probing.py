"""The page of probes, which predict linguistic and surface features from hidden states, compared with baselines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import judge_effect
from layerwise.page.formatting import ACCURACY, PERCENT, lookup_format, to_sentence
from layerwise.page.kind import Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Lines
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import PROBING, RANDOM_INIT, SHUFFLED

NULLS = {SHUFFLED: "shuffled labels", RANDOM_INIT: "randomly initialized model"}
FEATURES = {"part_of_speech": "part of speech", "length": "word length", "frequency": "word frequency"}
THE_MODEL = "this model"
POINTS = PERCENT.replace(unit=" points", signed=True)


def derive_states(data: ReportData) -> Iterator[Score]:
    """Yield the accuracy at each hidden state, for every model (averaged over seeds) and for the baselines."""
    run = data.rows.where(measure=PROBING, metric="accuracy")
    for against in (None, *NULLS):
        compared = run.where(against=against)
        for model in compared.axis("variant") or (None,) if against is None else (None,):
            scores = compared if model is None else compared.where(variant=model)
            for task in scores.axis("task"):
                for rows in scores.where(task=task).by("state").values():
                    yield replace(average(rows), variant=None if against else model or THE_MODEL)


def average(rows: Sequence[Score]) -> Score:
    if len(rows) == 1:
        return rows[0]
    value, low, high = (sum(getattr(row, name) or 0.0 for row in rows) / len(rows) for name in ("value", "low", "high"))
    return replace(rows[0], value=value, low=low, high=high, seed=None)


def write_findings(data: ReportData) -> Iterator[str]:
    run = data.rows.where(measure=PROBING)
    for model in run.axis("variant") or (None,):
        rows = run if model is None else run.where(variant=model)
        suffix = "" if model is None else f" of {model}"
        for task in rows.where(metric="accuracy").axis("task"):
            feature = lookup_format(FEATURES)(task)
            best = f"{feature} is best read from {_describe_best(rows.where(task=task))}"
            yield to_sentence(best) if model is None else f"In {model}, {best}"
        yield from _compare_sides(rows, suffix)


def _describe_best(rows: Rows) -> str:
    states = [average(each) for each in rows.where(metric="accuracy", against=None).by("state").values()]
    best = max(states, key=lambda row: row.value)
    text = f"state {best.state} (accuracy {ACCURACY.text(best)})"
    differences = [*rows.where(metric="accuracy_above", state=best.state)]
    if not differences:
        return f"{text}; it was not compared with a randomly initialized model."
    gained = average(differences)
    verdict = "" if judge_effect(gained, 0.05) != "open" else ", which is inconclusive"
    return f"{text}, {POINTS.text(gained)} compared with a randomly initialized model{verdict}."


def _compare_sides(rows: Rows, suffix: str) -> Iterator[str]:
    differences = [average(each) for each in rows.where(metric="difference").by("state").values()]
    for side, other, sign in (("linguistic", "surface", 1), ("surface", "linguistic", -1)):
        states = [row for row in differences if judge_effect(row, 0.05) != "open" and sign * row.value > 0]
        if states:
            shown = ", ".join(str(row.state) for row in states)
            most = max(states, key=lambda row: sign * row.value)
            yield (
                f"Training{suffix} improves {side} features more than {other} ones at states {shown}: "
                f"{POINTS.text(most)} at state {most.state} (linguistic minus surface)."
            )
    if differences and all(judge_effect(row, 0.05) == "open" for row in differences):
        yield f"Whether training{suffix} improves linguistic or surface features more is inconclusive at every state."


PROBING_KIND = Kind(
    name=PROBING,
    measures=(PROBING,),
    answer=join_statements(write_findings),
    sections=(
        Section(
            anchor=PROBING,
            parts=(
                Lines(
                    name="states",
                    derive=derive_states,
                    x="state",
                    series="variant",
                    choices={"feature": "task"},
                    words=lookup_format(FEATURES),
                    nulls=lambda name: NULLS.get(name, name),
                    across="hidden state (0: before the first layer)",
                    at="state {}",
                    show=ACCURACY,
                    height=400,
                    named=True,
                ),
                Text(write_findings),
                Pivot(
                    name="by-state",
                    derive=derive_states,
                    rows={"feature": "task", "side": "kind", "model": "variant"},
                    across="state",
                    show=PERCENT.replace(unit="", bounds=False, decimals=0),
                    where={"against": None},
                    words=lookup_format(FEATURES),
                    folded=True,
                ),
            ),
        ),
    ),
)
