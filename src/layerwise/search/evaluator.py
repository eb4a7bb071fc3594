"""Evaluate plans on text, a round at a time: all candidates of a round are one graph with cached parent states.

A plan costs only its stages after the prefix that it shares with the parent, and equal continuations are computed once:
the cost of a round is known before it runs. A loss is computed once, and a resumed run reads it back. Parent states
beyond `most_bytes` are recomputed. Batches depend on the text alone, so a plan's loss does not depend on other plans.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.measure.stats.grid import MIN_DOCUMENTS, Cell
from layerwise.measure.stats.statistics import Numbers
from layerwise.plan import Plan
from layerwise.plan.plan import Stage
from layerwise.results.rows import Loss
from layerwise.search.moves import stages
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import Graph, GraphExecutor, build
from layerwise.stack.inputs import evaluating

MOST_BYTES = 1 << 30
"""The states of parents that are held at most: 1 GiB."""

NOT_FINITE = 1e6
"""What a token counts, in nats, under a plan whose loss is not finite: more than any other."""

Sink = Callable[[Sequence[Loss]], None]


@dataclass(frozen=True, slots=True)
class Forks:
    """The plans of a round by where they leave the parent: after how many of its stages, and how they go on.

    `at[n]` is the graph of what follows the first n stages; `ends[n]` are the plans that stop there.
    """

    at: Mapping[int, tuple[Graph, Mapping[Plan, Plan]]]
    ends: Mapping[int, Plan]

    @classmethod
    def of(cls, plans: Sequence[Plan], parent: Sequence[Stage]) -> Forks:
        """Sort plans by their common beginning with the stages of the parent.

        >>> forks = Forks.of([Plan.parse("0 2"), Plan.parse("0 3"), Plan.parse("0 1")], stages(Plan.parse("0-2")))
        >>> {after: graph.evaluations for after, (graph, _) in forks.at.items()}, forks.ends
        ({1: 2}, {2: Plan('0 1')})
        """
        tails: dict[int, dict[Plan, Plan]] = defaultdict(dict)
        ends: dict[int, Plan] = {}
        for plan in plans:
            own = stages(plan)
            common = common_beginning(own, parent)
            if common == len(own):
                ends[common] = plan
            else:
                tails[common][Plan(own[common:])] = plan
        return cls({after: (build(after_plans), after_plans) for after, after_plans in tails.items()}, ends)

    @property
    def deepest(self) -> int:
        return max((*self.at, *self.ends), default=0)

    @property
    def evaluations(self) -> int:
        return sum(graph.evaluations for graph, _ in self.at.values())

    @property
    def heads(self) -> int:
        return len(self.ends) + sum(graph.heads for graph, _ in self.at.values())


@dataclass(slots=True)
class Spent:
    """Layer evaluations and heads, times their tokens; `naive` is the cost of every plan alone on all of the text."""

    layer_tokens: int = 0
    head_tokens: int = 0
    naive: int = 0
    layer_seconds: float = 0.0
    head_seconds: float = 0.0

    def plus(self, other: Spent) -> Spent:
        return Spent(self.layer_tokens + other.layer_tokens, self.head_tokens + other.head_tokens)


class WorstCase:
    """An evaluator that computes nothing and makes up losses for which a search costs most.

    The candidates that leave their parent earliest win, and every round improves until the rounds are used up.
    """

    def __init__(self, tokens: Sequence[Numbers], batch_tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.batch_tokens = batch_tokens
        self.spent = Spent()
        self._known: set[tuple[Plan, int]] = set()
        self._held: dict[int, tuple[Stage, ...]] = {}

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        missing = [plan for plan in dict.fromkeys(plans) if (plan, rung) not in self._known]
        way, held = stages(parent), self._held.get(rung, ())
        if missing:
            forks = Forks.of(missing, way)
            kept = common_beginning(held, way)
            added = max(0, forks.deepest - kept)
            self._held[rung] = way[: max(kept, forks.deepest)]
            self.spent.layer_tokens += (forks.evaluations + added) * self.batch_tokens[rung]
            self.spent.head_tokens += forks.heads * self.batch_tokens[rung]
            self._known.update((plan, rung) for plan in missing)
        losses = [common_beginning(stages(plan), way) - len(self._known) for plan in plans]
        return np.outer(losses, self.tokens[rung]).astype(np.float64)


def common_beginning(first: Sequence[Stage], second: Sequence[Stage]) -> int:
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)


@dataclass
class _Parent:
    captured: Capture
    way: tuple[Stage, ...]
    states: list[Tensor]

    @property
    def bytes(self) -> int:
        return sum(state.numel() * state.element_size() for state in self.states)


@dataclass
class GraphEvaluator:
    """Losses of plans on the `rungs` of a text; an `Evaluator` of `layerwise.search.rungs`.

    `sink` receives new rows, `known` rows are not computed, `spent` counts the computation, and `watch` is called after
    every loss. The task of a row is that of the text after `prefix`. With `in_bfloat16`, matrices are multiplied in
    bfloat16 and all else, the residual stream included, is computed in the dtype of the model.
    """

    stack: Stack
    rungs: Sequence[EvalData]
    sink: Sink = lambda rows: None
    known: Iterable[Loss] = ()
    prefix: str = ""
    watch: Callable[[Spent], None] = lambda spent: None
    most_bytes: int = MOST_BYTES
    in_bfloat16: bool = False
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        # One way of dividing the text into units holds for all rungs.
        whole = sum(len(piece_lengths(data, fewest=1)) for data in self.rungs) >= MIN_DOCUMENTS
        self._texts = [_Rung.of(data, whole) for data in self.rungs]
        self._ends = np.cumsum([0, *(len(text.cells) for text in self._texts)])
        self._at = {
            cell: int(start) + at
            for start, text in zip(self._ends, self._texts, strict=False)
            for at, cell in enumerate(text.cells)
        }
        self._nll: dict[str, Numbers] = {}
        for row in self.known:
            at = self._at.get(self._cell(row)) if row.task.startswith(self.prefix) else None
            if at is not None:
                self._of(row.plan)[at] = row.nll
        self._parents: dict[tuple[int, int], _Parent] = {}
        self._bytes = 0

    @property
    def tokens(self) -> Sequence[Numbers]:
        return [text.sums(text.scored) for text in self._texts]

    @property
    def batch_tokens(self) -> list[int]:
        return [sum(batch.size for batch in data.batches) for data in self.rungs]

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        """Return the summed loss of every plan on every unit of a rung: (plans, units), `NOT_FINITE` if not finite.

        Raises `MeasureError` if the loss of the original model is not finite.
        """
        texts = {plan: str(plan) for plan in dict.fromkeys(plans)}  # a plan is long to write, and there are many cells
        new = [plan for plan, text in texts.items() if text not in self._nll]
        known = [self._of(text) for text in texts.values()]
        self.spent.naive += sum(len(plan.steps()) for plan in new) * sum(self.batch_tokens)
        text, own = self._texts[rung], slice(self._ends[rung], self._ends[rung + 1])
        lacking = np.isnan([nll[own] for nll in known])
        before: list[bool] = []
        forks, due = Forks.of((), ()), dict[Plan, str]()
        arithmetic = torch.autocast(self.stack.device.type, torch.bfloat16, enabled=self.in_bfloat16)
        with evaluating(self.stack.model), torch.inference_mode(), arithmetic:
            for number, batch in enumerate(self.rungs[rung].batches if lacking.any() else ()):
                missing: list[bool] = np.any(lacking[:, text.batches[number]], axis=1).tolist()
                if any(missing):
                    if missing != before:
                        due = {plan: name for (plan, name), lacks in zip(texts.items(), missing, strict=True) if lacks}
                        before, forks = missing, Forks.of(list(due), stages(parent))
                    self._measure((rung, number), batch, forks, due, stages(parent))
        sums = {plan: text.sums(nll[own]) for plan, nll in zip(texts, known, strict=True)}
        return np.array([sums[plan] for plan in plans])

    def complete(self) -> dict[Plan, float]:
        """The plans that have read all of the text, with their mean losses in nats per token."""
        total = sum(float(tokens.sum()) for tokens in self.tokens)
        return {
            Plan.parse(plan): sum(nll.tolist()) / total for plan, nll in self._nll.items() if not np.isnan(nll).any()
        }

    def losses(self, plans: Iterable[Plan]) -> list[Loss]:
        """The rows of plans that have read all of the text. Raises `MeasureError` for a plan that has not."""
        cells = [(*cell, scored) for each in self._texts for cell, scored in zip(each.cells, each.scored, strict=True)]
        rows = []
        for text in dict.fromkeys(map(str, plans)):
            known = self._nll.get(text, np.full(len(self._at), np.nan))
            if missing := int(np.isnan(known).sum()):
                raise MeasureError(
                    f"the losses of {text} were asked for and it has read {known.size - missing} of {known.size} "
                    "windows: evaluate it on every rung first"
                )
            rows += [
                Loss(text, task, document, window, nll, int(scored), 0)
                for (task, document, window, scored), nll in zip(cells, known.tolist(), strict=True)
            ]
        return rows

    def _of(self, plan: str) -> Numbers:
        if plan not in self._nll:
            self._nll[plan] = np.full(len(self._at), np.nan)
        return self._nll[plan]

    def _cell(self, row: Loss) -> Cell:
        return row.task.removeprefix(self.prefix), row.document, row.window

    def _measure(
        self, key: tuple[int, int], batch: AnyBatch, forks: Forks, due: Mapping[Plan, str], way: Sequence[Stage]
    ) -> None:
        clock, heads = time.perf_counter(), self.spent.head_seconds
        held = self._held(key, batch, way, forks.deepest)
        for after, plan in forks.ends.items():
            self._take(batch, [due[plan]], held.states[after])
        for after, (graph, tails) in forks.at.items():
            names: dict[int, list[str]] = {}
            for tail, plan in tails.items():
                names.setdefault(graph.ends[tail], []).append(due[plan])
            for node, state in self._walk(graph, held.captured, held.states[after], batch):
                self._take(batch, names[node], state)
        if self._bytes + held.bytes <= self.most_bytes:
            self._parents[key] = held
            self._bytes += held.bytes
        self.spent.layer_seconds += time.perf_counter() - clock - (self.spent.head_seconds - heads)

    def _walk(self, graph: Graph, captured: Capture, state: Tensor, batch: AnyBatch) -> Iterator[tuple[int, Tensor]]:
        walk = GraphExecutor(
            graph, lambda layer, before, part, source: self.stack.apply(layer, before, captured, part, source), state
        )
        yield from walk.states()
        self.spent.layer_tokens += walk.evaluated * batch.size

    def _held(self, key: tuple[int, int], batch: AnyBatch, way: Sequence[Stage], depth: int) -> _Parent:
        before = self._parents.pop(key, None)
        if before is None:
            captured = self.stack.capture(**batch.inputs)
            before = _Parent(captured, (), [captured.state])
        else:
            self._bytes -= before.bytes
        alike = common_beginning(before.way, way)
        held = _Parent(before.captured, tuple(way[: max(alike, depth)]), before.states[: alike + 1])
        for stage in way[len(held.states) - 1 : depth]:
            walked = self._walk(build([Plan((stage,))]), held.captured, held.states[-1], batch)
            held.states += [state for _, state in walked]
        return held

    def _take(self, batch: AnyBatch, plans: Sequence[str], state: Tensor) -> None:
        clock = time.perf_counter()
        losses = window_losses(self.stack, state, batch)
        self.spent.head_tokens += batch.size
        for plan in plans:
            self._keep(batch, plan, losses)
        self.spent.head_seconds += time.perf_counter() - clock
        self.watch(self.spent)

    def _keep(self, batch: AnyBatch, plan: str, losses: Sequence[WindowLoss]) -> None:
        rows = [
            Loss(plan, self.prefix + window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
            for window, loss in zip(batch.windows, losses, strict=True)
        ]
        known, at = self._of(plan), [self._at[self._cell(row)] for row in rows]
        if all(math.isfinite(row.nll) for row in rows):
            self.sink([row for row, cell in zip(rows, at, strict=True) if np.isnan(known[cell])])
        elif plan == str(Plan.identity(self.stack.depth)):
            raise MeasureError(
                f"the model itself ({plan}) gives non-finite logits; check the checkpoint, or use --dtype float32"
            )
        known[at] = [row.nll if math.isfinite(row.nll) else NOT_FINITE * row.tokens for row in rows]


@dataclass(frozen=True)
class _Rung:
    cells: Sequence[Cell]
    scored: Numbers
    units: NDArray[np.int64]
    batches: Sequence[Sequence[int]]

    @classmethod
    def of(cls, data: EvalData, whole: bool) -> _Rung:
        windows = sorted(data.windows, key=lambda each: (each.task, each.document, each.index))
        cells = [(window.task, window.document, window.index) for window in windows]
        at = {cell: number for number, cell in enumerate(cells)}
        units: dict[tuple[str, str, int], int] = {}
        of = [units.setdefault((task, document, -1 if whole else index), len(units)) for task, document, index in cells]
        batches = [[at[each.task, each.document, each.index] for each in batch.windows] for batch in data.batches]
        return cls(cells, np.array([each.scored for each in windows], dtype=float), np.array(of), batches)

    def sums(self, values: Numbers) -> Numbers:
        return np.asarray(np.bincount(self.units, weights=values), dtype=np.float64)
