"""Split a sweep into pieces for several workers, and compute a piece in a worker.

Batches are handed out whole, except in the last rounds, where splitting their plans keeps workers busy
(`layerwise.stack.executors.partition`). Batches are the same tensors as in one process, so the numbers have the same
bits on the same kind of processor with as many threads.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.activations.padding import captured_batch
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import Graph, GraphExecutor, build
from layerwise.stack.executors.partition import Partition, cost, depth_first, runs
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.executor import StreamedExecutor
from layerwise.stack.streaming.readings import Reading

Plain: TypeAlias = Any
"""None, a truth value, a number, a text, bytes, or a list, tuple or dict of these: what may travel."""


class PieceRunner(Protocol):
    """Computes pieces in other processes, `count` of them at a time."""

    @property
    def count(self) -> int: ...

    def map(self, pieces: Sequence[Plain]) -> Iterator[tuple[int, Plain]]: ...


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
    captured = [(captured_batch(stack, batch), graph) for batch, graph in work]
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
    first = captured_batch(stack, batches[0]).state
    return [first.numel() * first.element_size() * batch.size // batches[0].size for batch in batches]


@dataclass(frozen=True, slots=True)
class SweepPart:
    """What one worker computes at a time: some plans on one batch."""

    batch: int
    plans: tuple[Plan, ...]


def divided(
    due: Mapping[int, Sequence[Plan]], sizes: Sequence[int], workers: int, head: float
) -> tuple[list[SweepPart], Partition]:
    """Split a sweep for `workers`, and return the parts with their cost.

    `due` has the remaining plans and `sizes` the tokens of every batch; `head` is the cost of a head in layer
    evaluations (`head_in_layers`).

    >>> plans = [Plan.parse(text) for text in ("0-2", "1 2", "0 2", "0 1")]
    >>> parts, partition = divided({0: plans, 1: plans, 2: plans}, [9, 9, 9], 2, 0.0)
    >>> [(part.batch, len(part.plans)) for part in parts], f"{partition.bound(2):.2f}"
    ([(0, 4), (1, 4), (2, 3), (2, 1)], '1.80')
    """
    batches = [number for number, plans in due.items() if plans]
    left = len(batches) % workers
    known: dict[tuple[tuple[Plan, ...], int], list[tuple[tuple[Plan, ...], float]]] = {}

    def with_cut(last: int) -> tuple[list[SweepPart], Partition]:
        cuts = workers // math.gcd(last, workers) if last % workers else workers
        parts: list[SweepPart] = []
        costs: list[float] = []
        whole = 0.0
        for index, number in enumerate(batches):
            plans, count = tuple(due[number]), cuts if index >= len(batches) - last else 1
            for cut in (1, count):
                if (plans, cut) not in known:
                    own = (plans,) if cut == 1 else runs(depth_first(plans), cut, head)
                    known[plans, cut] = [(run, cost(run, head)) for run in own]
            parts += [SweepPart(number, run) for run, _ in known[plans, count]]
            costs += [each * sizes[number] for _, each in known[plans, count]]
            whole += sizes[number] * known[plans, 1][0][1]
        return parts, Partition(whole, tuple(costs))

    # Batches of one round may differ in size: then the round before is worth cutting too.
    choices = [with_cut(last) for last in (left, left + workers) if last <= len(batches)]
    return max(choices, key=lambda choice: choice[1].bound(workers))


def head_in_layers(stack: Stack) -> float:
    """What a head costs beside a layer, by the weights that each multiplies with; 0 where the model has none."""
    output = getattr(stack.model, "get_output_embeddings", lambda: None)()
    blocks = block_list(stack.model, stack.path)
    weights = sum(each.numel() for block in blocks for each in block.parameters())
    return 0.0 if output is None or not weights else output.weight.numel() * len(blocks) / weights


def batch_digest(batch: AnyBatch) -> str:
    """SHA-256, shortened, over what a batch asks and expects."""
    digest = hashlib.sha256()
    for name, tensor in sorted({**batch.inputs, "targets": batch.targets}.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def plain_part(part: SweepPart, data: str, batch: AnyBatch, first: Plan | None) -> dict[str, Plain]:
    """A part as a piece for a worker; `data` is the name of the text it is of."""
    return {
        "data": data,
        "batch": part.batch,
        "digest": batch_digest(batch),
        "plans": [str(plan) for plan in part.plans],
        "first": None if first is None else str(first),
    }


def piece_function(stack: Stack, texts: Mapping[str, EvalData]) -> Callable[[Plain], Plain]:
    """Return a worker's function from a piece of one of `texts` to its final states, as plain values.

    Raises `MeasureError` for a batch that is not the same here.
    """

    def carry_out(piece: Plain) -> Plain:
        batch = texts[piece["data"]].batches[piece["batch"]]
        if batch_digest(batch) != piece["digest"]:
            raise MeasureError(
                f"batch {piece['batch']} of {texts[piece['data']].name} is not the same in this worker as where the "
                "sweep was started; give every machine the same text, and the same data of the benchmarks"
            )
        first = None if piece["first"] is None else Plan.parse(piece["first"])
        graph = build(Plan.parse(text) for text in piece["plans"])
        with evaluating(stack.model), torch.inference_mode():
            states = (each for _, each in final_states(stack, [(batch, graph)], first))
            return [astuple(each) for each in states if each.plans]

    return carry_out


def read_final_state(written: Plain) -> FinalState:
    plans, losses, *rest = written
    return FinalState(tuple(plans), tuple(WindowLoss(*loss) for loss in losses), *rest)
