"""What models know of minimal pairs, what they can be taught, and what is left of it under a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from layerwise.plan.member import GIVEN
from layerwise.report.data import ReportData
from layerwise.report.figures.curves import score_curves
from layerwise.report.figures.figure import Figure
from layerwise.report.figures.frame import limits
from layerwise.report.finding import Finding, settled
from layerwise.report.kind import Column, Kind, Part, Pivot, Says, Section, Tabled, in_text
from layerwise.report.kinds.pretraining import RIGHT, suite_findings
from layerwise.report.marks import Dots, Mark
from layerwise.report.page.figure_slot import Choice, Picture
from layerwise.report.page.number_format import percent, tidy
from layerwise.report.page.palette import series_slots
from layerwise.report.page.table import Table
from layerwise.report.page.wording import label
from layerwise.report.show import ABSENT, NUMBER, Show
from layerwise.report.sweep.curves import Curve, Point, curves_of
from layerwise.report.sweep.window import distinct
from layerwise.report.trained import TASKS, THREE, arms, by_arm, suite_name, suites, tiles
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import ALL, CHANCE, FINE_TUNED, MSGS, NORMALISED, OUR_MSGS, PARADIGM, PHENOMENON

PLANS = "fine_tuned_plans"
"""The anchor of the section, and the measure of notes on plans that a model cannot run."""
SMALL = 215  # height of one of the small multiples
SIGN = "On ambiguous tasks +1 is to generalise by structure, −1 by what meets the eye, 0 by neither."
REMARKS = {
    MSGS: SIGN,
    OUR_MSGS: f"{SIGN} These sentences are of our own making: the numbers compare with nothing but each other.",
}
SCORE = Show(axis="score")

View = tuple[str, str, str | None]
"""A task, one of its metrics, and the scale: none, or `NORMALISED`."""


def pair_rows(data: ReportData) -> Iterator[Score]:
    """The accuracies as they are drawn: over all paradigms, then of each phenomenon, or paradigm without phenomena."""
    for suite in suites(data):
        rows = by_arm(data.rows.where(measure=suite, metric="accuracy"))
        kind = PHENOMENON if rows.where(condition=PHENOMENON) else PARADIGM
        for row in rows.where(condition=None):
            yield replace(row, task="all paradigms")
        for row in rows.where(condition=kind):
            yield replace(row, task=label(row.task))


def suite_table(data: ReportData) -> Table:
    """A line a suite: its pairs, how many of their words the models can know, at which temperature."""
    body = []
    for suite in suites(data):
        rows = data.rows.where(measure=suite, condition=None)
        counts = [row.documents for row in rows.where(metric="accuracy") if row.documents]
        cells = [f"{max(counts):,}" if counts else ABSENT]
        for metric in ("coverage", "whole_words"):
            shares = [row.value for row in rows.where(metric=metric)]
            least, most = (percent(min(shares)), percent(max(shares))) if shares else (ABSENT, ABSENT)
            cells.append(least if least == most else f"{least} to {most}")
        temperatures = sorted({row.value for row in rows.where(metric="temperature")})
        body.append((suite_name(suite), *cells, ", ".join(map(tidy, temperatures)) or ABSENT))
    head = ("suite", "pairs", "words without unknown pieces", "one token each", "temperature")
    return Table(head, tuple(body))


def _by(name: str, condition: str) -> Pivot:
    """A table for each suite, a line for each phenomenon (or paradigm), a column for each arm."""

    def accuracies(data: ReportData) -> Rows:
        return by_arm(data.rows.where(measure=suites(data), metric="accuracy", condition=condition))

    def counted(rows: Rows) -> str:
        most = max((row.documents or 0 for row in rows), default=0)
        return f"{most:,}" if most else ABSENT

    return Pivot(
        name=name, derive=accuracies, rows={condition: "task"}, columns=(Column("pairs", text=counted),), across="arm",
        show=RIGHT, split="measure", words=suite_name, folded=True, terminal=False,
    )  # fmt: skip


def notes_of(names: Sequence[str], data: ReportData) -> Iterator[str]:
    """The notes of suites, which stand where their section does."""
    return (each.text for each in data.notes if each.measure in names)


def task_metrics(data: ReportData) -> list[tuple[str, str, str]]:
    """Every fine-tuned suite with each of its tasks and their metrics, models as trained alone."""
    rows = data.rows.where(measure=FINE_TUNED, plan=None, condition=None, against=None)
    names = ((row.measure, row.task, row.metric) for row in rows)
    return sorted(dict.fromkeys(names), key=lambda name: FINE_TUNED.index(name[0]))


def taught(data: ReportData) -> Iterator[Score]:
    """The scores of models as trained, and what the commonest label scores, each under its task and metric."""
    for suite, task, metric in task_metrics(data):
        rows = data.rows.where(measure=suite, task=task, metric=metric, plan=None, condition=None)
        yield from by_arm(rows.where(against=None))
        yield from _chances(rows)


def _in_one_figure(data: ReportData) -> Iterator[Score]:
    return (replace(row, task=f"{row.task}, {row.metric}", metric="score") for row in taught(data))


def _chances(rows: Rows) -> Iterator[Score]:
    """The first row of chance of a task and metric: it is the same for all arms."""
    return (replace(row, arm=None, seed=None, other=None) for row in rows.where(against=CHANCE)[:1])


def _remarks(data: ReportData) -> Iterator[str]:
    for suite, remark in REMARKS.items():
        if data.rows.where(measure=suite, plan=None):
            yield f"{TASKS[suite]}: {remark}"


def families(data: ReportData) -> tuple[str, ...]:
    """The families whose strategies have curves, in the order of the run."""
    return tuple(dict.fromkeys(each.family for each in data.plans if each.family not in (GIVEN, "identity")))


def strategies(data: ReportData, named: Sequence[str] = ()) -> tuple[str, ...]:
    """The strategies in the order of the run, all or those of some families."""
    kept = (each for each in data.plans if each.family != "identity" and (not named or each.family in named))
    return tuple(dict.fromkeys(record.strategy for record in kept))


def _trained(data: ReportData) -> str | None:
    return next((record.plan for record in data.plans if record.family == "identity"), None)


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
        """Every suite and arm that has a row under a plan."""
        for suite, of in data.rows.where(measure=FINE_TUNED, plan=PRESENT).by("measure").items():
            for arm in of.axis("arm"):
                rows = data.rows.where(measure=suite, arm=arm, seed=None, other=None)
                yield cls(suite, arm, rows, data.plans, _trained(data))

    def has(self, view: View) -> bool:
        """Whether the arm has this score under any plan but its own."""
        task, metric, condition = view
        return bool(self.rows.where(task=task, metric=metric, condition=condition, against=None, plan=PRESENT))

    @property
    def columns(self) -> tuple[View, ...]:
        """The main metric of every task, with which the rows of every plan begin, then what is made of all of them."""
        planned = self.rows.where(plan=PRESENT, against=None)
        # Scores from chance stand before the others while an evaluation that was killed is resumed.
        mains = {row.task: row.metric for row in reversed(planned.where(condition=None))}
        tasks = [task for task in planned.axis("task") if task != ALL and task in mains]
        own: list[View] = [(task, mains[task], None) for task in tasks]
        over: list[View] = [(ALL, "mean", None), (ALL, "mean", NORMALISED), (ALL, "median", NORMALISED)]
        return tuple(view for view in (*own, *over) if self.has(view))

    @property
    def views(self) -> tuple[View, ...]:
        """What is drawn: what is made of all tasks first, then every task as it is and on the scale from chance."""
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
        return Score.of(self.suite, metric, 1.0, task=task, arm=self.arm) if self.has(view) else None

    def curves(self, family: str, view: View) -> tuple[Curve, ...]:
        """The curves of a family, a strategy each."""
        records = (record for record in self.plans if record.family == family)
        return curves_of(records, lambda plan: self.score(plan, view))

    def levels(self, view: View) -> tuple[float | None, float | None]:
        """What the model as trained scores, and what chance does."""
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


@dataclass(frozen=True, kw_only=True)
class PlanCurves(Mark):
    """The scores of a suite by the number of layers that a strategy touches, for an arm, a family and a score.

    Then the tasks of the first arm and family side by side on one scale.
    """

    suite: str

    def figure(self, rows: Rows, data: ReportData, slots: object, all_rows: Rows) -> Figure | None:
        """Nothing by itself: `pictures` draws."""
        return None

    def pictures(self, data: ReportData) -> Iterator[Picture]:
        """The figure with its choices, then a small one for each task; nothing without a family."""
        own = [each for each in Taught.every(data) if each.suite == self.suite]
        named = families(data)
        shown = tuple(dict.fromkeys(view for each in own for view in each.views))
        variants: dict[tuple[int, ...], Figure] = {
            (at_arm, at_family, at): figure
            for at_arm, each in enumerate(own)
            for at_family, family in enumerate(named)
            for at, view in enumerate(shown)
            if (figure := self._drawn(data, each, family, view)) is not None
        }
        if not variants:
            return
        choices = (
            Choice("Arm", tuple(each.arm for each in own)),
            Choice("Family", tuple(map(label, named))),
            Choice("Score", tuple(map(heading, shown))),
        )
        yield Picture(self.name, f"{self.title} by the number of layers affected", variants, choices)
        yield from self._small(data, own[0], named[0])

    def _small(self, data: ReportData, own: Taught, family: str) -> Iterator[Picture]:
        tasks = [view for view in own.views if view[0] != ALL and view[2] == NORMALISED]
        points = [point for view in tasks for curve in own.curves(family, view) for point in curve.points]
        span = limits([1.0, *(value for point in points for value in (point.value, point.low, point.high))])
        if len(tasks) < 2 or span is None:
            return
        for number, view in enumerate(tasks):
            figure = self._drawn(data, own, family, view, SMALL, span)
            if figure is not None:
                yield Picture(f"{self.name}-{number}", heading(view), {(): figure}, leader=self.name)

    def _drawn(
        self, data: ReportData, own: Taught, family: str, view: View, height: int = 460,
        span: tuple[float, float] | None = None,
    ) -> Figure | None:  # fmt: skip
        drawn = own.curves(family, view)
        if not drawn:
            return None
        colours = series_slots(strategies(data))
        return score_curves(drawn, colours, heading(view), levels=own.levels(view), height=height, span=span)

    def rows(self, data: ReportData) -> Rows:
        """The strategies of the families that have curves, for the buttons beside the figure."""
        return Rows(Score.of(self.suite, "", 0.0, arm=name) for name in strategies(data, families(data)))


def plan_table(data: ReportData, suite: str, arm: str) -> Table:
    """The model as trained, every plan that was given, and every strategy at each size, a line each."""
    own = next(each for each in Taught.every(data) if (each.suite, each.arm) == (suite, arm))
    shown = own.columns
    body = []
    if own.trained is not None:
        body.append(("as trained", "0", "1", *(_text(own.score(None, view)) for view in shown)))
    for record in data.plans:
        if record.family == GIVEN:
            body.append((record.plan, ABSENT, "1", *(_text(own.score(record.plan, view)) for view in shown)))
    for family in families(data):
        points: dict[tuple[str, int], list[Point | None]] = {}
        for at, view in enumerate(shown):
            for curve in own.curves(family, view):
                for point in curve.points:
                    points.setdefault((curve.strategy, point.affected), [None] * len(shown))[at] = point
        for (strategy, affected), cells in points.items():
            plans = max(len({record.plan for record in point.records}) for point in cells if point is not None)
            body.append((label(strategy), str(affected), str(plans), *map(_text, cells)))
    return Table(("plan", "layers affected", "plans", *map(heading, shown)), tuple(body))


def _score_of(point: Point) -> Score:
    return Score.of("", "", point.value, point.low, point.high)


def _text(of: Score | Point | None) -> str:
    row = _score_of(of) if isinstance(of, Point) else of
    return THREE.text(row) if row is None or row.low is None else NUMBER.text(row)


def _ranked(own: Taught, family: str, depth: int) -> tuple[View, int, list[tuple[str, Point]]] | None:
    """The strategies of a family from the most that is left to the least, where about half of the layers are affected,
    by the mean on the scale from chance, else the plain mean, else the one task that there is."""
    wanted: tuple[View, ...] = ((ALL, "mean", NORMALISED), (ALL, "mean", None), *own.columns)
    view = next((each for each in wanted if own.has(each)), None)
    if view is None:
        return None
    curves = own.curves(family, view)
    sizes = [point.affected for curve in curves for point in curve.points]
    shared = [size for size in dict.fromkeys(sizes) if sizes.count(size) == max(map(sizes.count, sizes))]
    if not shared or len(curves) < 2:
        return None
    affected = min(shared, key=lambda size: (abs(2 * size - depth), size))
    at = {curve.strategy: point for curve in curves if (point := curve.at(affected)) is not None}
    ranked = sorted(distinct(at).items(), key=lambda item: -item[1].value)
    return (view, affected, ranked) if len(ranked) > 1 else None


def plan_findings(data: ReportData) -> Iterator[Finding]:
    """A finding for every suite, arm and family of several strategies: which leaves most."""
    for own in Taught.every(data):
        for family in families(data):
            ranked = _ranked(own, family, data.depth)
            if ranked is not None:
                yield _strongest(own.arm, data.depth, *ranked)


def _strongest(arm: str, depth: int, view: View, affected: int, ranked: list[tuple[str, Point]]) -> Finding:
    (first, most), (last, least) = ranked[0], ranked[-1]
    known = None if most.low is None or least.high is None else most.low > least.high
    verdict = {True: f"{label(first)} leaves more than {label(last)}: ", False: "Not resolvable: ", None: ""}[known]
    scores = ", ".join(f"{label(name)} {NUMBER.text(_score_of(point))}" for name, point in ranked)
    question = f"What is left of {heading(view)} of {arm} fine-tuned with {affected} of {depth} layers affected?"
    return Finding(question, f"{verdict[:1].upper()}{verdict[1:]}{scores}.", settled(known))


def _strongest_plan(data: ReportData) -> Iterator[str]:
    """The plan of the strategy that leaves most at half depth, where the intervals tell it from the least."""
    for own in Taught.every(data):
        for family in families(data):
            ranked = _ranked(own, family, data.depth)
            if ranked is None:
                continue
            (_, most), (_, least) = ranked[2][0], ranked[2][-1]
            if most.low is not None and least.high is not None and most.low > least.high:
                yield f"The plan that leaves most of {own.arm}, {ranked[1]} layers affected: {most.records[0].plan}"


def _plan_parts(data: ReportData) -> Iterator[Part]:
    """For every suite a figure to choose from and the tasks side by side, then the findings and a table an arm."""
    every = list(Taught.every(data))
    for suite in dict.fromkeys(each.suite for each in every):
        yield PlanCurves(
            name=f"{PLANS}-{suite}", title=TASKS[suite], suite=suite, series="arm", legend="Strategies", note="curves",
            slots=lambda names: {name: series_slots(strategies(data)).get(name, 0) for name in names},
        )  # fmt: skip
    yield Says(plan_findings)
    for each in every:
        table = partial(plan_table, suite=each.suite, arm=each.arm)
        yield Tabled(title=f"{TASKS[each.suite]} under plans, {each.arm}", table=table, folded=True, terminal=False)


def _answer(data: ReportData) -> str:
    """What is left under plans, else what is known of the first suite, else the first score of a fine-tuned task."""
    findings = (*plan_findings(data), *suite_findings(data))
    if findings:
        return in_text(findings[0])
    for suite, task, metric in task_metrics(data)[:1]:
        rows = Rows(taught(data)).where(measure=suite, task=task, metric=metric)
        scores = "; ".join(f"{row.arm} {NUMBER.text(row)}" for row in rows.where(against=None))
        chance = "".join(f"; chance {THREE.text(row)}" for row in rows.where(against=CHANCE))
        return f"{TASKS[suite]}, {task}, {metric}: {scores}{chance}."
    return ""


def _suite_notes(data: ReportData) -> Iterator[str]:
    return notes_of([suite for suite in suites(data) if suite != "pairs"], data)


def _task_notes(data: ReportData) -> Iterator[str]:
    yield from _remarks(data)
    yield from notes_of([suite for suite in FINE_TUNED if suite != "glue"], data)


EVALUATION = Kind(
    name="evaluation",
    measures=FINE_TUNED,
    present=lambda data: bool(suites(data)) or bool(data.rows.where(measure=FINE_TUNED)),
    tiles=tiles,
    answer=_answer,
    following=_strongest_plan,
    sections=(
        Section(anchor=PLANS, needs={"measure": FINE_TUNED, "plan": PRESENT}, parts=_plan_parts),
        Section(
            anchor="pairs", needs=lambda data: bool(data.rows.where(measure=suites(data), metric="accuracy")),
            parts=lambda data: (
                Dots(
                    name="suite", derive=pair_rows, each="measure", series="arm", arms=arms, words=suite_name,
                    legend="Arms", show=RIGHT,
                ),
                Says(suite_findings, terminal=not data.rows.where(measure="masked_lm")),
                Tabled(name="suites", table=suite_table, folded=True, terminal=False),
                _by("phenomena", PHENOMENON),
                _by("paradigms", PARADIGM),
                Says(_suite_notes, terminal=False),
            ),
        ),
        Section(
            anchor="glue", needs={"measure": FINE_TUNED, "plan": None}, parts=(
                Dots(
                    name="taught", derive=_in_one_figure, each="measure", series="arm", arms=arms, words=suite_name,
                    legend="Arms", show=SCORE, chance=CHANCE, from_zero=True,
                ),
                Pivot(
                    name="tasks", derive=taught, rows={"task": "task", "metric": "metric"}, across="arm",
                    columns=(Column("chance", show=THREE, where={"against": CHANCE}),), split="measure",
                    words=suite_name, folded=True, terminal=False,
                ),
                Says(_task_notes, terminal=False),
            ),
        ),
    ),
)  # fmt: skip
