"""The rows of models that were fine-tuned under plans, looked up: suite, arm, plan, task.

A row of the plan that is the model's own has the subject of the model as trained; every other one `PLAN of ARM`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from layerwise.plan.member import GIVEN
from layerwise.plan.subject import plan_and_label
from layerwise.report.interval import bounded
from layerwise.report.pretraining.lookup import TASKS
from layerwise.results.rows import PlanRecord, Score

ALL = "all"
MEAN, NORMALISED, CHANCE = "mean", "normalised_", "@chance"
PLANS = "fine_tuned_plans"
"""The anchor of the chapter, and the measure of notes on plans that a model cannot run."""


@dataclass(frozen=True, slots=True)
class FineTunedPlans:
    """Every finite score of models under plans: build it with `FineTunedPlans.of`.

    `records` are the plans in the order of the run, `trained` that of the model as trained, `arms` the arms with a row
    under some plan, `suites` the measures that have one.
    """

    records: tuple[PlanRecord, ...] = ()
    trained: str | None = None
    arms: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    _rows: Mapping[tuple[str, str, str, str], Score] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, scores: Iterable[Score], plans: Iterable[PlanRecord]) -> FineTunedPlans:
        """Look the rows up once; empty for a run in which nothing was fine-tuned under a plan."""
        finite = [bounded(score) for score in scores if score.measure in TASKS and math.isfinite(score.value)]
        named = [(score, *plan_and_label(score.subject)) for score in finite]
        arms = dict.fromkeys(label for _, plan, label in named if plan is not None and "/" not in label)
        if not arms:
            return cls()
        records = tuple(plans)
        trained = next((record.plan for record in records if record.family == "identity"), None)
        suites = dict.fromkeys(score.measure for score, plan, _ in named if plan is not None)
        rows = {(score.measure, score.subject, score.task, score.metric): score for score in finite}
        return cls(records, trained, tuple(arms), tuple(suites), rows)

    @property
    def families(self) -> tuple[str, ...]:
        """The families whose strategies have curves, in the order of the run."""
        return tuple(dict.fromkeys(each.family for each in self.records if each.family not in (GIVEN, "identity")))

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies in the order of the run."""
        return tuple(dict.fromkeys(record.strategy for record in self.records if record.family != "identity"))

    @property
    def drawn(self) -> frozenset[str]:
        """The strategies of the families that have curves."""
        return frozenset(record.strategy for record in self.records if record.family in self.families)

    def tasks(self, suite: str) -> tuple[str, ...]:
        """The tasks that were taught under some plan, as first met, and `ALL` at the end where they have a mean."""
        owned = dict.fromkeys(
            task for measure, subject, task, _ in self._rows if measure == suite and plan_and_label(subject)[0]
        )
        return (*(task for task in owned if task != ALL), *((ALL,) if ALL in owned else ()))

    def metric(self, suite: str, task: str) -> str:
        """The main metric of a task, with which the rows of every plan begin; of `ALL` the mean."""
        if task == ALL:
            return MEAN
        metrics = [metric for measure, _, of, metric in self._rows if (measure, of) == (suite, task)]
        # Scores from chance stand before the others while an evaluation that was killed is resumed.
        return next((metric for metric in metrics if not metric.startswith(NORMALISED)), metrics[0])

    def score(self, suite: str, arm: str, plan: str, task: str, metric: str) -> Score | None:
        """The score of an arm under a plan, or `None` where it was not measured.

        The model as trained is 1 on the scale that it makes itself.
        """
        if plan != self.trained:
            return self._rows.get((suite, f"{plan} of {arm}", task, metric))
        if not metric.startswith(NORMALISED):
            return self._rows.get((suite, arm, task, metric))
        return Score(suite, arm, task, metric, 1.0) if self.has(suite, arm, task, metric) else None

    def has(self, suite: str, arm: str, task: str, metric: str) -> bool:
        """Whether the arm has this metric on this task under any plan but its own."""
        plans = (record.plan for record in self.records if record.plan != self.trained)
        return any((suite, f"{plan} of {arm}", task, metric) in self._rows for plan in plans)

    def level(self, suite: str, arm: str, task: str, metric: str) -> tuple[float | None, float | None]:
        """What the model as trained scores, and what chance does."""
        if metric.startswith(NORMALISED):
            return 1.0, 0.0
        rows = (self._rows.get((suite, arm, task, metric + end)) for end in ("", CHANCE))
        trained, chance = (None if row is None else row.value for row in rows)
        return trained, chance
