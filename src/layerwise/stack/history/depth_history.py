"""What has been left behind on the way through a stack: the embedding, and what every layer visited so far returned.

A model with learned layer weights feeds each layer a weighted sum of such states, where an ordinary one feeds it the
state before it alone. Source 0 is the embedding, source n + 1 the output of layer n; layer n (reader n) has a weight
for each of the sources 0..n, and a reader behind the last layer has one for all of them. What a layer reads therefore
depends on which layers have run, not on where in the order it stands: a layer that was skipped leaves no source, one
that comes too late is not read, and of one that ran twice its latest output is.

Executors hand states about as plain tensors: a sweep keeps hundreds, forks some and lets others go. The record behind a
state is found by the identity of its tensor (`HistoryTracker`). Nothing is kept longer than the state itself: an entry
goes with its tensor, and holds what came before it, never the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.history.weighted_sum import shared, weighted_sum

Missing = Literal["renormalise", "keep", "inherit"]
MISSING: tuple[Missing, ...] = get_args(Missing)


@dataclass(frozen=True, slots=True, eq=False)
class DepthHistory:
    """The states of `sources`, which ascend; `then` gives the record with one more and leaves this one as it is.

    In training the states are not the tensors that came in but stand for them
    (`layerwise.stack.history.weighted_sum.shared`).

    >>> record = DepthHistory.of(torch.zeros(2)).then(0, torch.ones(2)).then(1, torch.full((2,), 4.0))
    >>> record.sources
    (0, 1, 2)
    >>> record.read(torch.tensor([0.5, 0.25, 0.25]))
    tensor([1.2500, 1.2500])
    >>> DepthHistory.of(torch.zeros(2)).then(1, torch.full((2,), 4.0)).read(torch.tensor([0.5, 0.25, 0.25]))
    tensor([1.3333, 1.3333])
    """

    sources: tuple[int, ...]
    states: tuple[Tensor, ...]

    @classmethod
    def of(cls, embedding: Tensor) -> DepthHistory:
        """The record before the first layer."""
        return cls((0,), (shared(embedding),))

    def then(self, layer: int, state: Tensor) -> DepthHistory:
        """The record after a visit of `layer` that returned `state`; of several visits the latest is kept."""
        source = layer + 1
        before = sum(known < source for known in self.sources)
        after = before + (source in self.sources)
        return DepthHistory(
            (*self.sources[:before], source, *self.sources[after:]),
            (*self.states[:before], shared(state), *self.states[after:]),
        )

    def read(self, weights: Tensor, missing: Missing = "renormalise") -> Tensor:
        """What reader n reads, for its n + 1 `weights`: the weighted sum over the sources 0..n that are present.

        Where some are missing, "renormalise" scales the weights of those present so that they sum to what all of them
        summed to (weights of a softmax: to one), "keep" leaves them as they are, and "inherit" gives the weight of each
        missing source to the newest present one before it, which is what a residual stream carries past a layer that is
        skipped. Weights of any sign may sum to nothing, so they are not renormalised but inherited.
        """
        count = sum(source < len(weights) for source in self.sources)
        states = self.states[:count]
        if count == len(weights):
            return weighted_sum(weights, states)
        if missing == "inherit":
            return weighted_sum(self._inherited(weights, count), states)
        present = torch.stack([weights[source] for source in self.sources[:count]])
        if missing == "renormalise":
            present = present * (weights.sum() / present.sum())
        return weighted_sum(present, states)

    def _inherited(self, weights: Tensor, count: int) -> Tensor:
        """The weights of the first `count` sources here, each with those of the missing ones behind it."""
        ends = (*self.sources[1:count], len(weights))
        return torch.stack([weights[first:end].sum() for first, end in zip(self.sources[:count], ends, strict=True)])


# The keyword under which a block takes its record.
KEYWORD = "record"


def reads_history(kwargs: Mapping[str, Any]) -> bool:
    """Whether a block that is called with these keywords reads states from before the last one."""
    return isinstance(kwargs.get(KEYWORD), DepthHistory)


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """How a state came about: `layer` returned it, given `before`; the embedding came from no layer."""

    before: DepthHistory | None
    layer: int

    def to(self, state: Tensor) -> DepthHistory:
        """The record that ends with `state`."""
        return DepthHistory.of(state) if self.before is None else self.before.then(self.layer, state)


class HistoryTracker:
    """The ways to all states of one model that are still held by someone."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._ways: Any = WeakTensorKeyDictionary()

    def begin(self, embedding: Tensor) -> None:
        """Note the state before the first layer."""
        self._ways[embedding] = HistoryStep(None, layer=-1)

    def note(self, layer: int, before: Tensor, after: Tensor) -> Tensor:
        """Note that `layer` made `after` out of `before`; returns `after`, as another tensor if it is the same one."""
        if after is before:
            after = after.view_as(after)
        self._ways[after] = HistoryStep(self.of(before), layer)
        return after

    def changed(self, state: Tensor, change: Callable[[Tensor], Tensor]) -> Tensor:
        """`change(state)`, with everything in its record changed alike: some of the rows, say."""
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
        """The record that led to `state`, and ends with it."""
        return self.way(state).to(state)

    def refuse_groups(self, plan: Plan) -> None:
        """Raise `UnsupportedModel` for a plan with parallel branches: their merge would be no layer's output."""
        if any(step.opens for step in plan.steps()):
            raise UnsupportedModel(
                f"the layers of {self._model} read what earlier layers left behind, each under a weight for that "
                f"layer; the merge of parallel branches is the output of none, so there is no weight for it: {plan} "
                "cannot be run. Write its layers one after another"
            )
