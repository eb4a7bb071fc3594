"""Interventions: one layer does something else, all others do as trained, and the loss says what that costs.

An intervention replaces the function of one layer: it is skipped, given other weights, or a branch of it is held at its
mean. It is the model's plan with a changed node (`layerwise.stack.executors.graph`), so that all of them share the
clean states: at each layer every intervention starts from there and runs the layers behind it, and L layers and I
interventions at each cost `I * L * (L + 1) / 2 + L` layer evaluations at most and not `I * L^2`. Several layers that
are changed together (`JointIntervention`) are a plan with several changed nodes. What is done at a layer is prepared
once (weights are drawn, a mean is taken) and runs on every batch before the next is prepared; where the layers are on
the disk, it runs while they are in memory. The clean states of a long text wait on the disk for their turn.

Rows are `Loss` rows whose `plan` is a key such as `12=mean_ablate`; the untouched model is the identity plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass

from torch import Tensor

from layerwise.data.text.tokens import Window
from layerwise.errors import LayerwiseError, MeasureError
from layerwise.measure.interventions.batch_walk import Apply, CleanBatch, Prepare, state_bytes
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, SweepRun, SweepWork
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion
from layerwise.measure.stats.grid import Cell
from layerwise.measure.stats.strata import shuffled
from layerwise.measure.workers import Emit
from layerwise.plan import Plan, Sublayer
from layerwise.results.rows import Loss
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Edit, edited
from layerwise.stack.executors.graph import Apply as Node
from layerwise.stack.executors.graph import Changed
from layerwise.stack.weights import Weights, apply_with


@dataclass(frozen=True)
class InterventionContext:
    """What an intervention may look at when it prepares: the layer, and the clean states before it, batch by batch."""

    stack: Stack
    layer: int
    clean: Sequence[CleanBatch]

    def with_weights(self, weights: Weights) -> Apply:
        """The layer with other weights; those that are not named stay its own."""
        return lambda one: apply_with(self.stack, self.layer, weights, one.state, one.captured)

    def with_branch(self, part: Sublayer, edit: Callable[[CleanBatch], Edit]) -> Apply:
        """The layer with what one branch adds edited, batch by batch.

        Raises `UnsupportedModel` where the model cannot be split.
        """
        path = self.stack.branches(self.clean[0].captured).paths[self.layer][part]
        block = block_list(self.stack.model, self.stack.path)[self.layer]

        def apply(one: CleanBatch) -> Tensor:
            with edited(block, path, edit(one)):
                return self.stack.apply(self.layer, one.state, one.captured)

        return apply


@dataclass(frozen=True)
class Intervention:
    """What `layer` does instead. `prepare` is called once and returns what is then done with every batch."""

    layer: int
    name: str
    prepare: Callable[[InterventionContext], Apply]

    @property
    def key(self) -> str:
        """The `plan` of its rows.

        >>> Intervention(12, "skip", lambda scene: lambda one: one.state).key
        '12=skip'
        """
        return f"{self.layer}={self.name}"

    @property
    def parts(self) -> tuple[Intervention, ...]:
        """The one thing that is done."""
        return (self,)


@dataclass(frozen=True)
class JointIntervention:
    """Several layers that do something else at once; what they do must not depend on the clean states."""

    key: str
    parts: tuple[Intervention, ...]


@dataclass(frozen=True)
class ResultCache:
    """What is known already and where news goes: it makes a long measurement resumable and watched.

    `known` rows are not computed again. `sink` receives new rows as soon as they exist, `progress` the share that is
    done, `log` a sentence about an intervention that had to be left out.
    """

    known: tuple[Loss, ...] = ()
    sink: Callable[[Sequence[Loss]], None] = lambda rows: None
    progress: Callable[[float], None] = lambda share: None
    log: Callable[[str], None] = lambda text: None


def intervention_losses(
    stack: Stack,
    interventions: Sequence[Intervention | JointIntervention],
    data: EvalData,
    cache: ResultCache | None = None,
) -> list[Loss]:
    """The losses of the untouched model and of every intervention on every window of `data`, known ones included.

    An intervention that refuses a layer when it prepares, or whose loss is not finite somewhere, is left out whole, and
    `cache.log` is called why. Raises
    `MeasureError` where the untouched model's own states or losses are not finite, naming layer and document, and for
    two interventions of one key.
    """
    for key, count in Counter(each.key for each in interventions).items():
        if count > 1:
            raise MeasureError(f"{count} interventions are called {key!r}; give each a name of its own")
    parts = {part.key: part for each in interventions for part in each.parts}
    for part in parts.values():
        if not 0 <= part.layer < stack.depth:
            raise MeasureError(
                f"{part.key!r} is about layer {part.layer}, but the model has layers 0 to {stack.depth - 1}"
            )
    known = cache or ResultCache()
    reasons: set[str] = set()

    def prepare(node: Node, clean: Sequence[CleanBatch]) -> Apply | None:
        part = parts[str(node.variant.change)]
        try:
            return part.prepare(InterventionContext(stack, part.layer, clean))
        except LayerwiseError as refusal:
            if str(refusal) not in reasons:
                reasons.add(str(refusal))
                known.log(str(refusal))
            return None

    identity = Plan.identity(stack.depth)
    changed = [
        Changed(each.key, identity, {part.layer: part.key for part in each.parts})
        for each in sorted(interventions, key=lambda each: each.parts[0].layer)
    ]
    return cached_losses(stack, [identity, *changed], data, known, prepare=prepare)


def cached_losses(
    stack: Stack,
    plans: Sequence[Plan | Changed],
    data: EvalData,
    cache: ResultCache,
    *,
    prepare: Prepare | None = None,
) -> list[Loss]:
    """The losses of `plans`, the identity among them, on every window of `data`: those that `cache` knows, and those
    that it lacks.

    A plan whose loss is not finite somewhere is left out whole, and `cache.log` is called. Raises `MeasureError` where
    it is that of the model as trained. `prepare` says what is done at changed nodes.
    """
    rows: dict[str, dict[Cell, Loss]] = {str(plan): {} for plan in plans}
    cells = {(window.task, window.document, window.index): None for window in data.windows}
    for row in cache.known:
        cell = (row.task, row.document, row.window)
        if row.plan in rows and cell in cells:
            rows[row.plan][cell] = row
    broken: dict[str, str] = {}

    def sink(fresh: Sequence[Loss]) -> None:
        kept = [row for row in fresh if row.plan not in broken]
        for row in kept:
            rows[row.plan][row.task, row.document, row.window] = row
        if kept:
            cache.sink(kept)

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(plan for plan, known in rows.items() if (task, document, window) in known)

    due = [plan for plan in plans if len(rows[str(plan)]) < len(cells)]
    half = frozenset[Window]() if prepare is None else _first_half(data)
    groups = [due] if prepare is None else _groups(stack, due, data)
    for number, group in enumerate(groups if due else ()):

        def progress(meter: CostMeter, estimate: CostEstimate, before: int = number) -> None:
            cache.progress((before + meter.share(estimate)) / len(groups))

        work = SweepWork.of(group, data, finished, together=prepare is not None)
        SweepRun(stack, work, sink, progress, prepare=prepare, half=half, broken=broken).run()
    for key, document in broken.items():
        cache.log(f"{key} gives a loss that is not finite on {document!r} and is left out; --dtype float32 may help")
    whole = [known for known in rows.values() if len(known) == len(cells)]
    return [known[cell] for known in whole for cell in cells]


def _groups(stack: Stack, due: Sequence[Plan | Changed], data: EvalData) -> list[Sequence[Plan | Changed]]:
    """What walks together: all of it, or, where layers are read from the disk, as many as have states that take no
    more memory than the layers may, at least one.
    """
    resident = stack.resident
    if resident is None or not due:
        return [due]
    count = max(1, resident.most * max(resident.sizes) // max(1, sum(state_bytes(stack, data.batches))))
    first = int(isinstance(due[0], Plan))  # the untouched model changes no state
    starts = [0, *range(count + first, len(due), count)]
    return [due[start:end] for start, end in zip(starts, [*starts[1:], len(due)], strict=True)]


def _first_half(data: EvalData) -> frozenset[Window]:
    """The windows of one half of the text; of a single piece, which cannot be split, all of them."""
    order = shuffled(pieces(data), 0)
    return frozenset(portion(data, order[::2]).windows)


def runs_of_layers(interventions: Sequence[Intervention], depth: int, count: int) -> list[list[Intervention]]:
    """At most `count` parts of the interventions, in the order of their layers, of about equal cost; none is empty.

    >>> skips = [Intervention(layer, "skip", lambda context: lambda one: one.state) for layer in range(6)]
    >>> [[each.layer for each in part] for part in runs_of_layers(skips, 6, 2)]
    [[0, 1], [2, 3, 4, 5]]
    """
    ordered = sorted(interventions, key=lambda each: each.layer)
    total = sum(depth - each.layer for each in ordered)
    parts: list[list[Intervention]] = [[] for _ in range(count)]
    before = 0
    for each in ordered:
        cost = depth - each.layer
        parts[int((before + cost / 2) * count / total)].append(each)
        before += cost
    return [part for part in parts if part]


def lacking(interventions: Sequence[Intervention], data: EvalData, known: Collection[Loss]) -> list[Intervention]:
    """The interventions that do not have a loss on every window of `data` among the `known`."""
    cells = data.cells
    counted: dict[str, int] = {}
    for row in known:
        if (row.task, row.document, row.window) in cells:
            counted[row.plan] = counted.get(row.plan, 0) + 1
    return [each for each in interventions if counted.get(each.key, 0) < len(cells)]


def emit_losses(
    stack: Stack, interventions: Sequence[Intervention], data: EvalData, keys: Collection[str], emit: Emit
) -> None:
    """In a worker: carry out the interventions that have these keys, and say their rows as they are computed."""
    untouched = str(Plan.identity(stack.depth))

    def sink(rows: Sequence[Loss]) -> None:
        own = [astuple(row) for row in rows if row.plan != untouched]
        if own:
            emit(own)

    chosen = [each for each in interventions if each.key in keys]
    intervention_losses(stack, chosen, data, ResultCache(sink=sink))
