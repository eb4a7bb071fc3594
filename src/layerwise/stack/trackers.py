"""Track what layers read besides their input: the states of all earlier layers, or keys and values of one of them.

Both are found by the identity of a state's tensor and live as long as it does. Gemma 3n and Gemma 4 share keys and
values across layers (Brandon et al., 2024, arXiv 2405.12981): a plan must run the writer before its readers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from layerwise.errors import UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack.history import DepthHistory

# The keyword under which a block takes its record.
KEYWORD = "record"


def reads_history(kwargs: Mapping[str, Any]) -> bool:
    return isinstance(kwargs.get(KEYWORD), DepthHistory)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """How a state came about: `layer` returned it, given `before`; the embedding came from no layer."""

    before: DepthHistory | None
    layer: int

    def to(self, state: Tensor) -> DepthHistory:
        return DepthHistory.of(state) if self.before is None else self.before.then(self.layer, state)


class HistoryTracker:
    """The ways to all states of one model that are still held by someone."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ways: Any = WeakTensorKeyDictionary()

    def begin(self, embedding: Tensor) -> None:
        self._ways[embedding] = HistoryStep(None, layer=-1)

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Note that `layer` made `after` out of `before`; returns `after`, as another tensor if it is the same one."""
        if after is before:
            after = after.view_as(after)
        self._ways[after] = HistoryStep(self.of(before), layer)
        return after

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        way = self.way(state)
        after = change(state)
        if after is not state:
            before = way.before and DepthHistory(way.before.sources, tuple(map(change, way.before.states)))
            self._ways[after] = HistoryStep(before, way.layer)
        return after

    def way(self, state: Tensor) -> HistoryStep:
        """How `state` came about; raises `UnsupportedModelError` for one that no layer of this model returned."""
        way: HistoryStep | None = self._ways.get(state)
        if way is None:
            raise UnsupportedModelError(
                f"the layers of {self._model} read what all earlier ones left behind, and nothing is known of what led "
                "to this hidden state: it was not returned by stack.capture or stack.apply. Where it takes the place "
                "of what a layer returned, say so: stack.note(layer, state_before_it, state)"
            )
        return way

    def of(self, state: Tensor) -> DepthHistory:
        return self.way(state).to(state)

    def keywords(self, layer: int, state: Tensor, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {KEYWORD: self.of(state)}

    def refuse(self, plan: Plan) -> None:
        if any(step.opens for step in plan.steps()):
            raise UnsupportedModelError(
                f"the layers of {self._model} read what earlier layers left behind, each under a weight for that "
                f"layer; the merge of parallel branches is the output of none, so there is no weight for it: {plan} "
                "cannot be run. Write its layers one after another"
            )


Written = Mapping[Hashable, Any]
"""Keys and values of layers, by the name under which they were written."""

_WRITTEN: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True, slots=True)
class KeyValueSharing:
    """Which layers read keys and values of others, which the blocks get as the argument `keyword`.

    `writers` is the layer that writes each entry, `reads` the entries that a layer reads and does not write.
    """

    keyword: str
    writers: Mapping[Hashable, int]
    reads: Mapping[int, tuple[Hashable, ...]]

    def refuse(self, plan: Plan, model: str) -> None:
        """Raise `UnsupportedModelError` for a plan in which a layer runs before the one whose keys and values it reads,
        or in which one that writes them is a branch of a parallel group."""
        written: set[int] = set()
        depth = 0
        for step in plan.steps():
            depth += step.opens
            for name in self.reads.get(step.layer, ()):
                if self.writers[name] not in written:
                    raise UnsupportedModelError(
                        f"{plan} cannot be run: {self._constraint(self.writers[name], model)}. It runs layer "
                        f"{step.layer} before layer {self.writers[name]}: write {self.writers[name]} in front of it, "
                        f"or leave {step.layer} out"
                    )
            if step.layer in self.writers.values():
                if depth:
                    raise UnsupportedModelError(
                        f"{plan} cannot be run: {self._constraint(step.layer, model)}. In a parallel group its keys "
                        f"and values would be those of one branch: write {step.layer} before or behind the group"
                    )
                written.add(step.layer)
            depth -= sum(close is not None for close in step.closes)

    def allowed_order(self, depth: int) -> tuple[int, ...]:
        """An order of all layers that the constraint allows and that moves as many as it can: descending, the layers
        that read behind all others."""
        return tuple(sorted(range(depth), key=lambda layer: (layer in self.reads, -layer)))

    def _constraint(self, writer: int, model: str) -> str:
        readers = [layer for layer, names in self.reads.items() if any(self.writers[name] == writer for name in names)]
        listed = ", ".join(map(str, readers))
        after = f"layer {listed}, which reads" if len(readers) == 1 else f"layers {listed}, which read"
        return f"in {model} layer {writer} must run before {after} its keys and values"


class KeyValueTracker:
    """The keys and values on the ways to all states of one model that are still held by someone."""

    def __init__(self, sharing: KeyValueSharing, model: str) -> None:
        self.sharing = sharing
        self._model = model
        self._handed: Any = WeakTensorKeyDictionary()

    def begin(self, embedding: Tensor) -> None:
        """Nothing is written before the first layer."""

    def keywords(self, layer: int, state: Tensor, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a layer's keys and values for `state`. Raises `UnsupportedModelError` if nothing wrote them."""
        written = _WRITTEN.get(state, {})
        for name in self.sharing.reads.get(layer, ()):
            if name not in written:
                raise UnsupportedModelError(
                    f"layer {layer} of {self._model} reads the keys and values of layer {self.sharing.writers[name]}, "
                    "and nothing is known of any on the way to this hidden state: run both from one stack.capture, by "
                    "stack.run or stack.apply"
                )
        handed = type(kwargs[self.sharing.keyword])(written)
        self._handed[state] = layer, handed
        return {self.sharing.keyword: handed}

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Note that `layer` made `after` out of `before`, and wrote what it wrote; returns `after`."""
        called, handed = self._handed.get(before, (None, None))
        written = dict(handed) if called == layer else _WRITTEN.get(before)
        if written:
            after = after.view_as(after) if after is before else after
            _WRITTEN[after] = written
        return after

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """`change(state)`, from which the model can finish; keys and values are those of `state` alone."""
        return change(state)

    def refuse(self, plan: Plan) -> None:
        self.sharing.refuse(plan, self._model)


def carry(before: Tensor, after: Tensor) -> Tensor:
    """Say that the keys and values on the way to `after` are those on the way to `before`; returns `after`."""
    if not torch.compiler.is_compiling() and (written := _WRITTEN.get(before)):
        _WRITTEN[after] = written
    return after
