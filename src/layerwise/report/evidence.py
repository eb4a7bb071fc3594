"""The rows of a run looked up, and the questions asked of them.

`Evidence` is the rows of a `ReportData` looked up by plan, task and metric, so that figures, tables and sentences all
read one source. Nothing here measures anything: a number that is not in the rows is not in
the report.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from layerwise.errors import PlanError, RunError
from layerwise.plan import Plan
from layerwise.plan.checks import LAYER_LIMIT
from layerwise.report.data import ReportData
from layerwise.report.text.number_format import verdict
from layerwise.results.rows import PlanRecord, Score
from layerwise.results.selection import PRESENT, Rows
from layerwise.results.vocabulary import DIAGNOSED, EFFECT, FINE_TUNED, ORDER, resampling_unit

ALL_TASKS = "all"
DELTA = "delta_nll"
_DIGITS = re.compile(r"\d{300}")
"""More digits than the name of a row has: the number of a layer, of a step or of a seed, or the name of a file."""

PRUNING = "pruning"
"""The family of the plans that a diagnosis runs to judge its scores; they are no plans of a sweep."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rows of a report, looked up: build it with `Evidence.of`.

    `schedules` holds the parsed plan of every record whose text is a plan, `records` one record per plan text (the
    first family that listed it), `tasks` every task with effects, "all" first.
    `run` holds all rows and plans as they are; the plans of `data` are those of a sweep: the pruned models of a
    diagnosis, and the plans of fine-tunings, are left to their own chapters.
    """

    run: ReportData
    data: ReportData
    depth: int
    tasks: tuple[str, ...]
    records: Mapping[str, PlanRecord]
    schedules: Mapping[str, Plan]
    _effects: Mapping[tuple[str, str, str], Score] = field(repr=False)

    @classmethod
    def of(cls, data: ReportData) -> Evidence:
        """Look the rows up once.

        Raises `RunError` for rows of more layers than a model has, or with a number too long to be read.
        """
        _refuse_impossible(data.scores)
        run = data
        depth = _depth(data) or data.depth
        if depth > LAYER_LIMIT:
            raise RunError(
                f"the rows of this run are of {depth:,} layers, and no model has more than {LAYER_LIMIT:,}; restore "
                "the run from a copy"
            )
        effects = {
            (str(score.plan), score.task, score.metric): score for score in data.scores if score.measure == EFFECT
        }
        under_plans = data.rows.where(measure=FINE_TUNED, plan=PRESENT)
        swept = {plan for plan, _, _ in effects} if under_plans else {record.plan for record in data.plans}
        data = replace(data, plans=tuple(each for each in data.plans if each.family != PRUNING and each.plan in swept))
        records: dict[str, PlanRecord] = {}
        for record in data.plans:
            records.setdefault(record.plan, record)
        named = dict.fromkeys(task for _, task, _ in effects)
        tasks = tuple(sorted(named, key=lambda task: (task != ALL_TASKS, task)))
        schedules = _schedules(records)
        return cls(run, data, depth, tasks, records, schedules, effects)

    @property
    def rows(self) -> Rows:
        """The finite rows, looked up by their columns."""
        return self.data.rows

    @property
    def named_tasks(self) -> tuple[str, ...]:
        """The tasks themselves, without their union "all"."""
        return tuple(task for task in self.tasks if task != ALL_TASKS)

    @property
    def main_task(self) -> str | None:
        """The task shown first: "all" where it was measured."""
        return self.tasks[0] if self.tasks else None

    @property
    def families(self) -> tuple[str, ...]:
        """Families in the order in which the run lists them."""
        return tuple(dict.fromkeys(record.family for record in self.data.plans))

    @property
    def strategies(self) -> tuple[str, ...]:
        """Strategies in the order in which the run lists them."""
        return tuple(dict.fromkeys(record.strategy for record in self.data.plans))

    @property
    def is_diagnosis(self) -> bool:
        """Whether the run diagnosed anything: it has rows of such a measure, or asked whether order matters."""
        return bool(self.rows.where(measure=DIAGNOSED)) or ORDER in self.families

    @property
    def units(self) -> str:
        """What the intervals over the text are over: "documents", or "windows" where the text has few documents."""
        documents = self.data.manifest.get("documents")
        return f"{resampling_unit(documents)}s" if isinstance(documents, int) else "documents"

    def effect(self, plan: str, task: str, metric: str = DELTA) -> Score | None:
        """The effect of one plan on one task, or `None` where it was not measured."""
        return self._effects.get((plan, task, metric))

    def verdict(self, plan: str) -> str:
        """The verdict on a plan on the main task, in words.

        Effects are differences to the untouched model, so that one has none itself: it is the baseline.
        """
        score = self.effect(plan, self.main_task) if self.main_task else None
        if score is None and self.depth and self.schedules.get(plan) == Plan.identity(self.depth):
            return "the baseline"
        return verdict(score, self.data.level)

    def scores(self, measure: str) -> tuple[Score, ...]:
        """Every score of one measure, in row order."""
        return tuple(score for score in self.data.scores if score.measure == measure)

    def has(self, task: str, metric: str) -> bool:
        """Whether any plan has this metric on this task."""
        return any(key[1] == task and key[2] == metric for key in self._effects)

    def baseline(self, task: str, metric: str) -> float | None:
        """What the untouched model scores: the metric of the identity plan, when the run measured it."""
        score = self.effect(str(Plan.identity(self.depth)), task, metric) if self.depth else None
        return score.value if score is not None and math.isfinite(score.value) else None


def _refuse_impossible(scores: Iterable[Score]) -> None:
    """Raise `RunError` for a name with a number that has too many digits to be read as one."""
    for name in {name for score in scores for name in (score.claim, score.task, score.metric) if name}:
        if _DIGITS.search(name):
            raise RunError(
                f"a row of this run is of {name[:40]!r}..., which is beyond any layer, step or seed; restore the run "
                "from a copy"
            )


def _schedules(records: Iterable[str]) -> dict[str, Plan]:
    schedules: dict[str, Plan] = {}
    for text in records:
        try:
            schedules[text] = Plan.parse(text)
        except PlanError:  # a row of a foreign store: it stays in the table and has no picture
            continue
    return schedules


def _depth(data: ReportData) -> int:
    """The depth that the manifest states, else that of the deepest layer that any plan or row names."""
    stated = data.manifest.get("depth")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        return stated
    return data.depth
