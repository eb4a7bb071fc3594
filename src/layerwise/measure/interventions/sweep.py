"""Evaluate every plan on every window, sharing the layer evaluations that plans have in common.

A sweep maps a stack, plans and windows to `Loss` rows, with a cost known beforehand (`estimate_cost`). Known rows are
skipped, new ones are handed on at once. Batches depend on the text alone, so a resumed sweep gives the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.plan import Plan
from layerwise.plan.painters import GIVEN, Member
from layerwise.results.rows import Loss, PlanRecord
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.graph import Graph, GraphExecutor, build
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.executor import Reading, StreamedExecutor, StreamingEstimate, streaming_estimate
from layerwise.stack.streaming.resident import ResidentLayers

Sink = Callable[[Sequence[Loss]], None]
Finished = Callable[[str, str, int], frozenset[str]]

SHARDS_PER_WORKER = 2
"""Where there are fewer batches, their plans are divided too."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of a sweep: layer evaluations and heads, each times the tokens they run on.

    `evaluations` is the lower bound of one batch (unique apply nodes of the graph), `naive` the cost of one plan at a
    time; `layer_tokens` and `head_tokens` remain over all batches.
    """

    evaluations: int
    naive: int
    plans: int
    layer_tokens: int
    head_tokens: int


@dataclass(slots=True)
class CostMeter:
    """What a sweep has done so far: layer evaluations (times tokens), heads (times tokens), and the seconds of each."""

    layer_tokens: int = 0
    head_tokens: int = 0
    layer_seconds: float = 0.0
    head_seconds: float = 0.0
    most_live: int = 0

    def add(self, tokens: int, end: FinalState, storing_seconds: float) -> None:
        self.layer_tokens += end.evaluations * tokens
        self.head_tokens += bool(end.plans) * tokens
        self.layer_seconds += end.layer_seconds
        self.head_seconds += end.head_seconds + storing_seconds
        self.most_live = max(self.most_live, end.most_live)

    def seconds_left(self, estimate: CostEstimate) -> float | None:
        """Return the time left at the measured cost of a layer and of a head; `None` before both are known."""
        if not (self.layer_tokens and self.head_tokens):
            return None
        layers = (estimate.layer_tokens - self.layer_tokens) * self.layer_seconds / self.layer_tokens
        heads = (estimate.head_tokens - self.head_tokens) * self.head_seconds / self.head_tokens
        return layers + heads


Progress = Callable[[CostMeter, CostEstimate], None]


def sweep(
    stack: Stack,
    plans: Iterable[Plan | Member | str],
    data: EvalData,
    *,
    sink: Sink | None = None,
    finished: Finished | None = None,
    progress: Progress | None = None,
    runner: ShardRunner | None = None,
) -> list[Loss]:
    """Compute the loss of every plan, and first of the identity plan, on every window of `data`: one row each.

    Rows are returned, or go to `sink` as soon as they exist. `finished(task, document, window)` names plans that a
    window already has rows for. `runner` computes elsewhere (default: this process).

    Raises `MeasureError` when a plan gives non-finite logits: at once for the identity plan, otherwise at the end,
    naming the plans, after every other row has been handed on.
    """
    rows: list[Loss] = []
    keep = rows.extend if sink is None else sink
    work = _Work.from_plans(add_identity(stack, plans), data, finished)
    identity, meter, broken = str(Plan.identity(stack.depth)), CostMeter(), dict[str, str]()
    if progress is not None:
        progress(meter, work.estimate)
    with evaluating(stack.model), torch.inference_mode():
        for piece, end in _run_locally(stack, work) if runner is None else _run_on_workers(work, runner):
            start = time.perf_counter()
            scored = zip(piece.batch.windows, end.losses, strict=False)
            document = next((window.document for window, loss in scored if not math.isfinite(loss.nll)), None)
            for plan in end.plans:
                if document is None:
                    keep(_rows(plan, piece, end))
                elif plan == identity:
                    raise MeasureError(
                        f"the model itself ({plan}) gives non-finite logits on document {document!r}, before "
                        "any plan changes it; check the checkpoint, or use --dtype float32"
                    )
                else:
                    broken.setdefault(plan, document)
            meter.add(piece.batch.size, end, time.perf_counter() - start)
            if progress is not None:
                progress(meter, work.estimate)
    if broken:
        plan, document = next(iter(broken.items()))
        raise MeasureError(
            f"{len(broken)} of {work.estimate.plans} plans gave non-finite losses, first {plan!r} "
            f"on {document!r}; they have no rows there. Every other row is kept: leave those plans "
            "out, or use --dtype float32"
        )
    return rows


def _run_locally(stack: Stack, work: _Work) -> Iterator[tuple[_BatchPlans, FinalState]]:
    """Run batches in turn, or together if layers are read from disk; the first's identity plan comes first."""
    first: Plan | None = Plan.identity(stack.depth)
    for pieces in work.rounds(stack):
        for number, end in final_states(stack, [(piece.batch, piece.graph) for piece in pieces], first):
            yield pieces[number], end
        first = None


def _run_on_workers(work: _Work, runner: ShardRunner) -> Iterator[tuple[_BatchPlans, FinalState]]:
    pieces = work.divide(runner.count)
    for number, ends in runner.map([each for _, each in pieces]):
        for end in ends:
            yield pieces[number][0], end


def _rows(plan: str, piece: _BatchPlans, end: FinalState) -> list[Loss]:
    return [
        Loss(plan, window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
        for window, done, loss in zip(piece.batch.windows, piece.done, end.losses, strict=True)
        if plan not in done
    ]


def add_identity(stack: Stack, plans: Iterable[Plan | Member | str]) -> tuple[Plan, ...]:
    """The distinct plans to run, the identity first; each is checked against the model."""
    distinct = {Plan.identity(stack.depth): None}
    for item in plans:
        plan = item.plan if isinstance(item, Member) else Plan.parse(item)
        stack.check(plan)
        distinct.setdefault(plan)
    return tuple(distinct)


def filter_runnable(stack: Stack, members: Iterable[Member]) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Return the members whose plans the model can run, and a sentence for every family with omitted ones.

    Raises the error of a `GIVEN` plan, and `UnsupportedModelError` if only the original model is left of several
    families.
    """
    kept: list[Member] = []
    reasons: dict[str, list[UnsupportedModelError]] = {}
    for member in members:
        try:
            stack.check(member.plan)
        except UnsupportedModelError as refusal:
            if member.family == GIVEN:
                raise
            reasons.setdefault(member.family, []).append(refusal)
        else:
            kept.append(member)
    left_out = tuple(
        f"{len(messages)} plan{'s' * (len(messages) != 1)} of {family} left out: {messages[0]}"
        for family, messages in reasons.items()
    )
    if reasons and kept and all(member.plan == Plan.identity(stack.depth) for member in kept):
        raise UnsupportedModelError(f"the model can run none of these plans: {'; '.join(left_out)}")
    return tuple(kept), left_out


def plan_records(members: Iterable[Member]) -> list[PlanRecord]:
    records = []
    for member in members:
        cost = member.plan.cost()
        records.append(
            PlanRecord(
                str(member.plan),
                member.family,
                member.strategy,
                member.affected,
                member.draw,
                cost.evaluations,
                cost.stages,
                cost.weights,
                cost.slots,
            )
        )
    return records


def count_shards(plans: Sequence[Plan], data: EvalData, workers: int) -> int:
    """Return how many pieces a sweep is divided into for so many workers."""
    return len(_Work.from_plans(plans, data).divide(workers))


def estimate_cost(
    stack: Stack, plans: Sequence[Plan], data: EvalData, finished: Finished | None = None
) -> CostEstimate:
    return _Work.from_plans(plans, data, finished).estimate


def estimate_streaming(
    stack: Stack, resident: ResidentLayers, plans: Sequence[Plan], data: EvalData
) -> StreamingEstimate:
    """Estimate a sweep whose layers are read from the disk."""
    return _Work.from_plans(plans, data).streaming(stack, resident)


@dataclass(frozen=True)
class _BatchPlans:
    batch: AnyBatch
    graph: Graph
    done: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class _Work:
    """The batches with plans that are not finished on all of their windows, and what the work costs."""

    pieces: tuple[_BatchPlans, ...]
    estimate: CostEstimate

    def divide(self, workers: int) -> list[tuple[_BatchPlans, SweepShard]]:
        """Divide the batches among workers, and their plans if there are few batches.

        Plans with a common beginning stay together: what pieces share is computed in each of them.
        """
        cuts = math.ceil(SHARDS_PER_WORKER * workers / max(1, len(self.pieces)))
        divided = []
        for piece in self.pieces:
            plans = [plan for plan in piece.graph.ends if isinstance(plan, Plan)]
            plans.sort(key=lambda plan: [repr(step) for step in plan.steps()])
            ends = [len(plans) * cut // cuts for cut in range(cuts + 1)]
            parts = (tuple(plans[start:end]) for start, end in pairwise(ends))
            divided += [(piece, SweepShard(piece.batch, part)) for part in parts if part]
        return divided

    def rounds(self, stack: Stack) -> list[list[_BatchPlans]]:
        if stack.resident is None:
            return [[piece] for piece in self.pieces]
        return [[self.pieces[number] for number in each] for each in self.streaming(stack, stack.resident).rounds]

    def streaming(self, stack: Stack, resident: ResidentLayers) -> StreamingEstimate:
        sizes = state_bytes(stack, [piece.batch for piece in self.pieces])
        graphs = [piece.graph for piece in self.pieces]
        return streaming_estimate(resident, list(zip(sizes, graphs, strict=True)))

    @classmethod
    def from_plans(cls, plans: Sequence[Plan], data: EvalData, finished: Finished | None = None) -> _Work:
        texts = {str(plan): plan for plan in plans}  # a plan is long to write, and there are many windows
        names, whole = frozenset(texts), build(plans)
        graphs: dict[frozenset[str], Graph] = {frozenset(): whole}
        pieces = []
        for batch in data.batches:
            done = tuple(
                finished(window.task, window.document, window.index) if finished else frozenset[str]()
                for window in batch.windows
            )
            everywhere = names.intersection(*done)
            if everywhere == names:
                continue
            if everywhere not in graphs:
                graphs[everywhere] = build(plan for text, plan in texts.items() if text not in everywhere)
            pieces.append(_BatchPlans(batch, graphs[everywhere], done))
        spent = {id(graph): (graph.evaluations, graph.heads) for graph in graphs.values()}
        layer_tokens, head_tokens = (
            sum(spent[id(piece.graph)][of] * piece.batch.size for piece in pieces) for of in (0, 1)
        )
        return cls(tuple(pieces), CostEstimate(whole.evaluations, whole.naive, len(plans), layer_tokens, head_tokens))


class ShardRunner(Protocol):
    @property
    def count(self) -> int: ...

    def map(self, pieces: Sequence[SweepShard]) -> Iterator[tuple[int, list[FinalState]]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SweepShard:
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
        walks, ends = walk.walks, _yield_first(walk.states(), awaited, len(work))
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


def _yield_first(
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


def head_cost_in_layers(stack: Stack) -> float:
    """What a head costs beside a layer, by the weights that each multiplies with; 0 where the model has none."""
    output = getattr(stack.model, "get_output_embeddings", lambda: None)()
    blocks = block_list(stack.model, stack.path)
    weights = sum(each.numel() for block in blocks for each in block.parameters())
    return 0.0 if output is None or not weights else output.weight.numel() * len(blocks) / weights


def compute_shard(stack: Stack, piece: SweepShard) -> list[FinalState]:
    """Return the final states of a piece, the identity plan's first."""
    first, graph = Plan.identity(stack.depth), build(piece.plans)
    with evaluating(stack.model), torch.inference_mode():
        states = final_states(stack, [(piece.batch, graph)], first if first in piece.plans else None)
        return [each for _, each in states if each.plans]
