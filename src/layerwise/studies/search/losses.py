"""Losses of plans on text, each computed once per run and stored at once, so that a resumed search reads them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, sweep
from layerwise.measure.interventions.sweep_pieces import head_in_layers
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.plan import Plan
from layerwise.results import Loss
from layerwise.runner.tasks import Task, TaskSession
from layerwise.search.cost import Spent
from layerwise.search.evaluator import GraphEvaluator
from layerwise.stack import Stack


class KeptLosses:
    """The losses of a run, read once and added to; `rows` are all of them."""

    def __init__(self, session: TaskSession) -> None:
        self.rows: list[Loss] = list(session.store.losses())
        self._session = session

    def evaluator(
        self, stack: Stack, name: str, rungs: Sequence[EvalData], most: Spent, *, in_bfloat16: bool = False
    ) -> GraphEvaluator:
        """Return an evaluator of plans on a text, `name` in its rows; progress is relative to `most`."""
        prefix = f"{name}/"
        known = [row for row in self.rows if row.task.startswith(prefix)]
        head, began = head_in_layers(stack), time.monotonic()

        def watch(spent: Spent) -> None:
            done, due = (each.layer_tokens + head * each.head_tokens for each in (spent, most))
            share = min(1.0, done / due)
            self._session.reporter.progress(name, share, (time.monotonic() - began) * (1 - share) / share)

        return GraphEvaluator(stack, rungs, self._add, known, prefix, watch, in_bfloat16=in_bfloat16)

    def sweep(self, stack: Stack, plans: Sequence[Plan], data: EvalData, label: str) -> None:
        """Add the losses of plans on a text that are missing. Raises what a sweep does."""

        def progress(meter: CostMeter, due: CostEstimate) -> None:
            share = meter.head_tokens / due.head_tokens if due.head_tokens else 1.0
            self._session.reporter.progress(label, share, meter.seconds_left(due))

        sweep(stack, plans, data, sink=self._add, finished=self._session.store.finished, progress=progress)

    def _add(self, rows: Sequence[Loss]) -> None:
        self._session.store.add_losses(rows)
        self.rows.extend(rows)


class LossesUnit(Task[KeptLosses]):
    """The losses of a run, to be asked for."""

    def carry_out(self, session: TaskSession) -> KeptLosses:
        return KeptLosses(session)
