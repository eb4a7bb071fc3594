"""The pieces that a sweep falls into for several workers, and what a worker does with one.

Batches share nothing, so they are handed out whole; only those of the last, incomplete round, in which workers would be
idle, are cut into parts of their plans (`layerwise.stack.executors.partition`), and those of the round before it, where
batches are so unequal that this is faster. Each batch is the same tensors as in one process, so the numbers have the
same bits on the same kind of processor with as many threads.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import torch

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError
from layerwise.measure.interventions.batch_walk import FinalState, final_states
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import WindowLoss
from layerwise.measure.workers import Emit, PieceFunction, Plain
from layerwise.plan import Plan
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import build
from layerwise.stack.executors.partition import Partition, cost, depth_first, runs
from layerwise.stack.inputs import evaluating


@dataclass(frozen=True, slots=True)
class SweepPart:
    """What one worker computes at a time: some plans on one batch."""

    batch: int
    plans: tuple[Plan, ...]


def divided(
    due: Mapping[int, Sequence[Plan]], sizes: Sequence[int], workers: int, head: float
) -> tuple[list[SweepPart], Partition]:
    """The parts of a sweep for so many workers, and what they cost.

    `due` has the plans that each batch still needs, `sizes` the tokens of every batch, and `head` is the price of a
    head in layer evaluations (`head_in_layers`).

    >>> plans = [Plan.parse(text) for text in ("0-2", "1 2", "0 2", "0 1")]
    >>> parts, partition = divided({0: plans, 1: plans, 2: plans}, [9, 9, 9], 2, 0.0)
    >>> [(part.batch, len(part.plans)) for part in parts], f"{partition.bound(2):.2f}"
    ([(0, 4), (1, 4), (2, 3), (2, 1)], '1.80')
    """
    batches = [number for number, plans in due.items() if plans]
    left = len(batches) % workers
    known: dict[tuple[tuple[Plan, ...], int], list[tuple[tuple[Plan, ...], float]]] = {}

    def with_cut(last: int) -> tuple[list[SweepPart], Partition]:
        """The parts where the plans of the `last` batches are cut, so that workers share them equally."""
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
        "data": data, "batch": part.batch, "digest": batch_digest(batch), "plans": [str(plan) for plan in part.plans],
        "first": None if first is None else str(first),
    }  # fmt: skip


def piece_function(stack: Stack, texts: Mapping[str, EvalData]) -> PieceFunction:
    """What a worker does with a piece: it says what every final state of it came to, as plain values.

    `texts` are those that pieces may be of, by name. Raises `MeasureError` for a batch that is not the same here.
    """

    def carry_out(piece: Plain, emit: Emit) -> Plain:
        batch = texts[piece["data"]].batches[piece["batch"]]
        if batch_digest(batch) != piece["digest"]:
            raise MeasureError(
                f"batch {piece['batch']} of {texts[piece['data']].name} is not the same in this worker as where the "
                "sweep was started; give every machine the same text, and the same data of the benchmarks"
            )
        first = None if piece["first"] is None else Plan.parse(piece["first"])
        graph = build(Plan.parse(text) for text in piece["plans"])
        with evaluating(stack.model), torch.inference_mode():
            for _, each in final_states(stack, [(batch, graph)], first):
                if each.plans:
                    emit(astuple(each))

    return carry_out


def read_final_state(partial: Plain) -> FinalState:
    """The final state that a worker emitted."""
    plans, losses, *rest = partial
    return FinalState(tuple(plans), tuple(WindowLoss(*loss) for loss in losses), *rest)
