"""Interventions: losses of the original model when one or several layers are changed.

An intervention skips a layer, replaces its weights, or replaces the update of a sublayer by its mean. I interventions
at each of L layers cost at most `I * L * (L + 1) / 2 + L` layer evaluations. The `plan` of a `Loss` row is a key such
as `12=mean_ablate`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.errors import LayerwiseError, MeasureError
from layerwise.measure.activations.padding import check_finite, token_mask
from layerwise.measure.interventions.sweep import state_bytes
from layerwise.measure.language.evaluation_data import EvalData, piece_lengths, select_pieces
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.measure.stats.grid import shuffle_pieces
from layerwise.plan import Plan, Sublayer
from layerwise.results.rows import Loss
from layerwise.stack import Capture, Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Edit, edited
from layerwise.stack.executors.graph import Apply as Node
from layerwise.stack.executors.graph import Changed, Graph, GraphExecutor, build, common_steps, inputs
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.executor import read_in_order, reading_schedule
from layerwise.stack.weights import Weights, apply_with


@dataclass(frozen=True)
class CleanBatch:
    """A batch in the original model just before a layer: its hidden state, and the mask of tokens that are counted.

    `half` (batch,) tells which half of the text each window is in. The halves share no document (no window, if
    documents are few), so that replacements can be computed on one half and evaluated on the other.
    """

    state: Tensor
    captured: Capture
    counted: Tensor
    half: Tensor


Apply = Callable[[CleanBatch], Tensor]
"""Returns the state after the changed layer, given a batch before it."""


class BatchPass:
    def __init__(self, stack: Stack, batch: AnyBatch, graph: Graph, half: frozenset[Window]) -> None:
        self.stack = stack
        self.batch = batch
        self.captured = stack.capture(**batch.inputs)
        state = self.captured.state
        self.half = torch.tensor([window in half for window in batch.windows], device=state.device)
        self.counted = token_mask(self.captured.inputs, state)
        self.clean = graph.find_unchanged_nodes()
        self.apply: Apply | None = None
        self.walk = GraphExecutor(graph, self._layer, state, change=self._change, watch=self._check)
        for _ in self.walk.walk((0,)):
            pass

    def states(self, step: Sequence[int], absent: set[int], apply: Apply | None) -> Iterator[tuple[int, Tensor]]:
        """Compute the nodes of a step except the `absent` ones, and yield final states. Changed nodes call `apply`."""
        self.apply = apply
        self.walk.leave_out(index for index in step if index in absent)
        yield from self.walk.walk(index for index in step if index not in absent)

    def at(self, state: Tensor) -> CleanBatch:
        return CleanBatch(state, self.captured, self.counted, self.half)

    def _layer(self, layer: int, state: Tensor, part: Sublayer | None, source: str | None) -> Tensor:
        return self.stack.apply(layer, state, self.captured, part, source)

    def _change(self, node: Node, state: Tensor) -> Tensor:
        assert self.apply is not None, "a changed node begins a step"
        after = self.apply(self.at(state))
        return after if after is state else self.stack.note(node.layer, state, after)

    def _check(self, index: int, state: Tensor) -> None:
        node = self.walk.graph.nodes[index]
        if index in self.clean and isinstance(node, Node):
            check_finite([state], self.counted, [window.document for window in self.batch.windows], node.layer + 1)


@dataclass(frozen=True)
class InterventionContext:
    """The argument of `Intervention.prepare`: a layer, and the batches in the original model just before it."""

    stack: Stack
    layer: int
    clean: Sequence[CleanBatch]

    def with_weights(self, weights: Weights) -> Apply:
        return lambda one: apply_with(self.stack, self.layer, weights, one.state, one.captured)

    def with_branch(self, part: Sublayer, edit: Callable[[CleanBatch], Edit]) -> Apply:
        """Return a function that runs the layer with an edited update of its sublayer `part`.

        `edit` returns the edit for each batch.
        Raises `UnsupportedModelError` if layers cannot be split into sublayers.
        """
        path = self.stack.branches(self.clean[0].captured).paths[self.layer][part]
        block = block_list(self.stack.model, self.stack.path)[self.layer]

        def apply(one: CleanBatch) -> Tensor:
            with edited(block, path, edit(one)):
                return self.stack.apply(self.layer, one.state, one.captured)

        return apply


@dataclass(frozen=True)
class Intervention:
    """A change of `layer`. `prepare` is called once and returns the function that is applied to every batch."""

    layer: int
    name: str
    prepare: Callable[[InterventionContext], Apply]

    @property
    def key(self) -> str:
        """The value of `plan` in rows of this intervention, such as `12=skip`."""
        return f"{self.layer}={self.name}"

    @property
    def parts(self) -> tuple[Intervention, ...]:
        return (self,)


@dataclass(frozen=True)
class JointIntervention:
    """Several layers that are changed at once, in ways that do not depend on the original states."""

    key: str
    parts: tuple[Intervention, ...]


Row = TypeVar("Row")


@dataclass(frozen=True)
class ResultCache(Generic[Row]):
    """The `known` rows of a resumed measurement, which are not computed again, and its callbacks.

    `sink` receives new rows immediately, `progress` the completed fraction, and `log` a sentence about each omitted
    intervention.
    """

    known: tuple[Row, ...] = ()
    sink: Callable[[Sequence[Row]], None] = lambda rows: None
    progress: Callable[[float], None] = lambda share: None
    log: Callable[[str], None] = lambda text: None


def intervention_losses(
    stack: Stack,
    interventions: Sequence[Intervention | JointIntervention],
    data: EvalData,
    cache: ResultCache[Loss] | None = None,
) -> list[Loss]:
    """Return the losses of the original model and of every intervention on every window.

    An intervention that raises an error or has a non-finite loss is omitted and logged. Raises `MeasureError` if the
    original model has non-finite states or losses.
    """
    with evaluating(stack.model), torch.inference_mode():
        return _Measurement(stack, interventions, data, cache or ResultCache()).rows()


class _Measurement:
    def __init__(
        self, stack: Stack, every: Sequence[Intervention | JointIntervention], data: EvalData, cache: ResultCache[Loss]
    ) -> None:
        self.stack = stack
        self.every = sorted(every, key=lambda each: each.parts[0].layer)
        self.data = data
        self.cells = data.cells
        self.cache = cache
        self.identity = str(Plan.identity(stack.depth))
        self.known: dict[str, dict[tuple[str, str, int], Loss]] = defaultdict(dict)
        for row in cache.known:
            cell = (row.task, row.document, row.window)
            if cell in self.cells:
                self.known[row.plan][cell] = row
        self.due = [each for each in self.every if self._is_incomplete(each.key)]
        self.costs = {each.key: stack.depth - each.parts[0].layer for each in self.due}
        self.remaining = self.total = max(1, sum(self.costs.values()))
        self.computed: dict[str, list[Loss]] = defaultdict(list)
        self.omitted: set[str] = set()
        self.reasons: set[str] = set()

    def rows(self) -> list[Loss]:
        for some in self._groups():
            self._walk(some)
        rows: list[Loss] = []
        for key in (self.identity, *(each.key for each in self.every)):
            if key not in self.omitted:
                rows += self.computed[key] or self.known[key].values()
        return rows

    def _groups(self) -> Iterator[Sequence[Plan | Changed]]:
        """Yield all missing plans at once or, if layers are read from disk, in groups that fit into memory."""
        identity = Plan.identity(self.stack.depth)
        due: list[Plan | Changed] = [identity] if self._is_incomplete(self.identity) else []
        due += [Changed(each.key, identity, {part.layer: part.key for part in each.parts}) for each in self.due]
        if not due:
            return
        count, first, resident = len(due), 0, self.stack.resident
        if resident is not None:
            memory = resident.most * max(resident.sizes)
            count = max(1, memory // max(1, sum(state_bytes(self.stack, self.data.batches))))
            first = int(isinstance(due[0], Plan))  # the original model has no additional states
        starts = [0, *range(count + first, len(due), count)]
        yield from (due[start:end] for start, end in zip(starts, [*starts[1:], len(due)], strict=True))

    def _walk(self, due: Sequence[Plan | Changed]) -> None:
        graph = build(due)
        names = graph.names()
        parts = {part.key: part for each in self.due for part in each.parts}
        half = frozenset(select_pieces(self.data, shuffle_pieces(piece_lengths(self.data), 0)[::2]).windows)
        walks = [BatchPass(self.stack, batch, graph, half) for batch in self.data.batches]
        absent: set[int] = set()
        for step in self._steps(graph):
            node = graph.nodes[step[0]]
            apply = None
            if isinstance(node, Node) and node.variant.change is not None and node.state not in absent:
                part, clean = parts[node.variant.change], [walk.at(walk.walk.live_states[node.state]) for walk in walks]
                try:
                    apply = part.prepare(InterventionContext(self.stack, part.layer, clean))
                except LayerwiseError as refusal:
                    self._omit((), str(refusal))
                    absent.add(step[0])
            for index in step:
                if not absent.isdisjoint(inputs(graph.nodes[index])):
                    absent.add(index)
                if index in absent:
                    self.omitted.update(names.get(index, ()))
            for walk in walks:
                for end, state in walk.states(step, absent, apply):
                    self._score(names[end], walk.batch, state)
            done = [key for index in step for key in names.get(index, ()) if key not in self.omitted]
            if any(key in self.costs for key in done):
                self.remaining -= sum(self.costs.pop(key, 0) for key in done)
                self.cache.progress(1 - self.remaining / self.total)

    def _steps(self, graph: Graph) -> Iterator[Sequence[int]]:
        resident = self.stack.resident
        if resident is None:
            yield from common_steps(graph)
            return
        for reading in read_in_order(resident, reading_schedule([graph], resident.most)):
            yield from ((index,) for index in reading.nodes[0] if index)

    def _score(self, keys: Sequence[str], batch: AnyBatch, state: Tensor) -> None:
        losses = window_losses(self.stack, state, batch)
        broken = [w.document for w, loss in zip(batch.windows, losses, strict=True) if not math.isfinite(loss.nll)]
        if broken and self.identity in keys:
            raise MeasureError(
                f"The loss of the original model must be finite, got NaN or infinity on document {broken[0]!r}. Check "
                "the checkpoint or use --dtype float32."
            )
        for key in keys:
            if broken and key not in self.omitted:
                self._omit((key,), f"{key} is omitted: its loss on {broken[0]!r} is not finite. Try --dtype float32.")
            if key not in self.omitted:
                self._store(key, batch, losses)

    def _store(self, key: str, batch: AnyBatch, losses: Sequence[WindowLoss]) -> None:
        new = []
        for window, loss in zip(batch.windows, losses, strict=True):
            row = self.known[key].get((window.task, window.document, window.index))
            if row is None:
                row = Loss(key, window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
                new.append(row)
            self.computed[key].append(row)
        if new:
            self.cache.sink(new)

    def _omit(self, keys: Sequence[str], reason: str) -> None:
        self.omitted.update(keys)
        if reason not in self.reasons:
            self.reasons.add(reason)
            self.cache.log(reason)

    def _is_incomplete(self, key: str) -> bool:
        return self.known[key].keys() < self.cells
