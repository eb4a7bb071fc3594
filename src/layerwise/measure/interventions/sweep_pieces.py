"""Compute pieces of a sweep, in this process or in a worker.

Batches are the same tensors in every process, so the numbers have the same bits on the same kind of processor with as
many threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import Graph, GraphExecutor, build
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.executor import Reading, StreamedExecutor


class PieceRunner(Protocol):
    @property
    def count(self) -> int: ...

    def map(self, pieces: Sequence[SweepPiece]) -> Iterator[tuple[int, list[FinalState]]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SweepPiece:
    """Plans that a worker evaluates on one batch, as one unit of work."""

    batch: AnyBatch
    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class FinalState:
    """A final state of a batch: the plans that end there, their losses by window, and the cost.

    `evaluations` counts those since the final state before, `most_live` is the peak of states held at once.
    """

    plans: tuple[str, ...]
    losses: tuple[WindowLoss, ...]
    evaluations: int
    layer_seconds: float
    head_seconds: float
    most_live: int


def final_states(
    stack: Stack, work: Sequence[tuple[AnyBatch, Graph]], first: Plan | None
) -> Iterator[tuple[int, FinalState]]:
    """Yield the final states of batches, with the batch's number; several batches only if layers are read from disk.

    `first` on the first batch comes first. States without plans report each read. Call in evaluation mode
    and without gradients.
    """
    names = [graph.names() for _, graph in work]
    captured = [(stack.capture(**batch.inputs), graph) for batch, graph in work]
    walk: GraphExecutor | StreamedExecutor
    ends: Iterable[tuple[int, int | None, Tensor | None]]
    if stack.resident is None:
        ((inputs, graph),) = captured
        walk = GraphExecutor(
            graph,
            lambda layer, state, part, source: stack.apply(layer, state, inputs, part, source),
            inputs.state,
            first,
        )
        walks, ends = [walk], ((0, node, state) for node, state in walk.states())
    else:
        walk = StreamedExecutor(stack, stack.resident, captured)
        awaited = None if first is None else work[0][1].ends.get(first)
        walks, ends = walk.walks, _first_before(walk.states(), awaited, len(work))
    walked = [0] * len(work)
    clock = time.perf_counter()
    for number, node, state in ends:
        there = time.perf_counter()
        plans = () if node is None else names[number][node]
        losses = () if state is None else tuple(window_losses(stack, state, work[number][0]))
        done = time.perf_counter()
        evaluations = walks[number].evaluated - walked[number]
        yield number, FinalState(plans, losses, evaluations, there - clock, done - there, walk.most_live)
        walked[number], clock = walks[number].evaluated, time.perf_counter()


def _first_before(
    ends: Iterable[tuple[int, int, Tensor] | Reading], awaited: int | None, batches: int
) -> Iterator[tuple[int, int | None, Tensor | None]]:
    """Yield the ends in order, but `awaited` of the first batch first; a read is an end without a node."""
    passed: list[tuple[int, int, Tensor]] = []
    for each in ends:
        if isinstance(each, Reading):
            yield from ((number, None, None) for number in range(batches))
        elif awaited is None or each[:2] == (0, awaited):
            yield from (each, *passed)
            passed, awaited = [], None
        else:
            passed.append(each)


def state_bytes(stack: Stack, batches: Sequence[AnyBatch]) -> list[int]:
    if not batches:
        return []
    first = stack.capture(**batches[0].inputs).state
    return [first.numel() * first.element_size() * batch.size // batches[0].size for batch in batches]


def head_in_layers(stack: Stack) -> float:
    """What a head costs beside a layer, by the weights that each multiplies with; 0 where the model has none."""
    output = getattr(stack.model, "get_output_embeddings", lambda: None)()
    blocks = block_list(stack.model, stack.path)
    weights = sum(each.numel() for block in blocks for each in block.parameters())
    return 0.0 if output is None or not weights else output.weight.numel() * len(blocks) / weights


def compute_piece(stack: Stack, piece: SweepPiece) -> list[FinalState]:
    """Return the final states of a piece, the identity plan's first."""
    first, graph = Plan.identity(stack.depth), build(piece.plans)
    with evaluating(stack.model), torch.inference_mode():
        states = final_states(stack, [(piece.batch, graph)], first if first in piece.plans else None)
        return [each for _, each in states if each.plans]
