"""Evaluate every plan on every window; layer evaluations that plans have in common run once.

Batches depend only on the text, so a resumed sweep gives the same numbers.
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
"""Number of shards per worker. If there are fewer batches, the plans of a batch are divided as well."""


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The estimated cost of a sweep.

    `evaluations` is the number of layer evaluations per batch, and `naive` the number without prefix sharing.
    `layer_tokens` and `head_tokens` are the remaining evaluations of layers and of the head, multiplied by tokens.
    """

    evaluations: int
    naive: int
    plans: int
    layer_tokens: int
    head_tokens: int


@dataclass(slots=True)
class CostMeter:
    """The cost so far: evaluations of layers and of the head, multiplied by tokens, and the seconds that they took."""

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
        """Estimate the remaining seconds, or return None until a layer and the head have been timed."""
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
    """Compute the loss of every plan on every window of `data`, starting with the identity plan.

    Args:
        stack: The model.
        plans: The plans to evaluate.
        data: The text.
        sink: Receives rows as soon as they are computed (default: they are returned).
        finished: Returns the plans that already have rows for a window (task, document, index).
        progress: Receives the cost so far and the estimated cost.
        runner: Computes shards on workers (default: in this process).

    Returns:
        One row per plan and window, or an empty list if there is a `sink`.

    Raises:
        MeasureError: If losses are not finite: immediately for the identity plan, for other plans after all other rows
            have been stored.
    """
    rows: list[Loss] = []
    store = rows.extend if sink is None else sink
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
                    store(_rows(plan, piece, end))
                elif plan == identity:
                    raise MeasureError(
                        f"The loss of the original model ({plan}) must be finite, got NaN or infinity on document "
                        f"{document!r}. Check the checkpoint or use --dtype float32."
                    )
                else:
                    broken.setdefault(plan, document)
            meter.add(piece.batch.size, end, time.perf_counter() - start)
            if progress is not None:
                progress(meter, work.estimate)
    if broken:
        plan, document = next(iter(broken.items()))
        raise MeasureError(
            f"Losses must be finite, got NaN or infinity for {len(broken)} of {work.estimate.plans} plans (first "
            f"{plan!r} on {document!r}). All other rows are stored. Remove these plans or use --dtype float32."
        )
    return rows


def _run_locally(stack: Stack, work: _Work) -> Iterator[tuple[_BatchPlans, FinalState]]:
    """Run batches one by one, or together if layers are read from disk; the first result is for the identity plan."""
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
    """Check that the model can run `plans`, and return the distinct ones, with the identity plan first."""
    distinct = {Plan.identity(stack.depth): None}
    for item in plans:
        plan = item.plan if isinstance(item, Member) else Plan.parse(item)
        stack.check(plan)
        distinct.setdefault(plan)
    return tuple(distinct)


def filter_runnable(stack: Stack, members: Iterable[Member]) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Return the `members` whose plans the model can run, and a sentence about each plan family with omitted plans.

    Raises `UnsupportedModelError` if the model cannot run a plan that the user gave, or if only the identity plan
    remains.
    """
    runnable: list[Member] = []
    reasons: dict[str, list[UnsupportedModelError]] = {}
    for member in members:
        try:
            stack.check(member.plan)
        except UnsupportedModelError as refusal:
            if member.family == GIVEN:
                raise
            reasons.setdefault(member.family, []).append(refusal)
        else:
            runnable.append(member)
    omitted = tuple(
        f"{len(messages)} plan{'s' * (len(messages) != 1)} of {family} omitted: {messages[0]}"
        for family, messages in reasons.items()
    )
    if reasons and runnable and all(member.plan == Plan.identity(stack.depth) for member in runnable):
        refused = [f"{family} ({len(messages)}): {messages[0]}" for family, messages in reasons.items()]
        raise UnsupportedModelError(f"The model can run none of the plans. {'; '.join(refused)}")
    return tuple(runnable), omitted


def plan_records(members: Iterable[Member]) -> list[PlanRecord]:
    records = []
    for member in members:
        about = str(member.plan), member.family, member.strategy, member.affected, member.draw
        cost = member.plan.cost()
        records.append(PlanRecord(*about, cost.evaluations, cost.stages, cost.weights, cost.slots))
    return records


def count_shards(plans: Sequence[Plan], data: EvalData, workers: int) -> int:
    return len(_Work.from_plans(plans, data).divide(workers))


def estimate_cost(
    stack: Stack, plans: Sequence[Plan], data: EvalData, finished: Finished | None = None
) -> CostEstimate:
    return _Work.from_plans(plans, data, finished).estimate


def estimate_streaming(
    stack: Stack, resident: ResidentLayers, plans: Sequence[Plan], data: EvalData
) -> StreamingEstimate:
    return _Work.from_plans(plans, data).streaming(stack, resident)


@dataclass(frozen=True)
class _BatchPlans:
    batch: AnyBatch
    graph: Graph
    done: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class _Work:
    pieces: tuple[_BatchPlans, ...]
    estimate: CostEstimate

    def divide(self, workers: int) -> list[tuple[_BatchPlans, SweepShard]]:
        """Divide the batches into shards and, if there are few batches, their plans as well.

        Plans with a common prefix stay together, because every shard computes its prefixes again.
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
        texts = {str(plan): plan for plan in plans}
        names, full_graph = frozenset(texts), build(plans)
        graphs: dict[frozenset[str], Graph] = {frozenset(): full_graph}
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
        cost = {id(graph): (graph.evaluations, graph.heads) for graph in graphs.values()}
        layer_tokens, head_tokens = (
            sum(cost[id(piece.graph)][kind] * piece.batch.size for piece in pieces) for kind in (0, 1)
        )
        evaluations, naive = full_graph.evaluations, full_graph.naive
        return cls(tuple(pieces), CostEstimate(evaluations, naive, len(plans), layer_tokens, head_tokens))


class ShardRunner(Protocol):
    @property
    def count(self) -> int: ...

    def map(self, pieces: Sequence[SweepShard]) -> Iterator[tuple[int, list[FinalState]]]: ...


@dataclass(frozen=True, slots=True, eq=False)
class SweepShard:
    batch: AnyBatch
    plans: tuple[Plan, ...]


@dataclass(frozen=True, slots=True)
class FinalState:
    """A final hidden state of a batch: the plans that end in it, their losses for each window, and its cost.

    `evaluations` is the number of layer evaluations since the previous final state, and `most_live` the peak number of
    states in memory.
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
    """Run the graph of each batch in `work`, and yield the batch number and final state whenever plans end.

    If layers are not on disk, `work` must have one batch. The final state of the plan `first` on the first batch is
    yielded before all others. Whenever layers have been read from disk, a `FinalState` without plans is yielded, so
    that progress can be reported. Call this in evaluation mode and without gradients.
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
        reached = time.perf_counter()
        plans = () if node is None else names[number][node]
        losses = () if state is None else tuple(window_losses(stack, state, work[number][0]))
        done = time.perf_counter()
        evaluations = walks[number].evaluated - walked[number]
        yield number, FinalState(plans, losses, evaluations, reached - clock, done - reached, walk.most_live)
        walked[number], clock = walks[number].evaluated, time.perf_counter()


def _yield_first(
    ends: Iterable[tuple[int, int, Tensor] | Reading], awaited: int | None, batches: int
) -> Iterator[tuple[int, int | None, Tensor | None]]:
    """Yield the final nodes in order, except that the node `awaited` of the first batch comes first.

    A read from disk is yielded as an end without a node.
    """
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
    """Return the number of weights of the head divided by that of an average layer, or 0 if the model has no head."""
    output = getattr(stack.model, "get_output_embeddings", lambda: None)()
    blocks = block_list(stack.model, stack.path)
    weights = sum(each.numel() for block in blocks for each in block.parameters())
    return 0.0 if output is None or not weights else output.weight.numel() * len(blocks) / weights


def compute_shard(stack: Stack, piece: SweepShard) -> list[FinalState]:
    """Compute the final states of a shard, with that of the identity plan first."""
    first, graph = Plan.identity(stack.depth), build(piece.plans)
    with evaluating(stack.model), torch.inference_mode():
        states = final_states(stack, [(piece.batch, graph)], first if first in piece.plans else None)
        return [each for _, each in states if each.plans]
