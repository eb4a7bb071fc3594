"""Batches on their way through graphs of plans, which interventions may change, to the losses of every plan.

Batches that share what they do walk together, step by step: those under interventions, each of which is prepared once
for all batches, and those whose layers are read from the disk. The states of many batches may wait on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import captured_batch, counted_tokens
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.plan import Plan, Sublayer
from layerwise.stack import Capture, Stack
from layerwise.stack.executors.graph import Apply as Node
from layerwise.stack.executors.graph import Graph, GraphExecutor, common_steps, inputs, schedule
from layerwise.stack.streaming.readings import distinct_graphs, in_turn, reading_schedule

MOST_BYTES = 1 << 28
"""The states of batches under interventions that wait in memory at most: 256 MiB; those of a longer text wait on the
disk."""


@dataclass(frozen=True)
class CleanBatch:
    """One batch on its clean way through the model: the state before the layer, and which tokens count.

    `half` (batch,) says of each window in which half of the text it stands. The halves share no document (no window,
    where documents are few), so that what is put in a layer's place can be learnt on other text than it is judged on.
    """

    state: Tensor
    captured: Capture
    counted: Tensor
    half: Tensor


Apply = Callable[[CleanBatch], Tensor]
"""The state after a layer that does something else, from a batch before it."""


class BatchWalk:
    """One batch on its way through the graph; between its turns its states are in a `folder`, if there is one."""

    def __init__(
        self, stack: Stack, batch: AnyBatch, graph: Graph, half: frozenset[Window], folder: Path | None
    ) -> None:
        self.stack = stack
        self.batch = batch
        self.folder = folder
        captured = captured_batch(stack, batch)
        self._kept: Capture | None = captured
        self.half = torch.tensor([window in half for window in batch.windows], device=captured.state.device)
        self.counted = counted_tokens(captured.inputs, captured.state)
        self.clean = graph.untouched() if graph.is_changed else frozenset[int]()
        self.apply: Apply | None = None
        watch = self._check if graph.is_changed else None
        self.walk = GraphExecutor(graph, self._layer, captured.state, change=self._change, watch=watch)
        self.away: dict[int, Path] = {}
        if folder is not None:
            folder.mkdir()
        for _ in self.walk.walk((0,)):  # no plan ends where it begins
            pass
        self._put_away()

    @property
    def captured(self) -> Capture:
        """What the model calls its layers with on this batch."""
        if self._kept is None:
            self._kept = captured_batch(self.stack, self.batch)
        return self._kept

    def states(self, step: Sequence[int], absent: set[int], apply: Apply | None) -> Iterator[tuple[int, Tensor]]:
        """Compute a step but what is `absent`, a changed node by `apply`; yields the node and state of every end."""
        self.apply = apply
        self.walk.live_states |= {index: self._state(index) for index in self.away}
        self.walk.leave_out(index for index in step if index in absent)
        yield from self.walk.walk(index for index in step if index not in absent)
        self._put_away()

    def at(self, node: int) -> CleanBatch:
        """The batch at a node whose state is held."""
        captured = self.captured
        if self.folder is not None:
            self._kept = None  # it takes more than the state, and whoever looks at all batches looks at one at a time
        return CleanBatch(self._state(node), captured, self.counted, self.half)

    def _state(self, node: int) -> Tensor:
        if node not in self.away:
            return self.walk.live_states[node]
        return load_file(self.away[node])["state"].to(self.counted.device)

    def _put_away(self) -> None:
        if self.folder is None:
            return
        for index in self.away.keys() - self.walk.live_states.keys():
            self.away.pop(index).unlink()
        for index in self.walk.live_states.keys() - self.away.keys():
            self.away[index] = self.folder / str(index)
            save_file({"state": self.walk.live_states[index].contiguous().cpu()}, self.away[index])
        self.walk.live_states.clear()
        self._kept = None
        self.walk.root = torch.empty(0)

    def _layer(self, layer: int, state: Tensor, part: Sublayer | None, source: str | None) -> Tensor:
        return self.stack.apply(layer, state, self.captured, part, source)

    def _change(self, node: Node, state: Tensor) -> Tensor:
        assert self.apply is not None, "a changed node begins a step, and is prepared for it"
        after = self.apply(CleanBatch(state, self.captured, self.counted, self.half))
        return after if after is state else self.stack.note(node.layer, state, after)

    def _check(self, index: int, state: Tensor) -> None:
        """Raise `MeasureError` where a clean state is not finite at a token that counts."""
        node = self.walk.graph.nodes[index]
        if index not in self.clean or not isinstance(node, Node):
            return
        finite = state.flatten(2).isfinite().all(dim=2) | ~self.counted
        if not finite.all():
            document = self.batch.windows[int((~finite).any(dim=1).nonzero()[0])].document
            raise MeasureError(
                f"the model's own state after layer {node.layer} is not finite on document {document!r}; "
                "check the checkpoint, or use --dtype float32"
            )


@dataclass(frozen=True)
class CleanBatches(Sequence[CleanBatch]):
    """The clean batches at a node, each read when it is looked at."""

    walks: Sequence[BatchWalk]
    node: int

    def __len__(self) -> int:
        return len(self.walks)

    def __getitem__(self, number: Any) -> Any:
        return self.walks[number].at(self.node)


Prepare = Callable[[Node, Sequence[CleanBatch]], Apply | None]
"""From a changed node and the batches before it to what is done with every batch; `None` where nothing can be."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """A final state of a batch: the plans that end there, their losses window by window, and what it took.

    `evaluations` are those since the final state before it, `most_live` the states that were held at once so far. One
    of no plan says what was computed on the way.
    """

    plans: tuple[str, ...]
    losses: tuple[WindowLoss, ...]
    evaluations: int
    layer_seconds: float
    head_seconds: float
    most_live: int


def final_states(
    stack: Stack,
    work: Sequence[tuple[AnyBatch, Graph]],
    first: Plan | None = None,
    *,
    prepare: Prepare | None = None,
    half: frozenset[Window] = frozenset(),
) -> Iterator[tuple[int, FinalState]]:
    """The final states of some batches that walk together, each with the number of its batch.

    That of the plan `first` on the first batch comes before the others. Several batches have one graph, or layers that
    are read from the disk. `prepare` is called once for each changed node, and `half` are the windows of one half of
    the text (see `CleanBatch`). The caller keeps the model evaluating, without gradients.
    """
    awaited = first if first is not None and first in work[0][1].ends else None
    passed: list[tuple[int, FinalState]] = []  # final states on the way to the first, which wait for it
    for number, state in _in_steps(stack, work, awaited, prepare, half):
        if awaited is None or not state.plans:
            yield number, state
        elif number == 0 and str(awaited) in state.plans:
            yield from ((number, state), *passed)
            passed, awaited = [], None
        else:
            passed.append((number, state))


def _in_steps(
    stack: Stack,
    work: Sequence[tuple[AnyBatch, Graph]],
    first: Plan | None,
    prepare: Prepare | None,
    half: frozenset[Window],
) -> Iterator[tuple[int, FinalState]]:
    """The final states in the order in which they are computed, and one of no plan for what else a step computed."""
    graphs = distinct_graphs([graph for _, graph in work])
    names = [graph.names() for graph in graphs]
    with ExitStack() as exits:
        folder = None
        many = prepare is not None and stack.resident is None and not stack.reads_history
        if many and sum(state_bytes(stack, [batch for batch, _ in work])) > MOST_BYTES:
            folder = Path(exits.enter_context(TemporaryDirectory(prefix="layerwise-states-")))
        walks = [
            BatchWalk(stack, batch, graph, half, folder and folder / str(number))
            for number, (batch, graph) in enumerate(work)
        ]
        of = [next(at for at, each in enumerate(graphs) if each is graph) for _, graph in work]
        absent: set[int] = set()
        evaluated, most_live, clock = [0] * len(walks), 0, time.perf_counter()
        for step in _steps(stack, graphs, walks[0], first):
            apply = None if prepare is None else _prepared(prepare, graphs[0], step[0], walks, absent)
            for number, walk in enumerate(walks):
                ends = walk.states(step[of[number]], absent, apply)
                for node, state in chain[tuple[int, Tensor] | tuple[None, None]](ends, [(None, None)]):
                    there = time.perf_counter()
                    plans = () if node is None else names[of[number]][node]
                    losses = () if state is None else window_losses(stack, state, walk.batch)
                    done, here = time.perf_counter(), walk.walk.evaluated - evaluated[number]
                    most_live = max(most_live, walk.walk.most_live, sum(each.walk.live for each in walks))
                    if plans or here:
                        yield number, FinalState(plans, losses, here, there - clock, done - there, most_live)
                        evaluated[number], clock = walk.walk.evaluated, time.perf_counter()


def _steps(
    stack: Stack, graphs: Sequence[Graph], walk: BatchWalk, first: Plan | None
) -> Iterator[Sequence[tuple[int, ...]]]:
    """What all batches compute before they go on, of each graph: with layers on the disk what they take part in while
    they are there.
    """
    resident = stack.resident
    if resident is None:
        (graph,) = graphs
        order = schedule(graph, None if first is None else graph.ends[first])
        yield from ((step,) for step in common_steps(graph, order[1:]))
        return
    nodes = [node for graph in graphs for node in graph.nodes]
    if any(isinstance(node, Node) and node.variant.sublayer is not None for node in nodes):
        stack.branches(walk.captured)  # found on a pass of its own, which reads every layer
    for reading in in_turn(resident, reading_schedule(graphs, resident.most)):
        orders = [[index for index in order if index] for order in reading.nodes]
        if len(graphs) == 1:
            yield from ((step,) for step in common_steps(graphs[0], orders[0]))
        else:
            yield [tuple(order) for order in orders]


def _prepared(
    prepare: Prepare, graph: Graph, step: Sequence[int], walks: Sequence[BatchWalk], absent: set[int]
) -> Apply | None:
    """What is done with every batch at the changed node that a step begins with; `absent` takes in what cannot be."""
    apply, node = None, graph.nodes[step[0]]
    if isinstance(node, Node) and node.variant.change is not None and node.state not in absent:
        apply = prepare(node, CleanBatches(walks, node.state))
        if apply is None:
            absent.add(step[0])
    for index in step:
        if not absent.isdisjoint(inputs(graph.nodes[index])):
            absent.add(index)
    return apply


def state_bytes(stack: Stack, batches: Sequence[AnyBatch]) -> list[int]:
    """The bytes of one hidden state of each batch, told from the first."""
    if not batches:
        return []
    first = captured_batch(stack, batches[0]).state
    return [first.numel() * first.element_size() * batch.size // batches[0].size for batch in batches]
