"""Interventions: one layer does something else, all others do as trained, and the loss says what that costs.

An intervention replaces the function of one layer: it is skipped, given other weights, or a branch of it is held at its
mean. The clean states are walked once, layer by layer; at each layer every intervention starts from the clean state and
runs the layers behind it, so L layers and I interventions at each cost `I * L * (L + 1) / 2 + L` layer evaluations at
most and not `I * L^2`. An intervention prepares itself once for a layer (draws its weights, takes its mean) and then
runs on every batch; only one layer's preparation is ever in memory.

Rows are `Loss` rows whose `plan` is a key such as `12=mean_ablate`; the untouched model is the identity plan.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from layerwise.data.batches import AnyBatch
from layerwise.data.text.tokens import Window
from layerwise.errors import LayerwiseError, MeasureError
from layerwise.measure.activations.padding import counted_tokens
from layerwise.measure.language.evaluation_data import EvalData, pieces, portion
from layerwise.measure.language.loss import WindowLoss, window_losses
from layerwise.measure.stats.strata import shuffled
from layerwise.plan import Plan, Sublayer
from layerwise.results.rows import Loss
from layerwise.stack import Capture, Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.branches import Edit, edited
from layerwise.stack.inputs import evaluating
from layerwise.stack.streaming.resident import ResidentLayers
from layerwise.stack.weights import Weights, apply_with


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


@dataclass(frozen=True)
class InterventionContext:
    """What an intervention may look at when it prepares: the layer, and the clean states before it, batch by batch."""

    stack: Stack
    layer: int
    clean: tuple[CleanBatch, ...]

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


@dataclass(slots=True)
class Tally:
    """What a measurement has spent: layer evaluations times tokens, and the same for heads."""

    layer_tokens: int = 0
    head_tokens: int = 0


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
    tally: Tally = field(default_factory=Tally)


def intervention_losses(
    stack: Stack, interventions: Sequence[Intervention], data: EvalData, cache: ResultCache | None = None
) -> list[Loss]:
    """The losses of the untouched model and of every intervention on every window of `data`, known ones included.

    An intervention that refuses a layer when it prepares, or whose loss is not finite somewhere, is left out whole, and
    `cache.log` is called why. Raises
    `MeasureError` where the untouched model's own states or losses are not finite, naming layer and document, and for
    two interventions of one key.
    """
    keys = Counter(each.key for each in interventions)
    for key, count in keys.items():
        if count > 1:
            raise MeasureError(f"{count} interventions are called {key!r}; give each a name of its own")
    with evaluating(stack.model), torch.inference_mode():
        return _Walk(stack, data, cache or ResultCache(), _by_layer(interventions, stack.depth)).rows()


def _by_layer(interventions: Sequence[Intervention], depth: int) -> dict[int, list[Intervention]]:
    at: dict[int, list[Intervention]] = defaultdict(list)
    for each in interventions:
        if not 0 <= each.layer < depth:
            raise MeasureError(f"{each.key!r} is about layer {each.layer}, but the model has layers 0 to {depth - 1}")
        at[each.layer].append(each)
    return at


class _Walk:
    """One walk along the clean states, with every intervention branching off at its layer."""

    def __init__(self, stack: Stack, data: EvalData, cache: ResultCache, at: dict[int, list[Intervention]]) -> None:
        self.stack = stack
        self.batches = data.batches
        self.cache = cache
        self.at = at
        self.known_reasons: set[str] = set()
        self.identity = str(Plan.identity(stack.depth))
        self.windows = data.cells
        self.first = _first_half(data)
        self.known: dict[str, dict[tuple[str, str, int], Loss]] = defaultdict(dict)
        for row in cache.known:
            cell = _cell(row.task, row.document, row.window)
            if cell in self.windows:
                self.known[row.plan][cell] = row
        self.left = sum(stack.depth - layer for layer, each in at.items() for one in each if self._lacks(one.key))
        self.total = max(1, self.left)

    def rows(self) -> list[Loss]:
        """The untouched model's rows, then those of every intervention in the order of the layers."""
        if self.stack.resident is None:
            return [row for rows in self._walked(self.at) for row in rows]
        return self._streamed_rows(self.stack.resident)

    def _walked(self, at: Mapping[int, Sequence[Intervention]]) -> list[list[Loss]]:
        """The rows of the untouched model, and of each of the interventions."""
        rows: list[list[Loss]] = []
        clean = [self._clean(batch) for batch in self.batches]
        for layer in range(self.stack.depth):
            context = InterventionContext(self.stack, layer, tuple(clean))
            rows += [self._intervene(each, context) for each in at.get(layer, ())]
            self._go_on(clean, layer)
        return [list(self._untouched(clean)), *rows]

    def _go_on(self, clean: list[CleanBatch], layer: int) -> None:
        """Take the clean batches through a layer."""
        for index, one in enumerate(clean):
            after = self._apply(layer, one.state, one.captured)
            self._check(after, one.counted, layer, self.batches[index])
            clean[index] = replace(one, state=after)

    # -- layers that are read from the disk ---------------------------------------------------------------------------

    def _streamed_rows(self, resident: ResidentLayers) -> list[Loss]:
        """The same rows, where the interventions of all layers go through a layer while it is in memory.

        As many go together as have states that take no more memory than the layers may, at least one.
        """
        everything = [each for layer in sorted(self.at) for each in self.at[layer]]
        rows = {each.key: list(self.known[each.key].values()) for each in everything if not self._lacks(each.key)}
        due = [each for each in everything if each.key not in rows]
        states = [self._clean(batch).state for batch in self.batches]
        size = sum(state.numel() * state.element_size() for state in states)
        count = max(1, resident.most * max(resident.sizes) // max(1, size))
        untouched: list[Loss] = []
        for start in range(0, max(1, len(due)), count):
            clean, walked = self._walked_together(_by_layer(due[start : start + count], self.stack.depth))
            rows |= walked
            untouched = untouched or list(self._untouched(clean))
        return [*untouched, *(row for each in everything for row in rows.get(each.key, ()))]

    def _walked_together(
        self, at: Mapping[int, Sequence[Intervention]]
    ) -> tuple[list[CleanBatch], dict[str, list[Loss]]]:
        """The clean batches behind the last layer, and the rows of the interventions: each layer is read once."""
        clean = [self._clean(batch) for batch in self.batches]
        ways: dict[Intervention, list[Tensor]] = {}
        for layer in range(self.stack.depth):
            for states in ways.values():
                states[:] = [self._apply(layer, state, one.captured) for state, one in zip(states, clean, strict=True)]
            context = InterventionContext(self.stack, layer, tuple(clean))
            for each in at.get(layer, ()):
                apply = self._prepared(each, context)
                if apply is not None:
                    ways[each] = [self._changed(apply, layer, one) for one in clean]
            self._go_on(clean, layer)
        rows: dict[str, list[Loss]] = {}
        for each, states in ways.items():
            judged = [self._judged(each, batch, state) for batch, state in zip(self.batches, states, strict=True)]
            rows[each.key] = [] if None in judged else [row for part in judged if part is not None for row in part]
            self._note_done(each)
        return clean, rows

    def _untouched(self, clean: Sequence[CleanBatch]) -> Iterator[Loss]:
        for batch, one in zip(self.batches, clean, strict=True):
            yield from self._rows(self.identity, batch, self._losses(one.state, batch))

    # -- one intervention ---------------------------------------------------------------------------------------------

    def _intervene(self, intervention: Intervention, context: InterventionContext) -> list[Loss]:
        """Every row of one intervention, or none at all."""
        if not self._lacks(intervention.key):
            return list(self.known[intervention.key].values())
        apply = self._prepared(intervention, context)
        if apply is None:
            return []
        rows: list[Loss] = []
        for batch, one in zip(self.batches, context.clean, strict=True):
            state = self._changed(apply, context.layer, one)
            for layer in range(context.layer + 1, self.stack.depth):
                state = self._apply(layer, state, one.captured)
            judged = self._judged(intervention, batch, state)
            if judged is None:
                return []
            rows += judged
        self._note_done(intervention)
        return rows

    def _prepared(self, intervention: Intervention, context: InterventionContext) -> Apply | None:
        """What is done with every batch, or `None` where the intervention refuses the layer."""
        try:
            return intervention.prepare(context)
        except LayerwiseError as refusal:
            self._leave_out(str(refusal))
            return None

    def _changed(self, apply: Apply, layer: int, one: CleanBatch) -> Tensor:
        """The state of one batch after a layer that does something else."""
        state = apply(one)
        return state if state is one.state else self.stack.note(layer, one.state, state)

    def _judged(self, intervention: Intervention, batch: AnyBatch, state: Tensor) -> list[Loss] | None:
        """The rows of an intervention on one batch, or `None` where a loss is not finite."""
        losses = self._losses(state, batch)
        broken = [w.document for w, loss in zip(batch.windows, losses, strict=True) if not math.isfinite(loss.nll)]
        if broken:
            self._leave_out(
                f"{intervention.key} gives a loss that is not finite on {broken[0]!r} and is left out; "
                "--dtype float32 may help"
            )
            return None
        return self._rows(intervention.key, batch, losses)

    def _note_done(self, intervention: Intervention) -> None:
        self.left -= self.stack.depth - intervention.layer
        self.cache.progress(1 - self.left / self.total)

    def _leave_out(self, reason: str) -> None:
        """Say once why something is left out."""
        if reason not in self.known_reasons:
            self.known_reasons.add(reason)
            self.cache.log(reason)

    def _rows(self, key: str, batch: AnyBatch, losses: Sequence[WindowLoss]) -> list[Loss]:
        """One row a window; those that are new go to the sink."""
        rows, fresh = [], []
        for window, loss in zip(batch.windows, losses, strict=True):
            if not math.isfinite(loss.nll):
                raise MeasureError(
                    f"the model itself gives a loss that is not finite on document {window.document!r}, before "
                    "anything is done to it; check the checkpoint, or use --dtype float32"
                )
            known = self.known[key].get(_cell(window.task, window.document, window.index))
            row = known or Loss(key, window.task, window.document, window.index, loss.nll, loss.tokens, loss.hits)
            rows.append(row)
            if known is None:
                fresh.append(row)
        if fresh:
            self.cache.sink(fresh)
        return rows

    def _clean(self, batch: AnyBatch) -> CleanBatch:
        captured = self._capture(batch)
        half = torch.tensor([window in self.first for window in batch.windows], device=captured.state.device)
        return CleanBatch(captured.state, captured, counted_tokens(captured.inputs, captured.state), half)

    def _capture(self, batch: AnyBatch) -> Capture:
        return self.stack.capture(**{name: value.to(self.stack.device) for name, value in batch.inputs.items()})

    def _apply(self, layer: int, state: Tensor, captured: Capture) -> Tensor:
        self.cache.tally.layer_tokens += state.shape[:2].numel()
        return self.stack.apply(layer, state, captured)

    def _losses(self, state: Tensor, batch: AnyBatch) -> tuple[WindowLoss, ...]:
        self.cache.tally.head_tokens += batch.size
        return window_losses(self.stack, state, batch)

    def _lacks(self, key: str) -> bool:
        return self.known[key].keys() < self.windows

    def _check(self, state: Tensor, counted: Tensor, layer: int, batch: AnyBatch) -> None:
        finite = state.flatten(2).isfinite().all(dim=2) | ~counted
        if not finite.all():
            document = batch.windows[int((~finite).any(dim=1).nonzero()[0])].document
            raise MeasureError(
                f"the model's own state after layer {layer} is not finite on document {document!r}; "
                "check the checkpoint, or use --dtype float32"
            )


def _first_half(data: EvalData) -> frozenset[Window]:
    """The windows of one half of the text; of a single piece, which cannot be split, all of them."""
    order = shuffled(pieces(data), 0)
    return frozenset(portion(data, order[::2]).windows)


def _cell(task: str, document: str, window: int) -> tuple[str, str, int]:
    return (task, document, window)
