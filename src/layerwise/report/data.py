"""What a report is made of: the manifest of a run, its plans and its scores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.results.rows import Loss, Note, PlanRecord, Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import ABLATION, ALL, DECISIONS, OF_STATES, RACING, ROBUSTNESS, SKIPPING, VERDICT


@dataclass(frozen=True)
class ReportData:
    """The rows of one run. Nothing here measures anything: a number that is not in the rows is not in the report.

    `manifest` is printed whole in the provenance; `model`, `corpus` and `depth` are also read for the title. `losses`
    are optional: with them, two plans are compared document by document, without them by their two intervals. `notes`
    say what a measure had to leave out; each stands in its chapter. `level` is the significance level of every verdict.
    """

    manifest: Mapping[str, object]
    plans: tuple[PlanRecord, ...]
    scores: tuple[Score, ...]
    losses: tuple[Loss, ...] = ()
    notes: tuple[Note, ...] = ()
    level: float = 0.05

    @cached_property
    def rows(self) -> Rows:
        """The scores, looked up by their columns.

        Values that are not finite are not measured: they are left out, and so is an interval that has one such end.
        """
        return Rows(_bounded(score) for score in self.scores if math.isfinite(score.value))

    @cached_property
    def depth(self) -> int:
        """The depth that the manifest states, or a row of a robustness run, else one more than the deepest layer of any
        plan or row; 0 for none."""
        stated = self.manifest.get("depth")
        if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
            return stated
        written = self.rows.value(measure=ROBUSTNESS, metric="depth")
        if written is not None and 0 < written < math.inf:
            return int(written)
        planned = (layer for plan in self.schedules.values() for layer in plan.layers())
        named = (row.layer for row in self.rows if row.layer is not None and row.measure not in OF_STATES)
        return 1 + max((*planned, *named), default=-1)

    @cached_property
    def schedules(self) -> dict[str, Plan]:
        """The plan of every record whose text is one, by its text."""
        parsed: dict[str, Plan] = {}
        for text in dict.fromkeys(record.plan for record in self.plans):
            try:
                parsed[text] = Plan.parse(text)
            except PlanError:  # a row of a foreign store: it stays in the table and has no picture
                continue
        return parsed


def skipped(rows: Rows) -> dict[int, Score]:
    """What skipping each layer costs on the whole text."""
    return _by_layer(rows.where(measure=ABLATION, metric=SKIPPING, task=ALL, part=None, against=None))


def concluded(rows: Rows) -> dict[int, Score]:
    """What each layer is: the confirmed verdict where there is one, else the verdict of the race."""
    return _by_layer(row for measure in (RACING, VERDICT) for row in rows.where(measure=measure, metric=DECISIONS))


def _by_layer(rows: Iterable[Score]) -> dict[int, Score]:
    by_layer = {row.layer: row for row in rows if row.layer is not None}
    return dict(sorted(by_layer.items()))


def _bounded(score: Score) -> Score:
    """The score, its interval left out unless both ends are finite."""
    if score.low is None and score.high is None:  # most rows of a run: nothing to leave out
        return score
    if all(bound is not None and math.isfinite(bound) for bound in (score.low, score.high)):
        return score
    return replace(score, low=None, high=None)
