"""Plans on text, a round at a time: all candidates of a round are one graph, and what their parent computed is held.

A search asks for the same plan again and again, and for plans that differ from one another in a layer or two. So

    a loss is computed once       rows are kept, and those of a run that was killed are read back
    beginnings are shared         the plans of a round are a hash-consed graph (`layerwise.stack.executors.graph`)
    the parent's states are held  batch by batch, as far as candidates leave it: each pays only for what comes after.
                                  What would not fit into `most_bytes` is computed again

Batches depend on the text alone, so a plan's loss is the same number whatever is computed beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData, pieces
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.measure.stats.grid import Cell
from layerwise.measure.stats.statistics import Numbers
from layerwise.measure.stats.strata import FEWEST_DOCUMENTS
from layerwise.plan import Plan
from layerwise.plan.plan import Stage
from layerwise.results.rows import Loss
from layerwise.search.cost import Forks, Spent, common_beginning
from layerwise.search.moves import stages
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import GraphExecutor
from layerwise.stack.inputs import evaluating

MOST_BYTES = 1 << 30
"""The states of parents that are held at most: 1 GiB."""

NOT_FINITE = 1e6
"""What a token counts, in nats, under a plan whose loss is not finite: more than any other."""

Sink = Callable[[Sequence[Loss]], None]


@dataclass
class _Parent:
    """One batch, and the states along the parent: before its first stage, and after each as far as it was needed."""

    captured: Capture
    way: tuple[Stage, ...]
    states: list[Tensor]

    @property
    def bytes(self) -> int:
        return sum(state.numel() * state.element_size() for state in self.states)


@dataclass
class GraphEvaluator:
    """Losses of plans on the `rungs` of a text; an `Evaluator` of `layerwise.search.rungs`.

    `sink` receives new rows as soon as they exist; `known` rows are not computed. `spent` counts what was computed.
    `watch` is called after every batch. The rows carry the task of the text behind `prefix`.
    """

    stack: Stack
    rungs: Sequence[EvalData]
    sink: Sink = lambda rows: None
    known: Iterable[Loss] = ()
    prefix: str = ""
    watch: Callable[[Spent], None] = lambda spent: None
    most_bytes: int = MOST_BYTES
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self._rows: dict[str, dict[Cell, float]] = {}
        for row in self.known:
            if row.task.startswith(self.prefix):
                self._note(row)
        self._parents: dict[tuple[int, int], _Parent] = {}
        self._bytes = 0
        # One way of dividing the text into units holds for all rungs.
        whole = sum(len(pieces(data, fewest=1)) for data in self.rungs) >= FEWEST_DOCUMENTS
        self._units = [_units(data, whole) for data in self.rungs]

    @property
    def tokens(self) -> Sequence[Numbers]:
        """For each rung, the scored tokens of every document, or window where the text has few documents."""
        return [np.array([sum(cells.values()) for cells in units.values()], dtype=float) for units in self._units]

    @property
    def batch_tokens(self) -> list[int]:
        """For each rung, the tokens that go through the layers, padding included."""
        return [sum(batch.size for batch in data.batches) for data in self.rungs]

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        """The summed loss of every plan on every unit of a rung: (plans, units).

        Raises `MeasureError` where the model as trained has a loss that is not finite; that of another plan counts as
        `NOT_FINITE`.
        """
        texts = {plan: str(plan) for plan in dict.fromkeys(plans)}  # a plan is long to write, and there are many cells
        new = [plan for plan, text in texts.items() if text not in self._rows]
        known = {plan: self._rows.setdefault(text, {}) for plan, text in texts.items()}
        self.spent.naive += sum(len(plan.steps()) for plan in new) * sum(self.batch_tokens)
        began = time.perf_counter()
        with evaluating(self.stack.model), torch.inference_mode():
            for number, batch in enumerate(self.rungs[rung].batches):
                cells = [(window.task, window.document, window.index) for window in batch.windows]
                missing = [plan for plan, rows in known.items() if any(cell not in rows for cell in cells)]
                if missing:
                    self._measure((rung, number), batch, missing, parent)
                    self.watch(self.spent)
        self.spent.seconds += time.perf_counter() - began
        units = self._units[rung].values()
        return np.array(
            [[sum(rows[cell] for cell in unit) for unit in units] for rows in map(known.__getitem__, plans)]
        )

    def complete(self) -> dict[Plan, float]:
        """The plans that have read all of the text, with their mean losses in nats per token."""
        cells = [cell for units in self._units for unit in units.values() for cell in unit]
        total = sum(float(tokens.sum()) for tokens in self.tokens)
        return {
            Plan.parse(plan): sum(rows[cell] for cell in cells) / total
            for plan, rows in self._rows.items()
            if len(rows) >= len(cells)
        }

    def losses(self, plans: Iterable[Plan]) -> list[Loss]:
        """The rows of plans that have read all of the text."""
        units = [unit for each in self._units for unit in each.values()]
        return [
            Loss(text, *cell, self._rows[text][cell], tokens, 0)
            for text in dict.fromkeys(map(str, plans))
            for unit in units
            for cell, tokens in unit.items()
        ]

    def _note(self, row: Loss) -> None:
        self._rows.setdefault(row.plan, {})[self._cell(row)] = row.nll

    def _cell(self, row: Loss) -> Cell:
        return row.task.removeprefix(self.prefix), row.document, row.window

    def _measure(self, key: tuple[int, int], batch: AnyBatch, plans: Sequence[Plan], parent: Plan) -> None:
        """All plans on one batch, each from where it leaves the parent."""
        clock, heads = time.perf_counter(), self.spent.head_seconds
        way = stages(parent)
        forks = Forks.of(plans, way)
        held = self._held(key, batch, way, forks.deepest)
        for after, plan in forks.ends.items():
            self._take(batch, [plan], held.states[after])
        for after, (graph, tails) in forks.at.items():
            plans_at: dict[int, list[Plan]] = {}
            for tail, node in graph.ends.items():
                plans_at.setdefault(node, []).append(tails[tail])
            walk = GraphExecutor(
                graph,
                lambda layer, state, part, source: self.stack.apply(layer, state, held.captured, part, source),
                held.states[after],
            )
            for node, state in walk.states():
                self._take(batch, plans_at[node], state)
            self.spent.layer_tokens += walk.evaluated * batch.size
        if self._bytes + held.bytes <= self.most_bytes:
            self._parents[key] = held
            self._bytes += held.bytes
        self.spent.layer_seconds += time.perf_counter() - clock - (self.spent.head_seconds - heads)

    def _held(self, key: tuple[int, int], batch: AnyBatch, way: Sequence[Stage], depth: int) -> _Parent:
        """The states along the first `depth` stages of the parent; those of the last one as far as both agree."""
        before = self._parents.pop(key, None)
        if before is None:
            captured = self.stack.capture(**{name: value.to(self.stack.device) for name, value in batch.inputs.items()})
            before = _Parent(captured, (), [captured.state])
        else:
            self._bytes -= before.bytes
        alike = common_beginning(before.way, way)
        held = _Parent(before.captured, tuple(way[: max(alike, depth)]), before.states[: alike + 1])
        for stage in way[len(held.states) - 1 : depth]:
            plan = Plan((stage,))
            walk = GraphExecutor(
                Forks.of([plan], ()).at[0][0],
                lambda layer, state, part, source: self.stack.apply(layer, state, held.captured, part, source),
                held.states[-1],
            )
            held.states += [state for _, state in walk.states()]
            self.spent.layer_tokens += walk.evaluated * batch.size
        return held

    def _take(self, batch: AnyBatch, plans: Sequence[Plan], state: Tensor) -> None:
        """The head on one final state, and the rows of the plans that end there."""
        clock = time.perf_counter()
        losses = window_losses(self.stack, state, batch)
        self.spent.head_tokens += batch.size
        for plan in plans:
            self._keep(batch, plan, losses)
        self.spent.head_seconds += time.perf_counter() - clock

    def _keep(self, batch: AnyBatch, plan: Plan, losses: Sequence[WindowLoss]) -> None:
        text = str(plan)
        rows = [
            Loss(text, self.prefix + window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
            for window, loss in zip(batch.windows, losses, strict=True)
        ]
        known = self._rows.setdefault(text, {})
        if all(math.isfinite(row.nll) for row in rows):
            self.sink([row for row in rows if self._cell(row) not in known])
        elif plan == Plan.identity(self.stack.depth):
            raise MeasureError(
                f"the model itself ({plan}) gives non-finite logits; check the checkpoint, or use --dtype float32"
            )
        for row in rows:
            nll = row.nll if math.isfinite(row.nll) else NOT_FINITE * row.tokens
            known[self._cell(row)] = nll


def _units(data: EvalData, whole: bool) -> dict[tuple[str, str, int], dict[Cell, int]]:
    """The windows of each unit of a text, with their scored tokens: documents, or else the windows themselves."""
    units: dict[tuple[str, str, int], dict[Cell, int]] = {}
    for window in sorted(data.windows, key=lambda each: (each.task, each.document, each.index)):
        unit = (window.task, window.document, -1 if whole else window.index)
        units.setdefault(unit, {})[window.task, window.document, window.index] = window.scored
    return units
