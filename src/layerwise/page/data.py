"""The data of a report: the manifest of a run, its plans and its scores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from layerwise.errors import PlanError, RunError
from layerwise.page.formatting import describe_verdict, join_words
from layerwise.plan import Plan
from layerwise.plan.checks import LAYER_LIMIT
from layerwise.results import vocabulary as vocab
from layerwise.results.manifest import model_title
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.selection import PRESENT, Rows

P = ParamSpec("P")
T = TypeVar("T")
_DIGITS = re.compile(r"\d{300}")


@dataclass(frozen=True)
class ReportData:
    """The rows of one run. Every number in its report is computed from them.

    The page lists the `manifest` in its chapter on provenance. If `losses` are given, two plans are compared document
    by document, otherwise by their intervals. `level` is the significance level. In a comparison of models, `runs` maps
    the name of each model to its run.
    """

    manifest: Mapping[str, object]
    plans: tuple[PlanRecord, ...]
    scores: tuple[Score, ...]
    losses: tuple[Loss, ...] = ()
    notes: tuple[Note, ...] = ()
    level: float = 0.05
    runs: Mapping[str, ReportData] = field(default_factory=dict)
    computed: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def title(self) -> str:
        """Return the name of the model, or the names of all models that are compared."""
        names = (str(self.manifest.get(key) or "") for key in ("model", "structure"))
        return join_words(list(self.runs)) or model_title(*names)

    @cached_property
    def rows(self) -> Rows:
        """Return the scores that are finite. An interval with a bound that is not finite is removed."""
        for name in {name for score in self.scores for name in (score.claim, score.task, score.metric) if name}:
            if _DIGITS.search(name):
                raise RunError(f"The name {name[:40]!r}... contains too many digits. Restore the run from a copy.")
        return Rows(_bounded(score) for score in self.scores if math.isfinite(score.value))

    @cached_property
    def depth(self) -> int:
        """Return the number of layers, or 0 if neither the manifest nor the rows contain it."""
        depth = self._depth()
        if depth > LAYER_LIMIT:
            raise RunError(
                f"The number of layers must be at most {LAYER_LIMIT:,}, got {depth:,}. Restore the run from a copy."
            )
        return depth

    def _depth(self) -> int:
        stated = self.manifest.get("depth")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated
        recorded = self.rows.value(measure=vocab.ROBUSTNESS, metric="depth")
        if recorded is not None and 0 < recorded < math.inf:
            return int(recorded)
        planned = (layer for plan in self.schedules.values() for layer in plan.layers())
        in_rows = (row.layer for row in self.rows if row.layer is not None)
        return 1 + max((*planned, *in_rows), default=-1)

    @cached_property
    def schedules(self) -> dict[str, Plan]:
        parsed: dict[str, Plan] = {}
        for text in dict.fromkeys(record.plan for record in self.plans):
            try:
                parsed[text] = Plan.parse(text)
            except PlanError:  # shown in the table without a picture
                continue
        return parsed

    @cached_property
    def swept(self) -> tuple[PlanRecord, ...]:
        """Return the plans that were swept, except those that only fine-tuned models ran.

        A plan that is in several families has one record in each.
        """
        if not self.rows.where(measure=vocab.FINE_TUNED, plan=PRESENT):
            return self.plans
        measured = {plan for plan, _, _ in self._effects}
        return tuple(record for record in self.plans if record.plan in measured)

    @cached_property
    def records(self) -> dict[str, PlanRecord]:
        records: dict[str, PlanRecord] = {}
        for record in self.swept:
            records.setdefault(record.plan, record)
        return records

    @property
    def strategies(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.strategy for record in self.swept))

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks (groups of documents) on which plans were measured. The whole text comes first."""
        return tuple(sorted({task for _, task, _ in self._effects}, key=lambda task: (task != vocab.ALL, task)))

    @property
    def named_tasks(self) -> tuple[str, ...]:
        return tuple(task for task in self.tasks if task != vocab.ALL)

    @property
    def units(self) -> str:
        """Return the resampling unit: "documents", or "windows" if the text has few documents."""
        documents = self.manifest.get("documents")
        return f"{vocab.resampling_unit(documents)}s" if isinstance(documents, int) else "documents"

    @cached_property
    def _effects(self) -> dict[tuple[str, str, str], Score]:
        return {(str(row.plan), row.task, row.metric): row for row in self.scores if row.measure == vocab.EFFECT}

    def verdict(self, plan: str) -> str:
        """Return the verdict on a plan for the whole text, or "original model" if it is the identity plan."""
        score = self.effect(plan, self.tasks[0]) if self.tasks else None
        if score is None and self.depth and self.schedules.get(plan) == Plan.identity(self.depth):
            return "original model"
        return describe_verdict(score, self.level)

    def effect(self, plan: str, task: str, metric: str = vocab.DELTA) -> Score | None:
        """Return the effect of a plan on a task, or None if it was not measured. The value may be infinite or NaN."""
        return self._effects.get((plan, task, metric))


def read_skip_effects(rows: Rows) -> dict[int, Score]:
    return _by_layer(rows.where(measure=vocab.ABLATION, metric=vocab.SKIPPING, task=vocab.ALL, part=None, against=None))


def read_layer_verdicts(rows: Rows) -> dict[int, Score]:
    return _by_layer(
        row for measure in (vocab.RACING, vocab.VERDICT) for row in rows.where(measure=measure, metric=vocab.DECISIONS)
    )


def _by_layer(rows: Iterable[Score]) -> dict[int, Score]:
    by_layer = {row.layer: row for row in rows if row.layer is not None}
    return dict(sorted(by_layer.items()))


def _bounded(score: Score) -> Score:
    if score.low is None and score.high is None:
        return score
    if all(bound is not None and math.isfinite(bound) for bound in (score.low, score.high)):
        return score
    return replace(score, low=None, high=None)


def cached_per_run(function: Callable[Concatenate[ReportData, P], T]) -> Callable[Concatenate[ReportData, P], T]:
    @wraps(function)
    def look_up(data: ReportData, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (function, args, tuple(kwargs.items()))
        if key not in data.computed:
            data.computed[key] = function(data, *args, **kwargs)
        result: T = data.computed[key]
        return result

    return look_up
