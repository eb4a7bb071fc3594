"""What models know of minimal pairs, what they can be taught, and what is left of it under a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from layerwise.page.data import ReportData
from layerwise.page.derived.curves import average_draws, drop_duplicates, make_level_rows
from layerwise.page.figures.palette import series_slots
from layerwise.page.finding import Finding, to_verdict
from layerwise.page.formatting import ABSENT, NUMBER, Format, format_number, format_percent, label
from layerwise.page.kind import Column, CustomTable, Kind, Part, Pivot, Section, Text, format_statement, list_notes
from layerwise.page.marks import Dots, Lines
from layerwise.page.sections.layer_weights import RIGHT, suite_findings
from layerwise.page.table import Table
from layerwise.page.trained import (
    TASKS,
    THREE,
    average_by_variant,
    format_suite,
    list_fine_tuned_scores,
    list_suites,
    list_task_metrics,
    list_variants,
    make_tiles,
)
from layerwise.plan.painters import GIVEN, half_depth
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import (
    ALL,
    ATTRIBUTION,
    CHANCE,
    FINE_TUNED,
    MSGS,
    NORMALISED,
    OUR_MSGS,
    PARADIGM,
    PHENOMENON,
)
from layerwise.studies.evaluate.page_attribution import ATTRIBUTED

PLANS = "fine_tuned_plans"
"""The anchor of the section, and the measure of notes on plans that a model cannot run."""
SIGN = "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither."
REMARKS = {
    MSGS: SIGN,
    OUR_MSGS: f"{SIGN} These sentences are of our own making: the numbers compare with nothing but each other.",
}
SCORE = Format(axis="score")

View = tuple[str, str, str | None]
"""A task, one of its metrics, and the scale: none, or `NORMALISED`."""


def pair_rows(data: ReportData) -> Iterator[Score]:
    for suite in list_suites(data):
        rows = average_by_variant(data.rows.where(measure=suite, metric="accuracy"))
        kind = PHENOMENON if rows.where(kind=PHENOMENON) else PARADIGM
        for row in rows.where(kind=None):
            yield replace(row, task="all paradigms")
        for row in rows.where(kind=kind):
            yield replace(row, task=label(row.task))


def suite_table(data: ReportData) -> Table:
    body = []
    for suite in list_suites(data):
        rows = data.rows.where(measure=suite, kind=None)
        counts = [row.documents for row in rows.where(metric="accuracy") if row.documents]
        cells = [f"{max(counts):,}" if counts else ABSENT]
        for metric in ("coverage", "whole_words"):
            shares = [row.value for row in rows.where(metric=metric)]
            least, most = (format_percent(min(shares)), format_percent(max(shares))) if shares else (ABSENT, ABSENT)
            cells.append(least if least == most else f"{least} to {most}")
        temperatures = sorted({row.value for row in rows.where(metric="temperature")})
        body.append((format_suite(suite), *cells, ", ".join(map(format_number, temperatures)) or ABSENT))
    head = ("suite", "pairs", "words without unknown pieces", "one token each", "temperature")
    return Table(head, tuple(body))


def _accuracies(data: ReportData) -> Rows:
    return average_by_variant(
        data.rows.where(measure=list_suites(data), metric="accuracy", kind=(PHENOMENON, PARADIGM))
    )


def _count_pairs(rows: Rows) -> str:
    most = max((row.documents or 0 for row in rows), default=0)
    return f"{most:,}" if most else ABSENT


def _in_one_figure(data: ReportData) -> Iterator[Score]:
    return (replace(row, task=f"{row.task}, {row.metric}", metric="score") for row in list_fine_tuned_scores(data))


def _remarks(data: ReportData) -> Iterator[str]:
    for suite, remark in REMARKS.items():
        if data.rows.where(measure=suite, plan=None):
            yield f"{TASKS[suite]}: {remark}"


def families(data: ReportData) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.family for each in data.plans if each.family not in (GIVEN, "identity")))


@dataclass(frozen=True, slots=True)
class Taught:
    """One suite of one arm under plans: its rows of the arm itself, and the plans of the run."""

    suite: str
    arm: str
    rows: Rows
    plans: tuple[PlanRecord, ...]
    trained: str | None

    @classmethod
    def every(cls, data: ReportData) -> Iterator[Taught]:
        trained = next((record.plan for record in data.plans if record.family == "identity"), None)
        for suite, of in data.rows.where(measure=FINE_TUNED, plan=PRESENT).by("measure").items():
            for arm in of.axis("arm"):
                rows = data.rows.where(measure=suite, arm=arm, seed=None, tuning_seed=None)
                yield cls(suite, arm, rows, data.plans, trained)

    def has(self, view: View) -> bool:
        task, metric, condition = view
        return bool(self.rows.where(task=task, metric=metric, condition=condition, against=None, plan=PRESENT))

    @property
    def columns(self) -> tuple[View, ...]:
        planned = self.rows.where(plan=PRESENT, against=None)
        # Scores from chance stand before the others while an evaluation that was killed is resumed.
        mains = {row.task: row.metric for row in reversed(planned.where(condition=None))}
        tasks = [task for task in planned.axis("task") if task != ALL and task in mains]
        own: list[View] = [(task, mains[task], None) for task in tasks]
        over: list[View] = [(ALL, "mean", None), (ALL, "mean", NORMALISED), (ALL, "median", NORMALISED)]
        return tuple(view for view in (*own, *over) if self.has(view))

    @property
    def views(self) -> tuple[View, ...]:
        tasks = [view for view in self.columns if view[0] != ALL]
        scaled = [(task, metric, NORMALISED) for task, metric, _ in tasks]
        over = [view for view in self.columns if view[0] == ALL]
        return (*over, *tasks, *(view for view in scaled if self.has(view)))

    def score(self, plan: str | None, view: View) -> Score | None:
        """The score under a plan; the model as trained is 1 on the scale that it makes itself."""
        task, metric, condition = view
        of = self.rows.where(task=task, metric=metric, condition=condition, against=None)
        if plan is not None and plan != self.trained:
            return of.one(plan=plan)
        if condition is None:
            return of.one(plan=None)
        return Score(self.suite, metric, 1.0, task=task, arm=self.arm) if self.has(view) else None

    def curves(self, view: View) -> Rows:
        records = (record for record in self.plans if record.family not in (GIVEN, "identity"))
        return Rows(average_draws(records, lambda plan: self.score(plan, view)))

    def levels(self, view: View) -> tuple[float | None, float | None]:
        task, metric, condition = view
        if condition is not None:
            return 1.0, 0.0
        of = self.rows.where(task=task, metric=metric, condition=None, plan=None)
        return of.value(against=None), of.value(against=CHANCE)


def heading(view: View) -> str:
    """A task and its metric as they are read.

    >>> heading(("rte", "accuracy", None)), heading(("all", "mean", None)), heading(("all", "median", NORMALISED))
    ('rte, accuracy', 'mean', 'normalised median')
    """
    task, metric, condition = view
    words = " ".join(filter(None, (condition, label(metric))))
    return words if task == ALL else f"{task}, {words}"


def curves(data: ReportData, suite: str) -> Iterator[Score]:
    for own in Taught.every(data):
        for view in own.views if own.suite == suite else ():
            known = {"as trained": own.levels(view)[0], CHANCE: own.levels(view)[1]}
            for rows in own.curves(view).by("family").values():
                drawn = Rows(replace(row, arm=own.arm, task=heading(view)) for row in rows)
                yield from drawn
                yield from make_level_rows(drawn, {name: level for name, level in known.items() if level is not None})


def _curve_mark(data: ReportData, suite: str) -> Lines:
    strategies = dict.fromkeys(each.strategy for each in data.plans if each.family != "identity")
    colours = series_slots(tuple(strategies))
    return Lines(
        name=f"{PLANS}-{suite}",
        title=f"{TASKS[suite]} by the number of layers affected",
        derive=partial(curves, suite=suite),
        x="affected",
        across="layers affected",
        at="{}",
        nulls=str,
        series="strategy",
        slots=lambda names: {name: colours.get(name, 0) for name in names},
        faint="seed",
        words=lambda name: label(str(name)),
        show=SCORE,
        legend="Strategies",
        choices={"Arm": "arm", "Family": "family", "Score": "task"},
        height=460,
        note="curves",
    )


def plan_table(data: ReportData, suite: str, arm: str) -> Table:
    own = next(each for each in Taught.every(data) if (each.suite, each.arm) == (suite, arm))
    shown = own.columns
    body = []
    if own.trained is not None:
        body.append(("as trained", "0", "1", *(_text(own.score(None, view)) for view in shown)))
    for record in data.plans:
        if record.family == GIVEN:
            body.append((record.plan, ABSENT, "1", *(_text(own.score(record.plan, view)) for view in shown)))
    columns = [own.curves(view) for view in shown]
    lines = dict.fromkeys((row.family, row.strategy, row.affected) for rows in columns for row in rows)
    for family, strategy, affected in lines:
        cells = [rows.where(family=family, strategy=strategy, affected=affected) for rows in columns]
        plans = max(len(cell.axis("plan")) for cell in cells)
        means = (_text(cell.one(seed=None)) for cell in cells)
        body.append((label(str(strategy)), f"{affected:g}", str(plans), *means))
    return Table(("plan", "layers affected", "plans", *map(heading, shown)), tuple(body))


def _text(row: Score | None) -> str:
    return THREE.text(row) if row is None or row.low is None else NUMBER.text(row)


def _ranked(own: Taught, family: str, depth: int) -> tuple[View, list[Score]] | None:
    wanted: tuple[View, ...] = ((ALL, "mean", NORMALISED), (ALL, "mean", None), *own.columns)
    view = next((each for each in wanted if own.has(each)), None)
    rows = own.curves(view).where(family=family) if view is not None else Rows()
    if view is None or len(rows.axis("strategy")) < 2:
        return None
    measured = {(row.strategy, row.affected) for row in rows}
    records = (each for each in own.plans if each.family == family and (each.strategy, each.affected) in measured)
    at = Rows(drop_duplicates(rows.where(affected=half_depth(records, depth)))).where(seed=None)
    return (view, sorted(at, key=lambda row: -row.value)) if len(at) > 1 else None


def _at_half(data: ReportData) -> Iterator[tuple[Taught, str, View, list[Score]]]:
    for own in Taught.every(data):
        for family in families(data):
            if (best_first := _ranked(own, family, data.depth)) is not None:
                yield own, family, *best_first


def _is_apart(ranked: list[Score]) -> bool | None:
    most, least = ranked[0], ranked[-1]
    return None if most.low is None or least.high is None else most.low > least.high


def plan_findings(data: ReportData) -> Iterator[Finding]:
    for own, _, view, ranked in _at_half(data):
        first, last = (label(str(row.strategy)) for row in (ranked[0], ranked[-1]))
        known, affected = _is_apart(ranked), f"{ranked[0].affected} of {data.depth} layers affected"
        verdict = {True: f"{first} leaves more than {last}: ", False: "Inconclusive: ", None: ""}[known]
        scores = ", ".join(f"{label(str(row.strategy))} {NUMBER.text(row)}" for row in ranked)
        question = f"What is left of {heading(view)} of {own.arm} fine-tuned with {affected}?"
        yield Finding(question, f"{verdict[:1].upper()}{verdict[1:]}{scores}.", to_verdict(known))


def _strongest_plan(data: ReportData) -> Iterator[str]:
    for own, family, view, ranked in _at_half(data):
        if _is_apart(ranked):
            most = ranked[0]
            plans = own.curves(view).where(family=family, strategy=most.strategy, affected=most.affected).axis("plan")
            yield f"The plan that leaves most of {own.arm}, {most.affected} layers affected: {plans[0]}"


def _plan_parts(data: ReportData) -> Iterator[Part]:
    every = list(Taught.every(data))
    for suite in dict.fromkeys(each.suite for each in every):
        if families(data):
            yield _curve_mark(data, suite)
    yield Text(plan_findings)
    for each in every:
        table = partial(plan_table, suite=each.suite, arm=each.arm)
        yield CustomTable(
            title=f"{TASKS[each.suite]} under plans, {each.arm}", table=table, folded=True, terminal=False
        )


def _answer(data: ReportData) -> str:
    findings = (*plan_findings(data), *suite_findings(data))
    if findings:
        return format_statement(findings[0])
    for suite, task, metric in list_task_metrics(data)[:1]:
        rows = Rows(list_fine_tuned_scores(data)).where(measure=suite, task=task, metric=metric)
        scores = "; ".join(f"{row.arm} {NUMBER.text(row)}" for row in rows.where(against=None))
        chance = "".join(f"; chance {THREE.text(row)}" for row in rows.where(against=CHANCE))
        return f"{TASKS[suite]}, {task}, {metric}: {scores}{chance}."
    return ""


TASK_TABLE = Pivot(
    name="tasks",
    derive=list_fine_tuned_scores,
    rows={"task": "task", "metric": "metric"},
    across="arm",
    columns=(Column("chance", show=THREE, where={"against": CHANCE}),),
    split="measure",
    words=format_suite,
    folded=True,
    terminal=False,
)

EVALUATION = Kind(
    name="evaluation",
    rank=6,
    measures=(*FINE_TUNED, ATTRIBUTION),
    present=lambda data: bool(list_suites(data)) or bool(data.rows.where(measure=(*FINE_TUNED, ATTRIBUTION))),
    tiles=make_tiles,
    answer=_answer,
    following=_strongest_plan,
    sections=(
        Section(anchor=PLANS, needs={"measure": FINE_TUNED, "plan": PRESENT}, parts=_plan_parts),
        Section(
            anchor="pairs",
            needs=lambda data: bool(data.rows.where(measure=list_suites(data), metric="accuracy")),
            parts=lambda data: (
                Dots(
                    name="suite",
                    derive=pair_rows,
                    each="measure",
                    series="arm",
                    arms=list_variants,
                    words=format_suite,
                    legend="Arms",
                    show=RIGHT,
                ),
                Text(suite_findings, terminal=not data.rows.where(measure="masked_lm")),
                CustomTable(name="suites", table=suite_table, folded=True, terminal=False),
                Pivot(
                    name="paradigms",
                    derive=_accuracies,
                    rows={"level": "kind", "name": "task"},
                    columns=(Column("pairs", text=_count_pairs),),
                    across="arm",
                    show=RIGHT,
                    split="measure",
                    words=format_suite,
                    folded=True,
                    terminal=False,
                ),
                Text(list_notes(*(suite for suite in list_suites(data) if suite != "pairs")), terminal=False),
            ),
        ),
        Section(
            anchor="glue",
            needs={"measure": FINE_TUNED, "plan": None},
            parts=(
                Dots(
                    name="taught",
                    derive=_in_one_figure,
                    each="measure",
                    series="arm",
                    arms=list_variants,
                    words=format_suite,
                    legend="Arms",
                    show=SCORE,
                    chance=CHANCE,
                    from_zero=True,
                ),
                TASK_TABLE,
                Text(_remarks, terminal=False),
                Text(list_notes(*(suite for suite in FINE_TUNED if suite != "glue")), terminal=False),
            ),
        ),
        ATTRIBUTED,
    ),
)
