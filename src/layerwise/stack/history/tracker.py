"""The `DepthHistory` behind each state, by the identity of its tensor and for its lifetime, for models that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.history.depth_history import DepthHistory

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
        """How `state` came about; raises `UnsupportedModel` for one that no layer of this model returned."""
        way: HistoryStep | None = self._ways.get(state)
        if way is None:
            raise UnsupportedModel(
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
            raise UnsupportedModel(
                f"the layers of {self._model} read what earlier layers left behind, each under a weight for that "
                f"layer; the merge of parallel branches is the output of none, so there is no weight for it: {plan} "
                "cannot be run. Write its layers one after another"
            )
