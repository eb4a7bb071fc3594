"""Evaluate every plan on every window, sharing the layer evaluations that plans have in common.

A sweep maps a stack, plans and windows to `Loss` rows, with a cost known beforehand (`cost_estimate`). Known rows are
skipped, new ones are handed on at once. Batches depend on the text alone, so a resumed sweep gives the same numbers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from layerwise.data.batches import AnyBatch
from layerwise.data.text.corpus import Corpus
from layerwise.errors import MeasureError, UnsupportedModel
from layerwise.measure.interventions.sweep_pieces import (
    FinalState,
    PieceRunner,
    SweepPiece,
    final_states,
    state_bytes,
)
from layerwise.measure.language.evaluation_data import EvalData, tokenize
from layerwise.measure.language.loss import WindowLoss
from layerwise.plan import Plan
from layerwise.plan.painters import GIVEN, Member
from layerwise.results.rows import Loss, PlanRecord
from layerwise.stack import Stack
from layerwise.stack.executors.graph import Graph, build
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.executor import StreamingEstimate, streaming_estimate

Sink = Callable[[Sequence[Loss]], None]
Finished = Callable[[str, str, int], frozenset[str]]

PIECES_PER_WORKER = 2
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

    def add(self, tokens: int, evaluations: int, layer_seconds: float, head_seconds: float, *, heads: int = 1) -> None:
        """Note the layer evaluations, heads and seconds of one more plan; `heads=0` on the way to its end."""
        self.layer_tokens += evaluations * tokens
        self.head_tokens += heads * tokens
        self.layer_seconds += layer_seconds
        self.head_seconds += head_seconds

    def seconds_left(self, estimate: CostEstimate) -> float | None:
        """The time to go at the measured cost of a layer and of a head; `None` before both are known."""
        if not (self.layer_tokens and self.head_tokens):
            return None
        layers = (estimate.layer_tokens - self.layer_tokens) * self.layer_seconds / self.layer_tokens
        heads = (estimate.head_tokens - self.head_tokens) * self.head_seconds / self.head_tokens
        return layers + heads


Progress = Callable[[CostMeter, CostEstimate], None]


def sweep(
    stack: Stack,
    plans: Iterable[Plan | Member | str],
    corpus: Corpus | EvalData,
    *,
    sink: Sink | None = None,
    finished: Finished | None = None,
    progress: Progress | None = None,
    runner: PieceRunner | None = None,
) -> list[Loss]:
    """Compute the loss of every plan, and first of the identity plan, on every window of `corpus`: one row each.

    `sink` receives rows as soon as they exist; `finished(task, document, window)` names plans that a window already has
    rows for (neither computed nor returned). A `Corpus` is read with the default window and batch size; pass an
    `EvalData` for others. `runner` computes elsewhere (default: this process).

    Raises `MeasureError` when a plan gives non-finite logits: at once for the identity plan, otherwise at the end,
    naming the plans, after every other row has been handed on.
    """
    data = corpus if isinstance(corpus, EvalData) else tokenize(stack, corpus)
    rows: list[Loss] = []

    def keep(fresh: Sequence[Loss]) -> None:
        if sink is not None:
            sink(fresh)
        rows.extend(fresh)

    sweep_into(keep, stack, plans, data, finished=finished, progress=progress, runner=runner)
    return rows


def sweep_into(
    sink: Sink,
    stack: Stack,
    plans: Iterable[Plan | Member | str],
    data: EvalData,
    *,
    finished: Finished | None = None,
    progress: Progress | None = None,
    runner: PieceRunner | None = None,
) -> None:
    """Run `sweep` with rows going to `sink` alone."""
    work = _Work.of(with_identity(stack, plans), data, finished or _nothing)
    _Sweep(stack, work, sink, progress or (lambda meter, due: None), runner).run()


def with_identity(stack: Stack, plans: Iterable[Plan | Member | str]) -> tuple[Plan, ...]:
    """The distinct plans to run, the identity first; each is checked against the model."""
    distinct = {Plan.identity(stack.depth): None}
    for item in plans:
        plan = item.plan if isinstance(item, Member) else Plan.parse(item)
        stack.check(plan)
        distinct.setdefault(plan)
    return tuple(distinct)


def runnable(stack: Stack, members: Iterable[Member]) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Return the members whose plans the model can run, and a sentence for every family with omitted ones.

    Raises the error of a `GIVEN` plan, and `UnsupportedModel` if only the original model is left of several families.
    """
    kept: list[Member] = []
    reasons: dict[str, list[UnsupportedModel]] = {}
    for member in members:
        try:
            stack.check(member.plan)
        except UnsupportedModel as refusal:
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
        raise UnsupportedModel(f"the model can run none of these plans: {'; '.join(left_out)}")
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


def count_pieces(plans: Sequence[Plan], data: EvalData, workers: int) -> int:
    """Return how many pieces a sweep is divided into for so many workers."""
    return len(_Work.of(plans, data, _nothing).divide(workers))


def cost_estimate(
    stack: Stack, plans: Sequence[Plan], data: EvalData, finished: Finished | None = None
) -> CostEstimate:
    return _Work.of(plans, data, finished or _nothing).estimate


def streaming_of(stack: Stack, plans: Sequence[Plan], data: EvalData) -> StreamingEstimate | None:
    """What a sweep takes whose layers are read from the disk; `None` for a model that is in memory."""
    return _Work.of(plans, data, _nothing).streaming(stack)


@dataclass(frozen=True)
class _Piece:
    batch: AnyBatch
    graph: Graph
    done: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class _Work:
    data: EvalData
    pieces: tuple[_Piece, ...]
    estimate: CostEstimate

    def divide(self, workers: int) -> list[tuple[_Piece, SweepPiece]]:
        """Divide the batches among workers, and their plans if there are few batches.

        Plans with a common beginning stay together: what pieces share is computed in each of them.
        """
        cuts = math.ceil(PIECES_PER_WORKER * workers / max(1, len(self.due)))
        divided = []
        for piece in self.due:
            plans = [plan for plan in piece.graph.ends if isinstance(plan, Plan)]
            plans.sort(key=lambda plan: [repr(step) for step in plan.steps()])
            ends = [len(plans) * cut // cuts for cut in range(cuts + 1)]
            parts = (tuple(plans[start:end]) for start, end in pairwise(ends))
            divided += [(piece, SweepPiece(piece.batch, part)) for part in parts if part]
        return divided

    @property
    def due(self) -> list[_Piece]:
        return [piece for piece in self.pieces if piece.graph.ends]

    def rounds(self, stack: Stack) -> list[list[_Piece]]:
        due, streaming = self.due, self.streaming(stack)
        if streaming is None:
            return [[piece] for piece in due]
        return [[due[number] for number in each] for each in streaming.rounds]

    def streaming(self, stack: Stack) -> StreamingEstimate | None:
        if stack.resident is None:
            return None
        sizes = state_bytes(stack, [piece.batch for piece in self.due])
        graphs = [piece.graph for piece in self.due]
        return streaming_estimate(stack.resident, list(zip(sizes, graphs, strict=True)))

    @classmethod
    def of(cls, plans: Sequence[Plan], data: EvalData, finished: Finished) -> _Work:
        texts = {str(plan): plan for plan in plans}  # a plan is long to write, and there are many windows
        names, whole = frozenset(texts), build(plans)
        graphs: dict[frozenset[str], Graph] = {frozenset(): whole}
        pieces = []
        for batch in data.batches:
            done = tuple(finished(window.task, window.document, window.index) for window in batch.windows)
            everywhere = names.intersection(*done)
            if everywhere not in graphs:
                graphs[everywhere] = build(plan for text, plan in texts.items() if text not in everywhere)
            pieces.append(_Piece(batch, graphs[everywhere], done))
        spent = {id(graph): (graph.evaluations, graph.heads) for graph in graphs.values()}
        layer_tokens, head_tokens = (
            sum(spent[id(piece.graph)][of] * piece.batch.size for piece in pieces) for of in (0, 1)
        )
        return cls(
            data, tuple(pieces), CostEstimate(whole.evaluations, whole.naive, len(plans), layer_tokens, head_tokens)
        )


@dataclass
class _Sweep:
    stack: Stack
    work: _Work
    sink: Sink
    progress: Progress
    runner: PieceRunner | None
    meter: CostMeter = field(default_factory=CostMeter)
    broken: dict[str, str] = field(default_factory=dict)

    def run(self) -> None:
        self.progress(self.meter, self.work.estimate)
        if self.runner is None:
            self._here()
        else:
            self._elsewhere(self.runner)
        if self.broken:
            plan, document = next(iter(self.broken.items()))
            raise MeasureError(
                f"{len(self.broken)} of {self.work.estimate.plans} plans gave non-finite losses, first {plan!r} "
                f"on {document!r}; they have no rows there. Every other row is kept: leave those plans "
                "out, or use --dtype float32"
            )

    def _here(self) -> None:
        """Run batches in turn, or together if layers are read from disk; the first's identity plan comes first."""
        first: Plan | None = Plan.identity(self.stack.depth)
        with evaluating(self.stack.model), torch.inference_mode():
            for pieces in self.work.rounds(self.stack):
                work = [(piece.batch, piece.graph) for piece in pieces]
                for number, each in final_states(self.stack, work, first):
                    self._take(pieces[number], each)
                first = None

    def _elsewhere(self, runner: PieceRunner) -> None:
        pieces = self.work.divide(runner.count)
        for number, states in runner.map([each for _, each in pieces]):
            for each in states:
                self._take(pieces[number][0], each)

    def _take(self, piece: _Piece, each: FinalState) -> None:
        start = time.perf_counter()
        for plan in each.plans:
            self.sink(self._rows(plan, piece, each.losses))
        seconds = each.head_seconds + time.perf_counter() - start
        self.meter.add(piece.batch.size, each.evaluations, each.layer_seconds, seconds, heads=bool(each.plans))
        self.meter.most_live = max(self.meter.most_live, each.most_live)
        self.progress(self.meter, self.work.estimate)

    def _rows(self, plan: str, piece: _Piece, losses: Sequence[WindowLoss]) -> list[Loss]:
        rows = []
        for window, done, loss in zip(piece.batch.windows, piece.done, losses, strict=True):
            if not math.isfinite(loss.nll):
                self._note_broken(plan, window.document)
                return []
            if plan not in done:
                rows.append(Loss(plan, window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits))
        return rows

    def _note_broken(self, plan: str, document: str) -> None:
        if plan == str(Plan.identity(self.stack.depth)):
            raise MeasureError(
                f"the model itself ({plan}) gives non-finite logits on document {document!r}, before "
                "any plan changes it; "
                "check the checkpoint, or use --dtype float32"
            )
        self.broken.setdefault(plan, document)


def _nothing(task: str, document: str, window: int) -> frozenset[str]:
    return frozenset()
