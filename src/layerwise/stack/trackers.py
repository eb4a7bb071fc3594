"""Keep the additional inputs of layers: the states of all earlier layers, or the keys and values of one earlier layer.

These inputs are stored for each hidden state, and freed with its tensor. In Gemma 3n and Gemma 4, layers read the keys
and values of an earlier layer (Brandon et al., 2024, arXiv 2405.12981), so that a plan must run that layer first.
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

# Keyword under which a block takes its history.
KEYWORD = "record"


def reads_history(kwargs: Mapping[str, Any]) -> bool:
    return isinstance(kwargs.get(KEYWORD), DepthHistory)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """Origin of a state: `layer` computed it from the states `before`. The embedding has no `before`."""

    before: DepthHistory | None
    layer: int

    def to(self, state: Tensor) -> DepthHistory:
        return DepthHistory.of(state) if self.before is None else self.before.then(self.layer, state)


class HistoryTracker:
    """Remembers how each hidden state of a model was computed."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ways: Any = WeakTensorKeyDictionary()

    def begin(self, embedding: Tensor) -> None:
        self._ways[embedding] = HistoryStep(None, layer=-1)

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Record that `layer` computed `after` from `before`, and return `after`, or a view if both are the same."""
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
        """Return how `state` was computed. Raise `UnsupportedModelError` if no layer of this model returned it."""
        way: HistoryStep | None = self._ways.get(state)
        if way is None:
            raise UnsupportedModelError(
                f"the layers of {self._model} read the states of all earlier layers, but the history of this hidden "
                "state is unknown: it was not returned by stack.capture or stack.apply. Record which layer "
                "computed it: stack.note(layer, state_before_layer, state)"
            )
        return way

    def of(self, state: Tensor) -> DepthHistory:
        return self.way(state).to(state)

    def keywords(self, layer: int, state: Tensor, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {KEYWORD: self.of(state)}

    def refuse(self, plan: Plan) -> None:
        if any(step.opens for step in plan.steps()):
            raise UnsupportedModelError(
                f"{plan} cannot be run: the layers of {self._model} weight the states of earlier layers, and a merged "
                "state has no weight. Write the layers in sequence"
            )


_WRITTEN: Any = WeakTensorKeyDictionary()


@dataclass(frozen=True, slots=True)
class KeyValueSharing:
    """The layers that read keys and values of other layers, through the block argument `keyword`.

    `writers` maps each shared entry to the layer that writes it. `reads` maps each other layer to the entries it reads.
    """

    keyword: str
    writers: Mapping[Hashable, int]
    reads: Mapping[int, tuple[Hashable, ...]]

    def refuse(self, plan: Plan, model: str) -> None:
        written: set[int] = set()
        depth = 0
        for step in plan.steps():
            depth += step.opens
            for name in self.reads.get(step.layer, ()):
                if self.writers[name] not in written:
                    raise UnsupportedModelError(
                        f"{plan} cannot be run: {self._constraint(self.writers[name], model)}. It runs layer "
                        f"{step.layer} before layer {self.writers[name]}; write {self.writers[name]} before it, or "
                        f"omit {step.layer}"
                    )
            if step.layer in self.writers.values():
                if depth:
                    raise UnsupportedModelError(
                        f"{plan} cannot be run: {self._constraint(step.layer, model)}. In a parallel group its keys "
                        f"and values would be those of one branch; write {step.layer} before or after the group"
                    )
                written.add(step.layer)
            depth -= sum(close is not None for close in step.closes)

    def allowed_order(self, depth: int) -> tuple[int, ...]:
        """Return an allowed order of all layers that moves most of them: descending, with the reading layers last."""
        return tuple(sorted(range(depth), key=lambda layer: (layer in self.reads, -layer)))

    def _constraint(self, writer: int, model: str) -> str:
        readers = [layer for layer, names in self.reads.items() if any(self.writers[name] == writer for name in names)]
        listed = ", ".join(map(str, readers))
        after = f"layer {listed}, which reads" if len(readers) == 1 else f"layers {listed}, which read"
        return f"in {model} layer {writer} must run before {after} its keys and values"


class KeyValueTracker:
    """Remembers, for each hidden state, the keys and values that earlier layers wrote for later layers to read."""

    def __init__(self, sharing: KeyValueSharing, model: str) -> None:
        self.sharing = sharing
        self._model = model
        self._handed: Any = WeakTensorKeyDictionary()

    def begin(self, embedding: Tensor) -> None:
        """Do nothing: there are no keys and values before the first layer."""

    def keywords(self, layer: int, state: Tensor, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        written = _WRITTEN.get(state, {})
        for name in self.sharing.reads.get(layer, ()):
            if name not in written:
                raise UnsupportedModelError(
                    f"layer {layer} of {self._model} reads the keys and values of layer {self.sharing.writers[name]}, "
                    "which are unknown for this hidden state; run both layers from one stack.capture, with stack.run "
                    "or stack.apply"
                )
        handed = type(kwargs[self.sharing.keyword])(written)
        self._handed[state] = layer, handed
        return {self.sharing.keyword: handed}

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        called, handed = self._handed.get(before, (None, None))
        written = dict(handed) if called == layer else _WRITTEN.get(before)
        if written:
            after = after.view_as(after) if after is before else after
            _WRITTEN[after] = written
        return after

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        return change(state)

    def refuse(self, plan: Plan) -> None:
        self.sharing.refuse(plan, self._model)


def carry(before: Tensor, after: Tensor) -> Tensor:
    """Copy the shared keys and values of `before` to `after`, and return `after`."""
    if not torch.compiler.is_compiling() and (written := _WRITTEN.get(before)):
        _WRITTEN[after] = written
    return after
