"""What missing layers are expected to cost, as measured by a sweep: a set that was not measured is unknown.

layerwise sweep MODEL --families leave_one_out,every_window      every layer, and every run of layers, as nodes hold
                                                                 them
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from scipy.special import stdtrit

from layerwise.errors import SwarmError
from layerwise.plan.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.run import Run
from layerwise.results.vocabulary import DELTA, EFFECT, FEWEST_UNITS, resampling_unit
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected

POOLED = "all"
"""The task of the effects over all texts, where there are several."""

Missing = frozenset[int]
Measured = tuple[float, float | None, float | None]
"""The nats per token that a set costs, and the low and high end of its interval of 90 %, where it has one."""


@dataclass(frozen=True, slots=True, eq=False)
class LossEstimate:
    """What sets of missing layers of a model of `depth` layers cost, in nats per token.

    `plans` are the measured plans by their text, those that replace or move layers among them.
    """

    depth: int
    measured: Mapping[Missing, Measured]
    plans: Mapping[str, Measured] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise `SwarmError` for a set with layers that the model does not have."""
        if beyond := [layer for each in self.measured for layer in each if not 0 <= layer < self.depth]:
            raise SwarmError(
                f"layer {min(beyond)} was missing in a measured set, but the model has {self.depth} layers"
            )

    def expected(self, missing: Missing) -> Expected:
        """What a set of missing layers is expected to cost."""
        if not missing:
            return COMPLETE
        return Expected(*self.measured[missing], "measured") if missing in self.measured else UNKNOWN

    def of_plan(self, plan: str) -> Expected:
        """What a plan costs that was measured as it is; unknown for any other."""
        return Expected(*self.plans[plan], "measured") if plan in self.plans else UNKNOWN

    def single(self, layer: int) -> float | None:
        """What one missing layer costs; `None` where that is unknown."""
        return self.expected(frozenset({layer})).nats


def estimate_of_run(folder: Path | str) -> LossEstimate:
    """The estimate from the run folder of a sweep: its plans that are the trained order with layers missing.

    Of several tasks it is that of all together. Raises `SwarmError` where there is nothing to go by.
    """
    with Run.open(folder) as run:
        rows = run.store.scores(EFFECT, metric=DELTA)
        identity = [each.plan for each in run.store.plans() if each.family == "identity"]
        windows = [(row.task, row.document, row.window) for row in run.store.text_losses() if row.plan in identity[:1]]
    if not rows or not identity:
        raise SwarmError(
            f"{folder} holds no effects of plans beside the trained order: resume it until it is complete, or run "
            "layerwise sweep MODEL --families leave_one_out,every_window"
        )
    tasks = {row.task for row in rows}
    chosen = POOLED if POOLED in tasks else min(tasks)
    depth = len(Plan.parse(identity[0]).order())
    read = sum(chosen in (POOLED, task) for task, _, _ in windows)
    plans = {row.plan or "": _measured(row, read) for row in rows if row.task == chosen}
    sets = {missing_layers(Plan.parse(plan), depth): measured for plan, measured in plans.items()}
    return LossEstimate(depth, {each: measured for each, measured in sets.items() if each is not None}, plans)


def missing_layers(plan: Plan, depth: int) -> Missing | None:
    """The layers that a plan lacks if it is the trained order of the others; `None` for any other plan.

    >>> sorted(missing_layers(Plan.parse("0-2 5"), 6)), missing_layers(Plan.parse("0 2 1"), 3)
    ([3, 4], None)
    """
    steps = plan.steps()
    is_plain = all(not (step.opens or step.closes or step.sublayer or step.source) for step in steps)
    if not is_plain or any(after <= before for before, after in pairwise(plan.order())):
        return None
    return frozenset(range(depth)) - plan.layers()


def _measured(row: Score, windows: int) -> Measured:
    """The value with an interval of 90 %: the stored one is at 95 %, and Student's quantiles tell the difference.

    Their freedom is that of the documents, or of the windows that were read where there are fewer than 8 documents.
    """
    if row.low is None or row.high is None or not row.documents:
        return row.value, None, None
    units = row.documents if resampling_unit(row.documents) == "document" else max(FEWEST_UNITS, windows)
    share = float(stdtrit(units - 1, 0.95) / stdtrit(units - 1, 0.975))
    return row.value, row.value - share * (row.value - row.low), row.value + share * (row.high - row.value)
