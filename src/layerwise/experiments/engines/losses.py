"""Losses of plans on text: each is computed once in the life of a run, and stored as soon as it is there.

A search asks for losses that depend on others. So the unit gives it `KeptLosses`, which know what is stored: a run that
was killed asks for the same losses again, reads those, and computes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from layerwise.experiments.engines.steps import Unit, UnitSession, Work, WorkCost, slow_seconds
from layerwise.experiments.sweep.works import typical_batch
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, sweep_into
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Loss, Run
from layerwise.search.cost import Spent
from layerwise.search.evaluator import GraphEvaluator
from layerwise.stack import Stack
from layerwise.stack.checks.checkpoint_files import numbers_of

_SAMPLE = 12
"""Plans on which the price of a loss is measured, about."""


class KeptLosses:
    """The losses of a run, read once and added to; `rows` are all of them.

    Those of other models than the one that plans are run on stand under names that begin with `others`.
    """

    def __init__(self, session: UnitSession, others: str = "") -> None:
        self.rows: list[Loss] = list(session.store.losses())
        self._session = session
        self._others = others

    def evaluator(
        self, stack: Stack, name: str, rungs: Sequence[EvalData], most: Spent | None = None, model: str = ""
    ) -> GraphEvaluator:
        """An evaluator of plans on the parts of a text, which its rows call `name`.

        `most` is what will be computed at most. With a `model` the rows of the model as trained stand under that name
        in place of its plan's, and no others are there.
        """
        prefix, own = f"{name}/", str(Plan.identity(stack.depth))
        of_part = [row for row in self.rows if row.task.startswith(prefix)]
        known = [replace(row, plan=own) for row in of_part if row.plan == model]
        if not model:
            known = [row for row in of_part if not self._others or not row.plan.startswith(self._others)]
        due = None if most is None else most.layer_tokens + most.head_tokens

        def keep(rows: Sequence[Loss]) -> None:
            self._add([replace(row, plan=model) for row in rows] if model else rows)

        def watch(spent: Spent) -> None:
            done = spent.layer_tokens + spent.head_tokens
            share = done / due if due else min(0.99, spent.head_tokens / max(1, spent.naive))
            left = None if most is None else most.at_rates(spent)
            self._session.reporter.progress(
                name, min(1.0, share), None if left is None else max(0.0, left - spent.seconds)
            )

        return GraphEvaluator(stack, rungs, keep, known, prefix, watch)

    def sweep(self, stack: Stack, plans: Sequence[Plan], data: EvalData, label: str) -> None:
        """Add the losses of plans on a text that are missing. Raises what `sweep_into` does."""

        def progress(meter: CostMeter, due: CostEstimate) -> None:
            share = meter.head_tokens / due.head_tokens if due.head_tokens else 1.0
            self._session.reporter.progress(label, share, meter.seconds_left(due))

        sweep_into(self._add, stack, plans, data, finished=self._session.store.finished, progress=progress)

    def _add(self, rows: Sequence[Loss]) -> None:
        self._session.store.add_losses(rows)
        self.rows.extend(rows)


@dataclass(frozen=True)
class LossesUnit(Unit[KeptLosses]):
    """The losses of a run, to be asked for.

    Where it is known that about so many `passes` of tokens will come, each of a plan like `plans` on text like `data`,
    their price is measured on some of both. `others` is what the names of other models begin with.
    """

    stack: Stack
    plans: Sequence[Plan] = ()
    data: EvalData | None = None
    passes: float = 0.0
    others: str = ""

    def carry_out(self, session: UnitSession) -> KeptLosses:
        """Read what is stored."""
        return KeptLosses(session, self.others)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """All of it, where nothing is stored yet."""
        if self.data is None or (run is not None and run.store.count_losses()):
            return
        calls = len(self.plans) * len(self.data.batches)
        slow = slow_seconds(2.0 * numbers_of(self.stack.model) * self.passes, calls)
        yield Work("losses", partial(self._cost, self.data), slow=slow)

    def _cost(self, data: EvalData, seconds: float) -> WorkCost:
        """Some of the plans on the typical batch, once the smallest has warmed the model up."""
        smallest = replace(data, batches=(min(data.batches, key=lambda batch: batch.size),))
        typical = replace(data, batches=(typical_batch(data),))
        some, whole = self.plans[:: max(1, len(self.plans) // _SAMPLE)], Plan.identity(self.stack.depth)
        GraphEvaluator(self.stack, [smallest]).evaluate([whole], 0, whole)
        evaluator = GraphEvaluator(self.stack, [typical])
        evaluator.evaluate(some, 0, whole)
        price = evaluator.spent.seconds / (len(some) * typical.batches[0].size)
        on = f"{len(some)} of {len(self.plans):,} plans, on 1 of {len(data.batches):,} batches"
        return WorkCost(price * self.passes, measured_on=on)
