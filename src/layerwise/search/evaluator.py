"""Evaluate the candidates of a search round together, so that layers they have in common run once.

Candidates are edits of the same parent plan, whose hidden states are cached up to `max_bytes`. A candidate runs only
the stages after those it shares with the parent. A resumed run reads stored losses. The batches do not depend on the
plans, so the loss of a plan does not depend on the other candidates.
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
from layerwise.search.edits import unroll
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import Graph, GraphExecutor, build
from layerwise.stack.inputs import evaluating

MAX_BYTES = 1 << 30
"""Maximum size of the cached hidden states: 1 GiB."""

NOT_FINITE = 1e6
"""Replacement for a loss that is not finite, in nats/token. It is larger than any other loss."""

Sink = Callable[[Sequence[Loss]], None]


@dataclass(frozen=True, slots=True)
class Forks:
    """Plans grouped by the number n of stages that they share with their parent plan.

    `at[n]` has the graph of the stages after the first n, and maps each plan of only these stages to its full plan.
    `ends[n]` is the plan that consists of only the n shared stages.
    """

    at: Mapping[int, tuple[Graph, Mapping[Plan, Plan]]]
    ends: Mapping[int, Plan]

    @classmethod
    def from_plans(cls, plans: Sequence[Plan], parent: Sequence[Stage]) -> Forks:
        """Group `plans` by the number of stages they share with `parent`.

        >>> plans = [Plan.parse("0 2"), Plan.parse("0 3"), Plan.parse("0 1")]
        >>> forks = Forks.from_plans(plans, unroll(Plan.parse("0-2")))
        >>> {after: graph.evaluations for after, (graph, _) in forks.at.items()}, forks.ends
        ({1: 2}, {2: Plan('0 1')})
        """
        tails: dict[int, dict[Plan, Plan]] = defaultdict(dict)
        ends: dict[int, Plan] = {}
        for plan in plans:
            stages = unroll(plan)
            shared = count_shared_stages(stages, parent)
            if shared == len(stages):
                ends[shared] = plan
            else:
                tails[shared][Plan(stages[shared:])] = plan
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
class SearchCost:
    """Cost of a search: evaluations of layers and of the head, multiplied by the number of tokens.

    `naive` is what `layer_tokens` would be if each plan were run separately on all of the text.
    """

    layer_tokens: int = 0
    head_tokens: int = 0
    naive: int = 0
    layer_seconds: float = 0.0
    head_seconds: float = 0.0

    def add(self, other: SearchCost) -> SearchCost:
        return SearchCost(self.layer_tokens + other.layer_tokens, self.head_tokens + other.head_tokens)


class WorstCaseEvaluator:
    """Evaluator that runs no model, but returns losses for which the search costs most, to estimate this cost.

    The candidate that shares the fewest stages with its parent wins, and every round finds a better plan.
    """

    def __init__(self, tokens: Sequence[Numbers], batch_tokens: Sequence[int]) -> None:
        self.tokens = tokens
        self.batch_tokens = batch_tokens
        self.spent = SearchCost()
        self._seen: set[tuple[Plan, int]] = set()
        self._cached: dict[int, tuple[Stage, ...]] = {}

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        missing = [plan for plan in dict.fromkeys(plans) if (plan, rung) not in self._seen]
        path, cached = unroll(parent), self._cached.get(rung, ())
        if missing:
            forks = Forks.from_plans(missing, path)
            shared = count_shared_stages(cached, path)
            added = max(0, forks.deepest - shared)
            self._cached[rung] = path[: max(shared, forks.deepest)]
            self.spent.layer_tokens += (forks.evaluations + added) * self.batch_tokens[rung]
            self.spent.head_tokens += forks.heads * self.batch_tokens[rung]
            self._seen.update((plan, rung) for plan in missing)
        losses = [count_shared_stages(unroll(plan), path) - len(self._seen) for plan in plans]
        return np.outer(losses, self.tokens[rung]).astype(np.float64)


def count_shared_stages(first: Sequence[Stage], second: Sequence[Stage]) -> int:
    length = min(len(first), len(second))
    return next((index for index in range(length) if first[index] != second[index]), length)


@dataclass
class _Parent:
    captured: Capture
    path: tuple[Stage, ...]
    states: list[Tensor]

    @property
    def bytes(self) -> int:
        return sum(state.numel() * state.element_size() for state in self.states)


@dataclass
class GraphEvaluator:
    """`Evaluator` that runs a model on text.

    `sink` receives new rows, and `stored` rows are not computed again. `watch` is called with the cost so far (`spent`)
    after every loss. The task of a row begins with `prefix`. If `in_bfloat16`, matrices are multiplied in bfloat16, but
    the residual stream keeps the dtype of the model.
    """

    stack: Stack
    rungs: Sequence[EvalData]
    sink: Sink = lambda rows: None
    stored: Iterable[Loss] = ()
    prefix: str = ""
    watch: Callable[[SearchCost], None] = lambda spent: None
    max_bytes: int = MAX_BYTES
    in_bfloat16: bool = False
    spent: SearchCost = field(default_factory=SearchCost)

    def __post_init__(self) -> None:
        # In all rungs, the unit is a document, or a window if there are few documents.
        by_document = sum(len(piece_lengths(data, min_documents=1)) for data in self.rungs) >= MIN_DOCUMENTS
        self._texts = [_Rung.from_data(data, by_document) for data in self.rungs]
        self._ends = np.cumsum([0, *(len(text.cells) for text in self._texts)])
        self._at = {
            cell: int(start) + at
            for start, text in zip(self._ends, self._texts, strict=False)
            for at, cell in enumerate(text.cells)
        }
        self._nll: dict[str, Numbers] = {}
        for row in self.stored:
            at = self._at.get(self._cell(row)) if row.task.startswith(self.prefix) else None
            if at is not None:
                self._losses_of(row.plan)[at] = row.nll
        self._parents: dict[tuple[int, int], _Parent] = {}
        self._bytes = 0

    @property
    def tokens(self) -> Sequence[Numbers]:
        return [text.sums(text.scored) for text in self._texts]

    @property
    def batch_tokens(self) -> list[int]:
        return [sum(batch.size for batch in data.batches) for data in self.rungs]

    def evaluate(self, plans: Sequence[Plan], rung: int, parent: Plan) -> Numbers:
        """Return the summed loss of every plan on every document (or window) of a part of the text.

        The result has the shape `(plans, documents)`, and `rung` is the number of the part. A loss that is not finite
        is replaced by `NOT_FINITE` per token; for the original model it raises `MeasureError`.
        """
        texts = {
            plan: str(plan) for plan in dict.fromkeys(plans)
        }  # formatting a plan is slow, and there are many cells
        new = [plan for plan, text in texts.items() if text not in self._nll]
        losses = [self._losses_of(text) for text in texts.values()]
        self.spent.naive += sum(len(plan.steps()) for plan in new) * sum(self.batch_tokens)
        text, cells = self._texts[rung], slice(self._ends[rung], self._ends[rung + 1])
        lacking = np.isnan([nll[cells] for nll in losses])
        before: list[bool] = []
        forks, due = Forks.from_plans((), ()), dict[Plan, str]()
        arithmetic = torch.autocast(self.stack.device.type, torch.bfloat16, enabled=self.in_bfloat16)
        with evaluating(self.stack.model), torch.inference_mode(), arithmetic:
            for number, batch in enumerate(self.rungs[rung].batches if lacking.any() else ()):
                missing: list[bool] = np.any(lacking[:, text.batches[number]], axis=1).tolist()
                if any(missing):
                    if missing != before:
                        due = {plan: name for (plan, name), lacks in zip(texts.items(), missing, strict=True) if lacks}
                        before, forks = missing, Forks.from_plans(list(due), unroll(parent))
                    self._measure((rung, number), batch, forks, due, unroll(parent))
        sums = {plan: text.sums(nll[cells]) for plan, nll in zip(texts, losses, strict=True)}
        return np.array([sums[plan] for plan in plans])

    def mean_losses(self) -> dict[Plan, float]:
        """Return the mean loss in nats/token of every plan that was evaluated on all of the text."""
        total = sum(float(tokens.sum()) for tokens in self.tokens)
        return {
            Plan.parse(plan): sum(nll.tolist()) / total for plan, nll in self._nll.items() if not np.isnan(nll).any()
        }

    def losses(self, plans: Iterable[Plan]) -> list[Loss]:
        """Return the loss rows of plans, or raise `MeasureError` if a plan was not evaluated on all of the text."""
        cells = [(*cell, scored) for each in self._texts for cell, scored in zip(each.cells, each.scored, strict=True)]
        rows = []
        for text in dict.fromkeys(map(str, plans)):
            losses = self._nll.get(text, np.full(len(self._at), np.nan))
            if missing := int(np.isnan(losses).sum()):
                raise MeasureError(
                    f"plan {text} must be evaluated on all {losses.size} windows of the text, got "
                    f"{losses.size - missing}. Evaluate it on every rung first."
                )
            rows += [
                Loss(text, task, document, window, nll, int(scored), 0)
                for (task, document, window, scored), nll in zip(cells, losses.tolist(), strict=True)
            ]
        return rows

    def _losses_of(self, plan: str) -> Numbers:
        if plan not in self._nll:
            self._nll[plan] = np.full(len(self._at), np.nan)
        return self._nll[plan]

    def _cell(self, row: Loss) -> Cell:
        return row.task.removeprefix(self.prefix), row.document, row.window

    def _measure(
        self, key: tuple[int, int], batch: AnyBatch, forks: Forks, due: Mapping[Plan, str], path: Sequence[Stage]
    ) -> None:
        start, heads = time.perf_counter(), self.spent.head_seconds
        cached = self._run_parent(key, batch, path, forks.deepest)
        for after, plan in forks.ends.items():
            self._score(batch, [due[plan]], cached.states[after])
        for after, (graph, tails) in forks.at.items():
            names: dict[int, list[str]] = {}
            for tail, plan in tails.items():
                names.setdefault(graph.ends[tail], []).append(due[plan])
            for node, state in self._run(graph, cached.captured, cached.states[after], batch):
                self._score(batch, names[node], state)
        if self._bytes + cached.bytes <= self.max_bytes:
            self._parents[key] = cached
            self._bytes += cached.bytes
        self.spent.layer_seconds += time.perf_counter() - start - (self.spent.head_seconds - heads)

    def _run(self, graph: Graph, captured: Capture, state: Tensor, batch: AnyBatch) -> Iterator[tuple[int, Tensor]]:
        executor = GraphExecutor(
            graph, lambda layer, before, part, source: self.stack.apply(layer, before, captured, part, source), state
        )
        yield from executor.states()
        self.spent.layer_tokens += executor.evaluated * batch.size

    def _run_parent(self, key: tuple[int, int], batch: AnyBatch, path: Sequence[Stage], depth: int) -> _Parent:
        before = self._parents.pop(key, None)
        if before is None:
            captured = self.stack.capture(**batch.inputs)
            before = _Parent(captured, (), [captured.state])
        else:
            self._bytes -= before.bytes
        shared = count_shared_stages(before.path, path)
        parent = _Parent(before.captured, tuple(path[: max(shared, depth)]), before.states[: shared + 1])
        for stage in path[len(parent.states) - 1 : depth]:
            ran = self._run(build([Plan((stage,))]), parent.captured, parent.states[-1], batch)
            parent.states += [state for _, state in ran]
        return parent

    def _score(self, batch: AnyBatch, plans: Sequence[str], state: Tensor) -> None:
        start = time.perf_counter()
        losses = window_losses(self.stack, state, batch)
        self.spent.head_tokens += batch.size
        for plan in plans:
            self._store(batch, plan, losses)
        self.spent.head_seconds += time.perf_counter() - start
        self.watch(self.spent)

    def _store(self, batch: AnyBatch, plan: str, losses: Sequence[WindowLoss]) -> None:
        rows = [
            Loss(plan, self.prefix + window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
            for window, loss in zip(batch.windows, losses, strict=True)
        ]
        stored, at = self._losses_of(plan), [self._at[self._cell(row)] for row in rows]
        if all(math.isfinite(row.nll) for row in rows):
            self.sink([row for row, cell in zip(rows, at, strict=True) if np.isnan(stored[cell])])
        elif plan == str(Plan.identity(self.stack.depth)):
            raise MeasureError(
                f"the original model ({plan}) returns logits that are not finite. Check the checkpoint, or pass "
                "--dtype float32."
            )
        stored[at] = [row.nll if math.isfinite(row.nll) else NOT_FINITE * row.tokens for row in rows]


@dataclass(frozen=True)
class _Rung:
    cells: Sequence[Cell]
    scored: Numbers
    units: NDArray[np.int64]
    batches: Sequence[Sequence[int]]

    @classmethod
    def from_data(cls, data: EvalData, by_document: bool) -> _Rung:
        windows = sorted(data.windows, key=lambda each: (each.task, each.document, each.index))
        cells = [(window.task, window.document, window.index) for window in windows]
        at = {cell: number for number, cell in enumerate(cells)}
        units: dict[tuple[str, str, int], int] = {}
        unit_of = [
            units.setdefault((task, document, -1 if by_document else index), len(units))
            for task, document, index in cells
        ]
        batches = [[at[each.task, each.document, each.index] for each in batch.windows] for batch in data.batches]
        return cls(cells, np.array([each.scored for each in windows], dtype=float), np.array(unit_of), batches)

    def sums(self, values: Numbers) -> Numbers:
        return np.asarray(np.bincount(self.units, weights=values), dtype=np.float64)
